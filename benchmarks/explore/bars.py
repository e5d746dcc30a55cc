"""What adaptive profiling promises beyond the paper, each as a ratio; one JSON document.

    nice ../../.venv/bin/python bars.py auto cliff cost failures noise --jobs 2 --keep FOLDER
    ../../.venv/bin/python bars.py speed      # on an idle machine

The kind of model is chosen in the same way for all policies. Medians over seeds.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from functions import TABLE_3, cliff, costly, failing, noisy, world
from measured_worlds import measured_worlds
from paper import mean, mse, profiles, run_parts
from replays import replays

from kongming.explore import DecisionTreeProfiler, Space
from kongming.explore.replay import Replayed, ReplaySettings
from kongming.explore.tree import ObliqueModelTree

BUDGET, BATCH = 60, 6


def _median(runs: Sequence[Replayed], figure: Callable[[Replayed], float | None]) -> float:
    return float(np.median([figure(run) for run in runs]))


def auto(seeds: int) -> dict[str, Any]:
    """MSE of ``auto`` over ``uni``; below 0.6 in 2 and 3 dimensions, 0.85 above, no cell over
    1.15."""
    worlds = {f"{name}-{d}": (world(name, d), d) for name in TABLE_3 for d in (2, 3, 5)}
    for name, at in measured_worlds().items():
        worlds[name] = at, len(at.table.names)
    cells: dict[str, float] = {}
    for name, (at, _) in worlds.items():
        how = ReplaySettings(min(BUDGET, len(at.table) // 3), BATCH)
        errors = {policy: mse(at, profiles(at, policy, how, seeds)) for policy in ("uni", "auto")}
        cells[name] = errors["auto"] / errors["uni"]
        print(name, f"{cells[name]:.3f}", file=sys.stderr, flush=True)
    low = [cells[name] for name, (_, d) in worlds.items() if d <= 3]
    high = [cells[name] for name, (_, d) in worlds.items() if d > 3]
    return {
        "cells": cells,
        "geomean_to_3": mean(low),
        "geomean_above": mean(high),
        "worst": max(cells.values()),
    }


def at_cliff(seeds: int) -> dict[str, Any]:
    """Mean relative error of ``auto`` over ``uni``'s, 10-fold cliff on a fifth of the points; below
    0.5."""
    at, _ = cliff()
    how = ReplaySettings(BUDGET, BATCH)
    medians = {
        policy: _median(profiles(at, policy, how, seeds), lambda run: run.all["mre_pct"])
        for policy in ("uni", "auto")
    }
    return {"auto_over_uni": medians["auto"] / medians["uni"], "mre_pct": medians}


def cost(seeds: int) -> dict[str, Any]:
    """MSE of ``auto`` that learns costs over one that does not, at equal cost; below 0.9. Profiles
    either show the function or do not, which medians hide: hence the ratio of the means, and in how
    many profiles the error is above a tenth of the variance."""
    at = costly()
    most = 30.0 * float(np.median(at.costs))
    paid: tuple[tuple[str, Any], ...] = (("budget", most), ("budget_in", "cost"))
    aware = ReplaySettings(200, BATCH, options=(*paid, ("cost", "told")))
    blind = ReplaySettings(200, BATCH, options=(*paid, ("cost", None)))
    runs = {
        "aware": replays(at, "auto", aware, seeds),
        "blind": replays(at, "auto", blind, seeds),
    }
    errors = {name: mse(at, replayed) for name, replayed in runs.items()}
    spent = {name: _median(replayed, lambda run: run.cost) for name, replayed in runs.items()}
    all_errors = {name: [run.all["mse"] or 0.0 for run in each] for name, each in runs.items()}
    return {
        "aware_over_blind": errors["aware"] / errors["blind"],
        "of_means": float(np.mean(all_errors["aware"]) / np.mean(all_errors["blind"])),
        "unknown": {
            name: int((np.array(each) > 0.1 * np.nanvar(at.table.values)).sum())
            for name, each in all_errors.items()
        },
        "spent": spent,
    }


def failures(seeds: int) -> dict[str, Any]:
    """Share of failed runs after the 20th, where 15% of the space fails; up to 0.05."""
    at = failing()
    runs = profiles(at, "auto", ReplaySettings(100, 10), seeds)
    shares = [float(np.mean(run.failures[20:])) for run in runs]
    return {"share_after_20": float(np.median(shares)), "worst": max(shares)}


def noise(seeds: int) -> dict[str, Any]:
    """Coverage of 90% intervals with 10% noise, 0.86 to 0.94; and how often the stop rule held: 18
    of 20."""
    at, exact = noisy()
    runs = profiles(at, "auto", ReplaySettings(BUDGET, BATCH), seeds)
    stop = ReplaySettings(300, 10, options=(("stop_pct", 15.0),))
    known, used = [], []
    for run in replays(at, "auto", stop, seeds):
        within = np.abs(run.predicted / exact - 1.0) <= 0.15
        used.append(len(run.failures))
        if used[-1] < 300:
            known.append(float(within.mean()))
    return {
        "coverage": _median(runs, lambda run: run.coverage),
        "stopped": len(known),
        "kept": sum(share >= 0.9 for share in known),
        "least_share_within": min(known, default=None),
        "runs_when_stopped": float(np.median(used)),
    }


def speed(seeds: int) -> dict[str, Any]:
    """10^6 candidates, 8 dimensions, 200 reported runs: seconds of a suggestion of 10 (1 s) and the
    memory (1 GiB), of 10^6 predictions of a tree (0.5 s), of a tree of 1,000 runs x 10 (1 s)."""
    rng = np.random.default_rng(0)
    space = Space.from_dict(
        {f"x{k}": {"from": 1, "to": 5 if k < 2 else 6, "type": "integer"} for k in range(8)}
    )
    profiler = DecisionTreeProfiler(space, budget=10_000, batch=10)
    codes = space.draw(200, rng)
    for point, row in zip(space.decode(codes), codes, strict=True):
        profiler.tell(point, float(np.exp(0.2 * row.sum()) + 3.0 * (row[0] * row[1] > 12)))
    seconds = []
    for _ in range(min(seeds, 7)):
        began = time.perf_counter()
        points = profiler.suggest()
        seconds.append(time.perf_counter() - began)
        for point in points:
            profiler.tell(point, float(sum(point.values())))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    X, y = rng.random((1000, 10)), rng.random(1000)
    y += 5.0 * (X[:, 0] + X[:, 1] > 1.0)
    began = time.perf_counter()
    tree = ObliqueModelTree(random_state=0).fit(X, y)
    fit_s = time.perf_counter() - began
    many = rng.random((1_000_000, 10))
    began = time.perf_counter()
    tree.predict(many)
    return {
        "candidates": space.size,
        "suggest_p50_s": float(np.median(seconds)),
        "memory_gib": memory,
        "tree_fit_s": fit_s,
        "predict_million_s": time.perf_counter() - began,
    }


PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "auto": auto,
    "cliff": at_cliff,
    "cost": cost,
    "failures": failures,
    "noise": noise,
    "speed": speed,
}


if __name__ == "__main__":
    run_parts(__doc__, PARTS)
