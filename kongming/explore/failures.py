"""Where runs fail: learned from those that did, so that they are avoided."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.spatial import cKDTree

from kongming.arrays import Floats
from kongming.explore.learners.gaussian_process import GaussianProcess

AVOIDED = 0.2
"""Probability of failure from which a point is suggested only if there is no other."""


class FailureModel:
    """The probability that a run fails: kriging of the outcomes (0 and 1), which between outcomes
    of one kind stays near that kind. Without any failure it is 0, without any success 1."""

    def __init__(self, seed: int, groups: Floats) -> None:
        self.seed, self.groups = seed, groups

    def fit(self, X: Floats, failed: np.ndarray) -> Self:
        """From (n, p) columns of runs and (n,) whether they failed."""
        self._share = float(failed.mean()) if len(failed) else 0.0
        self._process = None
        if 0.0 < self._share < 1.0:
            process = GaussianProcess(self.seed, self.groups, steps=20)
            self._process = process.fit(X, failed.astype(np.float64))
            self._bad = cKDTree(X[failed])
        return self

    def probability(self, X: Floats) -> Floats:
        """(n,) probabilities."""
        if self._process is None:
            return np.full(len(X), self._share)
        likely = np.clip(self._process.predict(X), 0.0, 1.0)
        # What failed will fail: repeats of such a point teach nothing.
        return np.where(self._bad.query(X)[0] < 1e-9, np.maximum(likely, 0.5), likely)
