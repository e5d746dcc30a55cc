"""Other projects' policies next to ours: same tables, budget and choice of the model.

    python -m venv peers && peers/bin/pip install scikit-activeml scikit-optimize scipy
    nice ../../.venv/bin/python peers.py --python peers/bin/python --seeds 20 --keep FOLDER

The peers begin with 12 uniform runs, ``auto`` with its own. Prints one JSON document: MSE over that
of ``uni``, by function or measured table and policy, and geometric means over all of them.
``--cells`` adds those of an earlier document, so that worlds can be evaluated in parts.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from functions import TABLE_3, world
from measured_worlds import NAMES, measured_worlds
from paper import FLOOR, mean
from peer_runs import BATCH, budget_of, mse_of
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
    parser.add_argument(
        "--world", choices=(*TABLE_3, *NAMES), action="append", help="default: all of them"
    )
    parser.add_argument("--peer", choices=PEERS, action="append")
    parser.add_argument("--cells", type=Path, metavar="JSON", help="an earlier document")
    options = parser.parse_args()
    take_options(options)
    cells: dict[str, dict[str, float]] = {}
    if options.cells is not None:
        earlier = json.loads(options.cells.read_text(encoding="utf-8"))
        if earlier["seeds"] != options.seeds:
            raise SystemExit(f"--cells: of {earlier['seeds']} seeds, not {options.seeds}")
        cells |= earlier["cells"]
    chosen = options.world or (*TABLE_3, *NAMES)
    worlds = {f"{n}-{d}": world(n, d) for n in TABLE_3 if n in chosen for d in options.dimensions}
    worlds |= {name: at for name, at in measured_worlds().items() if name in chosen}
    for name, at in worlds.items():
        floor = FLOOR * float(np.nanvar(at.table.values))
        budget = budget_of(at)
        errors: dict[str, list[float]] = {}
        for policy in ("uni", "auto"):
            how = ReplaySettings(budget, BATCH if policy == "auto" else budget)
            runs = replays(at, policy, how, options.seeds)
            errors[policy] = [float(run.all["mse"] or 0.0) for run in runs]
        for peer in options.peer or PEERS:
            errors[peer] = over_seeds(mse_of, (at, options.python, peer), options.seeds)
        medians = {policy: max(floor, float(np.median(m))) for policy, m in errors.items()}
        cells[name] = {p: m / medians["uni"] for p, m in medians.items() if p != "uni"}
        print(name, json.dumps(cells[name]), file=sys.stderr, flush=True)
    policies = [p for p in ("auto", *PEERS) if all(p in cell for cell in cells.values())]
    means = {policy: mean([cell[policy] for cell in cells.values()]) for policy in policies}
    print(json.dumps({"seeds": options.seeds, "cells": cells, "geomean": means}, indent=1))


if __name__ == "__main__":
    main()
