"""Regions where runs fail: learned from those that did, so that they are avoided."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

from kongming.arrays import Floats

_NEAR = 0.4
"""Length scale, for each dimension, within which an outcome bends the boundary. Another choice is
as far as the other end of a range."""
_STEEP, _BENT = 300.0, 25.0
"""Prior variances of log-odds: of the weights of a plane, over the columns, and of what departs
from it."""
_MOST = 800
_CHUNK = 4096


class FailureModel:
    """The probability that a run fails: Gaussian-process classification, Laplace's approximation
    (Rasmussen and Williams 2006, section 3.4), whose log-odds are a plane and what departs from it.
    Without any failure it is 0, without any success 1.

    No parameter is tuned to the runs: few failures are explained by almost any length scales, and
    the likeliest ones claim certainty where nothing was run. The plane reaches there; its weights
    stay uncertain until runs fix them, which keeps the probability away from 0 and 1.
    """

    def __init__(self, seed: int, groups: Floats) -> None:
        """``groups``: (p,) the dimension of each column."""
        self.seed, self.groups = seed, groups

    def fit(self, X: Floats, failed: np.ndarray) -> Self:
        """Fit to (n, p) columns of runs and (n,) booleans: which of them failed."""
        self._share = float(failed.mean()) if len(failed) else 0.0
        self._process = None
        if 0.0 < self._share < 1.0:
            if len(X) > _MOST:
                rows = self._some(failed)
                X, failed = X[rows], failed[rows]
            length = _NEAR * np.sqrt(len(np.unique(self.groups)))
            plane = ConstantKernel(_STEEP / X.shape[1]) * DotProduct(1.0)
            kernel = plane + ConstantKernel(_BENT) * RBF(length)
            self._process = GaussianProcessClassifier(kernel, optimizer=None)
            self._process.fit(X - 0.5, failed)
        return self

    def fit_runs(self, succeeded: Floats, failed: Floats) -> Self:
        """Fit to the (n, p) columns of runs that did not fail, and the (k, p) of those that did."""
        outcomes = np.concatenate([succeeded, failed])
        return self.fit(outcomes, np.arange(len(outcomes)) >= len(succeeded))

    def probability(self, X: Floats) -> Floats:
        """(n,) probabilities."""
        if self._process is None or not len(X):
            return np.full(len(X), self._share)
        parts = np.array_split(X - 0.5, -(-len(X) // _CHUNK))
        return np.concatenate([self._process.predict_proba(part)[:, 1] for part in parts])

    def _some(self, failed: np.ndarray) -> np.ndarray:
        """Rows of ``_MOST`` runs, of which the rarer kind is kept up to a half."""
        order = np.random.default_rng(self.seed).permutation(len(failed))
        bad, good = order[failed[order]], order[~failed[order]]
        most_bad = max(_MOST // 2, _MOST - len(good))
        bad = bad[:most_bad]
        return np.sort(np.concatenate([bad, good[: _MOST - len(bad)]]))
