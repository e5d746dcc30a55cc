"""Which values an estimator's parameters accept, and how the refusal is worded."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import pytest

from kongming.learning.estimators.gbm import BoostedRegressor
from kongming.learning.estimators.nonnegative import NonNegativeRegressor
from kongming.learning.estimators.parameters import Boolean, Constraint, Interval, RandomState

POSITIVE = Interval(kind=Real, low=0, open_low=True, optional=True)
SHARE = Interval(kind=Real, low=0, high=1)
COUNT = Interval(kind=Integral, low=1)


@pytest.mark.parametrize(
    ("constraint", "value"),
    [
        (POSITIVE, None),
        (POSITIVE, 1),
        (POSITIVE, np.float32(0.5)),
        (SHARE, 0.0),
        (SHARE, 1),
        (COUNT, 1),
        (COUNT, np.int64(7)),
        (Boolean(), True),
        (Boolean(), np.bool_(False)),
        (RandomState(), None),
        (RandomState(), 2**32 - 1),
        (RandomState(), np.random.RandomState(1)),
    ],
)
def test_allowed(constraint: Constraint, value: Any) -> None:
    assert constraint.allows(value)


@pytest.mark.parametrize(
    ("constraint", "value"),
    [
        (POSITIVE, 0.0),
        (POSITIVE, math.inf),
        (POSITIVE, math.nan),
        (POSITIVE, "1"),
        (POSITIVE, True),
        (POSITIVE, 1j),
        (SHARE, None),
        (SHARE, 1.0001),
        (SHARE, -1e-9),
        (COUNT, 0),
        (COUNT, 1.0),
        (COUNT, np.float64(2.0)),
        (Boolean(), 1),
        (Boolean(), None),
        (RandomState(), -1),
        (RandomState(), 2**32),
        (RandomState(), 0.5),
        (RandomState(), np.random.default_rng(1)),
    ],
)
def test_refused(constraint: Constraint, value: Any) -> None:
    assert not constraint.allows(value)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (
            NonNegativeRegressor(penalty=-1.0),
            "The 'penalty' parameter of NonNegativeRegressor must be a float in the range "
            "(0, inf) or None. Got -1.0 instead.",
        ),
        (
            BoostedRegressor(n_trees=0),
            "The 'n_trees' parameter of BoostedRegressor must be an int in the range [1, inf). "
            "Got 0 instead.",
        ),
        (
            NonNegativeRegressor(relative="yes"),  # type: ignore[arg-type]
            "The 'relative' parameter of NonNegativeRegressor must be a bool. Got 'yes' instead.",
        ),
    ],
)
def test_the_message_names_parameter_class_and_value(estimator: Any, message: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011  # the whole message is compared
        estimator.fit([[1.0], [2.0]], [1.0, 2.0])
    assert str(refusal.value) == message
