"""LM.GA, CART.GA and others: a model on the surrogates and observations that a search selects.

As in the paper (section IV): a surrogate helps to predict an application, as a measurement or as an
inducer of training runs, if it uses the same resources. Solo runs count as the inducer ``solo``, of
which at least one observation is kept; each mix counts as an inducer of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import check_random_state

from kongming.arrays import Floats
from kongming.learning.estimators.base import ContextRegressor, Regressor, standardisation
from kongming.learning.estimators.cart import TreeRegressor
from kongming.learning.estimators.context import SOLO, Context
from kongming.learning.estimators.fitness import Flags, LeftOut, Predict, Refits, Scorer
from kongming.learning.estimators.gbm import BoostedRegressor
from kongming.learning.estimators.genetic_search import Layout, Settings, search
from kongming.learning.estimators.gram import Gram
from kongming.learning.estimators.mean import MeanRegressor
from kongming.learning.estimators.parameters import Boolean, Constraint, Interval, RandomState
from kongming.learning.estimators.subset import over_all
from kongming.learning.estimators.svm import KernelRegressor

DEPTH = 5
"""Parameters of the trees that score selections."""


class GeneticRegressor(ContextRegressor):
    """Searches for a selection, then fits a model to it. Subclasses give ``_scorer``, ``_settle``
    (the fit to the selection), ``_predict`` and ``freeze``.

    Learns ``columns_`` (p,), flags of the surrogates selected; ``observations_``, how many
    observations of each inducer; ``evaluations_``, how many selections were scored. At most
    ``evaluations`` are, in generations of ``population``; the search ends early after ``patience``
    of them without a gain. A surrogate must lower the error by ``price``, a share of that of the
    mean; with ``relative`` an error counts relative to the measured value.

    Columns are searched in order of their names, so their order in ``X`` does not matter.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "evaluations": Interval(kind=Integral, low=1),
        "population": Interval(kind=Integral, low=4),
        "patience": Interval(kind=Integral, low=1),
        "price": Interval(kind=Real, low=0),
        "relative": Boolean(),
        "random_state": RandomState(),
    }

    def __init__(
        self,
        *,
        evaluations: int = 400,
        population: int = 40,
        patience: int = 5,
        price: float = 0.01,
        relative: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.evaluations = evaluations
        self.population = population
        self.patience = patience
        self.price = price
        self.relative = relative
        self.random_state = random_state

    def _fit_within(self, X: Floats, y: Floats, context: Context) -> None:
        p = X.shape[1]
        by_name = np.array(sorted(range(p), key=lambda j: context.columns[j]), dtype=np.intp)
        ordered = np.ascontiguousarray(X[:, by_name])
        keys = context.keys()
        inducers = sorted(set(keys))
        layout = Layout.of(p, keys, inducers, SOLO)
        scorer = self._scorer(ordered, y, LeftOut.of(context.folds, y, relative=self.relative))
        selection = search(
            scorer,
            layout,
            _ranking(ordered, y),
            Settings(self.evaluations, self.population, self.patience, self.price),
            np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1)),
        )
        self.columns_ = np.zeros(p, dtype=np.bool_)
        self.columns_[by_name] = selection.columns
        self.observations_ = dict(zip(inducers, selection.counts.tolist(), strict=True))
        self.evaluations_ = selection.evaluations
        self._surrogates = sorted(
            name for name, used in zip(context.columns, self.columns_, strict=True) if used
        )
        self._used = by_name[selection.columns]
        self._settle(scorer, ordered, y, selection.observations, selection.columns)

    def _scorer(self, X: Floats, y: Floats, left_out: LeftOut) -> Scorer:
        raise NotImplementedError

    def _settle(
        self, scorer: Scorer, X: Floats, y: Floats, observations: Flags, columns: Flags
    ) -> None:
        raise NotImplementedError

    def findings(self) -> dict[str, Any]:
        return {
            "selection": {"surrogates": self._surrogates, "observations": self.observations_},
            "evaluations": self.evaluations_,
        }


