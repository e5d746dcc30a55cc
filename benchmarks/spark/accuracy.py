"""Accuracy of the Spark estimator on recorded logs, as one JSON document.

    python -m benchmarks.spark.accuracy FOLDER

FOLDER has the logs of ``record_clusters.py``. Each program is evaluated alone and with the others
as history; with it, the cost of the recommended size over the best.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kongming.spark.application import Application
from kongming.spark.estimation import Estimator, Size
from kongming.spark.evaluation import Pair, evaluate, summary
from kongming.spark.history import learn_growth
from kongming.spark.reading import read_all
from kongming.spark.recommendation import recommend

CLIFFS = {"cached": 4}
"""Executors from which on what a program keeps in memory fits."""


def scored(
    own: Sequence[Application], others: Sequence[Application]
) -> tuple[dict[str, Any], list[Pair]]:
    """The evaluation of one program, and the same with the others as history."""
    evaluation = evaluate(own)
    noise = evaluation.noise
    growth = learn_growth(others) if others else None
    document = {
        "sizes": [size[0] for size in evaluation.sizes],
        "runs": len(own),
        "noise_floor_pct": None if noise is None else 100.0 * noise,
        "self_check_pct": [100.0 * error for error in evaluation.self_checks],
        "alone": summary(evaluation.pairs, noise),
        "recommended_over_best_pct": _over_best(own),
    }
    fits = CLIFFS.get(own[0].name)
    if fits is not None:
        across = [
            pair for pair in evaluation.pairs if (pair.slots[0] < fits) != (pair.slots[1] < fits)
        ]
        document["across_the_cliff"] = summary(across, noise)
    if growth is not None:
        taught = evaluate(own, lambda application: Estimator(application, growth=growth))
        document["with_history"] = summary(taught.pairs, noise)
    return document, list(evaluation.pairs)


def _over_best(own: Sequence[Application]) -> list[float]:
    """From each run: percent that the recommended of the recorded sizes costs above the best."""
    cost: dict[int, list[float]] = {}
    for application in own:
        estimator = Estimator(application)
        executors = estimator.workload.cluster.executors
        cost.setdefault(executors, []).append(executors * estimator.workload.measured_s)
    measured = {executors: float(np.median(costs)) for executors, costs in cost.items()}
    best = min(measured.values())
    excesses = []
    for application in own:
        estimates = Estimator(application).estimates([Size(count) for count in sorted(measured)])
        excesses.append(100.0 * (measured[recommend(estimates).cheapest.executors] / best - 1.0))
    return excesses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    applications = read_all(sorted(options.folder.glob("*.zstd")))
    programs: dict[str, list[Application]] = {}
    for application in applications:
        programs.setdefault(application.name, []).append(application)
    document: dict[str, Any] = {"programs": {}}
    pairs: list[Pair] = []
    for name, own in programs.items():
        others = [each for each in applications if each.name != name]
        document["programs"][name], some = scored(own, others)
        pairs += some
    document["all"] = summary(pairs, None)
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
