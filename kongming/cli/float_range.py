"""The range of a number on the command line."""

from __future__ import annotations

import math
from typing import Any

import click


class FloatRange(click.FloatRange):
    """A range of click that refuses "nan", which is neither below a range nor above it."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number
