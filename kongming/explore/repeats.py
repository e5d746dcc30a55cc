"""Points that are run again, for the sake of the noise alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kongming.arrays import Floats
from kongming.explore.outcomes import key_of
from kongming.explore.situation import Situation


def least_run(situation: Situation, awaited: Sequence[tuple[float, ...]], count: int) -> Floats:
    """Return the points (k, d) that were run least, with the ``awaited`` runs; none where repeats
    were all alike."""
    if situation.noise == 0.0:
        return situation.runs[:0]
    waiting = [key_of(codes) for codes in awaited]
    known = [key_of(tuple(row)) for row in situation.runs.tolist()]
    counts = situation.counts + np.array([waiting.count(key) for key in known], dtype=int)
    order = np.argsort(counts + situation.rng.uniform(size=len(counts)))
    return situation.runs[order[:count]]


def half(count: int, rng: np.random.Generator) -> int:
    """Return half of a batch; of an odd one either half."""
    return (count + int(rng.integers(2))) // 2
