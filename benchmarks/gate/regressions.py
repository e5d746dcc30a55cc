"""False regressions of an unchanged program, and true ones found, with a neighbour that comes and
goes: without and with the gate. Prints one JSON document, with the raw times of every take.

A program is measured as the baseline, unchanged, and with 5 % more work: in three takes one after
the other, and in one take by turns. Before each take a coin decides whether a neighbour runs (a
load on memory, on the other CPU or on the same). Ways to judge:

    threshold   takes: slower if the mean is more than half of the effect above the baseline's
    test        takes: slower by the t-test of the gate, whatever happened
    takes       takes: the same test; a disturbed take is made again, at most four times in all, and
                there is no verdict where it stays disturbed or the machine itself changed
    gate        by turns: what `kongming audit gate --baseline` does; a disturbed take is made
                again, at most four times in all

`gate_by_fingerprints` is the gate without the system's signals: as with a neighbour that the
machine does not show, in another virtual machine. Rates are of what was not withheld; that true
regressions are found is promised, and counted, where there were as many runs as their own noise
requires. Exit status 4 with --check where the gate calls the unchanged program slower significantly
more often than stated, finds the slower one too rarely, or judges nothing: in any condition, or in
all of them together.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import comb
from multiprocessing.connection import Connection
from statistics import fmean
from typing import Any

from kongming.gate.comparison import Comparison, compare, compare_turns
from kongming.gate.noise import Goal, noise, repetitions
from kongming.gate.watching import Watcher, incomparable
from kongming.probes.binary import Microbench
from kongming.probes.node import node_facts
from kongming.probes.suite import load_suite

EFFECT = 0.05
TAKES = 4
LOAD = "memory.streaming.128M"
SIDES = ("baseline", "unchanged", "slower")
TURNS = "turns"
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
    # Ctrl-C is sent to both processes; the other decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setaffinity(0, {cpu})
    program, watcher, order = Program(), Watcher(EFFECT, cpu), random.Random(cpu)
    # The neighbour may be on a CPU that we are not on.
    watcher.node = node_facts(allowed=os.sched_getaffinity(os.getppid()))
    watcher.fingerprint()
    program.run(1.0)
    while (request := pipe.recv()) is not None:
        runs, work = request
        opened = watcher.begin()
        times: dict[str, list[float]] = {side: [] for side in work}
        for _ in range(runs):
            for side in order.sample(list(work), len(work)):
                times[side].append(program.run(work[side]))
        pipe.send((times, watcher.end(opened).to_dict()))


@dataclass(frozen=True)
class Take:
    """Times by side, measured by turns where there are several; ``neighbour``: whether it ran."""

    times: dict[str, list[float]]
    document: dict[str, Any]
    neighbour: bool

    def disturbed(self, *, fingerprints: bool) -> bool:
        return bool(self.shown(fingerprints=fingerprints)["disturbed"])

    def shown(self, *, fingerprints: bool) -> dict[str, Any]:
        """What the gate sees of it."""
        seen = [
            reason
            for reason in self.document["disturbed"]
            if not fingerprints or reason["resource"] in FROM_FINGERPRINTS
        ]
        return self.document | {"disturbed": seen}

    def to_dict(self) -> dict[str, Any]:
        return {"neighbour": self.neighbour, "times_s": self.times, "seen": self.document}


Trial = dict[str, list[Take]]
"""Takes of each side, and of all sides by turns."""


class Bench:
    """Measures in the other process, with the neighbour as the coin says."""

    def __init__(self, pipe: Connection, runs: int, seed: int) -> None:
        self._pipe, self._runs, self._coin = pipe, runs, random.Random(seed)

    def take(self, work: dict[str, float], neighbour: int | None) -> Take:
        present = neighbour is not None and self._coin.random() < 0.5
        with loaded(neighbour) if present and neighbour is not None else idle():
            self._pipe.send((self._runs, work))
            return Take(*self._pipe.recv(), present)

    def trial(self, neighbour: int | None) -> Trial:
        """The takes of each side and of all, as many as either gate wants."""
        trial: Trial = {}
        for name, sides in (*((side, (side,)) for side in SIDES), (TURNS, SIDES)):
            work = {side: 1.0 + EFFECT * (side == "slower") for side in sides}
            takes = [self.take(work, neighbour)]
            while len(takes) < TAKES and takes[-1].disturbed(fingerprints=False):
                takes.append(self.take(work, neighbour))
            trial[name] = takes
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


@dataclass(frozen=True)
class Judgement:
    """``enough``: there were as many runs as their own noise requires."""

    verdict: str
    enough: bool = True


WITHHELD = Judgement("withheld")


def _of(comparison: Comparison) -> Judgement:
    return Judgement(comparison.verdict, comparison.runs >= comparison.needed)


def by_threshold(trial: Trial, side: str, goal: Goal) -> Judgement:
    before, after = (fmean(trial[name][0].times[name]) for name in ("baseline", side))
    return Judgement("slower" if after > before * (1.0 + EFFECT / 2.0) else "not slower")


def by_test(trial: Trial, side: str, goal: Goal) -> Judgement:
    before, after = (trial[name][0].times[name] for name in ("baseline", side))
    return _of(compare(before, after, goal))


def by_takes(trial: Trial, side: str, goal: Goal) -> Judgement:
    before, after = (_chosen(trial[name], fingerprints=False) for name in ("baseline", side))
    if incomparable(after.document, before.document):
        return WITHHELD
    return _of(compare(before.times["baseline"], after.times[side], goal))


def by_gate(trial: Trial, side: str, goal: Goal, *, fingerprints: bool = False) -> Judgement:
    take = _chosen(trial[TURNS], fingerprints=fingerprints)
    if take.disturbed(fingerprints=fingerprints):
        return WITHHELD
    return _of(compare_turns(take.times["baseline"], take.times[side], goal))


def _chosen(takes: list[Take], *, fingerprints: bool) -> Take:
    """The first undisturbed one, else the last."""
    quiet = (take for take in takes if not take.disturbed(fingerprints=fingerprints))
    return next(quiet, takes[-1])


WAYS: dict[str, Callable[[Trial, str, Goal], Judgement]] = {
    "threshold": by_threshold,
    "test": by_test,
    "takes": by_takes,
    "gate": by_gate,
    "gate_by_fingerprints": lambda *of: by_gate(*of, fingerprints=True),
}


def judged(trials: list[Trial], goal: Goal) -> dict[str, Any]:
    """For each way: of how many trials it called which side slower, or could not tell."""
    result: dict[str, Any] = {}
    for name, way in WAYS.items():
        judgements = {
            side: [
                judgement
                for trial in trials
                if (judgement := way(trial, side, goal)) is not WITHHELD
            ]
            for side in SIDES[1:]
        }
        verdicts = {
            side: [judgement.verdict for judgement in each] for side, each in judgements.items()
        }
        # Chosen by their noise, whatever the verdict.
        powerful = [judgement for judgement in judgements["slower"] if judgement.enough]
        result[name] = with_intervals(
            {
                "false_regressions": verdicts["unchanged"].count("slower"),
                "unchanged_judged": len(verdicts["unchanged"]),
                "unchanged_cannot_tell": verdicts["unchanged"].count("cannot tell"),
                "true_regressions_found": sum(
                    judgement.verdict == "slower" for judgement in powerful
                ),
                "slower_judged": len(powerful),
                "slower_too_few_runs": len(verdicts["slower"]) - len(powerful),
                "slower_called_not_slower": verdicts["slower"].count("not slower"),
            }
        )
    return result


def with_intervals(counts: dict[str, Any]) -> dict[str, Any]:
    return counts | {
        "false_rate": wilson(counts["false_regressions"], counts["unchanged_judged"]),
        "found_rate": wilson(counts["true_regressions_found"], counts["slower_judged"]),
    }


def pooled(conditions: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The counts of several conditions together."""
    total: dict[str, Counter[str]] = {name: Counter() for name in WAYS}
    for ways in conditions:
        for name, counts in ways.items():
            total[name].update({key: n for key, n in counts.items() if isinstance(n, int)})
    return {name: with_intervals(dict(counts)) for name, counts in total.items()}


