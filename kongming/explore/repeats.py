"""Points that are run again, for the sake of the noise alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from kongming.arrays import Floats
from kongming.explore.outcomes import Codes, key_of
from kongming.explore.runs import Measured


def least_run(
    seen: Measured, known: Sequence[Codes], count: int, rng: np.random.Generator
) -> Floats:
    """Return those of the points (n, d) that were measured which were run least; none where repeats
    were all alike. ``known``: the points of all runs, with those that failed or are under way."""
    if seen.noise == 0.0:
        return seen.codes[:0]
    points = seen.repeatable
    runs = Counter(map(key_of, known))
    counts = [runs[key_of(tuple(row))] for row in points.tolist()]
    order = np.argsort(counts + rng.uniform(size=len(counts)))
    return np.asarray(points[order[:count]])


def half(count: int, rng: np.random.Generator) -> int:
    """Return half of a batch; of an odd one either half."""
    return (count + int(rng.integers(2))) // 2
