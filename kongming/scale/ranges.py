"""``1..16``, ``1,2,4,8`` and ``0.01..0.1``: what a user writes for several values."""

from __future__ import annotations

import math

import numpy as np

from kongming.errors import InputError

__all__ = ["machine_counts", "scales"]

MOST = 10_000
SCALE_STEPS = 10


def machine_counts(text: str, *, field: str = "--machines") -> tuple[int, ...]:
    """Whole numbers from 1: a list, ``LOW..HIGH``, or ``LOW..HIGH:STEP``. Raises InputError."""
    found: set[int] = set()
    for part in _parts(text, field, _MACHINES):
        ends, _, step = part.partition(":")
        low, dots, high = ends.partition("..")
        first = _whole(low, text, field)
        last = _whole(high, text, field) if dots else first
        stride = _whole(step, text, field) if step else 1
        if last < first or (last - first) // stride >= MOST:
            raise InputError(
                "counts down." if last < first else f"is more than {MOST} counts.",
                field=field,
                found=text,
                allowed=_MACHINES,
            )
        found.update(range(first, last + 1, stride))
    return tuple(sorted(found))


def scales(text: str, *, field: str = "--scale") -> tuple[float, ...]:
    """Numbers above 0: a list, ``LOW..HIGH`` (ten evenly spaced ones), or ``LOW..HIGH:COUNT``.

    Raises:
        InputError: it is none of these.
    """
    found: set[float] = set()
    for part in _parts(text, field, _SCALES):
        ends, _, count = part.partition(":")
        low, dots, high = ends.partition("..")
        first = _above_zero(low, text, field)
        if not dots:
            found.add(first)
            continue
        last = _above_zero(high, text, field)
        steps = _whole(count, text, field) if count else SCALE_STEPS
        if last < first or steps > MOST:
            raise InputError(
                "counts down." if last < first else f"is more than {MOST} scales.",
                field=field,
                found=text,
                allowed=_SCALES,
            )
        # Rounded: 0.1 is to be 0.1 wherever it comes from.
        found.update(float(f"{value:.12g}") for value in np.linspace(first, last, steps))
    return tuple(sorted(found))


def _parts(text: str, field: str, allowed: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InputError("names no value.", field=field, found=text, allowed=allowed)
    return parts


def _whole(part: str, text: str, field: str) -> int:
    plain = part.strip()
    if not (plain.isascii() and plain.isdigit()) or int(plain) < 1 or len(plain) > 9:
        raise InputError(
            f"{part.strip()!r} is no whole number from 1.",
            field=field,
            found=text,
            allowed=_MACHINES,
        )
    return int(plain)


def _above_zero(part: str, text: str, field: str) -> float:
    try:
        value = float(part)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0.0:
        raise InputError(
            f"{part.strip()!r} is no number above 0.", field=field, found=text, allowed=_SCALES
        )
    return value


_MACHINES = "as 8, 1..16, 1..64:4 or 1,2,4,8"
_SCALES = "as 1, 0.01..0.1, 0.01..0.1:5 or 0.01,0.05,0.1"
