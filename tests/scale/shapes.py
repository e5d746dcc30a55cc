"""Tables of known models: Ernest's Table 1, and shapes that its terms do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.model import ScaleModel
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Points, Runs

MACHINES = (1, 2, 4, 8, 12, 16)
SCALES = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1)

PUBLISHED = {
    # intercept, scale/machines, machines, log(machines)
    "spearman": (0.00, 4887.10, 0.00, 4.14),
    "classification": (0.80, 211.18, 0.01, 0.90),
    "pca": (6.86, 208.44, 0.02, 0.00),
    "naive.bayes": (0.00, 307.48, 0.00, 1.00),
    "summary stats": (0.42, 39.02, 0.00, 0.07),
    "regression": (0.64, 630.93, 0.09, 1.50),
    "als": (28.62, 3361.89, 0.00, 0.00),
    "kmeans": (0.00, 149.58, 0.05, 0.54),
}
KEYS = ("intercept", "scale/machines", "machines", "log(machines)")

Shape = Callable[[Floats, Floats], Floats]


def published(name: str) -> Shape:
    """machines, scale -> seconds."""
    fixed, work, linear, tree = PUBLISHED[name]
    return lambda machines, scale: (
        fixed + work * scale / machines + linear * machines + tree * np.log(machines)
    )


def grid(
    machines: tuple[float, ...] = MACHINES, scales: tuple[float, ...] = SCALES, repeats: int = 1
) -> Points:
    """All pairs, each ``repeats`` times."""
    count, scale = (values.ravel() for values in np.meshgrid(machines, scales))
    return Points(
        np.repeat(count, repeats).astype(float),
        np.repeat(scale, repeats),
        np.ones(len(count) * repeats),
    )


def measured(shape: Shape, points: Points, noise: float = 0.0, seed: int = 0) -> Runs:
    """Runs with noise that grows with the time."""
    random = np.random.default_rng(seed)
    seconds = shape(points.machines, points.scale)
    return Runs(points, seconds * np.exp(noise * random.standard_normal(len(points))))


def fitted(
    runs: Runs, terms: str = "default", *, items: float | None = None, **settings: Any
) -> ScaleModel:
    """A model of some runs."""
    return fit_runs(runs, Settings(read_terms(terms, items=items), items=items, **settings))
