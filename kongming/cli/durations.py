"""Durations as people write them: ``90s``, ``30m``, ``1h30m``, ``2d``."""

from __future__ import annotations

import re

import click

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Seconds above 0, from a number with a unit (s, m, h or d), or several of them; the callback
    of an option. Raises BadParameter for anything else."""
    if value is None:
        return None
    text = value.strip().lower()
    if _WHOLE.fullmatch(text):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
        if seconds > 0:
            return seconds
    raise click.BadParameter(
        f"{value!r} is not a duration such as 90s, 30m, 1h30m or 2d.", ctx, param
    )
