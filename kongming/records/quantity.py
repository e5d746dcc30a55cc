"""Numbers that a program or a machine can have: what is computed from others is no number, or none
that ought to be."""

from __future__ import annotations

from kongming.records.errors import ImplausibleError

LARGEST = 1e100
"""No quantity of a program or a machine is larger, whatever its unit, nor smaller than its inverse
unless it is 0: their squares, sums and quotients are finite, and above 0 where they ought to be."""


def is_quantity(value: float) -> bool:
    """Return whether a program or a machine can have it: 0, or a number that is neither too large
    nor too close to 0 to be computed with."""
    return value == 0.0 or 1.0 / LARGEST <= abs(value) <= LARGEST


def check_number(
    value: float | None,
    field: str,
    least: float = -LARGEST,
    allowed: str = f"-{LARGEST:g} to {LARGEST:g}",
) -> None:
    """Raises ImplausibleError for what is not a number from ``least`` to ``LARGEST``."""
    if value is None or not least <= value <= LARGEST:
        raise ImplausibleError("is implausible.", field=field, value=value, allowed=allowed)


def check_quantity(value: float, field: str) -> None:
    """Raises ImplausibleError for what is none (``is_quantity``)."""
    if not is_quantity(value):
        raise ImplausibleError(
            "is implausible.",
            field=field,
            value=value,
            allowed=f"0, or {1 / LARGEST:g} to {LARGEST:g} on either side of it",
        )
