"""Measured tables, of which parts are left out: our model compared with others.

    python benchmarks/scale/tables.py [TABLE.csv ...]

Prints one JSON document. The tables in ``tables/`` were measured on machines that are control
groups with an eighth of a CPU each; README.md says how to measure them again. Left out are the
machine counts above half of the largest, the largest scale, both; and by turns each scale, and each
machine count that has others on both sides. ``together`` has geometric means over the tables, each
error over that of the question's best; ``together_without`` those without one of them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.ensemble import GradientBoostingRegressor

from kongming.arrays import Floats
from kongming.records.errors import CannotAnswerError
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.nearest import fit_amdahl, fit_nearest
from kongming.scale.fit.terms import read_terms
from kongming.scale.fit.validation import noise_floor_of_means_pct, noise_floor_pct
from kongming.scale.points import Points, Runs
from kongming.scale.table import read_table

HERE = Path(__file__).resolve().parent


Features = Callable[[Points], Floats]


def ernest(points: Points) -> Floats:
    """Ernest's four terms."""
    return np.column_stack(
        [
            np.ones(len(points)),
            points.scale / points.machines,
            np.log(points.machines),
            points.machines,
        ]
    )


def scalability(points: Points) -> Floats:
    """The universal scalability law as a time: what is divided, what is serial, what is agreed on
    among all; each grows with the scale."""
    return points.scale[:, None] * np.column_stack(
        [1.0 / points.machines, np.ones(len(points)), points.machines]
    )


def fixed_scalability(points: Points) -> Floats:
    """The same, and a time that no input changes, as Ernest has one."""
    return np.column_stack([np.ones(len(points)), scalability(points)])


def plain(runs: Runs, points: Points, features: Features, *, relative: bool = True) -> Floats:
    """Terms and nothing but NNLS, without any of this project's code."""
    weights = 1.0 / runs.seconds if relative else np.ones(len(runs))
    coef, _ = nnls(features(runs.points) * weights[:, None], runs.seconds * weights)
    return np.asarray(features(points) @ coef)


def boosted(runs: Runs, points: Points) -> Floats:
    """A boosted tree on logs."""

    def features(p: Points) -> Floats:
        return np.log(np.column_stack([p.machines, p.scale, p.scale / p.machines]))

    tree = GradientBoostingRegressor(min_samples_leaf=2, random_state=0)
    tree.fit(features(runs.points), np.log(runs.seconds))
    return np.asarray(np.exp(tree.predict(features(points))))


def compare(parts: list[tuple[Runs, Runs]]) -> dict[str, Any]:
    """Mean errors over the configurations that were left out, in percent. Ours does not answer
    beyond a memory cliff that it saw: such are in the errors, by what it would predict, but have
    no interval."""
    errors: dict[str, list[Floats]] = {}
    held: list[bool] = []
    refused = 0
    kinds: list[str] = []
    for runs, left in parts:
        model = fit_runs(runs, Settings(read_terms("default", items=None)))
        points, truth = left.configurations, left.typical
        for at, seconds in zip(left.points.configurations(), left.seconds.tolist(), strict=True):
            try:
                answer = model.predict(at)
            except CannotAnswerError:
                refused += 1
            else:
                held.append(answer.lower <= seconds <= answer.upper)
        predicted = {
            "ours": model.seconds(points),
            "plain_ernest": plain(runs, points, ernest, relative=False),
            "relative_ernest": plain(runs, points, ernest),
            "amdahl": fit_amdahl(runs).predict(points),
            "universal_scalability": plain(runs, points, scalability),
            "scalability_and_fixed": plain(runs, points, fixed_scalability),
            "boosted_tree": boosted(runs, points),
            "repeat_nearest": fit_nearest(runs).predict(points),
        }
        for name, seconds in predicted.items():
            errors.setdefault(name, []).append(np.abs(seconds / truth - 1))
        kinds.append(model.fit.kind)
    return {
        "error_pct": {
            name: 100 * float(np.mean(np.concatenate(each))) for name, each in errors.items()
        },
        "model": sorted(set(kinds)),
        "left_out": sum(left.count for _, left in parts),
        "runs_left_out": len(held) + refused,
        "runs_refused": refused,
        "interval_held": float(np.mean(held)) if held else None,
    }


def questions(runs: Runs) -> dict[str, list[tuple[Runs, Runs]]]:
    """What is left out, as pairs of the runs to learn from and of those to be predicted."""
    machines, scale = runs.points.machines, runs.points.scale
    small = machines <= machines.max() / 2
    little = scale < scale.max()
    return {
        "largest_machines_out": [(runs.take(small), runs.take(~small))],
        "largest_scale_out": [(runs.take(little), runs.take(~little))],
        "both_out": [(runs.take(small & little), runs.take(~small & ~little))],
        "each_scale_out": [
            (runs.take(scale != left_out), runs.take(scale == left_out))
            for left_out in np.unique(scale)
        ],
        "each_count_out": [
            (runs.take(machines != left_out), runs.take(machines == left_out))
            for left_out in np.unique(machines)[1:-1]
        ],
    }


def together(tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Geometric means over the tables, by question and of all."""
    answered = [each["questions"] for each in tables.values()]
    cells = {
        question: np.array([list(each[question]["error_pct"].values()) for each in answered])
        for question in answered[0]
    }
    held = {question: [each[question]["interval_held"] for each in answered] for question in cells}
    held["all"] = [share for shares in held.values() for share in shares]
    names = list(next(iter(answered[0].values()))["error_pct"])
    cells["all"] = np.concatenate(list(cells.values()))
    relative = names.index("relative_ernest")
    return {
        question: {
            "mean_error_pct": dict(zip(names, errors.mean(axis=0).tolist(), strict=True)),
            "ours_over_relative_ernest": _geometric(errors[:, 0] / errors[:, relative]),
            "ours_over_best_at_most_1.05": float(
                np.mean(errors[:, 0] <= 1.05 * errors.min(axis=1))
            ),
            "over_best": {
                name: _geometric(errors[:, at] / errors.min(axis=1))
                for at, name in enumerate(names)
            },
            "interval_held": float(
                np.mean([share for share in held[question] if share is not None])
            ),
        }
        for question, errors in cells.items()
    }


def _geometric(ratios: Floats) -> float:
    return float(np.exp(np.log(ratios).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", type=Path)
    files = parser.parse_args().tables or sorted((HERE / "tables").glob("*.csv"))
    document: dict[str, Any] = {}
    for file in files:
        (runs,) = read_table(file).parts.values()
        document[file.stem] = {
            "runs": len(runs),
            "configurations": runs.count,
            "noise_floor_pct": noise_floor_pct(runs),
            "noise_floor_of_means_pct": noise_floor_of_means_pct(runs),
            "questions": {name: compare(parts) for name, parts in questions(runs).items()},
        }
    print(
        json.dumps(
            {
                "tables": document,
                "together": together(document),
                "together_without": {
                    name: together({key: document[key] for key in document if key != name})["all"]
                    for name in document
                    if len(document) > 1
                },
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
