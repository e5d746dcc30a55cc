"""Measure a benchmark of pytest-benchmark in several takes, until its rounds are enough.

Rounds right after one another share the machine's level of that moment; takes with pauses in
between show how much it drifts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

LEAST_TAKES = 12
"""Takes below which their drift is not known: in simulations with fewer of them twice as many
unchanged programs were called slower."""

PAUSE_S = 1.0


def takes_s(data: Sequence[float], rounds: Sequence[int]) -> list[float]:
    """The median of each take, from all rounds and the number of rounds in each take."""
    medians, first = [], 0
    for count in rounds:
        medians.append(median(data[first : first + count]))
        first += count
    return medians


class Continued:
    """Makes ``benchmark(...)`` of one fixture go on after its rounds: take after take of as many
    rounds, until ``enough`` says so of the takes' medians or the budget is used up. ``rounds`` are
    those of each take.

    ``benchmark.pedantic`` makes the rounds that it is given and no more.
    """

    def __init__(
        self,
        fixture: Any,
        budget_s: float,
        enough: Callable[[Sequence[float]], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._fixture, self._budget_s, self._enough = fixture, budget_s, enough
        self._clock, self._sleep = clock, sleep
        self._again: Callable[[], float] | None = None
        self.rounds: list[int] = []
        # Inside of the call, where what the benchmark needs is still there.
        self._raw, self._make_runner = fixture._raw, fixture._make_runner
        fixture._raw, fixture._make_runner = self._continued, self._runner

    def _runner(self, *args: Any) -> Callable[..., Any]:
        runner = self._make_runner(*args)

        def remembered(loops_range: Any, *more: Any) -> Any:
            self._again = lambda: runner(loops_range, *more)
            return runner(loops_range, *more)

        return remembered

    def _continued(self, *args: Any, **kwargs: Any) -> Any:
        began = self._clock()
        result = self._raw(*args, **kwargs)
        stats, again = self._fixture.stats, self._again
        if stats is None or again is None or not stats.stats.data:
            return result
        data = stats.stats.data
        self.rounds.append(len(data))
        # Longer than a take: another one would end after the budget.
        longest = self._clock() - began
        while longest + PAUSE_S < self._budget_s - (self._clock() - began):
            if len(self.rounds) >= LEAST_TAKES and self._enough(takes_s(data, self.rounds)):
                break
            self._sleep(PAUSE_S)
            # Untimed: after a pause caches are cold.
            again()
            for _ in range(self.rounds[0]):
                stats.update(again())
            self.rounds.append(self.rounds[0])
        return result
