"""The benchmark of the gate's rates on a made-up machine: what it shows, and what it notices."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.gate import regressions as benchmark
from kongming.gate.noise import Goal
from kongming.gate.watching import Watcher
from tests.gate.test_benchmark_runners import Machine, machine

__all__ = ["machine"]

GOAL = Goal(benchmark.EFFECT)
RUNS, TRIALS = 18, 100


class MadeUp(benchmark.Bench):
    """Measures a program of 3 % noise that a neighbour, which shows by a signal or by slower
    fingerprints alone, slows by 30 %."""

    def __init__(self, machine: Machine, shown_by: str, drift: float = 0.0) -> None:
        self._machine, self._shown_by, self._drift = machine, shown_by, drift
        self._coin, self._watcher = random.Random(5), Watcher(benchmark.EFFECT)

    def take(self, work: dict[str, float], neighbour: int | None) -> benchmark.Take:
        present = neighbour is not None and self._coin.random() < 0.5
        shown = {"steal": 0.2, "factor": 1.3}[self._shown_by]
        quiet = {"steal": 0.0, "factor": 1.0}
        self._machine.update(quiet | ({self._shown_by: shown} if present else {}))
        opened = self._watcher.begin()
        slow = 1.3 if present else 1.0
        # Another level in each take, which the three sides share where they are measured by turns.
        slow *= math.exp(self._coin.gauss(0.0, self._drift))
        times = {
            side: [amount * slow * (1.0 + self._coin.gauss(0.0, 0.03)) for _ in range(RUNS)]
            for side, amount in work.items()
        }
        return benchmark.Take(times, self._watcher.end(opened).to_dict(), present)


@pytest.mark.thorough
@pytest.mark.parametrize("shown_by", [pytest.param("steal", marks=pytest.mark.thorough), "factor"])
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


def test_pooled_over_conditions_the_same_rates_are_asked(machine: Machine) -> None:
    """What passes for chance in each of several conditions does not in all of them together."""
    machine["steal"] = 0.0
    trials = [MadeUp(machine, "steal").trial(None) for _ in range(2)]
    ways = benchmark.judged(trials, GOAL)
    each = ways["gate"] | {
        "false_regressions": 0, "unchanged_judged": 20, "true_regressions_found": 4,
        "slower_judged": 6,
    }  # fmt: skip
    conditions = {name: ways | {"gate": each} for name in ("alone", "same_cpu", "other_cpu")}
    assert benchmark.missed(conditions, GOAL) == []
    together = benchmark.pooled(conditions.values())
    assert together["gate"]["slower_judged"] == 18
    assert together["gate"]["found_rate"] == [0.437, 0.837]
    assert benchmark.missed({"all": together}, GOAL) == ["all: true regressions found"]


def test_drift_between_takes_is_no_regression_by_turns(machine: Machine) -> None:
    bench = MadeUp(machine, "steal", drift=0.02)
    trials = [bench.trial(None) for _ in range(TRIALS)]
    ways = benchmark.judged(trials, GOAL)
    assert ways["takes"]["false_regressions"] > 0.1 * TRIALS
    assert benchmark.missed({"alone": ways}, GOAL) == []
    assert ways["gate"]["slower_judged"] > 0.8 * TRIALS
    # The raw times are kept with whatever is judged.
    assert {len(take) for take in trials[0]["turns"][0].to_dict()["times_s"].values()} == {RUNS}
