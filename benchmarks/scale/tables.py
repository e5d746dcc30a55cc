"""Measured tables, the largest machine counts left out: ours next to plain Ernest.

    python benchmarks/scale/tables.py [TABLE.csv ...]

Prints one JSON document. The tables in ``tables/`` were measured by ``kongming scale run`` on
machines that are control groups with an eighth of a CPU each; README.md says how to measure them
anew. Each is fitted on the machine counts up to half of the largest, and predicts the rest; and
with the largest scale left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from kongming.arrays import Floats
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.nearest import fit_amdahl, fit_nearest
from kongming.scale.fit.terms import read_terms
from kongming.scale.fit.validation import noise_floor_pct
from kongming.scale.points import Points, Runs
from kongming.scale.table import read_table

HERE = Path(__file__).resolve().parent


def plain(runs: Runs, points: Points, *, relative: bool = False) -> Floats:
    """The default terms and nothing but NNLS, without any of this project's code."""

    def features(p: Points) -> Floats:
        return np.column_stack(
            [np.ones(len(p)), p.scale / p.machines, np.log(p.machines), p.machines]
        )

    weights = 1.0 / runs.seconds if relative else np.ones(len(runs))
    coef, _ = nnls(features(runs.points) * weights[:, None], runs.seconds * weights)
    return np.asarray(features(points) @ coef)


def compare(runs: Runs, left: Runs) -> dict[str, Any]:
    """Mean errors over the configurations that were left out, in percent."""
    model = fit_runs(runs, Settings(read_terms("default", items=None)))
    points, truth = left.configurations, left.typical
    answers = [model.predict(at) for at in left.points.configurations()]
    held = [
        answer.lower <= seconds <= answer.upper
        for answer, seconds in zip(answers, left.seconds.tolist(), strict=True)
    ]
    predictors: dict[str, Callable[[], Floats]] = {
        "ours": lambda: model.seconds(points),
        "plain_ernest": lambda: plain(runs, points),
        "relative_ernest": lambda: plain(runs, points, relative=True),
        "amdahl": lambda: fit_amdahl(runs).predict(points),
        "repeat_nearest": lambda: fit_nearest(runs).predict(points),
    }
    return {
        **{
            f"{name}_pct": 100 * float(np.mean(np.abs(predict() / truth - 1)))
            for name, predict in predictors.items()
        },
        "model": model.fit.kind,
        "trained": runs.count,
        "left_out": left.count,
        "interval_held": float(np.mean(held)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", type=Path)
    files = parser.parse_args().tables or sorted((HERE / "tables").glob("*.csv"))
    document: dict[str, Any] = {}
    for file in files:
        (runs,) = read_table(file).parts.values()
        machines, scale = runs.points.machines, runs.points.scale
        small = machines <= machines.max() / 2
        little = scale < scale.max()
        both = small & little
        document[file.stem] = {
            "runs": len(runs),
            "configurations": runs.count,
            "noise_floor_pct": noise_floor_pct(runs),
            "largest_machines_out": compare(runs.take(small), runs.take(~small)),
            "largest_scale_out": compare(runs.take(little), runs.take(~little)),
            "both_out": compare(runs.take(both), runs.take(~small & ~little)),
        }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
