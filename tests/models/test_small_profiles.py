"""Estimators for a few dozen noisy runs: what each is made to do, and what it never does."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.estimator_checks import parametrize_with_checks

from kongming.arrays import Floats
from kongming.learning import dataset, model_kind
from kongming.learning import predictor_loading as frozen
from kongming.learning.estimators.base import ContextRegressor
from kongming.learning.estimators.context import Context
from kongming.learning.estimators.errors_in_variables import NonNegativeVarianceRegressor
from kongming.learning.estimators.family import FamilyRegressor
from kongming.learning.estimators.gaussian import GaussianProcessRegressor
from kongming.learning.estimators.huber import HuberRegressor
from kongming.learning.estimators.nonnegative import NonNegativeRegressor
from kongming.learning.estimators.pls import PartialLeastSquaresRegressor
from kongming.learning.estimators.ridge import RidgeRegressor
from kongming.learning.validation import cross_validate, make_folds
from tests.models import synthetic

ESTIMATORS = [
    FamilyRegressor(),
    FamilyRegressor(worst=False),
    GaussianProcessRegressor(),
    HuberRegressor(),
    NonNegativeVarianceRegressor(),
    PartialLeastSquaresRegressor(),
]


def obey(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        # The checks warn about what they skip, as checks of arrays of other libraries.
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.thorough
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    obey(estimator, check)


@pytest.mark.parametrize(
    "estimator",
    [
        FamilyRegressor(penalty=0.0),
        HuberRegressor(threshold=0.0),
        NonNegativeVarianceRegressor(share=-0.5),
        PartialLeastSquaresRegressor(components=0),
    ],
)
def test_a_wrong_parameter_is_refused_in_fit(estimator: Any) -> None:
    with pytest.raises(ValueError, match=r"The '\w+' parameter of \w+ must be .* Got .* instead"):
        estimator.fit(np.eye(4), np.arange(4.0))


def runs(n: int = 40, p: int = 6, seed: int = 0) -> tuple[Floats, Floats]:
    """Log slowdowns of columns, and of a program that depends on the first and the third."""
    X = np.random.default_rng(seed).uniform(0.0, 1.0, (n, p))
    return X, X @ np.array([0.5, 0.0, 0.3, *[0.0] * (p - 3)])


def known(X: Floats, **changes: Any) -> Context:
    return replace(Context.unknown(*X.shape), **changes)


@pytest.mark.parametrize(
    "estimator",
    [
        FamilyRegressor(),
        FamilyRegressor(worst=False),
        NonNegativeVarianceRegressor(),
        PartialLeastSquaresRegressor(),
    ],
)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), n=st.integers(2, 60), p=st.integers(1, 12))
def test_what_is_non_negative_never_falls_and_says_1_on_the_idle_node(
    estimator: Any, seed: int, n: int, p: int
) -> None:
    random = np.random.default_rng(seed)
    X = random.normal(0.2, 0.5, (n, p))
    estimator.fit(X, X @ random.normal(0.0, 1.0, p))
    predictor = frozen.load(estimator.freeze(), p)
    rows = random.normal(0.0, 1.0, (20, p))
    raised = rows + random.uniform(0.0, 1.0, (20, p))
    assert (predictor.predict(raised) >= predictor.predict(rows) - 1e-12).all()
    np.testing.assert_array_equal(predictor.predict(np.zeros((1, p))), [0.0])


def test_a_gaussian_process_goes_on_along_a_trend() -> None:
    X, y = runs()
    fitted = GaussianProcessRegressor().fit(X, y)
    assert fitted.predict(np.full((1, 6), 2.0)) == pytest.approx([1.6], abs=0.1)


def test_a_gaussian_process_follows_a_bend_that_a_line_cannot() -> None:
    random = np.random.default_rng(3)
    X = random.uniform(-1.0, 1.0, (60, 2))
    y = np.sin(3.0 * X[:, 0]) + random.normal(0.0, 0.05, 60)
    rows = random.uniform(-1.0, 1.0, (200, 2))
    wanted = np.sin(3.0 * rows[:, 0])
    process, line = GaussianProcessRegressor().fit(X, y), RidgeRegressor().fit(X, y)
    missed = np.abs(process.predict(rows) - wanted).mean()
    assert missed < 0.25 * np.abs(line.predict(rows) - wanted).mean()
    assert 0.03 < np.sqrt(process.noise_) < 0.08


def test_a_gaussian_process_does_not_chase_noise_with_more_columns_than_runs() -> None:
    random = np.random.default_rng(4)
    X, y = random.normal(0.0, 0.3, (25, 35)), random.normal(0.0, 0.1, 25)
    predicted = GaussianProcessRegressor().fit(X, y).predict(random.normal(0.0, 0.3, (200, 35)))
    assert np.std(predicted) < 0.5 * np.std(y)


def test_disturbed_runs_hardly_move_a_robust_ridge() -> None:
    X, y = runs(60)
    disturbed = y + np.random.default_rng(5).normal(0.0, 0.02, 60)
    disturbed[::12] += 1.0
    rows, wanted = runs(200, seed=1)
    robust, plain = HuberRegressor().fit(X, disturbed), RidgeRegressor().fit(X, disturbed)
    missed = np.abs(robust.predict(rows) - wanted).mean()
    assert missed < 0.5 * np.abs(plain.predict(rows) - wanted).mean()


def test_a_robust_ridge_with_a_far_threshold_is_ridge() -> None:
    X, y = runs()
    noisy = y + np.random.default_rng(6).normal(0.0, 0.1, len(y))
    robust = HuberRegressor(penalty=0.01, threshold=1e6).fit(X, noisy)
    np.testing.assert_allclose(robust.coef_, RidgeRegressor(penalty=0.01).fit(X, noisy).coef_)


@pytest.mark.parametrize(
    ("estimator", "plain"),
    [
        (NonNegativeVarianceRegressor(), NonNegativeRegressor()),
    ],
)
def test_without_known_variances_it_is_the_plain_model(
    estimator: ContextRegressor, plain: ContextRegressor
) -> None:
    X, y = runs()
    noisy = y + np.random.default_rng(7).normal(0.0, 0.1, len(y))
    np.testing.assert_allclose(
        estimator.fit(X, noisy).predict(X), plain.fit(X, noisy).predict(X), atol=1e-9
    )


def noisily(n: int = 400) -> tuple[Floats, Floats, Floats, Context]:
    """True columns, noisy readings of them, a program that depends on the first, and the context
    that knows how noisy each is: the second is a copy of the first, and read without noise."""
    random = np.random.default_rng(8)
    true = random.normal(0.0, 0.3, (n, 3))
    true[:, 1] = true[:, 0]
    variance = np.array([0.04, 0.0, 0.01])
    X = true + random.normal(0.0, 1.0, true.shape) * np.sqrt(variance)
    return true, X, 0.8 * true[:, 0], known(X, reading_variance=variance)


def test_of_two_copies_the_one_that_is_read_well_weighs_more() -> None:
    _, X, y, context = noisily()
    plain = NonNegativeVarianceRegressor(penalty=0.1, share=0.0).fit(X, y, context=context)
    named = NonNegativeVarianceRegressor(penalty=0.1, share=1.0).fit(X, y, context=context)
    assert named.coef_[0] < plain.coef_[0] < plain.coef_[1] < named.coef_[1]


def test_a_family_model_knows_families_and_not_columns() -> None:
    X, _ = runs(60)
    y = 0.6 * X[:, :3].max(axis=1)
    context = known(X, families=("cache",) * 3 + ("os",) * 3)
    fitted = FamilyRegressor().fit(X, y, context=context)
    assert [members.tolist() for members in fitted.groups_] == [[0, 1, 2], [3, 4, 5]]
    assert fitted.worst_coef_[0] > 5.0 * max(fitted.mean_coef_.max(), fitted.worst_coef_[1])
    swapped = X[:, [2, 0, 1, 4, 5, 3]]
    np.testing.assert_allclose(fitted.predict(swapped), fitted.predict(X))
    predictor = frozen.load(fitted.freeze(), 6)
    np.testing.assert_allclose(predictor.predict(X), fitted.predict(X), rtol=1e-12)


def test_a_noisy_column_counts_for_less_in_the_mean_of_its_family() -> None:
    X, y = runs()
    context = known(X, reading_variance=np.array([0.0, 0.04, 0.0, 0.0, 0.0, 0.0]))
    shares = FamilyRegressor().fit(X, y, context=context).shares_[0]
    assert shares.sum() == pytest.approx(1.0)
    assert shares[1] < 0.1 * shares[0]


def test_copies_of_a_column_share_what_they_tell_evenly() -> None:
    X, y = runs()
    copied = np.column_stack([X[:, 0], X])
    coef = PartialLeastSquaresRegressor().fit(copied, y).coef_
    assert coef[0] == pytest.approx(coef[1])
    assert coef[0] > 0.1


@pytest.mark.parametrize(
    "name",
    ["FAMILY", "PLS", "NNEIV", "HUBER", "GP"],
)
def test_left_out_families_are_predicted_better_than_by_the_mean(name: str) -> None:
    powers = {"memory.random.128M": 0.5, "stream.triad": 0.3, "iobench.write.4M": 0.4}
    data = dataset.build(synthetic.campaign("a", powers))
    folds = make_folds(data)
    error, trivial = (
        cross_validate(model_kind(model), data, folds, noise=0.01).error for model in (name, "MEAN")
    )
    assert error < trivial


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_frozen_with_a_context_it_predicts_the_same(estimator: Any) -> None:
    X, y = runs(30, 8)
    noisy = y + np.random.default_rng(9).normal(0.0, 0.05, len(y))
    if isinstance(estimator, ContextRegressor):
        context = known(
            X,
            families=("cache", "cache", "memory", "os", "memory", "os", "read", "cache"),
            reading_variance=np.linspace(0.0, 0.02, 8),
        )
        estimator.fit(X, noisy, context=context)
    else:
        estimator.fit(X, noisy)
    rows = np.vstack([X, 3.0 * X - 1.0])
    predictor = frozen.load(estimator.freeze(), 8)
    np.testing.assert_allclose(predictor.predict(rows), estimator.predict(rows), rtol=0, atol=1e-12)
