"""Formats of numbers and times for people."""

from __future__ import annotations

from kongming.quantities import format_duration, format_seconds, per_cent

__all__ = [
    "MISSING",
    "duration",
    "moment",
    "percent",
    "quantity",
    "ratio",
    "signed_percent",
    "span",
]

MISSING = "-"
"""The text of a missing value."""


def quantity(value: float | None, unit: str) -> str:
    """Three digits in a familiar unit: ``12.3 ns``, ``4.56 µs``, ``789 ms``, ``31.2 ops/s``."""
    if value is None:
        return MISSING
    if unit != "s":
        return f"{value:.3g} {unit}".strip()
    return format_seconds(value).replace(" us", " µs")


def span(low: float, high: float, unit: str) -> str:
    """Two ends in a familiar unit, which is said once where both have it: ``3.72 to 5.10 s``."""
    first, last = quantity(low, unit), quantity(high, unit)
    number, _, of = first.partition(" ")
    return f"{number if of == last.partition(' ')[2] else first} to {last}"


def ratio(value: float | None) -> str:
    """A factor, with a multiplication sign."""
    if value is None:
        return MISSING
    return f"\u00d7{value:.3g}" if value >= 10.0 else f"\u00d7{value:.2f}"


def percent(share: float | None) -> str:
    """A share as per cent."""
    return MISSING if share is None else per_cent(100.0 * share)


def signed_percent(value: float | None) -> str:
    """A change that is in per cent already, with its sign."""
    return MISSING if value is None else per_cent(value, "+.1f")


def duration(hours: float) -> str:
    """A time that passed, given in hours."""
    return format_duration(3600.0 * hours)


def moment(iso: str) -> str:
    """A time in ISO 8601 with a final Z, without the T and the Z."""
    return iso.replace("T", " ").rstrip("Z")
