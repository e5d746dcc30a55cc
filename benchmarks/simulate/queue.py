"""A queue of real jobs on this machine, and the same queue simulated.

    python -m benchmarks.simulate.queue [--budget MINUTES] [--layout cross-core|same-core]
                                        [--repeats R] [--seed S] [--out FILE]

Every program is timed alone and next to every other (itself included) on the CPUs that the queue
uses, half of that before the queues and half after them; that is all that the simulation knows.
In between, one queue of jobs, drawn by the seed, is really run under each policy, `--repeats` times
by turns. Then it is simulated under the same policy, by the same code that decides.

    cross-core  one node of two slots, which are two CPUs. What a policy decides is who of those
                that wait is started next to whom: the `first`, the `best-fit`, or the first that
                keeps itself and who is there within `limit` 1.2 (else the slot stays empty).
    same-core   two nodes of two slots, each a CPU that two programs share: `slurm` (fills the
                first), `random`, and `aware` (least slowdown by the measured pairs). What the two
                nodes do to each other is not simulated, so it is part of the error.

Prints one JSON document. By policy: `makespan`, `slowdown` (mean over jobs) and `stretch`
(waiting and run time over the time alone), measured (one number a repeat) and simulated, and their
ratio; `job_error_pct` is the median over jobs of |simulated - measured| / measured of the run
time. `noise_pct` is what repeats of one queue differ by. `order` says whether the simulation puts
the policies in the measured order, of those that differ by more than the noise. Exit status 1 if
something could not be run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.simulate.real import (
    Bench,
    Layout,
    Ordered,
    Ran,
    really,
    side_by_side,
    solo_times,
)
from kongming.probes.node import node_facts
from kongming.profiling.appfile import load, select
from kongming.profiling.plans.placement import choose
from kongming.profiling.runs.runner import open_runner
from kongming.records.run import geometric_mean
from kongming.simulate import (
    Fleet,
    MeasuredPair,
    PairTable,
    Queueing,
    Rules,
    Synthetic,
    Trace,
    known_truth,
)
from kongming.simulate.aware import Aware
from kongming.simulate.policies import Policy, PolicyContext, RandomNode, SlurmBestFit
from kongming.simulate.replay import replay
from kongming.simulate.states import States

ROOT = Path(__file__).resolve().parents[2]
APPS = {
    "cross-core": ("fft", "random-walk", "stencil", "xz"),
    "same-core": ("dd-read", "nbody", "xz"),
}
"""Of examples/apps.toml: some suffer from what others press on, the last-level cache and memory, or
the one CPU that they share."""

LIMIT = 1.2

LOAD = 1.6
"""More than the slots can do, so that a queue builds up and there is something to decide."""

PAIRS_SHARE = 0.4
"""Of the budget, for measuring programs alone and in pairs."""

LEAST_JOBS, MOST_JOBS = 6, 200


class Measured:
    """Solo times and slowdowns, round by round. Slowdowns are over the solo runs of their round."""

    def __init__(self, apps: Sequence[str]) -> None:
        self.apps = tuple(apps)
        self.solos: dict[str, list[float]] = {app: [] for app in apps}
        self.slowdowns: dict[tuple[str, str], list[float]] = {}
        self.rounds = 0
        self.round_s = 0.0

    def add_round(self, bench: Bench, random: Random) -> None:
        """All programs alone, on each CPU, then all pairs, in random order."""
        begun = bench.elapsed()
        own = solo_times(bench, self.apps, 2, random)
        pairs = list(combinations_with_replacement(self.apps, 2))
        for a, b in random.sample(pairs, len(pairs)):
            colocated = side_by_side(bench, a, b, 1)
            for app, other, seconds in ((a, b, colocated[0]), (b, a, colocated[1])):
                alone = geometric_mean(own[app])
                slowdowns = self.slowdowns.setdefault((app, other), [])
                slowdowns += [run_s / alone for run_s in seconds]
        for app in self.apps:
            self.solos[app] += own[app]
        self.rounds += 1
        self.round_s = bench.elapsed() - begun
        print(f"pairs: round {self.rounds}, {self.round_s:.0f} s", file=sys.stderr)

    def table(self) -> PairTable:
        return PairTable.of(
            [MeasuredPair(a, b, tuple(slowdowns)) for (a, b), slowdowns in self.slowdowns.items()],
            {app: geometric_mean(times) for app, times in self.solos.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "noise_pct": self.table().noise_pct,
            "solo_s": self.solos,
            "slowdown": {f"{a} next to {b}": v for (a, b), v in sorted(self.slowdowns.items())},
        }


def _aware(limit: float = math.inf) -> Callable[[PolicyContext, Trace, PairTable], Policy]:
    def make(context: PolicyContext, trace: Trace, table: PairTable) -> Policy:
        limits = [limit] * len(trace.classes()[2])
        return Aware(context, known_truth(table), limits, Rules(tie_share=0.0))

    return make


POLICIES: dict[str, dict[str, Ordered]] = {
    "cross-core": {
        "first": Ordered(lambda context, *_: SlurmBestFit(context), Queueing()),
        "best-fit": Ordered(_aware(), Queueing(patience=20.0, best_fit=True)),
        "limit": Ordered(_aware(LIMIT), Queueing(patience=math.inf)),
    },
    "same-core": {
        "slurm": Ordered(lambda context, *_: SlurmBestFit(context), Queueing()),
        "random": Ordered(lambda context, *_: RandomNode(context), Queueing()),
        "aware": Ordered(_aware(), Queueing(patience=20.0, best_fit=True)),
    },
}


def simulated(
    fleet: Fleet, trace: Trace, truth: PairTable, known: PairTable, ordered: Ordered, seed: int
) -> Ran:
    """The queue with the slowdowns of ``truth``, decided by those that were ``known`` then."""
    work = truth.solo_s[trace.app_of]
    trace = replace(trace, work_s=work)
    states = States(fleet.kinds, truth.logs, trace.classes()[1])
    policy = ordered.make(PolicyContext(fleet, states, Random(seed)), trace, known)
    outcome = replay(trace, fleet, states, policy, ordered.queueing)
    return Ran(outcome.start_s, outcome.end_s)


FIGURES = ("makespan", "slowdown", "stretch")


def figures(trace: Trace, ran: Ran) -> dict[str, float]:
    run = ran.end_s - ran.start_s
    return {
        "makespan": float(ran.end_s.max() - trace.arrival_s[0]),
        "slowdown": float(np.mean(run / trace.work_s)),
        "stretch": float(np.mean((ran.end_s - trace.arrival_s) / trace.work_s)),
    }


def compared(trace: Trace, real: Sequence[Ran], model: Ran) -> dict[str, Any]:
    """Measured and simulated figures of one policy."""
    measured = [figures(trace, ran) for ran in real]
    simulated_figures = figures(trace, model)
    document: dict[str, Any] = {}
    for name in FIGURES:
        values = [repeat[name] for repeat in measured]
        document[name] = {
            "measured": values,
            "simulated": simulated_figures[name],
            "ratio": simulated_figures[name] / geometric_mean(values),
            "noise_pct": _spread_pct(values),
        }
    runs = np.exp(np.mean([np.log(ran.end_s - ran.start_s) for ran in real], axis=0))
    theirs = model.end_s - model.start_s
    document["job_error_pct"] = float(100.0 * np.median(np.abs(theirs / runs - 1.0)))
    # What a simulation without any slowdown would be off by.
    document["job_error_alone_pct"] = float(100.0 * np.median(np.abs(trace.work_s / runs - 1.0)))
    if len(real) > 1:
        first, second = (ran.end_s - ran.start_s for ran in real[:2])
        document["job_noise_pct"] = float(100.0 * np.median(np.abs(first / second - 1.0)))
    return document


def ordering(policies: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """By figure, for every two policies: which is ahead, measured and simulated."""
    by_figure: dict[str, Any] = {}
    names = list(policies)
    for figure in FIGURES:
        entries = []
        for i, a in enumerate(names):
            for b in names[i + 1 :]:
                first, second = policies[a][figure], policies[b][figure]
                measured = geometric_mean(first["measured"]) / geometric_mean(second["measured"])
                simulated_ratio = first["simulated"] / second["simulated"]
                noise = max(first["noise_pct"] or 0.0, second["noise_pct"] or 0.0) / 100.0
                tells = abs(math.log(measured)) > noise
                entries.append(
                    {
                        "policies": [a, b],
                        "measured": measured,
                        "simulated": simulated_ratio,
                        "beyond_noise": tells,
                        "agrees": (measured > 1.0) == (simulated_ratio > 1.0),
                    }
                )
        by_figure[figure] = entries
    return by_figure


def _spread_pct(values: Sequence[float]) -> float | None:
    """Largest over smallest repeat."""
    return 100.0 * (max(values) / min(values) - 1.0) if len(values) > 1 else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--budget", type=float, default=10.0, metavar="MINUTES")
    parser.add_argument("--layout", choices=sorted(POLICIES), default="cross-core")
    parser.add_argument("--file", type=Path, default=ROOT / "examples" / "apps.toml")
    parser.add_argument("--app", action="append", metavar="NAME", help="repeatable")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--jobs", type=int, help="default: what the budget allows")
    parser.add_argument("--load", type=float, default=LOAD)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    budget_s = 60.0 * options.budget
    facts = node_facts()
    seats = choose(facts, "cross-core")
    first_cpu, second_cpu = seats.app[0], seats.neighbour
    cpus = (
        ((first_cpu, second_cpu),)
        if options.layout == "cross-core"
        else ((first_cpu, first_cpu), (second_cpu, second_cpu))
    )
    layout = Layout(options.layout, cpus)
    apps = select(load(options.file), tuple(options.app or APPS[options.layout]))
    names = sorted(apps)
    random = Random(options.seed)
    ordered = POLICIES[options.layout]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kongming-queue-"))
        runners = {
            (name, node, slot): stack.enter_context(open_runner(apps[name], folder))
            for name in names
            for node, own in enumerate(layout.cpus)
            for slot in range(len(own))
        }
        bench = Bench(layout, runners)
        measured = Measured(names)
        measured.add_round(bench, random)
        while bench.elapsed() + measured.round_s < PAIRS_SHARE / 2.0 * budget_s:
            measured.add_round(bench, random)
        known = measured.table()
        # What is measured after the queues weighs as much as what was before them.
        after = measured.rounds
        left_s = budget_s - bench.elapsed() - after * measured.round_s
        # A queue's length in seconds is about its work over the slots' speed next to others.
        per_job_s = float(np.mean(known.solo_s) * np.mean(np.exp(known.logs))) / layout.fleet.slots
        fitting = int(left_s / (len(ordered) * options.repeats * per_job_s))
        jobs = options.jobs or min(max(fitting, LEAST_JOBS), MOST_JOBS)
        synthetic = Synthetic("poisson", jobs, options.load, zipf=0.0, seed=options.seed)
        arriving = synthetic.generate(known.apps, known.solo_s, layout.fleet.capacity, math.inf)
        arriving = replace(arriving, arrival_s=arriving.arrival_s - arriving.arrival_s[0])
        real: dict[str, list[Ran]] = {name: [] for name in ordered}
        for repeat in range(options.repeats):
            for name in random.sample(list(ordered), len(ordered)):
                real[name].append(really(bench, arriving, known, ordered[name], options.seed))
                span = float(real[name][-1].end_s.max())
                print(f"{name}, repeat {repeat + 1}: {span:.1f} s", file=sys.stderr)
        for _ in range(after):
            measured.add_round(bench, random)
    truth = measured.table()
    arriving = replace(arriving, work_s=truth.solo_s[arriving.app_of])
    policies = {
        name: compared(
            arriving,
            real[name],
            simulated(layout.fleet, arriving, truth, known, ordered[name], options.seed),
        )
        for name in ordered
    }
    ratios = [own[figure]["ratio"] for own in policies.values() for figure in FIGURES]
    document = {
        "benchmark": "simulate.queue",
        "machine": {
            "cpu_model": facts.cpu_model,
            "cpus": len(facts.cpus),
            "kernel": facts.kernel,
        },
        "layout": layout.name,
        "apps": names,
        "jobs": len(arriving),
        "load": options.load,
        "seed": options.seed,
        "repeats": options.repeats,
        "elapsed_s": bench.elapsed(),
        "pairs": measured.to_dict(),
        "policies": policies,
        "order": ordering(policies),
        "worst_ratio_pct": 100.0 * max(abs(math.log(ratio)) for ratio in ratios),
        "median_job_error_pct": statistics.median(
            own["job_error_pct"] for own in policies.values()
        ),
    }
    text = json.dumps(document, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n", "utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
