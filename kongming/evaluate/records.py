"""Records of measured and predicted costs, on one scale.

The scale is either the raw cost (seconds, or 1/metric if higher is better) or the cost over the
solo runs that bracket it; all numbers of one evaluation have the same scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from kongming.records.errors import InputError

_Predicted = TypeVar("_Predicted")

Scored = Literal["raw", "bracketed"]
"""raw: costs as measured; bracketed: costs over the solo runs around them."""


@dataclass(frozen=True, slots=True)
class PairMeasurement:
    """One ordered pair: the cost of ``app`` in each repeat with ``neighbour``, oldest first.

    ``values`` has the successful repeats only, and is empty if all failed. ``marked``: for each
    value, whether the node visibly changed meanwhile; empty if that was not checked.
    ``solo_variance`` is what the errors of the solo runs add to the variance of the mean log beyond
    what the values show: repeats over the same solo run share its error.
    """

    app: str
    neighbour: str
    values: tuple[float, ...]
    marked: tuple[bool, ...] = ()
    solo_variance: float = 0.0

    def __post_init__(self) -> None:
        _check_costs(self.values, "values")
        _check_length("marked", self.marked, self.values)
        if not (math.isfinite(self.solo_variance) and self.solo_variance >= 0.0):
            raise InputError(
                "is not a variance.",
                field="solo_variance",
                value=self.solo_variance,
                allowed="a finite number, 0 or more",
            )


@dataclass(frozen=True, slots=True)
class PairPrediction:
    """Prediction of one model for one ordered pair, with optional intervals.

    ``lower`` and ``upper`` are where one run will fall, ``expected`` (lower and upper) where the
    median of many will; ``upper`` may be infinite. ``level`` is the nominal coverage of both.
    ``at_least`` says that it is of the edge of the training runs.
    """

    app: str
    neighbour: str
    model: str
    value: float
    lower: float | None = None
    upper: float | None = None
    level: float = 0.9
    extrapolating: bool = False
    expected: tuple[float, float] | None = None
    at_least: bool = False

    def __post_init__(self) -> None:
        _check_costs((self.value,), "value")
        if (self.lower is None) != (self.upper is None):
            raise InputError(
                "one bound of the interval is missing.",
                field="lower" if self.lower is None else "upper",
                allowed="both bounds, or none",
            )
        if self.lower is not None and self.upper is not None:
            _check_bounds((self.lower,), (self.upper,))
        if self.expected is not None:
            _check_bounds((self.expected[0],), (self.expected[1],))
        _check_level(self.level)


@dataclass(frozen=True, slots=True)
class EnvironmentMeasurement:
    """Runs of one application in one environment, oldest first.

    ``kind`` is the type of the environment (cpu-quota, io-throttle, cpuset, memory-limit, mix,
    instance ...); ``synthetic`` ones substitute kinds that the machine does not permit.
    """

    app: str
    environment: str
    kind: str
    synthetic: bool
    values: tuple[float, ...]
    marked: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        _check_costs(self.values, "values")
        _check_length("marked", self.marked, self.values)


@dataclass(frozen=True, slots=True)
class EnvironmentPrediction:
    """Predictions of one model, trained without this environment, for each of its runs.

    ``values`` (and ``lower``, ``upper``, ``extrapolating``, ``at_least``, unless empty) are
    parallel to the values of the measurement, since every run has its own fingerprint.
    """

    app: str
    environment: str
    model: str
    values: tuple[float, ...]
    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()
    level: float = 0.9
    extrapolating: tuple[bool, ...] = ()
    at_least: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        _check_costs(self.values, "values")
        for name in ("lower", "upper", "extrapolating", "at_least"):
            _check_length(name, getattr(self, name), self.values)
        if len(self.lower) != len(self.upper):
            raise InputError(
                "one bound of the intervals is missing.",
                field="upper" if self.lower else "lower",
                allowed="both bounds, or none",
            )
        _check_bounds(self.lower, self.upper)
        _check_level(self.level)


def unmarked(values: Sequence[float], marked: Sequence[bool]) -> tuple[float, ...]:
    """Return the values that are not marked; all of them if there are no marks."""
    if not marked:
        return tuple(values)
    return tuple(value for value, mark in zip(values, marked, strict=True) if not mark)


def _check_costs(values: Sequence[float], name: str) -> None:
    for value in values:
        if not (math.isfinite(value) and value > 0.0):
            raise InputError(
                "is not a cost.", field=name, value=value, allowed="finite numbers above 0"
            )


def _check_length(name: str, column: Sequence[object], values: Sequence[float]) -> None:
    if column and len(column) != len(values):
        raise InputError(
            "has another length than values.",
            field=name,
            value=len(column),
            allowed=f"one for each of the {len(values)} values, or empty",
        )


def _check_bounds(lower: Sequence[float], upper: Sequence[float]) -> None:
    for low, high in zip(lower, upper, strict=True):
        if not low <= high:
            raise InputError(
                "is below the lower bound, or not a number.",
                field="upper",
                value=high,
                allowed=f"{low} or more; may be infinite",
            )


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise InputError("is out of range.", field="level", value=level, allowed="between 0 and 1")


def once_each(
    predicted: Iterable[_Predicted],
    key: Callable[[_Predicted], tuple[str, str, str]],
    *,
    describe: Callable[[_Predicted], str],
    allowed: str,
) -> dict[tuple[str, str, str], _Predicted]:
    """Return predictions by ``key``. Raises InputError, which names one by ``describe``, if a key
    is there twice."""
    by_key: dict[tuple[str, str, str], _Predicted] = {}
    for prediction in predicted:
        if key(prediction) in by_key:
            raise InputError(
                "is there twice.", field="predicted", value=describe(prediction), allowed=allowed
            )
        by_key[key(prediction)] = prediction
    return by_key
