"""Checks of what a profiler is given: an error names the field, what was found and allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from kongming.explore.errors import ExploreError
from kongming.records.quantity import LARGEST

SMALLEST = float(np.finfo(np.float64).tiny)


def finite(value: object, field: str) -> float:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExploreError("is not a number.", field=field, value=repr(value), allowed="a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ExploreError("is not finite.", field=field, value=repr(value), allowed="a number")
    return number


def summable(value: object, field: str) -> float:
    """A finite number whose square, summed over all runs, is one as well; 0 for what is so small
    that it has lost digits and nothing can be divided by it."""
    number = finite(value, field)
    if abs(number) < SMALLEST:
        return 0.0
    if abs(number) > LARGEST:
        raise ExploreError(
            "is out of range.",
            field=field,
            value=number,
            allowed=f"a number from {-LARGEST:g} to {LARGEST:g}",
            hint="Give it in a larger unit.",
        )
    return number


def within(
    value: object, field: str, low: float, high: float = math.inf, *, open_: bool = False
) -> float:
    """A number from ``low`` to ``high``; ``open_``: without the ends."""
    number = finite(value, field)
    if not low <= number <= high or (open_ and number in (low, high)):
        words, end = ("above", " and below") if open_ else ("from", " to")
        allowed = f"{words} {low:g}" + ("" if high == math.inf else f"{end} {high:g}")
        raise ExploreError("is out of range.", field=field, value=number, allowed=allowed)
    return number


def integer(value: object, field: str, least: int) -> int:
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        allowed = f"a whole number from {least}"
        raise ExploreError("is out of range.", field=field, value=repr(value), allowed=allowed)
    return value


def one_of(value: object, field: str, known: Iterable[str]) -> str:
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        allowed = ", ".join(names)
        raise ExploreError("is not known.", field=field, value=repr(value), allowed=allowed)
    return value


def flag(value: object, field: str) -> bool:
    """A boolean, which no text and no other number stands for."""
    if not isinstance(value, bool | np.bool_):
        raise ExploreError(
            "is neither true nor false.", field=field, value=repr(value), allowed="True, False"
        )
    return bool(value)


def three_weights(weights: object) -> tuple[float, float, float]:
    if isinstance(weights, np.ndarray):
        weights = weights.tolist()
    if not isinstance(weights, tuple | list) or len(weights) != 3:
        raise ExploreError(
            "are not three numbers.",
            field="weights",
            value=repr(weights),
            allowed="of error, size and cost",
        )
    # Sums of larger ones are no numbers.
    error, size, cost = (within(weight, "weights", -LARGEST, LARGEST) for weight in weights)
    return error, size, cost
