"""Other projects' policies next to ours: same tables, budget, first runs and choice of the model.

    python -m venv peers && peers/bin/pip install scikit-activeml scikit-optimize scipy
    nice ../../.venv/bin/python peers.py --python peers/bin/python --seeds 20

Prints one JSON document: MSE over that of ``uni``, by function and policy, and geometric means.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from functions import TABLE_3, world
from paper import FLOOR, mean

from kongming.explore import DecisionTreeProfiler
from kongming.explore.replay import ReplaySettings, World, errors, replay

PEERS = (
    *("RegressionTreeBasedAL", "GreedySamplingTarget", "QueryByCommittee"),
    *("gp-variance", "sobol", "bayesian"),
)
SELECT = Path(__file__).parent / "select_points.py"
BUDGET, BATCH, FIRST = 60, 6, 12


def by_peer(python: str, world: World, policy: str, seed: int) -> list[int]:
    """The rows that a peer runs, from ``FIRST`` uniform ones on."""
    table = world.table
    X = np.array([[float(point[name]) for name in table.names] for point in table.points])
    first = np.random.default_rng(seed).choice(len(table), FIRST, replace=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.npz"
        np.savez(path, X=X, y=table.values, first=first, budget=BUDGET, batch=BATCH)
        command = [python, str(SELECT), str(path), policy, str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{policy}: {done.stderr[-2000:]}")
    return [int(place) for place in json.loads(done.stdout.splitlines()[-1])]


def mse_of(world: World, rows: list[int], seed: int) -> float:
    """The error of our model of these rows."""
    profiler = DecisionTreeProfiler(world.space, budget=len(rows), random_state=seed)
    for row in rows:
        profiler.tell(world.table.points[row], float(world.table.values[row]))
    missed = errors(world.table.values, profiler.predict(list(world.table.points)).median)
    return float(missed["mse"] or 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="that of the peers' environment")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 3, 5])
    parser.add_argument("--peer", choices=PEERS, action="append")
    asked = parser.parse_args()
    cells: dict[str, dict[str, float]] = {}
    for name in TABLE_3:
        for d in asked.dimensions:
            at = world(name, d)
            floor = FLOOR * float(at.table.values.var())
            found: dict[str, list[float]] = {}
            for seed in range(asked.seeds):
                for policy in ("uni", "auto"):
                    how = ReplaySettings(BUDGET, BATCH if policy == "auto" else BUDGET)
                    run = replay(at, policy, how, seed)
                    found.setdefault(policy, []).append(float(run.all["mse"] or 0.0))
                for peer in asked.peer or PEERS:
                    rows = by_peer(asked.python, at, peer, seed)
                    found.setdefault(peer, []).append(mse_of(at, rows, seed))
            medians = {policy: max(floor, float(np.median(m))) for policy, m in found.items()}
            cells[f"{name}-{d}"] = {p: m / medians["uni"] for p, m in medians.items() if p != "uni"}
            print(name, d, json.dumps(cells[f"{name}-{d}"]), file=sys.stderr, flush=True)
    policies = next(iter(cells.values()))
    means = {policy: mean([cell[policy] for cell in cells.values()]) for policy in policies}
    print(json.dumps({"seeds": asked.seeds, "cells": cells, "geomean": means}, indent=1))


if __name__ == "__main__":
    main()
