"""What another project's policy runs on a table, and the error of our model of it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from kongming.explore import DecisionTreeProfiler
from kongming.explore.replay import World, errors

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


def mse_of(world: World, python: str, policy: str, seed: int) -> float:
    """The error of our model of the rows that a peer runs."""
    rows = by_peer(python, world, policy, seed)
    profiler = DecisionTreeProfiler(world.space, budget=len(rows), random_state=seed)
    for row in rows:
        profiler.tell(world.table.points[row], float(world.table.values[row]))
    missed = errors(world.table.values, profiler.predict(list(world.table.points)).median)
    return float(missed["mse"] or 0.0)
