"""What another project's policy runs on a table, and the error of our model of it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measured_worlds import columns

from kongming.explore import DecisionTreeProfiler
from kongming.explore.replay import World, errors

SELECT = Path(__file__).parent / "select_points.py"
BUDGET, BATCH, FIRST = 60, 6, 12
ISOLATED = ("-E",)
"""Options of an interpreter with packages of its own, whatever PYTHONPATH ours has."""


def budget_of(world: World) -> int:
    """Runs of a profile: at most a third of the points."""
    return min(BUDGET, len(world.table) // 3)


def printed_by(python: str, script: Path, *options: str, **given: Any) -> list[Any]:
    """What a script prints on its last line, run by another interpreter with these arrays."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.npz"
        np.savez(path, **given)
        command = [python, *ISOLATED, str(script), str(path), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{options[0]}: {done.stderr[-2000:]}")
    printed: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def by_peer(python: str, world: World, policy: str, seed: int) -> list[int]:
    """The rows that a peer runs, from ``FIRST`` uniform ones on."""
    table = world.table
    X = columns(world)[1]
    first = np.random.default_rng(seed).choice(len(table), FIRST, replace=False)
    given = {"X": X, "y": table.values, "first": first, "budget": budget_of(world), "batch": BATCH}
    return [int(place) for place in printed_by(python, SELECT, policy, str(seed), **given)]


def mse_of(world: World, python: str, policy: str, seed: int) -> float:
    """The error of our model of the rows that a peer runs."""
    return mse_of_rows(world, by_peer(python, world, policy, seed), seed)


def mse_of_rows(world: World, rows: Sequence[int], seed: int) -> float:
    """The error of our model of these rows. A run that failed has no value."""
    table = world.table
    profiler = DecisionTreeProfiler(world.space, budget=len(rows), random_state=seed)
    for row in rows:
        value = float(table.values[row])
        failed = np.isnan(value)
        profiler.tell(table.points[row], None if failed else value, error=table.errors[row])
    known = np.isfinite(table.values)
    predicted = profiler.predict(list(table.points)).median[known]
    return float(errors(table.values[known], predicted)["mse"] or 0.0)