class GeneticLinearRegressor(GeneticRegressor):
    """LM.GA: least squares on a selection; learns ``coef_`` (p,), 0 where a surrogate was not
    selected, and ``intercept_``."""

    def _scorer(self, X: Floats, y: Floats, left_out: LeftOut) -> Scorer:
        return Gram(X, y, left_out)

    def _settle(
        self, scorer: Scorer, X: Floats, y: Floats, observations: Flags, columns: Flags
    ) -> None:
        if not isinstance(scorer, Gram):
            raise TypeError("LM.GA is scored by Gram matrices")
        coef, self.intercept_ = scorer.solve(observations, columns)
        self.coef_ = np.zeros(len(coef))
        self.coef_[self._used] = coef[columns]

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_ + self.intercept_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": self.intercept_}


class RefittedRegressor(GeneticRegressor):
    """A genetic model that is scored by fitting it again to every selection, in every fold.

    Subclasses give ``_regressor``, the model itself, and may score by a cheaper one. Learns
    ``model_``, fitted to the selection.
    """

    def _regressor(self) -> Regressor:
        raise NotImplementedError

    def _scorer(self, X: Floats, y: Floats, left_out: LeftOut) -> Scorer:
        return Refits(
            X, y, left_out, lambda rows, wanted: self._regressor().fit(rows, wanted).predict
        )

    def _settle(
        self, scorer: Scorer, X: Floats, y: Floats, observations: Flags, columns: Flags
    ) -> None:
        rows = X[observations]
        if columns.any():
            self.model_ = self._regressor().fit(rows[:, columns], y[observations])
        else:
            self.model_ = MeanRegressor().fit(rows, y[observations])

    def _predict(self, X: Floats) -> Floats:
        return self.model_.predict(X[:, self._used] if len(self._used) else X)

    def freeze(self) -> dict[str, Any]:
        return over_all(self.model_.freeze(), self._used, len(self.columns_))


class _ScoringTree(DecisionTreeRegressor):  # type: ignore[misc]  # scikit-learn is untyped
    """A tree that is fitted some ten thousand times in one training."""

    _tags: ClassVar[Any] = None

    def __sklearn_tags__(self) -> Any:
        # They are the same for every tree of these parameters; computing them, four times in each
        # fit, takes a sixth of its time.
        if _ScoringTree._tags is None:
            _ScoringTree._tags = super().__sklearn_tags__()
        return _ScoringTree._tags


class GeneticTreeRegressor(RefittedRegressor):
    """CART.GA: a regression tree on a selection."""

    def __init__(
        self,
        *,
        evaluations: int = 80,
        population: int = 20,
        patience: int = 3,
        price: float = 0.01,
        relative: bool = False,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            evaluations=evaluations,
            population=population,
            patience=patience,
            price=price,
            relative=relative,
            random_state=random_state,
        )

    def _regressor(self) -> Regressor:
        return TreeRegressor(random_state=0)

    def _scorer(self, X: Floats, y: Floats, left_out: LeftOut) -> Scorer:
        regressor = TreeRegressor()
        # One generator for the ties of all trees: creating one takes as long as a small tree.
        ties = np.random.RandomState(0)

        def fit(rows: Floats, wanted: Floats) -> Predict:
            # Early stopping instead of pruning: similar trees in half the time.
            tree = _ScoringTree(
                max_depth=DEPTH,
                min_samples_leaf=regressor.min_samples_leaf,
                min_impurity_decrease=regressor.complexity * float(np.var(wanted)),
                random_state=ties,
            )
            predict: Predict = tree.fit(rows, wanted, check_input=False).tree_.predict
            return lambda others: predict(others)[:, 0]

        # The precision in which trees compare features.
        return Refits(X.astype(np.float32), y, left_out, fit)


class GeneticKernelRegressor(RefittedRegressor):
    """SVM.GA: support vector regression on a selection. Slow: fits share no work."""

    def _regressor(self) -> Regressor:
        return KernelRegressor()


class GeneticBoostedRegressor(RefittedRegressor):
    """GBM.GA: boosted trees on a selection. Very slow: fits share no work."""

    def _regressor(self) -> Regressor:
        return BoostedRegressor(random_state=0)


def _ranking(X: Floats, y: Floats) -> list[int]:
    """Return the columns by their correlation with ``y``, strongest first."""
    mean, scale = standardisation(X)
    together = np.abs(((X - mean) / scale).T @ (y - np.mean(y)))
    return [int(j) for j in np.argsort(-together, kind="stable")]
