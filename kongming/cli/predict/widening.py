"""Note on the widening of a prediction's interval by co-runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kongming.learning.intervals import Widening


def note(widening: Widening) -> tuple[str, ...]:
    """Return a sentence on how the interval was widened; none without co-runs."""
    if not widening.groups:
        return ()
    runs = f"{widening.pairs} co-run{'' if widening.pairs == 1 else 's'}"
    apps = f"{widening.groups} other application{'' if widening.groups == 1 else 's'}"
    if abs(widening.factor - 1.0) < 0.005:
        return (f"The interval needed no widening, by {runs} of {apps}.",)
    how = "widened" if widening.factor > 1.0 else "narrowed"
    return (f"The interval is {how} by {widening.factor:.2f}, learned from {runs} of {apps}.",)
