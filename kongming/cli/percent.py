"""A share on the command line: ``5%``, ``5`` (per cent) or ``0.05``."""

from __future__ import annotations

import math

import click


class Percent(click.ParamType[float]):
    """Gives the share: 0.05 for ``5%``."""

    name = "percent"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = math.nan
        # Below 1 without a sign is a share already.
        share = number if not text.endswith("%") and number < 1.0 else number / 100.0
        if not (math.isfinite(share) and 0.0 < share < 1.0):
            self.fail(f"{text!r} is no share. Allowed: above 0 and below 100 %, as in 5%.")
        return share


PERCENT = Percent()
