"""Each estimator is a real scikit-learn one, and does what its name says."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from kongming.learning import model_kind
from kongming.learning.estimators.cart import TreeRegressor
from kongming.learning.estimators.context import Context
from kongming.learning.estimators.gbm import BoostedRegressor
from kongming.learning.estimators.linear import LinearRegressor
from kongming.learning.estimators.mean import MeanRegressor
from kongming.learning.estimators.nonnegative import NonNegativeRegressor
from kongming.learning.estimators.ridge import RidgeRegressor
from kongming.learning.estimators.svm import KernelRegressor
from kongming.records.errors import UnknownNameError
from tests.models.kinds import KIND_NAMES


def obey(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        # The checks warn about what they skip, as checks of arrays of other libraries.
        warnings.simplefilter("ignore")
        check(estimator)


# One of each base class: Regressor and ContextRegressor.
@parametrize_with_checks([LinearRegressor(), RidgeRegressor()])
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    obey(estimator, check)


@pytest.mark.thorough
@parametrize_with_checks(
    [
        MeanRegressor(),
        NonNegativeRegressor(),
        NonNegativeRegressor(relative=True),
        TreeRegressor(random_state=0),
        KernelRegressor(),
        BoostedRegressor(random_state=0),
    ]
)
def test_scikit_learn_contract_of_the_others(estimator: Any, check: Any) -> None:
    obey(estimator, check)


@pytest.mark.parametrize(
    "estimator",
    [
        RidgeRegressor(penalty=-1.0),
        NonNegativeRegressor(penalty=0.0),
        TreeRegressor(complexity=2.0),
        KernelRegressor(penalty=0.0),
        BoostedRegressor(learning_rate=0.0),
    ],
)
def test_a_wrong_parameter_is_refused_in_fit(estimator: Any) -> None:
    with pytest.raises(ValueError, match=r"The '\w+' parameter of \w+ must be .* Got .* instead"):
        estimator.fit(np.eye(4), np.arange(4.0))


def data(n: int = 40, p: int = 6, seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    X = random.uniform(0.0, 1.0, (n, p))
    return X, X @ np.array([0.5, 0.0, 0.3, 0.0, 0.0, 0.0])[:p]


def test_mean_is_the_mean() -> None:
    X, y = data()
    assert MeanRegressor().fit(X, y).predict(X[:2]) == pytest.approx([y.mean()] * 2)


def test_least_squares_recovers_coefficients_over_nine_orders_of_magnitude() -> None:
    X, _ = data()
    scale = 10.0 ** -np.arange(1, 7)
    coef = np.arange(1, 7) / scale
    fitted = LinearRegressor().fit(X * scale, (X * scale) @ coef + 3.0)
    np.testing.assert_allclose(fitted.coef_, coef, rtol=1e-6)
    assert fitted.intercept_ == pytest.approx(3.0)


def test_least_squares_with_more_columns_than_rows_interpolates() -> None:
    X = np.random.default_rng(1).normal(size=(5, 12))
    y = np.arange(5.0)
    np.testing.assert_allclose(LinearRegressor().fit(X, y).predict(X), y, atol=1e-8)


@pytest.mark.parametrize("relative", [False, True])
def test_coefficients_are_never_negative(relative: bool) -> None:
    X, y = data()
    fitted = NonNegativeRegressor(relative=relative).fit(X, y - 0.4 * X[:, 4])
    assert (fitted.coef_ >= 0.0).all()
    assert fitted.coef_[4] == pytest.approx(0.0, abs=1e-9)
    assert fitted.predict(np.zeros((1, 6))) == pytest.approx([0.0])


def test_a_penalty_is_chosen_by_the_folds_given() -> None:
    X, y = data()
    noisy = y + np.random.default_rng(2).normal(0.0, 3.0, len(y))
    known = Context.unknown(*X.shape)
    few = replace(known, folds=((0, 1, 2), (3, 4, 5)))
    halves = replace(known, folds=(tuple(range(20)), tuple(range(20, 40))))
    clean = RidgeRegressor().fit(X, y, context=few)
    shrunk = RidgeRegressor().fit(X, noisy, context=halves)
    assert clean.penalty_ < shrunk.penalty_


@pytest.mark.parametrize("name", KIND_NAMES)
def test_the_same_seed_gives_the_same_model(name: str) -> None:
    X, y = data(60)
    first, second = (model_kind(name).make(7).fit(X, y).freeze() for _ in range(2))
    assert first == second


def test_an_unknown_model_gets_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean CART"):
        model_kind("CRAT")
