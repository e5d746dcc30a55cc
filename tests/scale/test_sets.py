"""The best k nodes: the slowest counts, and the harm of all."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.scale.decide.node_sets import Weights, best_set, set_score

NONE = np.zeros(0)


@pytest.mark.thorough
@given(
    st.lists(
        st.tuples(
            st.floats(-0.2, 2.0), st.sampled_from([0.0, 0.0, 0.1, 0.3]) | st.floats(0.0, 1.0)
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(max_examples=300, deadline=None)
def test_no_other_set_is_better(
    places: list[tuple[float, float]], size: int, newcomer: float, resident: float
) -> None:
    slowed, harm = (np.array(values) for values in zip(*places, strict=True))
    weights = Weights(newcomer, resident)
    best = best_set(slowed, harm, size, weights, np.zeros(len(slowed)))
    if len(places) < size:
        assert best is None
        return
    assert best is not None
    chosen, _ = best
    assert len(set(chosen.tolist())) == size
    assert (np.diff(slowed[chosen]) >= 0.0).all()
    scores = [
        set_score(slowed[list(some)], harm[list(some)], weights)
        for some in itertools.combinations(range(len(places)), size)
    ]
    assert set_score(slowed[chosen], harm[chosen], weights) == pytest.approx(min(scores), abs=1e-12)


def test_without_harm_the_least_slowed_are_taken() -> None:
    slowed = np.array([0.5, 0.1, 0.9, 0.3, 0.7])
    best = best_set(slowed, np.zeros(5), 3, Weights(), np.zeros(5))
    assert best is not None
    assert best[0].tolist() == [1, 3, 0]
    assert not best[1].any()


def test_near_ties_are_spread_and_clear_winners_are_kept() -> None:
    # One is clearly better, four are alike, one is clearly worse.
    slowed = np.array([0.0, 0.50, 0.51, 0.52, 0.53, 2.0])
    weights = Weights(tolerance=0.1)
    random = np.random.default_rng(0)
    taken: Counter[int] = Counter()
    for _ in range(200):
        best = best_set(slowed, np.zeros(6), 3, weights, random.random(6))
        assert best is not None
        chosen, tied = best
        assert chosen[0] == 0
        assert tied.tolist() == [False, True, True]
        taken.update(chosen.tolist())
    assert taken[5] == 0
    assert all(60 <= taken[i] <= 140 for i in (1, 2, 3, 4))
    (everyone, tied) = best_set(slowed, np.zeros(6), 6, weights, np.zeros(6)) or (NONE, NONE)
    assert len(everyone) == 6
    assert not tied.any()


def test_harm_is_avoided_where_slowdown_allows() -> None:
    slowed = np.array([0.1, 0.2, 0.3])
    harm = np.array([1.0, 0.0, 0.0])
    best = best_set(slowed, harm, 2, Weights(), np.zeros(3))
    assert best is not None
    assert best[0].tolist() == [1, 2]
    selfish = best_set(slowed, harm, 2, Weights(resident=0.0), np.zeros(3))
    assert selfish is not None
    assert selfish[0].tolist() == [0, 1]
