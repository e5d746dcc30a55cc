"""Delays between attempts that fail."""

from __future__ import annotations

import random


class Backoff:
    """Delays that double from ``first_s`` up to ``longest_s``, each drawn from its upper half, so
    that many that failed together do not try again together. ``failures`` counts those since the
    last success."""

    def __init__(self, first_s: float, longest_s: float, rng: random.Random | None = None) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._rng = rng or random.Random()
        self.failures = 0

    def after_failure(self) -> float:
        """Return the next delay in seconds."""
        bound = min(self._first_s * 2.0 ** min(self.failures, 30), self._longest_s)
        self.failures += 1
        return self._rng.uniform(0.5 * bound, bound)

    def after_success(self) -> None:
        self.failures = 0
