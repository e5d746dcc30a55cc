"""Frozen models predict what their estimators do, and nothing that is damaged is loaded."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.learning import model_kind
from kongming.learning import predictor_loading as frozen
from kongming.learning.registry import KINDS
from kongming.records.errors import InputError
from tests.models.kinds import KIND_NAMES


@pytest.mark.parametrize("name", KIND_NAMES)
@settings(max_examples=settings.default.max_examples // 5, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    n=st.integers(3, 80),
    p=st.integers(1, 12),
    exponent=st.integers(-9, 1),
)
def test_a_frozen_model_predicts_as_its_estimator(
    name: str, seed: int, n: int, p: int, exponent: int
) -> None:
    random = np.random.default_rng(seed)
    X = np.exp(random.normal(0.0, 0.5, (n, p))) * 10.0**exponent
    y = np.exp(random.normal(0.0, 0.3, n))
    estimator = model_kind(name).make(seed % 100).fit(X, y)
    text = json.dumps(estimator.freeze(), allow_nan=False)
    predictor = frozen.load(json.loads(text), p)
    rows = np.vstack([X, np.exp(random.normal(0.0, 1.0, (50, p))) * 10.0**exponent])
    np.testing.assert_allclose(
        predictor.predict(rows), estimator.predict(rows), rtol=1e-9, atol=1e-12
    )


def test_one_row_or_no_spread_is_enough_to_freeze() -> None:
    for name in sorted(KINDS):
        for X in (np.ones((1, 2)), np.ones((5, 2))):
            estimator = model_kind(name).make().fit(X, np.full(len(X), 1.5))
            predicted = frozen.load(estimator.freeze(), 2).predict(X)
            np.testing.assert_allclose(predicted, estimator.predict(X))


def tree() -> dict[str, Any]:
    return {
        "type": "trees",
        "single_precision": False,
        "trees": [
            {
                "feature": [0, 0, 0],
                "threshold": [0.5, 0.0, 0.0],
                "left": [1, -1, -1],
                "right": [2, -1, -1],
                "value": [0.0, 1.0, 2.0],
            }
        ],
    }


def test_a_tree_goes_left_up_to_its_threshold() -> None:
    predicted = frozen.load(tree(), 1).predict(np.array([[0.5], [0.5000001], [-1.0]]))
    assert predicted.tolist() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("left", [0, -1, -1]),  # a child that is its own parent: it would never end
        ("left", [3, -1, -1]),
        ("left", [-2, -1, -1]),
        ("left", [-1, -1, -1]),
        ("left", [2, -1, -1]),
        ("left", [1.0, -1, -1]),
        ("left", [1, -1]),
        ("feature", [1, 0, 0]),
        ("feature", [-1, 0, 0]),
        ("feature", [True, 0, 0]),
        ("threshold", [float("nan"), 0.0, 0.0]),
        ("threshold", ["0.5", 0.0, 0.0]),
        ("value", [0.0, float("inf"), 2.0]),
        ("value", []),
        ("value", None),
    ],
)
def test_a_damaged_tree_is_refused(key: str, value: Any) -> None:
    document = tree()
    document["trees"][0][key] = value
    with pytest.raises(InputError, match="damaged"):
        frozen.load(document, 1)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"type": "pickle"},
        {"type": "constant"},
        {"type": "constant", "value": True},
        {"type": "constant", "value": float("nan")},
        {"type": "linear", "coef": [1.0], "intercept": 0.0},
        {"type": "linear", "coef": [1.0, None], "intercept": 0.0},
        {"type": "trees", "single_precision": False, "trees": []},
        {"type": "trees", "single_precision": 1, "trees": tree()["trees"]},
        {"type": "trees", "single_precision": False, "trees": [3]},
    ],
)
def test_a_damaged_model_is_refused(document: Any) -> None:
    with pytest.raises(InputError, match="damaged"):
        frozen.load(document, 2)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("support", [[1.0]]),
        ("support", [[1.0, 2.0], [1.0, 2.0]]),
        ("scale", [1.0, 0.0]),
        ("gamma", -1.0),
        ("mean", [0.0]),
        ("dual", "x"),
    ],
)
def test_a_damaged_kernel_is_refused(key: str, value: Any) -> None:
    good = {
        "type": "kernel",
        "mean": [0.0, 0.0],
        "scale": [1.0, 1.0],
        "gamma": 0.5,
        "support": [[1.0, 2.0]],
        "dual": [0.3],
        "intercept": 1.0,
    }
    frozen.load(good, 2)
    broken = copy.deepcopy(good) | {key: value}
    with pytest.raises(InputError, match="damaged"):
        frozen.load(broken, 2)
