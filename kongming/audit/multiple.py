"""Many tests at once: p-values adjusted so that a few false alarms stay a few.

Missing p-values (NaN) stay missing and do not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kongming.dataset import Floats

__all__ = ["benjamini_hochberg", "holm"]


def holm(p: Sequence[float] | Floats) -> Floats:
    """Holm (1979): rejecting those at or below a keeps the chance of any false alarm at a."""
    return _adjusted(p, lambda ordered: np.maximum.accumulate(_falling(len(ordered)) * ordered))


def benjamini_hochberg(p: Sequence[float] | Floats) -> Floats:
    """Benjamini and Hochberg (1995): rejecting those at or below a keeps the expected share of
    false alarms among the rejected at a."""

    def step_up(ordered: Floats) -> Floats:
        n = len(ordered)
        scaled = ordered * n / np.arange(1.0, n + 1.0)
        return np.asarray(np.minimum.accumulate(scaled[::-1])[::-1], dtype=np.float64)

    return _adjusted(p, step_up)


def _falling(n: int) -> Floats:
    return np.arange(float(n), 0.0, -1.0)


def _adjusted(p: Sequence[float] | Floats, rule: object) -> Floats:
    values = np.asarray(p, dtype=np.float64)
    made = np.full(values.shape, np.nan)
    known = np.flatnonzero(np.isfinite(values))
    if len(known):
        assert callable(rule)
        order = known[np.argsort(values[known], kind="stable")]
        made[order] = np.minimum(rule(values[order]), 1.0)
    return made
