"""Other projects' learners next to ours: fitted to the same uniform runs of the same tables.

    python -m venv peers && peers/bin/pip install lightgbm obliquetree fast-model-trees
    nice ../../.venv/bin/python learners.py --python peers/bin/python --seeds 20 --keep FOLDER

``auto`` is the model that a profiler takes (all learners, scales of dimensions and target, by
nested validation); ``tree`` is ``ObliqueModelTree`` alone. Each of the others, and ``tree``, has
its settings and the logarithm of the target chosen in five folds. Prints one JSON document: median
MSE over the variance, by table and learner, and geometric means.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
from fit_learners import LEARNERS, best_error
from functions import TABLE_3, world
from joblib import Parallel, delayed
from measured_worlds import NAMES, columns, measured_worlds
from paper import FLOOR, mean
from peer_runs import budget_of, mse_of_rows, printed_by
from replays import HOW, add_options, over_seeds, take_options

from kongming.arrays import Floats
from kongming.explore.replay import World
from kongming.explore.tree import ObliqueModelTree

FIT = Path(__file__).parent / "fit_learners.py"


def uniform_rows(world: World, seed: int) -> np.ndarray:
    """The rows that are run with a seed."""
    return np.random.default_rng(seed).choice(len(world.table), budget_of(world), replace=False)


def of_ours(world: World, X: Floats, seed: int) -> dict[str, float]:
    """The errors of our learners."""
    rows = uniform_rows(world, seed)
    variants = [
        partial(ObliqueModelTree, criterion=criterion, random_state=seed)
        for criterion in ("linear", "residual")
    ]
    return {
        "auto": mse_of_rows(world, rows.tolist(), seed),
        "tree": best_error(variants, X, world.table.values, rows, seed),
    }


def of_others(world: World, X: Floats, python: str, learner: str, seeds: int) -> list[float]:
    """The errors of another project's learner, for each seed."""
    rows = np.array([uniform_rows(world, seed) for seed in range(seeds)])
    given = {"X": X, "y": world.table.values, "rows": rows}
    return [float(error) for error in printed_by(python, FIT, learner, **given)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="that of the other learners' environment")
    add_options(parser)
    names = [f"{name}-{d}" for d in (2, 3, 5) for name in TABLE_3] + list(NAMES)
    parser.add_argument("--world", choices=names, action="append", help="default: all of them")
    parser.add_argument("--learner", choices=LEARNERS, action="append")
    options = parser.parse_args()
    take_options(options)
    tables = measured_worlds()
    cells: dict[str, dict[str, float]] = {}
    for name in options.world or names:
        at = tables[name] if name in tables else world(name[:-2], int(name[-1]))
        X = columns(at)[1]
        ours = over_seeds(of_ours, (at, X), options.seeds)
        others = options.learner or list(LEARNERS)
        fitted = Parallel(HOW.jobs)(
            delayed(of_others)(at, X, options.python, each, options.seeds) for each in others
        )
        missed = {each: [errors[each] for errors in ours] for each in ours[0]}
        missed |= dict(zip(others, fitted, strict=True))
        variance = float(np.nanvar(at.table.values))
        cells[name] = {
            each: max(FLOOR, float(np.median(mse)) / variance) for each, mse in missed.items()
        }
        print(name, json.dumps(cells[name]), file=sys.stderr, flush=True)
    learners = next(iter(cells.values()))
    means = {each: mean([cell[each] for cell in cells.values()]) for each in learners}
    print(json.dumps({"seeds": options.seeds, "cells": cells, "geomean": means}, indent=1))


if __name__ == "__main__":
    main()
