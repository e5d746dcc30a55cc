"""Fits along a path of penalties agree with a plain solution of each penalty by itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from kongming.arrays import Floats
from kongming.learning.estimators import huber, ridge
from kongming.learning.estimators.penalty import PENALTIES
from kongming.learning.estimators.through_origin import shrunk_path


def noisy_runs(n: int = 30, p: int = 40) -> tuple[Floats, Floats]:
    """More columns than runs, near copies among them, and a few disturbed runs."""
    random = np.random.default_rng(11)
    X = np.abs(random.normal(0.3, 0.3, (n, p)))
    X[:, 1] = X[:, 0] + 1e-3 * random.normal(size=n)
    y = X[:, 0] + 0.3 * X[:, 5] + random.normal(0.0, 0.02, n)
    y[::9] += 1.0
    return X, y


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_the_non_negative_path(scale: float) -> None:
    X, y = noisy_runs()
    X = X * scale
    path = shrunk_path(X, y, PENALTIES, np.zeros(X.shape[1]))
    for penalty, (coef, intercept) in zip(PENALTIES, path, strict=True):
        root = np.sqrt(penalty * np.sum(X**2)) * np.eye(X.shape[1])
        # Divided by the scale, at which the other solver's tolerances are meant.
        rows = np.vstack([X, root]) / scale
        plain = lsq_linear(
            rows, np.concatenate([y, np.zeros(X.shape[1])]), (0.0, np.inf), tol=1e-14
        )
        assert intercept == 0.0
        assert (coef >= 0.0).all()
        np.testing.assert_allclose(coef * scale, plain.x, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_the_ridge_path(scale: float) -> None:
    X, y = noisy_runs()
    X = X * scale
    centred = X - X.mean(axis=0)
    for penalty, (coef, intercept) in zip(PENALTIES, ridge._path(X, y, PENALTIES), strict=True):
        gram = centred.T @ centred + penalty * np.sum(centred**2) * np.eye(X.shape[1])
        plain = np.linalg.solve(gram, centred.T @ (y - y.mean()))
        np.testing.assert_allclose(coef, plain, rtol=1e-8, atol=1e-12 / scale)
        assert intercept == pytest.approx(y.mean() - X.mean(axis=0) @ plain)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_robust_ridges_that_are_reweighted_together_are_those_of_each_alone(scale: float) -> None:
    X, y = noisy_runs()
    X = X * scale
    coefs, intercepts = huber._solve(X, y, PENALTIES, 1.345, 20)
    for penalty, coef, intercept in zip(PENALTIES, coefs, intercepts, strict=True):
        (alone,), (constant,) = huber._solve(X, y, (penalty,), 1.345, 20)
        np.testing.assert_allclose(coef, alone, rtol=1e-8, atol=1e-12 / scale)
        assert intercept == pytest.approx(constant)


def test_a_robust_ridge_minimises_its_loss() -> None:
    """The weights at the solution make the weighted normal equations hold (Huber 1981, 7.8)."""
    X, y = noisy_runs()
    penalty = 1e-2
    (coef,), (intercept,) = huber._solve(X, y, (penalty,), 1.345, 1000)
    residuals = y - X @ coef - intercept
    scale = huber._MEDIAN_TO_DEVIATION * np.median(np.abs(residuals))
    bent = np.clip(residuals, -1.345 * scale, 1.345 * scale)
    ridge_cost = penalty * np.sum((X - X.mean(axis=0)) ** 2)
    assert abs(bent.sum()) < 1e-3 * np.abs(bent).sum()
    np.testing.assert_allclose(X.T @ bent, ridge_cost * coef, atol=1e-3 * np.abs(X.T @ bent).max())
