"""Shares on the command line: ``0.5`` or ``50%``."""

from __future__ import annotations

import math

import click

from kongming.quantities import per_cent

__all__ = ["FRACTION", "SHARE", "Share"]


class Share(click.ParamType[float]):
    """Gives the share, 0.05 for ``5%``: above 0, and below ``most`` or up to it (``closed``)."""

    name = "share"

    def __init__(self, most: float = 1.0, *, closed: bool = True) -> None:
        self.most = most
        self.closed = closed

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%").rstrip())
        except ValueError:
            number = math.nan
        share = number / 100.0 if text.endswith("%") else number
        if not self._allows(share):
            meant = not text.endswith("%") and self._allows(number / 100.0)
            self.fail(
                f"{text!r} is not an allowed share. Allowed: {self._allowed()}, as "
                f"{'0.05 or 5%' if self.most <= 1.0 else '0.5 or 50%'}."
                + (f" Did you mean {text}%?" if meant else ""),
                param,
                ctx,
            )
        return share

    def _allows(self, share: float) -> bool:
        return math.isfinite(share) and (
            0.0 < share < self.most or (self.closed and share == self.most)
        )

    def _allowed(self) -> str:
        if math.isinf(self.most):
            return "above 0"
        end = "up to" if self.closed else "below"
        return f"above 0, {end} {self.most:g} ({per_cent(100.0 * self.most, 'g')})"


SHARE = Share()
"""Up to all of it."""

FRACTION = Share(closed=False)
"""Below 1: a probability, a tolerance."""
