"""Parse ranges and lists on the command line: ``1..16``, ``1,2,4,8``, ``0.01..0.1``."""

from __future__ import annotations

import math

import numpy as np

from kongming.quantities import DECIMAL_MARK, parse_share
from kongming.records.errors import InputError

MAX_VALUES = 10_000
SCALE_STEPS = 10

LARGEST = 999_999_999
"""The largest count that is read at all."""


def machine_counts(text: str, *, field: str = "--machines", most: int = LARGEST) -> tuple[int, ...]:
    """Parse integers from 1 to ``most``: a list, ``LOW..HIGH``, or ``LOW..HIGH:STEP``. Raises
    InputError."""
    counts: set[int] = set()
    for part in _parts(text, field, _MACHINES):
        ends, _, step = part.partition(":")
        low, dots, high = ends.partition("..")
        first = _integer(low, text, field, most)
        last = _integer(high, text, field, most) if dots else first
        stride = _integer(step, text, field, most) if step else 1
        if last < first or (last - first) // stride >= MAX_VALUES:
            raise InputError(
                "counts down." if last < first else f"is more than {MAX_VALUES} counts.",
                field=field,
                value=text,
                allowed=_MACHINES,
            )
        counts.update(range(first, last + 1, stride))
    return tuple(sorted(counts))


def scales(text: str, *, field: str = "--scale") -> tuple[float, ...]:
    """Parse shares above 0, as 0.05 or 5%: a list, ``LOW..HIGH`` (ten evenly spaced), or
    ``LOW..HIGH:COUNT``.

    Raises:
        InputError: the text has none of these forms.
    """
    values: set[float] = set()
    for part in _parts(text, field, _SCALES):
        ends, _, count = part.partition(":")
        low, dots, high = ends.partition("..")
        first = _above_zero(low, text, field)
        if not dots:
            values.add(first)
            continue
        last = _above_zero(high, text, field)
        steps = _integer(count, text, field) if count else SCALE_STEPS
        if last < first or steps > MAX_VALUES:
            raise InputError(
                "counts down." if last < first else f"is more than {MAX_VALUES} scales.",
                field=field,
                value=text,
                allowed=_SCALES,
            )
        # Rounded, so that 0.1 from a range equals 0.1 from a list.
        values.update(float(f"{value:.12g}") for value in np.linspace(first, last, steps))
    return tuple(sorted(values))


def _parts(text: str, field: str, allowed: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InputError("has no value.", field=field, value=text, allowed=allowed)
    return parts


def _integer(part: str, text: str, field: str, most: int = LARGEST) -> int:
    plain = part.strip()
    low, dash, high = plain.partition("-")
    if dash and low.isdigit() and high.isdigit():
        raise InputError(
            "is not a range.",
            field=field,
            value=text,
            allowed=_MACHINES,
            hint=f"Did you mean {text.replace(plain, f'{low}..{high}')}?",
        )
    if plain.isascii() and plain.isdigit() and (len(plain) > 9 or int(plain) > most):
        raise InputError(
            f"is more than {most}."
            if plain == text.strip()
            else f"has {plain!r}, which is more than {most}.",
            field=field,
            value=text,
            allowed=f"{_MACHINES}, each up to {most}",
        )
    if not (plain.isascii() and plain.isdigit()) or int(plain) < 1:
        raise InputError(
            "is not a whole number from 1."
            if plain == text.strip()
            else f"has {plain!r}, which is not a whole number from 1."
            if plain
            else "lacks a number.",
            field=field,
            value=text,
            allowed=_MACHINES,
        )
    return int(plain)


def _above_zero(part: str, text: str, field: str) -> float:
    plain = part.strip()
    value = parse_share(plain)
    if not math.isfinite(value) or value <= 0.0:
        raise InputError(
            f"{plain!r} is not a share above 0.",
            field=field,
            value=text,
            allowed=_SCALES,
            hint=f"{DECIMAL_MARK} Commas separate values." if "," in text else None,
        )
    return value


_MACHINES = "as 8, 1..16, 1..64:4 or 1,2,4,8"
_SCALES = "as 1, 0.01..0.1, 1%..10%, 0.01..0.1:5 or 0.01,0.05,0.1"
