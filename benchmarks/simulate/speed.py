"""How long does a placement study of a large fleet take, and how much memory?

    python -m benchmarks.simulate.speed [--nodes 10000] [--jobs 1000000] [--check]

Each policy is replayed in a process of its own, so that its memory can be measured. Prints one JSON
document. With --check, exit status 4 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

from kongming.simulate import (
    NAMES,
    MeasuredPair,
    PairTable,
    Queueing,
    Rules,
    Study,
    Synthetic,
    alike,
    made_up,
    merit,
)

APPS = 12
MOST_S = 180.0
MOST_MIB = 1024.0
"""Targets, for one policy and a million jobs on ten thousand nodes."""


def table() -> PairTable:
    """Made-up applications: some that suffer, some that press."""
    random = np.random.default_rng(11)
    suffers, presses = random.exponential(0.3, APPS), random.random(APPS)
    solo = random.uniform(60.0, 600.0, APPS)
    names = [f"app-{i:02d}" for i in range(APPS)]
    pairs = [
        MeasuredPair(a, b, (float(np.exp(suffers[i] * presses[j])),))
        for i, a in enumerate(names)
        for j, b in enumerate(names)
    ]
    return PairTable.of(pairs, dict(zip(names, solo.tolist(), strict=True)))


def replay_policy(policy: str, nodes: int, slots: int, jobs: int, load: float) -> dict[str, Any]:
    pairs, fleet = table(), alike(nodes, slots)
    start = time.perf_counter()
    arriving = Synthetic("poisson", jobs, load).generate(
        pairs.apps, pairs.solo_s, fleet.capacity, 1.2
    )
    generated = time.perf_counter()
    study = Study(arriving, fleet, pairs, made_up(pairs, 0.1, 0), Rules(), Queueing())
    outcome = study.run(policy)
    replayed = time.perf_counter()
    figures = merit(arriving, outcome, fleet)
    return {
        "policy": policy,
        "trace_s": generated - start,
        "replay_s": replayed - generated,
        "figures_s": time.perf_counter() - replayed,
        "us_per_job": 1e6 * (replayed - generated) / jobs,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
        "states": outcome.states,
        "mean_slowdown": figures["slowdown"]["mean"],
        "slots_in_use": figures["slots_in_use"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--policy", action="append", choices=NAMES)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--one", choices=NAMES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(
            json.dumps(
                replay_policy(options.one, options.nodes, options.slots, options.jobs, options.load)
            )
        )
        return 0
    results = []
    for policy in options.policy or NAMES:
        command = [
            *(sys.executable, "-m", "benchmarks.simulate.speed", "--one", policy),
            *("--nodes", str(options.nodes), "--slots", str(options.slots)),
            *("--jobs", str(options.jobs), "--load", str(options.load)),
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        results.append(json.loads(done.stdout))
        print(f"{policy}: {results[-1]['replay_s']:.1f} s", file=sys.stderr)
    longest = max(r["trace_s"] + r["replay_s"] + r["figures_s"] for r in results)
    most = max(r["memory_mib"] for r in results)
    met = longest <= MOST_S and most <= MOST_MIB
    document = {
        "benchmark": "simulate.speed",
        "nodes": options.nodes,
        "slots": options.slots,
        "jobs": options.jobs,
        "load": options.load,
        "targets": {"seconds": MOST_S, "memory_mib": MOST_MIB},
        "longest_s": longest,
        "memory_mib": most,
        "met": met,
        "results": results,
    }
    print(json.dumps(document, indent=2))
    return 4 if options.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
