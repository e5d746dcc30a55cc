"""Genetic models: what is selected, and that nothing of the data's form breaks them."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.estimator_checks import parametrize_with_checks

from kongming.learning import predictor_loading as frozen
from kongming.learning.estimators.context import Context
from kongming.learning.estimators.genetic import (
    GeneticBoostedRegressor,
    GeneticKernelRegressor,
    GeneticLinearRegressor,
    GeneticTreeRegressor,
)

SMALL: dict[str, Any] = {"evaluations": 12, "population": 6, "patience": 1, "random_state": 0}
FAST = (GeneticLinearRegressor, GeneticTreeRegressor)
ALL = (*FAST, GeneticKernelRegressor, GeneticBoostedRegressor)
BOOSTED_IF_THOROUGH = (*ALL[:-1], pytest.param(ALL[-1], marks=pytest.mark.thorough))
INDUCERS = (("a",), ("b",), ("a", "b"), ())


def obey(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        # The checks warn about what they skip, as checks of arrays of other libraries.
        warnings.simplefilter("ignore")
        check(estimator)


# One of each base class: GeneticRegressor and RefittedRegressor.
@parametrize_with_checks([make(**SMALL) for make in FAST])
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    obey(estimator, check)


@pytest.mark.thorough
@parametrize_with_checks([make(**SMALL) for make in ALL if make not in FAST])
def test_scikit_learn_contract_of_the_others(estimator: Any, check: Any) -> None:
    obey(estimator, check)


@pytest.mark.parametrize(
    ("name", "value"),
    [("evaluations", 0), ("population", 1), ("patience", 0), ("price", -1.0), ("relative", 2)],
)
def test_a_wrong_parameter_is_refused_in_fit(name: str, value: Any) -> None:
    X, y, context = profile()
    with pytest.raises(ValueError, match=rf"The '{name}' parameter of \w+ must be .* Got .*"):
        GeneticLinearRegressor(**{name: value}).fit(X, y, context=context)


def profile(n: int = 48, p: int = 7, seed: int = 0) -> tuple[Any, Any, Context]:
    """A program slowed by the columns c2 and c4; each inducer's runs are a fold."""
    draws = np.random.default_rng(seed)
    X = np.exp(draws.normal(0.0, 0.4, (n, p)))
    y = 1.0 + 0.5 * X[:, 2 % p] + 0.3 * X[:, 4 % p] + 0.01 * draws.normal(size=n)
    inducers = tuple(INDUCERS[i % len(INDUCERS)] for i in range(n))
    context = Context(
        folds=tuple(tuple(range(k, n, 8)) for k in range(min(8, n))),
        inducers=inducers,
        families=("",) * p,
        columns=tuple(f"c{j}" for j in range(p)),
        reading_variance=np.zeros(p),
    )
    return X, y, context


@pytest.mark.parametrize("make", FAST)
def test_what_drives_the_program_is_selected_and_noise_is_not(make: Any) -> None:
    X, y, context = profile(96)
    fitted = make(evaluations=300, random_state=1).fit(X, y, context=context)
    selected = fitted.findings()["selection"]["surrogates"]
    assert {"c2"} <= set(selected) <= {"c2", "c4"}
    assert fitted.findings()["evaluations"] == fitted.evaluations_ > 12
    if make is GeneticLinearRegressor:
        assert selected == ["c2", "c4"]
        assert fitted.coef_[[2, 4]] == pytest.approx([0.5, 0.3], abs=0.05)
        assert (np.delete(fitted.coef_, [2, 4]) == 0.0).all()


@pytest.mark.parametrize("make", FAST)
def test_observations_that_spoil_the_model_are_not_trained_on(make: Any) -> None:
    X, y, context = profile(96)
    bad = [i for i, names in enumerate(context.inducers) if names == ("b",)]
    good = [i for i in range(96) if i not in bad]
    y[bad] = 9.0 - y[bad]
    # What is scored are the others: as where the spoiled inducer is of a family of its own.
    folds = tuple(tuple(good[k::6]) for k in range(6))
    fitted = make(evaluations=300, random_state=0).fit(X, y, context=replace(context, folds=folds))
    counts = fitted.findings()["selection"]["observations"]
    assert set(counts) == {"a", "b", "a + b", "solo"}
    assert counts["b"] <= 4 < 24 == len(bad)
    assert sum(counts.values()) > 24


