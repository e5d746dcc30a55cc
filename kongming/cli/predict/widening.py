"""A sentence on what co-runs say about the intervals of a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kongming.learning.intervals import Widening


def note(widening: Widening) -> tuple[str, ...]:
    """A sentence on how intervals were widened; none where there was nothing to learn from."""
    if not widening.groups:
        return ()
    runs = f"{widening.pairs} co-run{'' if widening.pairs == 1 else 's'}"
    apps = f"{widening.groups} other application{'' if widening.groups == 1 else 's'}"
    if abs(widening.factor - 1.0) < 0.005:
        return (f"The interval needed no widening, by {runs} of {apps}.",)
    how = "widened" if widening.factor > 1.0 else "narrowed"
    return (f"The interval is {how} by {widening.factor:.2f}, learnt from {runs} of {apps}.",)
