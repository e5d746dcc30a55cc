"""Sizes on the command line: ``5G``, ``500M``, ``2GiB``."""

from __future__ import annotations

import math
import re

import click

from kongming.quantities import DECIMAL_MARK, with_point

__all__ = ["SIZE", "Size"]

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
            point = with_point(str(value).strip())
            meant = f" Did you mean {point}? {DECIMAL_MARK}" if point else ""
            self.fail(
                f"{str(value)!r} {reason}. Allowed: 1M or more, as 500M, 5G or 2GiB.{meant}",
                param,
                ctx,
            )
        return size


SIZE = Size()
