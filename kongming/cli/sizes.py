"""Sizes on the command line: ``5G``, ``500M``, ``2GiB``, ``1000`` (bytes)."""

from __future__ import annotations

import math
import re

import click

__all__ = ["SIZE", "Size"]

_UNITS = {
    "": 1.0,
    **{letter: 1000.0**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?")


class Size(click.ParamType[float]):
    """Gives bytes above 0."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        found = _SIZE.fullmatch(str(value).strip().lower())
        unit = None if found is None else _UNITS.get(found[2])
        size = math.nan if found is None or unit is None else float(found[1]) * unit
        if not 0.0 < size < math.inf:
            self.fail(
                f"{str(value)!r} is not a size. Allowed: above 0, as 500M, 5G, 2GiB or 1000 "
                "(bytes).",
                param,
                ctx,
            )
        return size


SIZE = Size()
