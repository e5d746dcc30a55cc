"""Durations on the command line: ``90`` (seconds), ``90s``, ``5m``, ``1h30m``, ``2d``."""

from __future__ import annotations

import math
import re

import click

from kongming.quantities import DECIMAL_MARK, THOUSANDS, has_thousands, with_point

__all__ = ["DURATION", "DURATION_OR_NONE", "Duration"]

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = r"\d+(?:\.\d+)?|\.\d+"
_PART = re.compile(rf"({_NUMBER})(ms|[smhd])")
_FORMAT = re.compile(rf"(?:(?:{_NUMBER})(?:ms|[smhd]))+")


_WORDS = {
    "ms": ("msec", "msecs", "millisecond", "milliseconds"),
    "s": ("sec", "secs", "second", "seconds"),
    "m": ("min", "mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
    "d": ("day", "days"),
}
_UNIT_OF = {word: unit for unit, words in _WORDS.items() for word in (unit, *words)}
_IN_WORDS = re.compile(rf"({_NUMBER})\s*([a-z]+)\s*")


def _seconds(text: str) -> float:
    if _FORMAT.fullmatch(text):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return float(text) if re.fullmatch(_NUMBER, text) else math.nan


def _meant(text: str) -> str:
    """Return a sentence with what was meant perhaps, after a space: a decimal comma and units in
    words are what other programs take. Empty where it is not known."""
    if has_thousands(text):
        return f" {THOUSANDS}"
    point = with_point(text)
    plain = point or text
    parts = _IN_WORDS.findall(plain)
    if parts and not _IN_WORDS.sub("", plain) and all(unit in _UNIT_OF for _, unit in parts):
        plain = "".join(number + _UNIT_OF[unit] for number, unit in parts)
    if plain == text or not _seconds(plain) > 0.0:
        return ""
    return f" Did you mean {plain}?" + (f" {DECIMAL_MARK}" if point else "")


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
        seconds = _seconds(text)
        if not (0.0 < seconds < math.inf or (self.zero and seconds == 0.0)):
            least = "0 or more" if self.zero else "above 0"
            self.fail(
                f"{str(value)!r} is not an allowed duration. Allowed: {least}, as 90 (seconds), "
                f"5m, 1h30m or 2d.{_meant(text)}",
                param,
                ctx,
            )
        return seconds


DURATION = Duration()
DURATION_OR_NONE = Duration(zero=True)
