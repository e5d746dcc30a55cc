"""Where runs fail: learned from those that did, so that they are avoided."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression

from kongming.arrays import Floats
from kongming.explore.learners.gaussian_process import GaussianProcess

_AVOIDED = 0.1
"""Probability of failure, or the share of failures if larger, from which a point is avoided."""
_CLOSER = 2.5
"""A point is avoided as well unless a success is so many times closer than any failure, and
none is near."""
_MOST_PAIRED = 12
_NEAR = 0.25
"""Distance, for each dimension, within which an outcome tells of a point. Another choice is as far
as the other end of a range."""


class FailureModel:
    """The probability that a run fails: kriging of the outcomes (0 and 1), which between outcomes
    of one kind stays near that kind. Without any failure it is 0, without any success 1."""

    def __init__(self, seed: int, groups: Floats) -> None:
        self.seed, self.groups = seed, groups

    def fit(self, X: Floats, failed: np.ndarray) -> Self:
        """From (n, p) columns of runs and (n,) whether they failed."""
        self._share = float(failed.mean()) if len(failed) else 0.0
        self._outcomes, self._failed = X, X[failed]
        self._length = _NEAR * np.sqrt(len(np.unique(self.groups)))
        # Of a place where nothing was run: the share of all runs, with Jeffreys' prior.
        self._prior = (float(failed.sum()) + 0.5) / (len(failed) + 1.0)
        self._process = None
        if 0.0 < self._share < 1.0:
            self._logistic = LogisticRegression(C=3.0, max_iter=300).fit(_terms(X), failed)
            process = GaussianProcess(self.seed, self.groups, steps=20, most_tuned=150)
            self._process = process.fit(X, failed.astype(np.float64))
            columns = self._process.stretched(X)
            self._good, self._bad = cKDTree(columns[~failed]), cKDTree(columns[failed])
        return self

    def probability(self, X: Floats) -> Floats:
        """(n,) probabilities: those of the outcomes near a point, and the share of all runs as if
        it were one outcome more. One failure so says little of what is far, or of other choices."""
        likely = self._likely(X)
        if self._process is None:
            return likely
        near = self._evidence(X)
        return (near * likely + self._prior) / (near + 1.0)

    def _evidence(self, X: Floats) -> Floats:
        """(n,) how many outcomes tell of each point."""
        near = [
            np.exp(-0.5 * (cdist(part, self._outcomes) / self._length) ** 2).sum(axis=1)
            for part in np.array_split(X, max(len(X) // 4096, 1))
        ]
        return np.concatenate(near)

    def _likely(self, X: Floats) -> Floats:
        """(n,) probabilities by kriging alone."""
        if self._process is None:
            return np.full(len(X), self._share)
        likely = np.clip(self._process.predict(X), 0.0, 1.0)
        # Half is what nothing more is known of than that the nearest run failed.
        good, bad = self._distances(X)
        return np.where((bad < good) & (bad < 1e-9), np.maximum(likely, 0.5), likely)

    def safe(self, X: Floats) -> np.ndarray:
        """(n,) whether a run will probably succeed, and lies on the side of the successes."""
        # While failures are many among few runs, what is no likelier to fail than any is tried.
        limit = max(_AVOIDED, self._prior)
        safe = self._likely(X) < limit
        if self._process is None:
            return safe
        # Few failures say more by a smooth boundary, which also holds where nothing was run.
        safe &= self._logistic.predict_proba(_terms(X))[:, 1] < limit / 2.0
        good, bad = self._distances(X)
        far = cKDTree(self._failed).query(X)[0] > 2.0 * self._length
        return np.asarray(safe & ((_CLOSER * good < bad) | far))

    def _distances(self, X: Floats) -> tuple[Floats, Floats]:
        """To the nearest success and failure, in length scales."""
        assert self._process is not None
        columns = self._process.stretched(X)
        return self._good.query(columns)[0], self._bad.query(columns)[0]


def _terms(X: Floats) -> Floats:
    """Columns and their products, of which a boundary is made."""
    if X.shape[1] > _MOST_PAIRED:
        return 4.0 * X - 2.0
    centred = 4.0 * X - 2.0
    first, second = np.triu_indices(X.shape[1])
    return np.column_stack([centred, centred[:, first] * centred[:, second]])
