"""Constraints on the parameters of an estimator, which ``fit`` checks before the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral

import numpy as np

__all__ = ["Boolean", "Constraint", "Interval", "RandomState", "check_parameters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A number of type ``kind`` (``Real`` or ``Integral``) from ``low`` to ``high``.

    ``open_low`` excludes ``low`` itself; infinity is always excluded. ``optional`` allows None.
    """

    kind: type
    low: float
    high: float = math.inf
    open_low: bool = False
    optional: bool = False

    def allows(self, value: object) -> bool:
        if value is None:
            return self.optional
        if isinstance(value, bool | np.bool_) or not isinstance(value, self.kind):
            return False
        number = float(value)  # type: ignore[arg-type]  # an Integral or a Real
        # Comparisons with NaN are false.
        return (self.low < number if self.open_low else self.low <= number) and (
            number <= self.high and number != math.inf
        )

    def __str__(self) -> str:
        name = "an int" if self.kind is Integral else "a float"
        low = "(" if self.open_low else "["
        high = ")" if self.high == math.inf else "]"
        return f"{name} in the range {low}{self.low}, {self.high}{high}" + (
            " or None" if self.optional else ""
        )


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or False."""

    def allows(self, value: object) -> bool:
        return isinstance(value, bool | np.bool_)

    def __str__(self) -> str:
        return "a bool"


@dataclass(frozen=True, slots=True)
class RandomState:
    """A seed, a generator, or None for a seed that differs each time."""

    def allows(self, value: object) -> bool:
        return isinstance(value, np.random.RandomState) or Interval(
            kind=Integral, low=0, high=2**32 - 1, optional=True
        ).allows(value)

    def __str__(self) -> str:
        return f"an int in the range [0, {2**32 - 1}], a numpy.random.RandomState or None"


Constraint = Interval | Boolean | RandomState


def check_parameters(
    owner: str, constraints: Mapping[str, Constraint], values: Mapping[str, object]
) -> None:
    """Check ``values`` by name; ``owner`` is the class that has these parameters.

    Raises:
        ValueError: a value is not allowed.
    """
    for name, constraint in constraints.items():
        if not constraint.allows(values[name]):
            raise ValueError(
                f"The {name!r} parameter of {owner} must be {constraint}. "
                f"Got {values[name]!r} instead."
            )