@pytest.mark.parametrize("make", FAST)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_the_order_of_columns_does_not_matter(make: Any, seed: int, data: Any) -> None:
    X, y, context = profile(seed=seed)
    order = np.array(data.draw(st.permutations(range(X.shape[1]))))
    shuffled = replace(context, columns=tuple(context.columns[j] for j in order))
    settings_ = {**SMALL, "evaluations": 60, "patience": 3, "random_state": seed % 1000}
    original = make(**settings_).fit(X, y, context=context)
    permuted = make(**settings_).fit(X[:, order], y, context=shuffled)
    assert original.findings() == permuted.findings()
    np.testing.assert_allclose(original.predict(X), permuted.predict(X[:, order]), rtol=1e-12)


@pytest.mark.parametrize("make", BOOSTED_IF_THOROUGH)
def test_the_same_seed_gives_the_same_selection_and_model(make: Any) -> None:
    X, y, context = profile()
    first, second = (make(**SMALL).fit(X, y, context=context) for _ in range(2))
    assert first.findings() == second.findings()
    assert first.freeze() == second.freeze()


@pytest.mark.parametrize("make", BOOSTED_IF_THOROUGH)
def test_frozen_over_all_columns_it_predicts_the_same(make: Any) -> None:
    X, y, context = profile()
    fitted = make(**SMALL).fit(X, y, context=context)
    assert 0 < fitted.columns_.sum() < len(fitted.columns_)
    document = json.loads(json.dumps(fitted.freeze(), allow_nan=False))
    rows = np.vstack([X, 3.0 * X, X[::-1] ** 4])
    np.testing.assert_allclose(
        frozen.load(document, X.shape[1]).predict(rows), fitted.predict(rows), rtol=1e-9
    )


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize(
    "spoil",
    ["constant column", "duplicate columns", "constant target", "no folds", "few rows", "one row"],
)
def test_bad_data_is_trained_around(make: Any, spoil: str) -> None:
    X, y, context = profile()
    if spoil == "constant column":
        X[:, 2] = 7e-9
    elif spoil == "duplicate columns":
        X[:, 3:] = X[:, [2]]
    elif spoil == "constant target":
        y[:] = 1.5
    elif spoil == "no folds":
        context = replace(context, folds=())
    else:
        n = 1 if spoil == "one row" else 3
        X, y, _ = profile(n)
        context = replace(
            context, folds=tuple((k,) for k in range(n)), inducers=context.inducers[:n]
        )
    fitted = make(**SMALL).fit(X, y, context=context)
    assert np.isfinite(fitted.predict(X)).all()
    frozen.load(json.loads(json.dumps(fitted.freeze(), allow_nan=False)), X.shape[1])
    if spoil == "constant target":
        assert not fitted.columns_.any()
        assert fitted.predict(X) == pytest.approx(y)
    if spoil in ("no folds", "one row"):
        # Without a row to score a choice by, there is none to make.
        assert fitted.columns_.all()
        assert sum(fitted.observations_.values()) == len(y)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 25),
    p=st.integers(1, 12),
    exponent=st.integers(-9, 1),
    relative=st.booleans(),
)
def test_predictions_are_finite_for_any_shape(
    seed: int, n: int, p: int, exponent: int, relative: bool
) -> None:
    X, y, context = profile(n, p, seed)
    for make in FAST:
        fitted = make(**SMALL | {"relative": relative}).fit(X * 10.0**exponent, y, context=context)
        assert np.isfinite(fitted.predict(X * 10.0**exponent * 3.0)).all()


def test_a_solo_run_is_kept_and_mixes_count_on_their_own() -> None:
    X, y, context = profile()
    for seed in range(3):
        fitted = GeneticTreeRegressor(**SMALL | {"random_state": seed})
        counts = fitted.fit(X, y, context=context).observations_
        assert 1 <= counts["solo"] <= 12
        assert set(counts) == {"a", "b", "a + b", "solo"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inducers", ((),)),
        ("columns", ("c0",) * 7),
        ("families", ()),
        ("reading_variance", np.zeros(2)),
        ("folds", ((0, 48),)),
        ("folds", ((-1,),)),
    ],
)
def test_a_context_of_other_data_is_refused(name: str, value: Any) -> None:
    X, y, context = profile()
    with pytest.raises(ValueError, match=f"'{name}' of a context must be"):
        GeneticLinearRegressor(**SMALL).fit(X, y, context=replace(context, **{name: value}))
