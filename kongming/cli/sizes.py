"""Sizes on the command line: ``5G``, ``500M``, ``2GiB``."""

from __future__ import annotations

import math
import re

import click

from kongming.quantities import meant_with_point

__all__ = ["MEMORY", "SIZE", "Memory", "Size"]

_UNITS = {
    **{letter: 1000.0**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)b?")
_LEAST = 1e6
"""Bytes: no profile writes less, so that a smaller size is a slip, as of a unit."""


class Size(click.ParamType[float]):
    """Gives bytes, a megabyte or more."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        match = _SIZE.fullmatch(str(value).strip().lower())
        size = math.nan if match is None else float(match[1]) * _UNITS[match[2]]
        if not _LEAST <= size < math.inf:
            reason = "is too small" if size < _LEAST else "is not a size with a unit"
            text = (
                f"{str(value)!r} {reason}. Allowed: 1M or more, as 500M, 5G or 2GiB. "
                f"{meant_with_point(str(value).strip())}"
            )
            self.fail(text.rstrip(), param, ctx)
        return size


SIZE = Size()


class Memory(click.ParamType[int]):
    """Gives bytes: 0 or more of them, or a number with a unit."""

    name = "memory"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if text.isascii() and text.isdigit() and len(text) < _DIGITS:
            return int(text)
        match = _SIZE.fullmatch(text.lower())
        if match is None or len(match[1]) >= _DIGITS:
            reason = (
                f"{text!r} is not an amount of memory. Allowed: a whole number of bytes, or a size "
                f"as 512M, 4G or 2GiB. {meant_with_point(text)}"
            )
            self.fail(reason.rstrip(), param, ctx)
        return int(float(match[1]) * _UNITS[match[2]])


_DIGITS = 16
"""More is beyond every machine, and what a record of bytes holds."""

MEMORY = Memory()
