"""Codes of points as columns for models: scaled to [0, 1], choices as indicators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kongming.arrays import Floats
from kongming.explore.dimensions import Dimension

Scales = Literal["raw", "log", "both", "even"]


@dataclass(frozen=True, slots=True)
class Feature:
    """A column: the dimension's place, and which choice it indicates, or its end points.
    ``presence``: 1 where the dimension exists."""

    place: int
    name: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    choice: int | None = None
    presence: bool = False


class Features:
    """The columns of a space: a number on its scale, an indicator for each unordered choice beyond
    two, and for a dimension that may be absent whether it exists (its own column is then 1/2)."""

    def __init__(self, dimensions: tuple[Dimension, ...], scales: Scales = "raw") -> None:
        """``scales``: of numbers above 0 that span a factor of 4 or more. Those of log ranges are
        always taken in logarithm. ``even``: the scale on which the values that a list offers lie
        more evenly, since that is where who listed them expects equal effects."""
        self.columns: list[Feature] = []
        for place, dimension in enumerate(dimensions):
            if dimension.may_be_absent:
                self.columns.append(Feature(place, f"{dimension.name} exists", presence=True))
            if dimension.unordered:
                self.columns += [
                    Feature(place, f"{dimension.name}={value}", choice=choice)
                    for choice, value in enumerate(dimension.values)
                ]
                continue
            low, high = _ends(dimension)
            if high <= low:
                continue
            numeric = dimension.kind in ("numbers", "integer", "real")
            spans = numeric and low > 0.0 and high >= 4.0 * low
            if scales == "even":
                spans = spans and _geometric(dimension)
            log = dimension.log or (spans and scales != "raw")
            if log:
                self.columns.append(Feature(place, f"log({dimension.name})", low, high, log=True))
            if not log or (scales == "both" and spans):
                self.columns.append(Feature(place, dimension.name, low, high))
        if not self.columns:
            self.columns.append(Feature(0, dimensions[0].name))
        self.groups = np.array([column.place for column in self.columns])

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def __call__(self, codes: Floats) -> Floats:
        """The (n, p) columns of (n, d) codes."""
        matrix = np.empty((len(codes), len(self.columns)))
        for at, column in enumerate(self.columns):
            values = codes[:, column.place]
            if column.presence:
                matrix[:, at] = ~np.isnan(values)
            elif column.choice is not None:
                matrix[:, at] = values == column.choice
            else:
                if column.log:
                    low, high = np.log(column.low), np.log(column.high)
                    matrix[:, at] = (np.log(values) - low) / (high - low)
                else:
                    matrix[:, at] = (values - column.low) / (column.high - column.low)
                np.nan_to_num(matrix[:, at], copy=False, nan=0.5)
        return matrix


def _geometric(dimension: Dimension) -> bool:
    """Return whether the values of a list lie more evenly by their logarithms."""
    if not dimension.values:
        return False
    grid = np.unique(dimension.grid())
    return _widest_gap(np.log(grid)) < _widest_gap(grid)


def _widest_gap(grid: Floats) -> float:
    """Return the widest gap as a share of the range."""
    return float(np.diff(grid).max() / np.ptp(grid))


def _ends(dimension: Dimension) -> tuple[float, float]:
    if not dimension.values:
        return dimension.low, dimension.high
    grid = dimension.grid()
    return float(grid.min()), float(grid.max())