def wilson(count: int, of: int) -> list[float] | None:
    """95 % interval of a share (Wilson 1927)."""
    if not of:
        return None
    share, z = count / of, 1.96
    middle = share + z * z / (2.0 * of)
    reach = z * math.sqrt(share * (1.0 - share) / of + (z / (2.0 * of)) ** 2)
    return [round((middle + sign * reach) / (1.0 + z * z / of), 3) for sign in (-1.0, 1.0)]


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
    alone = Bench(ours, 20, given.seed).take({"baseline": 1.0}, None).times["baseline"]
    measured = noise(alone)
    runs = given.runs or min(40, repetitions(measured.upper, goal))
    bench = Bench(ours, runs, given.seed)
    where = {"alone": None, "same_cpu": cpus[0]}
    if len(cpus) > 1:
        where["other_cpu"] = cpus[1]
    trials: dict[str, list[Trial]] = {name: [] for name in where}
    # Whoever has no time left gets what was measured: twenty trials take half an hour on a machine
    # where many are disturbed and made again.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    done = 0
    try:
        while done < given.trials:
            # By turns, so that a phase of the machine is in all of them.
            turn = {name: bench.trial(neighbour) for name, neighbour in where.items()}
            for name, trial in turn.items():
                trials[name].append(trial)
            done += 1
            print(f"trial {done} of {given.trials}", file=sys.stderr)
    except KeyboardInterrupt:
        if not done:
            return 130
        print(f"Interrupted: {done} trials are judged.", file=sys.stderr)
    worker.terminate()
    worker.join()
    conditions = {name: judged(each, goal) for name, each in trials.items()}
    conditions["all"] = pooled(conditions.values())
    takes = {
        name: fmean(len(side) for trial in each for side in trial.values())
        for name, each in trials.items()
    }
    document = {
        "effect": EFFECT,
        "stated": {"false_positives": goal.false_positives, "power": goal.power},
        "run_s": fmean(alone),
        "noise": measured.estimate,
        "noise_at_most": measured.upper,
        "repetitions_needed": repetitions(measured.upper, goal),
        "runs": runs,
        "trials": done,
        "takes": takes,
        "conditions": conditions,
        "missed": missed(conditions, goal),
        "elapsed_s": time.monotonic() - began,
    }
    raw = [
        {"condition": name, "trial": number, "side": side, **take.to_dict()}
        for name, each in trials.items()
        for number, trial in enumerate(each)
        for side, side_takes in trial.items()
        for take in side_takes
    ]
    # One line a take.
    lines = ",\n".join(f"    {json.dumps(take)}" for take in raw)
    print(f'{json.dumps(document, indent=2)[:-2]},\n  "raw": [\n{lines}\n  ]\n}}')
    return 4 if given.check and document["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
