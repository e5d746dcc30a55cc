"""Shares on the command line: ``0.5`` or ``50%``."""

from __future__ import annotations

import math

import click

from kongming.quantities import (
    THOUSANDS,
    has_thousands,
    meant_with_point,
    parse_share,
    per_cent,
    with_point,
)

__all__ = ["FRACTION", "RISK", "SHARE", "Share"]

RISK = 0.95
"""Default of ``--risk``: the required probability of keeping a limit."""


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
        share = parse_share(text)
        if not self._allows(share):
            self.fail(
                f"{text!r} is not an allowed share. Allowed: {self._allowed()}, as "
                f"{'0.05 or 5%' if self.most <= 1.0 else '0.5 or 50%'}.{self._meant(text)}",
                param,
                ctx,
            )
        return share

    def _meant(self, text: str) -> str:
        """Return a sentence with what was meant perhaps, after a space; empty where no guess is
        near."""
        if has_thousands(text):
            return f" {THOUSANDS}"
        point = with_point(text)
        if point is not None and self._allows(parse_share(point)):
            return f" {meant_with_point(text)}"
        if not text.endswith("%") and self._allows(parse_share(f"{text}%")):
            return f" Did you mean {text}%?"
        return ""

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
