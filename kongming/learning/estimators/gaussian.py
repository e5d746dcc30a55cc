"""GP: a Gaussian process for small profiles: a linear trend and a smooth deviation from it.

It replaces scikit-learn's: because the noise variance is solved for and the gradient is three sums,
it is as accurate and takes a quarter of the time or less (see docs/models.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_solve, cholesky
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize

from kongming.arrays import Floats
from kongming.learning.estimators.base import Regressor
from kongming.learning.predictors import radial

_STARTS = ((1.0, 0.1, 1.0), (0.1, 1.0, 1.0))
"""Start points of the search: variance of the trend and of the deviation, both over the noise's,
and the deviation's length."""

_BOUNDS = ((1e-4, 1e2), (1e-4, 1e2), (0.3, 10.0))
"""Bounds of the search: with more columns than runs a trend alone fits every run exactly, so the
noise must keep a share of the variance."""

_STEPS = 30


class GaussianProcessRegressor(Regressor):
    """Gaussian process with a linear and a radial kernel (Rasmussen and Williams 2006, 2.2, 5.4).

    Columns are centred and divided by one common scale: as logs over idle they share a unit, and
    a resource whose cost hardly moved in training should weigh less than one whose cost doubled.
    ``fit`` finds the ``trend_`` and ``deviation_`` variances (over the noise's), the ``length_``
    (1 is the root mean square distance from the mean) and the ``noise_`` (a variance) of greatest
    marginal likelihood from a few starts, and learns ``coef_`` (p,), ``intercept_`` and ``dual_``
    (n,), the weights of the training rows.
    """

    def _fit(self, X: Floats, y: Floats) -> None:
        self.mean_ = X.mean(axis=0)
        centred = X - self.mean_
        size = float(np.sqrt(np.sum(centred**2) / len(X)))
        # A spread that consists of rounding errors counts as 0.
        self.scale_ = size if size > 1e-12 * float(np.max(np.abs(X), initial=0.0)) else 1.0
        self.rows_ = centred / self.scale_
        center = float(np.mean(y))
        spread = float(np.std(y))
        spread = spread if spread > 1e-12 * max(abs(center), 1e-300) else 1.0
        wanted = (y - center) / spread
        self.trend_, self.deviation_, self.length_ = _likeliest(self.rows_, wanted)
        linear, squared = _products(self.rows_)
        near = np.exp(squared / (-2.0 * self.length_**2))
        covariance = self.trend_ * linear + self.deviation_ * near + np.eye(len(y))
        dual = cho_solve((cholesky(covariance, lower=True), True), wanted)
        self.noise_ = float(wanted @ dual) / len(y) * spread**2
        self.dual_ = dual * self.deviation_ * spread
        self.coef_ = self.rows_.T @ dual * (self.trend_ * spread / self.scale_)
        self.intercept_ = center - float(self.mean_ @ self.coef_)

    def _predict(self, X: Floats) -> Floats:
        z = (X - self.mean_) / self.scale_
        near = radial(z, self.rows_, np.sum(self.rows_**2, axis=1), self._gamma())
        return np.asarray(X @ self.coef_ + self.intercept_ + near @ self.dual_, dtype=np.float64)

    def _gamma(self) -> float:
        return 1.0 / (2.0 * self.length_**2)

    def freeze(self) -> dict[str, Any]:
        p = len(self.coef_)
        return {
            "type": "sum",
            "parts": [
                {"type": "linear", "coef": self.coef_.tolist(), "intercept": self.intercept_},
                {
                    "type": "kernel",
                    "mean": self.mean_.tolist(),
                    "scale": [self.scale_] * p,
                    "gamma": self._gamma(),
                    "support": self.rows_.tolist(),
                    "dual": self.dual_.tolist(),
                    "intercept": 0.0,
                },
            ],
        }


def _products(rows: Floats) -> tuple[Floats, Floats]:
    """Return the inner products and the squared distances of all pairs of rows, both (n, n)."""
    linear = rows @ rows.T
    own = np.diag(linear)
    squared = np.maximum(own[:, None] + own - 2.0 * linear, 0.0)
    np.fill_diagonal(squared, 0.0)
    return linear, squared


def _likeliest(rows: Floats, wanted: Floats) -> tuple[float, float, float]:
    """Return the trend, deviation and length of greatest marginal likelihood; the noise is solved
    for.
    """
    if not np.any(rows) or not np.any(wanted):
        # The target or the features do not vary.
        return _BOUNDS[0][0], _BOUNDS[1][0], 1.0
    linear, squared = _products(rows)
    best, likeliest = np.inf, _STARTS[0]
    for start in _STARTS:
        result = minimize(
            _negative_log_likelihood,
            np.log(start),
            args=(linear, squared, wanted),
            jac=True,
            method="L-BFGS-B",
            bounds=np.log(_BOUNDS),
            options={"maxiter": _STEPS},
        )
        # Results that differ by less than this differ by rounding: the first is kept.
        if result.fun < best - 1e-6:
            trend, deviation, length = np.exp(result.x).tolist()
            best, likeliest = float(result.fun), (trend, deviation, length)
    return likeliest


def _negative_log_likelihood(
    logs: Floats, linear: Floats, squared: Floats, wanted: Floats
) -> tuple[float, Floats]:
    """Return the negative log likelihood, less a constant, and its gradient at the logs of trend,
    deviation and length.

    The noise variance that fits best is ``wanted`` K⁻¹ ``wanted`` / n, with K the covariance over
    it (Rasmussen and Williams 2006, equations 5.8 and 5.9, with that put in).
    """
    n = len(wanted)
    trend, deviation, length = np.exp(logs).tolist()
    near = squared * (-0.5 / length**2)
    np.exp(near, out=near)
    near *= deviation
    covariance = trend * linear
    covariance += near
    covariance.flat[:: n + 1] += 1.0
    factor = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
    dual = cho_solve((factor, True), wanted, check_finite=False)
    noise = max(float(wanted @ dual) / n, 1e-12)
    value = 0.5 * n * np.log(noise) + float(np.sum(np.log(np.diag(factor))))
    inverse, _ = dpotri(factor, lower=1)
    # Only the lower triangle is filled; the trace of a product of two symmetric matrices is
    # twice that over it, less that over the diagonal.
    half = np.tril(inverse)
    half.flat[:: n + 1] *= 0.5
    smoother = near * squared
    gradient = [
        share * (float(np.vdot(half, part)) - 0.5 * float(dual @ (part @ dual)) / noise)
        for share, part in ((trend, linear), (1.0, near), (1.0 / length**2, smoother))
    ]
    return float(value), np.array(gradient)
