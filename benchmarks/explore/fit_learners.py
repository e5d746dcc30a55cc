"""Other projects' learners on runs of a table, in an environment of their own.

    python fit_learners.py WORLD.npz LEARNER

Reads X (n, p), y (n,) with NaN where a run fails, and rows (seeds, budget), the runs of each seed;
prints the mean squared error over all values, one for each seed. Imports nothing of this project.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

FOLDS = 5
NEAR = 0.5
"""Share of the range of the runs beyond which nothing is predicted, as of our own trees."""


def lightgbm() -> list[Callable[[], Any]]:
    """Boosted trees with lines in their leaves."""
    from lightgbm import LGBMRegressor

    fixed = {"linear_tree": True, "linear_lambda": 0.1, "n_estimators": 200, "n_jobs": 1}
    return [
        lambda leaves=leaves, least=least: LGBMRegressor(
            **fixed, num_leaves=leaves, min_child_samples=least, random_state=0, verbosity=-1
        )
        for leaves in (4, 16)
        for least in (3, 10)
    ]


class _Pilot:
    def __init__(self, least: int) -> None:
        self.least = least

    def fit(self, X: Any, y: Any) -> Any:
        from pilot import PILOT

        self.tree = PILOT(min_sample_leaf=self.least, min_sample_alpha=self.least)
        self.tree.train(X, y)
        return self

    def predict(self, X: Any) -> Any:
        return self.tree.predict(X)


def pilot() -> list[Callable[[], Any]]:
    """PILOT: trees whose nodes are lines in one column each."""
    return [lambda least=least: _Pilot(least) for least in (3, 5, 10)]


def obliquetree() -> list[Callable[[], Any]]:
    """Trees with oblique splits and constant leaves."""
    from obliquetree import Regressor

    return [
        lambda least=least, pair=pair: Regressor(
            min_samples_leaf=least, n_pair=pair, random_state=0
        )
        for least in (1, 3, 5)
        for pair in (2, 3)
    ]


LEARNERS = {"lightgbm": lightgbm, "pilot": pilot, "obliquetree": obliquetree}


def best_error(
    variants: Sequence[Callable[[], Any]], X: Any, y: Any, rows: Any, seed: int
) -> float:
    """The error over all values of that variant, of raw values or, above 0, of their logarithms,
    which errs least in five folds of the runs; it is fitted to all of them."""
    rows = rows[np.isfinite(y[rows])]
    folds = np.random.default_rng(seed).permutation(np.arange(len(rows)) % FOLDS)
    trials = [
        (variant, log) for variant in variants for log in (False, True)[: 1 + (y[rows] > 0.0).all()]
    ]
    losses = []
    for variant, log in trials:
        held_out = np.empty(len(rows))
        for fold in range(FOLDS):
            left = rows[folds != fold]
            held_out[folds == fold] = _predicted(variant, log, X, y, left, rows[folds == fold])
        losses.append(float(np.mean((held_out - y[rows]) ** 2)))
    known = np.flatnonzero(np.isfinite(y))
    predicted = _predicted(*trials[int(np.argmin(losses))], X, y, rows, known)
    return float(np.mean((predicted - y[known]) ** 2))


def _predicted(variant: Callable[[], Any], log: bool, X: Any, y: Any, rows: Any, at: Any) -> Any:
    values = y[rows]
    fitted = variant().fit(X[rows], np.log(values) if log else values)
    predicted = np.asarray(fitted.predict(X[at]), dtype=float).ravel()
    if log:
        predicted = np.exp(np.minimum(predicted, 700.0))
    margin = NEAR * np.ptp(values)
    return np.clip(predicted, values.min() - margin, values.max() + margin)


def main() -> None:
    world = np.load(sys.argv[1], allow_pickle=False)
    variants = LEARNERS[sys.argv[2]]()
    X, y = np.ascontiguousarray(world["X"]), world["y"]
    errors = [best_error(variants, X, y, rows, seed) for seed, rows in enumerate(world["rows"])]
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
