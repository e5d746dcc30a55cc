"""Checks of a new space: its conditions hold somewhere, and tables and codes keep its values."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kongming.explore.dimensions import Dimension
from kongming.explore.errors import ExploreError
from kongming.explore.sampling import Group
from kongming.records.quantity import LARGEST


def refuse_absent(groups: Iterable[Group]) -> None:
    """Refuse a condition that holds nowhere, in groups that are small enough to list."""
    for group in groups:
        listed = group.listed if group.judge is not None else None
        if listed is None:
            continue
        for column, dimension in enumerate(group.dimensions):
            if np.isnan(listed[0][:, column]).all():
                raise ExploreError(
                    "is a condition that holds at no allowed point.",
                    field=f"{dimension.name}.when",
                    value=dimension.when,
                    allowed="a condition that holds somewhere, or no such dimension",
                )


def refuse_unwritable(dimensions: Iterable[Dimension]) -> None:
    """A table of runs has to tell each text from others, and from one that does not exist."""
    for dimension in dimensions:
        for text in (value for value in dimension.values if isinstance(value, str)):
            if text != text.strip() or "\n" in text or "\r" in text:
                raise ExploreError(
                    "begins or ends with a blank or has several lines, which no table keeps.",
                    field=dimension.name,
                    value=text,
                )
            if not text and dimension.when is not None:
                raise ExploreError(
                    "is empty, as a cell is where the dimension does not exist.",
                    field=dimension.name,
                    value=text,
                    hint="Put the whole option into the command, or give the choice a name.",
                )


def refuse_inexact(dimensions: Iterable[Dimension]) -> None:
    """The code of a number is the number, and squares of ranges have to be numbers."""
    for dimension in dimensions:
        listed = dimension.values if dimension.kind == "numbers" else ()
        ends = () if dimension.values else (dimension.low, dimension.high)
        for value in (*listed, *ends):
            number = float(value)
            if number != value or abs(number) > LARGEST:
                raise ExploreError(
                    "is no number that a code can be.",
                    field=dimension.name,
                    value=value,
                    allowed=f"numbers within {LARGEST:g}, whole ones within 2^53",
                )
