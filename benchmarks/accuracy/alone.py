"""Accuracy with nothing induced and no neighbour: the paper's single-task case (Table IV).

    python -m benchmarks.accuracy.alone STORE.db
    python -m benchmarks.accuracy.alone RECORDED.db.xz

Solo runs only, each with the quick fingerprint right before it. Every model predicts blocks of
time that were left out. Prints one JSON document: the median error by program and model, the
geometric mean over programs, MEAN among the models, and the floor: what the run before, under
nearly the same unseen load, differs by from the run.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from kongming.learning.registry import AUTO
from kongming.learning.training import train_application
from kongming.records.run import Run
from kongming.store import Store

LEAST = 8
"""Programs with fewer solo runs are left out."""


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="kongming-alone-") as folder:
        path = options.store
        if path.suffix == ".xz":
            path = Path(folder) / "recorded.db"
            with lzma.open(options.store) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
        with Store.open(f"sqlite:///{path}") as store:
            solo_runs = store.runs(kind="solo")
            machine = [node.to_dict()["hardware"] for node in store.nodes()]
    by_app: dict[str, list[Run]] = {}
    for run in sorted(solo_runs, key=lambda run: run.started_at):
        if run.ok and run.before is not None and run.placement == options.placement:
            by_app.setdefault(run.app, []).append(run)
    programs = {app: _program(runs) for app, runs in sorted(by_app.items()) if len(runs) >= LEAST}
    json.dump(
        {
            "benchmark": "alone",
            "machine": machine,
            "placement": options.placement,
            "programs": programs,
            "geomean_pct": _geomeans([program["error_pct"] for program in programs.values()]),
        },
        sys.stdout,
        indent=2,
    )
    print()
    return 0 if programs else 3


def _program(runs: Sequence[Run]) -> dict[str, Any]:
    document = train_application(runs)
    variant = document["variants"].get("quick", document["variants"]["full"])
    errors = {
        name: model["scores"]["median_pct"]
        for name, model in variant["models"].items()
        if model["scores"]
    }
    logs = [math.log(run.cost) for run in runs]
    steps = [abs(later - earlier) for earlier, later in pairwise(logs)]
    return {
        "runs": len(runs),
        "sd_pct": 100.0 * pstdev(logs),
        # Two runs differ by the noise of both.
        "floor_pct": 100.0 * median(steps) / math.sqrt(2.0),
        AUTO: variant["chosen"],
        "error_pct": {**errors, AUTO: errors[variant["chosen"]]},
    }


def _geomeans(errors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = set.intersection(*(set(by_model) for by_model in errors)) if errors else set()
    return {
        name: math.exp(fmean(math.log(max(by_model[name], 1e-3)) for by_model in errors))
        for name in sorted(names)
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("store", type=Path, help="a store's SQLite file, packed with xz or not")
    parser.add_argument("--placement", default="cross-core")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
