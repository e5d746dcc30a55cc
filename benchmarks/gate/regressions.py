"""False regressions of an unchanged program, and true ones found, with a neighbour that comes and
goes: without and with the gate. Prints one JSON document.

A program is measured three times in a trial: as the baseline, unchanged, and with 5 % more work.
Before each measurement a coin decides whether a neighbour runs (a load on memory, on the other CPU
or on the same). Three ways to judge, of the same measurements:

    threshold   slower if the mean is more than half of the effect above the baseline's
    test        slower by the t-test of the gate, whatever happened
    gate        the same test; a disturbed measurement is made again, at most four times in all, and
                there is no verdict where it stays disturbed or the machine itself changed

`gate_by_fingerprints` is the gate without the system's signals: as with a neighbour whom the
machine does not show, in another virtual machine. Exit status 4 with --check where the gate calls
the unchanged program slower significantly more often than stated, finds the slower one too rarely,
or judges nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import comb
from multiprocessing.connection import Connection
from statistics import fmean
from typing import Any

from kongming.gate.comparison import compare
from kongming.gate.noise import Goal, noise, repetitions
from kongming.gate.watching import Watcher, incomparable
from kongming.probes.binary import Microbench
from kongming.probes.node import node_facts
from kongming.probes.suite import load_suite

EFFECT = 0.05
TAKES = 4
LOAD = "memory.streaming.128M"
SIDES = ("baseline", "unchanged", "slower")
FROM_FINGERPRINTS = ("compute", "memory")
WORK = 24
"""Passes over the memory of the program: about 30 ms."""


class Program:
    """Reads 8 MiB in strides of a cache line, and adds up."""

    def __init__(self) -> None:
        self._memory = memoryview(bytes(range(256)) * (32 << 10))

    def run(self, work: float) -> float:
        """Run with so much work, 1.0 as it is; returns seconds."""
        began = time.perf_counter()
        for part in range(round(WORK * 20 * work)):
            first = (part % 20) * (len(self._memory) // 20)
            sum(self._memory[first : first + len(self._memory) // 20 : 64])
        return time.perf_counter() - began


def measure(pipe: Connection, cpu: int) -> None:
    """The process that measures; neighbours are no children of its own, as in reality."""
    os.sched_setaffinity(0, {cpu})
    program, watcher = Program(), Watcher(EFFECT, cpu)
    # The neighbour may be on a CPU that we are not on.
    watcher.node = node_facts(allowed=os.sched_getaffinity(os.getppid()))
    watcher.fingerprint()
    program.run(1.0)
    while (asked := pipe.recv()) is not None:
        runs, work = asked
        opened = watcher.begin()
        times = [program.run(work) for _ in range(runs)]
        pipe.send((times, watcher.end(opened).to_dict()))


@dataclass(frozen=True)
class Take:
    times: list[float]
    document: dict[str, Any]

    def disturbed(self, *, fingerprints: bool) -> bool:
        return any(
            not fingerprints or reason["resource"] in FROM_FINGERPRINTS
            for reason in self.document["disturbed"]
        )

    def shown(self, *, fingerprints: bool) -> dict[str, Any]:
        """What the gate sees of it."""
        seen = [
            reason
            for reason in self.document["disturbed"]
            if not fingerprints or reason["resource"] in FROM_FINGERPRINTS
        ]
        return self.document | {"disturbed": seen}


class Bench:
    """Measures in the other process, with the neighbour as the coin says."""

    def __init__(self, pipe: Connection, runs: int, seed: int) -> None:
        self._pipe, self._runs, self._coin = pipe, runs, random.Random(seed)

    def take(self, work: float, neighbour: int | None) -> Take:
        present = neighbour is not None and self._coin.random() < 0.5
        with loaded(neighbour) if present and neighbour is not None else idle():
            self._pipe.send((self._runs, work))
            return Take(*self._pipe.recv())

    def trial(self, neighbour: int | None) -> dict[str, list[Take]]:
        """The takes of each side, as many as either gate wants."""
        trial: dict[str, list[Take]] = {}
        for side in SIDES:
            takes = [self.take(1.0 + EFFECT * (side == "slower"), neighbour)]
            while len(takes) < TAKES and takes[-1].disturbed(fingerprints=False):
                takes.append(self.take(1.0 + EFFECT * (side == "slower"), neighbour))
            trial[side] = takes
        return trial


@contextmanager
def idle() -> Iterator[None]:
    yield


@contextmanager
def loaded(cpu: int) -> Iterator[None]:
    """A load on memory on this CPU, from when it runs."""
    suite = load_suite()
    arguments = ["induce", *suite.arguments, "--dir", str(suite.directory), "--cpu", str(cpu)]
    with Microbench([*arguments, "--seconds", "600", LOAD]) as load:
        while (event := load.read(60.0)) is not None and event.get("event") != "ready":
            pass
        if event is None:
            raise RuntimeError(load.failure())
        yield


def by_threshold(trial: dict[str, list[Take]], side: str, goal: Goal) -> str:
    before, after = (fmean(trial[name][0].times) for name in ("baseline", side))
    return "slower" if after > before * (1.0 + EFFECT / 2.0) else "not slower"


def by_test(trial: dict[str, list[Take]], side: str, goal: Goal) -> str:
    return compare(trial["baseline"][0].times, trial[side][0].times, goal).verdict


def by_gate(
    trial: dict[str, list[Take]], side: str, goal: Goal, *, fingerprints: bool = False
) -> str:
    chosen = []
    for name in ("baseline", side):
        takes = trial[name]
        quiet = [take for take in takes if not take.disturbed(fingerprints=fingerprints)]
        chosen.append(quiet[0] if quiet else takes[-1])
    before, after = chosen
    documents = (take.shown(fingerprints=fingerprints) for take in (after, before))
    if incomparable(*documents):
        return "withheld"
    return compare(before.times, after.times, goal).verdict


WAYS = {
    "threshold": by_threshold,
    "test": by_test,
    "gate": by_gate,
    "gate_by_fingerprints": lambda *of: by_gate(*of, fingerprints=True),
}


def judged(trials: list[dict[str, list[Take]]], goal: Goal) -> dict[str, Any]:
    """For each way: of how many trials it called which side slower, or said nothing."""
    result: dict[str, Any] = {}
    for name, way in WAYS.items():
        verdicts = {side: Counter(way(trial, side, goal) for trial in trials) for side in SIDES[1:]}
        given = {side: len(trials) - counts["withheld"] for side, counts in verdicts.items()}
        result[name] = {
            "false_regressions": verdicts["unchanged"]["slower"],
            "unchanged_judged": given["unchanged"],
            "true_regressions_found": verdicts["slower"]["slower"],
            "slower_judged": given["slower"],
        }
    return result


def more_than_stated(count: int, of: int, rate: float) -> bool:
    """Whether ``count`` or more have a probability below 1 % where ``rate`` is true."""
    return sum(comb(of, k) * rate**k * (1 - rate) ** (of - k) for k in range(count, of + 1)) < 0.01


def missed(conditions: dict[str, Any], goal: Goal) -> list[str]:
    wrong = []
    for name, ways in conditions.items():
        gate = ways["gate"]
        if more_than_stated(
            gate["false_regressions"], gate["unchanged_judged"], goal.false_positives
        ):
            wrong.append(f"{name}: false regressions")
        unfound = gate["slower_judged"] - gate["true_regressions_found"]
        if not gate["slower_judged"] or more_than_stated(
            unfound, gate["slower_judged"], 1.0 - goal.power
        ):
            wrong.append(f"{name}: true regressions found")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=20, help="trials of each condition")
    parser.add_argument("--runs", type=int, help="runs of each side (default: from the noise)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="exit status 4 where a rate is missed")
    given = parser.parse_args()
    goal = Goal(EFFECT)
    cpus = sorted(os.sched_getaffinity(0))
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    worker = context.Process(target=measure, args=(theirs, cpus[0]), daemon=True)
    worker.start()
    theirs.close()
    began = time.monotonic()
    alone = Bench(ours, 20, given.seed).take(1.0, None)
    measured = noise(alone.times)
    runs = given.runs or min(40, repetitions(measured.upper, goal))
    bench = Bench(ours, runs, given.seed)
    where = {"alone": None, "same_cpu": cpus[0]}
    if len(cpus) > 1:
        where["other_cpu"] = cpus[1]
    trials: dict[str, list[dict[str, list[Take]]]] = {name: [] for name in where}
    for number in range(given.trials):
        # By turns, so that a phase of the machine is in all of them.
        for name, neighbour in where.items():
            trials[name].append(bench.trial(neighbour))
        print(f"trial {number + 1} of {given.trials}", file=sys.stderr)
    ours.send(None)
    worker.join()
    conditions = {name: judged(each, goal) for name, each in trials.items()}
    takes = {
        name: fmean(len(side) for trial in each for side in trial.values())
        for name, each in trials.items()
    }
    document = {
        "effect": EFFECT,
        "stated": {"false_positives": goal.false_positives, "power": goal.power},
        "run_s": fmean(alone.times),
        "noise": measured.estimate,
        "noise_at_most": measured.upper,
        "repetitions_needed": repetitions(measured.upper, goal),
        "runs": runs,
        "trials": given.trials,
        "takes": takes,
        "conditions": conditions,
        "missed": missed(conditions, goal),
        "elapsed_s": time.monotonic() - began,
    }
    print(json.dumps(document, indent=2))
    return 4 if given.check and document["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
