"""Accuracy of the Spark estimator on recorded logs, as one JSON document.

    python -m benchmarks.spark.accuracy FOLDER

FOLDER has the logs of ``record_clusters.py``. Each program is evaluated alone and with the others
as history; with it, the cost of the recommended size over the best. Ratios of errors are of each
program's own pairs of sizes: in a mean over programs a bad pair would not show.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kongming.spark.application import Application
from kongming.spark.estimation import Estimator, Size
from kongming.spark.evaluation import Evaluation, Pair, evaluate, over_constant, ratios, summary
from kongming.spark.history import learn_growth
from kongming.spark.reading import read_all
from kongming.spark.recommendation import recommend

CLIFFS = {"cached": 4}
"""Executors from which on what a program keeps in memory fits."""


UNSEEN = ("windows", "words")
"""Programs that chose nothing in the estimator."""

BAR = 1.05
"""The replay's error over constant lengths' that no pair of sizes may exceed."""

Ratios = dict[str, dict[tuple[int, int], float]]
"""Errors over constant lengths' by program, then recorded and asked executors."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Evaluations of one program: ``across`` are the pairs on both sides of its memory cliff."""

    alone: Evaluation
    taught: Evaluation | None
    across: tuple[Pair, ...]
    over_best_pct: tuple[float, ...]

    def ratios(self, pairs: Sequence[Pair] | None = None) -> dict[tuple[int, int], float]:
        own = self.alone.pairs if pairs is None else pairs
        return {
            (recorded[0], target[0]): ratio
            for (recorded, target), ratio in ratios(own, self.alone.noise).items()
        }

    def document(self) -> dict[str, Any]:
        noise = self.alone.noise
        document = {
            "sizes": [size[0] for size in self.alone.sizes],
            "runs": len(self.alone.self_checks),
            "noise_floor_pct": None if noise is None else 100.0 * noise,
            "self_check_pct": [100.0 * error for error in self.alone.self_checks],
            "alone": summary(self.alone.pairs, noise),
            "error_over_constant_by_pair": {
                f"{recorded} to {target}": ratio
                for (recorded, target), ratio in self.ratios().items()
            },
            "recommended_over_best_pct": list(self.over_best_pct),
        }
        if self.across:
            document["across_the_cliff"] = summary(self.across, noise)
        if self.taught is not None:
            document["with_history"] = summary(self.taught.pairs, noise)
        return document


def scored(own: Sequence[Application], others: Sequence[Application]) -> Scores:
    """Evaluate one program, alone and with the others as history."""
    alone = evaluate(own)
    taught = None
    if others:
        growth = learn_growth(others)
        taught = evaluate(own, lambda application: Estimator(application, growth=growth))
    fits = CLIFFS.get(own[0].name)
    across = (
        ()
        if fits is None
        else tuple(pair for pair in alone.pairs if (pair.slots[0] < fits) != (pair.slots[1] < fits))
    )
    return Scores(alone, taught, across, tuple(_over_best(own)))


def together(scores: Mapping[str, Scores]) -> dict[str, Any]:
    """Return the figures over all pairs of sizes of several programs, each pair by itself."""
    own: Ratios = {name: each.ratios() for name, each in scores.items()}
    flat = [ratio for by_pair in own.values() for ratio in by_pair.values()]
    pairs = [pair for each in scores.values() for pair in each.alone.pairs]
    checks = [error for each in scores.values() for error in each.alone.self_checks]
    document: dict[str, Any] = {
        "program_pairs": len(flat),
        **summary(pairs, None),
        "error_over_constant": over_constant(flat),
        f"pairs_above_{BAR}": {
            name: {
                f"{recorded} to {target}": ratio
                for (recorded, target), ratio in by_pair.items()
                if ratio > BAR
            }
            for name, by_pair in own.items()
        },
        "programs_worse_than_ernest": [
            name
            for name, each in scores.items()
            if all("ernest" in pair.models for pair in each.alone.pairs)
            and _mean(each, "replay") > _mean(each, "ernest")
        ],
        "self_check_pct": {
            "median": 100.0 * float(np.median(checks)),
            "worst": 100.0 * max(checks),
        },
        "recommended_over_best_pct": max(
            excess for each in scores.values() for excess in each.over_best_pct
        ),
    }
    if all(each.taught is not None for each in scores.values()):
        document["with_history"] = over_constant(
            ratio
            for each in scores.values()
            if each.taught is not None
            for ratio in each.ratios(each.taught.pairs).values()
        )
    return document


def _mean(scores: Scores, model: str) -> float:
    return float(np.mean([pair.error(model) for pair in scores.alone.pairs]))


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
    scores = {
        name: scored(own, [each for each in applications if each.name != name])
        for name, own in programs.items()
    }
    groups = {
        "all": scores,
        "chose": {name: each for name, each in scores.items() if name not in UNSEEN},
        "unseen": {name: each for name, each in scores.items() if name in UNSEEN},
    }
    document: dict[str, Any] = {
        "programs": {name: each.document() for name, each in scores.items()},
        **{name: together(group) for name, group in groups.items() if group},
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
