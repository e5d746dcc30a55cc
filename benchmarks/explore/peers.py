"""Other projects' policies next to ours: same tables, budget, first runs and choice of the model.

    python -m venv peers && peers/bin/pip install scikit-activeml scikit-optimize scipy
    nice ../../.venv/bin/python peers.py --python peers/bin/python --seeds 20 --keep FOLDER

Prints one JSON document: MSE over that of ``uni``, by function and policy, and geometric means.
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np
from functions import TABLE_3, world
from paper import FLOOR, mean
from peer_runs import BATCH, BUDGET, mse_of
from replays import add_options, over_seeds, replays, take_options

from kongming.explore.replay import ReplaySettings

PEERS = (
    *("RegressionTreeBasedAL", "GreedySamplingTarget", "QueryByCommittee"),
    *("gp-variance", "sobol", "bayesian"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="that of the peers' environment")
    add_options(parser)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 3, 5])
    parser.add_argument("--peer", choices=PEERS, action="append")
    options = parser.parse_args()
    take_options(options)
    cells: dict[str, dict[str, float]] = {}
    for name in TABLE_3:
        for d in options.dimensions:
            at = world(name, d)
            floor = FLOOR * float(at.table.values.var())
            errors: dict[str, list[float]] = {}
            for policy in ("uni", "auto"):
                how = ReplaySettings(BUDGET, BATCH if policy == "auto" else BUDGET)
                runs = replays(at, policy, how, options.seeds)
                errors[policy] = [float(run.all["mse"] or 0.0) for run in runs]
            for peer in options.peer or PEERS:
                errors[peer] = over_seeds(mse_of, (at, options.python, peer), options.seeds)
            medians = {policy: max(floor, float(np.median(m))) for policy, m in errors.items()}
            cells[f"{name}-{d}"] = {p: m / medians["uni"] for p, m in medians.items() if p != "uni"}
            print(name, d, json.dumps(cells[f"{name}-{d}"]), file=sys.stderr, flush=True)
    policies = next(iter(cells.values()))
    means = {policy: mean([cell[policy] for cell in cells.values()]) for policy in policies}
    print(json.dumps({"seeds": options.seeds, "cells": cells, "geomean": means}, indent=1))


if __name__ == "__main__":
    main()
