"""Coverage of the 90 % intervals of profiles of few and of many runs.

    nice ../../.venv/bin/python interval_coverage.py --seeds 16 --first 2000 --keep FOLDER

Generated programs (``program_worlds.py``; seeds from 1000 have chosen how intervals are widened,
those from 2000 have chosen nothing of it), the measured tables and some of the paper's functions.
Prints one JSON document: by budget, worlds and policy the mean share of the points that were not
run which lie within their interval, the least of a profile, and the profiles.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np
from functions import world
from measured_worlds import NAMES, measured_worlds
from program_worlds import FIRST_SEED, program
from replays import add_options, over_seeds, take_options

from kongming.explore.replay import Replayed, ReplaySettings, World, replay

POLICIES = ("uni", "auto")
BATCH = 4
BUDGETS = (8, 12, 18, 24, 40, 60)
OF_TABLES = (12, 24, 48)
OF_FUNCTIONS = (20, 60)
FUNCTIONS = ("EXPABS-3", "WAVE-2", "HAT-3", "GAUSS-5", "EXP-3")
FIRST_OF_OTHERS, OTHERS, DRAWN = 100, 4, 2
"""First seed and number of profiles of each table, and number of those of each function."""


def profile(name: str, policy: str, budget: int, first: int, place: int) -> Replayed:
    """Profile a table or function by its name, or a generated program by the seed."""
    seed = first + place
    at = _world(name, seed)
    budget = min(budget, len(at.table) // 3)
    how = ReplaySettings(budget, budget if policy == "uni" else BATCH)
    return replay(at, policy, how, seed)


def _world(name: str, seed: int) -> World:
    if name == "program":
        return program(seed).world
    if name in NAMES:
        return measured_worlds()[name]
    function, dimensions = name.split("-")
    return world(function, int(dimensions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="seed of the first program")
    add_options(parser)
    options = parser.parse_args()
    take_options(options)
    cells = [(("program",), b, options.first, options.seeds) for b in BUDGETS]
    cells += [(NAMES, b, FIRST_OF_OTHERS, OTHERS) for b in OF_TABLES]
    cells += [(FUNCTIONS, b, FIRST_OF_OTHERS, DRAWN) for b in OF_FUNCTIONS]
    document: dict[str, Any] = {}
    for names, budget, first, seeds in cells:
        worlds = {FUNCTIONS: "functions", NAMES: "tables"}.get(names, "programs")
        for policy in POLICIES:
            runs: list[Replayed] = []
            for name in names:
                runs += over_seeds(profile, (name, policy, budget, first), seeds)
            shares = np.array([run.coverage for run in runs], dtype=np.float64)
            cell = {
                "mean": float(np.nanmean(shares)),
                "least": float(np.nanmin(shares)),
                "profiles": int(np.isfinite(shares).sum()),
            }
            document.setdefault(worlds, {}).setdefault(str(budget), {})[policy] = cell
            print(worlds, budget, policy, json.dumps(cell), file=sys.stderr, flush=True)
    print(json.dumps({"level": 0.9, "coverage": document}, indent=1))


if __name__ == "__main__":
    main()
