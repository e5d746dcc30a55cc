"""Active residents as arrays: sums and counts are those of the slots' own lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kongming.engine.residents import ResidentTable

changes = st.lists(
    st.tuples(st.integers(0, 150), st.lists(st.integers(0, 3), max_size=4)), max_size=40
)


@given(changes)
def test_counts_and_sums(steps: list[tuple[int, list[int]]]) -> None:
    table = ResidentTable(2)
    there: dict[int, list[int]] = {}
    for slot, models in steps:
        met = np.zeros((len(models), 2))
        table.replace(slot, met, met, np.zeros(len(models)), models)
        there[slot] = models
    values = np.array([0.5, 1.0, 2.0, 4.0])
    counts, sums = table.counts(200), table.sums(200, values)
    assert counts.shape == sums.shape == (200,)
    for slot in range(200):
        models = there.get(slot, [])
        assert counts[slot] == len(models)
        assert sums[slot] == sum(values[model] for model in models)
