"""Shares of time in which residents keep a CPU awake, in pairs, against the rule for several."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kongming.engine import awake_shares
from kongming.learning.awake import together

residents = st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), min_size=1, max_size=6)


@given(residents)
def test_pairs_are_of_the_domain_and_of_all(shares: list[tuple[float, bool]]) -> None:
    here = np.array([float(is_here) for _, is_here in shares])
    pairs = awake_shares.pairs(np.array([share for share, _ in shares]), here)

    def expected(those: list[tuple[float, bool]], placement: str) -> float:
        across = placement == awake_shares.ACROSS
        return together([share for share, is_here in those if is_here or across])

    for placement in ("same-core", "cross-core", "cross-socket"):
        which = awake_shares.counted(placement)
        all_of_them = together(pairs)[which]
        np.testing.assert_allclose(all_of_them, expected(shares, placement), atol=1e-12)
        for i, its in enumerate(awake_shares.of_others(pairs)[:, which]):
            others = [*shares[:i], *shares[i + 1 :]]
            np.testing.assert_allclose(its, expected(others, placement), atol=1e-12)
