"""The benchmark of the gate's rates on a made-up machine: what it shows, and what it notices."""

from __future__ import annotations

import random

import pytest

from benchmarks.gate import regressions as benchmark
from kongming.gate.noise import Goal
from kongming.gate.watching import Watcher
from tests.gate.test_benchmark_runners import Machine, machine

__all__ = ["machine"]

GOAL = Goal(benchmark.EFFECT)
RUNS, TRIALS = 10, 120


class MadeUp(benchmark.Bench):
    """Measures a program of 3 % noise that a neighbour, who shows himself by a signal or by slower
    fingerprints alone, slows by 30 %."""

    def __init__(self, machine: Machine, shown_by: str) -> None:
        self._machine, self._shown_by = machine, shown_by
        self._coin, self._watcher = random.Random(5), Watcher(benchmark.EFFECT)

    def take(self, work: float, neighbour: int | None) -> benchmark.Take:
        present = neighbour is not None and self._coin.random() < 0.5
        shown = {"steal": 0.2, "factor": 1.3}[self._shown_by]
        quiet = {"steal": 0.0, "factor": 1.0}
        self._machine.update(quiet | ({self._shown_by: shown} if present else {}))
        opened = self._watcher.begin()
        slow = 1.3 if present else 1.0
        times = [work * slow * (1.0 + self._coin.gauss(0.0, 0.03)) for _ in range(RUNS)]
        return benchmark.Take(times, self._watcher.end(opened).to_dict())


@pytest.mark.parametrize("shown_by", ["steal", "factor"])
def test_beside_a_neighbour_the_stated_rates_hold(machine: Machine, shown_by: str) -> None:
    bench = MadeUp(machine, shown_by)
    # As on any machine: what is usual is known from a quiet moment.
    alone = [bench.trial(None) for _ in range(3)]
    trials = [bench.trial(1) for _ in range(TRIALS)]
    ways = benchmark.judged(trials, GOAL)
    gate, threshold = ways["gate"], ways["threshold"]
    assert threshold["false_regressions"] > 0.2 * TRIALS
    assert gate["unchanged_judged"] > 0.8 * TRIALS
    assert gate["slower_judged"] > 0.8 * TRIALS
    assert benchmark.missed({"neighbour": ways}, GOAL) == []
    # Without looking at the neighbour no test keeps the rate, and the benchmark says so.
    assert benchmark.missed({"neighbour": ways | {"gate": ways["test"]}}, GOAL) != []
    assert benchmark.judged(alone, GOAL)["gate"]["unchanged_judged"] == len(alone)
