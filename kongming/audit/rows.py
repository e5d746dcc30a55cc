"""What rows of an audit's tables have in common."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kongming.audit.intervals import Bounds
from kongming.audit.series import Series

__all__ = ["Row", "bounds_of", "iso", "of_series", "where_of"]

Row = dict[str, Any]


def iso(seconds: float) -> str:
    """A time as UTC to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def where_of(series: Series, name: int, machine_type: int, machine: int | None) -> Row:
    """The columns that every table begins with."""
    return {
        "type": series.types[machine_type],
        "machine": None if machine is None else series.machines[machine],
        "kind": series.names[name].kind,
        "name": series.names[name].name,
    }


def of_series(series: Series, key: tuple[int, int]) -> Row:
    return where_of(series, key[0], int(series.machine_type[key[1]]), key[1])


def bounds_of(prefix: str, bounds: Bounds) -> Row:
    low, high = bounds if bounds is not None else (None, None)
    return {f"{prefix}_lower": low, f"{prefix}_upper": high}
