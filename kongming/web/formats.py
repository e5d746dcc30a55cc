"""Formats of numbers and times for people."""

from __future__ import annotations

__all__ = ["MISSING", "moment", "percent", "quantity", "ratio", "signed_percent"]

MISSING = "-"
"""The text of a missing value."""


def quantity(value: float | None, unit: str) -> str:
    """Three digits in a familiar unit: ``12.3 ns``, ``4.56 µs``, ``789 ms``, ``31.2 ops/s``."""
    if value is None:
        return MISSING
    if unit != "s":
        return f"{value:.3g} {unit}".strip()
    for factor, name in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        # 999.5 of a unit would be shown as 1000: that is one of the next.
        if abs(value) * factor < 999.5:
            return f"{_three_digits(value * factor)} {name}"
    return f"{_three_digits(value)} s"


def ratio(value: float | None) -> str:
    """A factor, with a multiplication sign."""
    if value is None:
        return MISSING
    return f"\u00d7{value:.3g}" if value >= 10.0 else f"\u00d7{value:.2f}"


def percent(share: float | None) -> str:
    """A share as per cent."""
    return MISSING if share is None else f"{100.0 * share:.1f} %"


def signed_percent(value: float | None) -> str:
    """A change that is in per cent already, with its sign."""
    return MISSING if value is None else f"{value:+.1f} %"


def moment(iso: str) -> str:
    """A time in ISO 8601 with a final Z, without the T and the Z."""
    return iso.replace("T", " ").rstrip("Z")


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"
