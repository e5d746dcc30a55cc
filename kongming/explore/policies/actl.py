"""Uncertainty sampling: the points that a committee disagrees on most (paper 004, section 4.2)."""

from __future__ import annotations

import numpy as np

from kongming.arrays import Floats
from kongming.explore.learners.forests import Forest
from kongming.explore.policies import uni
from kongming.explore.situation import Situation

_LIMIT = 1 << 13


def choose(situation: Situation, count: int) -> Floats:
    """Choose at most ``count`` codes, the most uncertain first; uniform while nothing is known."""
    if len(situation.values) < 2:
        return uni.choose(situation, count)
    left = situation.candidates(_LIMIT)
    if not len(left):
        return left
    forest = Forest(seed=situation.seed, bootstrap=True)
    forest.fit(situation.features(situation.runs), situation.values)
    disagreement = forest.members(situation.features(left)).std(axis=0)
    # Equally uncertain points are taken in random order.
    order = np.lexsort((situation.rng.uniform(size=len(left)), -disagreement))
    return left[order[:count]]
