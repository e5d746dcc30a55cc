"""Uniform draws: what every policy has to beat (paper 004, section 4.2)."""

from __future__ import annotations

from kongming.arrays import Floats
from kongming.explore.situation import Situation


def choose(situation: Situation, count: int) -> Floats:
    """Draw at most ``count`` codes, uniformly from the points that were not run yet."""
    left = situation.candidates(max(count, 1024))
    chosen = situation.rng.permutation(len(left))[:count]
    return left[chosen]
