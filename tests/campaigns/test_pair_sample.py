"""Which pairs are measured where all would take too long."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.campaigns.pair_sample import balanced_pairs, pairs_of
from kongming.records.errors import InputError


@given(st.integers(2, 24), st.data())
def test_each_is_slowed_and_presses_equally_often(n: int, data: st.DataObject) -> None:
    apps = [f"a{k:02d}" for k in range(n)]
    count = data.draw(st.integers(n, n * (n - 1)))
    seed = data.draw(st.integers(0, 1000))
    pairs = balanced_pairs(apps, count, seed)
    assert len(set(pairs)) == len(pairs) == count
    assert all(app != other for app, other in pairs)
    for side in (0, 1):
        often = Counter(pair[side] for pair in pairs)
        assert set(often) == set(apps)
        assert max(often.values()) - min(often.values()) <= 1
    assert balanced_pairs(apps[::-1], count, seed) == pairs


def test_all_pairs_where_none_are_left_out() -> None:
    assert balanced_pairs(["b", "a"], None, 7) == [("a", "b"), ("b", "a")]


def test_every_pair_is_as_likely() -> None:
    apps = [f"a{k}" for k in range(5)]
    seen = Counter(pair for seed in range(2000) for pair in balanced_pairs(apps, 10, seed))
    # Of 20 pairs 10: each in half of the draws, within four standard errors.
    assert all(abs(count - 1000) < 4 * 500**0.5 for count in seen.values())
    assert len(seen) == 20


@pytest.mark.parametrize("count", [2, 13])
def test_a_number_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(InputError, match="4 \\(one for each application\\) to 12"):
        balanced_pairs(list("abcd"), count, 1)


def test_a_dropped_program_takes_its_pairs_out_of_the_sample() -> None:
    drawn = balanced_pairs(list("abcdef"), 12, 3)
    document = {
        "apps": dict.fromkeys("abcde", ""),
        "sample": 12,
        "seed": 3,
        "drawn_from": [*"abcdef"],
    }
    assert pairs_of(document) == [pair for pair in drawn if "f" not in pair]
    assert pairs_of({"apps": dict.fromkeys("abcdef", ""), "sample": 12, "seed": 3}) == drawn
