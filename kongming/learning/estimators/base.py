"""Base classes of the estimators: validation of parameters and data, and a frozen form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from kongming.arrays import Floats
from kongming.learning.estimators.context import Context
from kongming.learning.estimators.parameters import Constraint, check_parameters


class Regressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A scikit-learn regressor. Subclasses give ``_fit``, ``_predict`` and ``freeze``.

    ``fit`` and ``predict`` check their arguments and call the first two. Training calls ``freeze``
    to write the fitted model to a document; ``predictor_loading`` reads it back.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {}
    """The allowed values of each parameter."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to ``X`` (n, p) and ``y`` (n,).

        Raises:
            ValueError: a parameter or the data is not valid.
        """
        check_parameters(type(self).__name__, self.constraints, self.get_params(deep=False))
        data, wanted = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self._fit(data, np.asarray(wanted, dtype=np.float64))
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Return (n,) predictions for ``X`` (n, p)."""
        check_is_fitted(self)
        data = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(self._predict(data), dtype=np.float64)

    def _fit(self, X: Floats, y: Floats) -> None:
        raise NotImplementedError

    def _predict(self, X: Floats) -> Floats:
        raise NotImplementedError

    def freeze(self) -> dict[str, Any]:
        """Return the fitted model as plain JSON values, in one of the forms of ``predictors``."""
        raise NotImplementedError

    def findings(self) -> dict[str, Any]:
        """Return further facts about the fit for the model's entry in a document, as JSON."""
        return {}


class ContextRegressor(Regressor):
    """A regressor that also uses a ``Context``. Subclasses give ``_fit_within`` in place of
    ``_fit``; it gets ``Context.unknown`` if the caller passes none."""

    def fit(self, X: ArrayLike, y: ArrayLike, *, context: Context | None = None) -> Self:
        """Fit to ``X`` (n, p) and ``y`` (n,); ``context`` describes their rows and columns.

        Raises:
            ValueError: a parameter, the data or the context is not valid.
        """
        self._context = context
        try:
            return super().fit(X, y)
        finally:
            del self._context

    def _fit(self, X: Floats, y: Floats) -> None:
        context = self._context
        if context is None:
            context = Context.unknown(*X.shape)
        context.check(*X.shape)
        self._fit_within(X, y, context)

    def _fit_within(self, X: Floats, y: Floats, context: Context) -> None:
        raise NotImplementedError


def standardisation(X: Floats) -> tuple[Floats, Floats]:
    """Return mean (p,) and scale (p,) of the columns; the scale of a constant column is 1."""
    mean = X.mean(axis=0)
    scale = X.std(axis=0)
    # A spread that consists of rounding errors counts as 0.
    scale = np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1e-300), scale, 1.0)
    return mean, scale
