"""Durations on the command line: ``90`` (seconds), ``90s``, ``5m``, ``1h30m``, ``2d``."""

from __future__ import annotations

import math
import re

import click

__all__ = ["DURATION", "DURATION_OR_NONE", "Duration"]

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = r"\d+(?:\.\d+)?|\.\d+"
_PART = re.compile(rf"({_NUMBER})(ms|[smhd])")
_FORMAT = re.compile(rf"(?:(?:{_NUMBER})(?:ms|[smhd]))+")


class Duration(click.ParamType[float]):
    """Gives seconds: above 0, or with ``zero`` 0 too."""

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self.zero = zero

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip().lower()
        seconds = math.nan
        if _FORMAT.fullmatch(text):
            seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
        elif re.fullmatch(_NUMBER, text):
            seconds = float(text)
        if not (0.0 < seconds < math.inf or (self.zero and seconds == 0.0)):
            least = "0 or more" if self.zero else "above 0"
            self.fail(
                f"{str(value)!r} is not an allowed duration. Allowed: {least}, as 90 (seconds), "
                "5m, 1h30m or 2d.",
                param,
                ctx,
            )
        return seconds


DURATION = Duration()
DURATION_OR_NONE = Duration(zero=True)
