"""Scale models on known shapes: ours next to plain Ernest and others, and the intervals' coverage.

    python benchmarks/scale/shapes.py [--seeds N]

Prints one JSON document: for Ernest's published models (its Table 1) with noise, the error of the
prediction at four times the largest trained machine count and ten times the largest scale, and
how often the 90% interval held a new run there; for shapes that Ernest's terms do not have, the
error at configurations in between that were not trained on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from kongming.arrays import Floats
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.nearest import fit_amdahl, fit_nearest
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Configuration, Points, Runs

Shape = Callable[[Floats, Floats], Floats]

# intercept, scale/machines, machines, log(machines): Ernest (NSDI 2016), Table 1.
PUBLISHED = {
    "spearman": (0.00, 4887.10, 0.00, 4.14),
    "classification": (0.80, 211.18, 0.01, 0.90),
    "pca": (6.86, 208.44, 0.02, 0.00),
    "naive.bayes": (0.00, 307.48, 0.00, 1.00),
    "summary stats": (0.42, 39.02, 0.00, 0.07),
    "regression": (0.64, 630.93, 0.09, 1.50),
    "als": (28.62, 3361.89, 0.00, 0.00),
    "kmeans": (0.00, 149.58, 0.05, 0.54),
}
MACHINES = (1, 2, 4, 8, 12, 16)
SCALES = (0.01, 0.04, 0.1)


def cliff(machines: Floats, scale: Floats) -> Floats:
    """Slower once more than 0.03 of the input is on one machine."""
    load = scale / machines
    return np.asarray(2.0 + 100.0 * load + np.where(load > 0.03, 20.0 + 900.0 * (load - 0.03), 0.0))


def waves(machines: Floats, scale: Floats) -> Floats:
    """Tasks in waves, the first of which starts cold."""
    return np.asarray(5.0 + 2.0 * (np.ceil(400.0 * scale / machines) - 1.0))


def crowded(machines: Floats, scale: Floats) -> Floats:
    """All-to-all traffic: more machines make it slower, faster than in proportion."""
    return np.asarray(1.0 + 80.0 * scale / machines + 0.02 * machines**2)


BROKEN: dict[str, Shape] = {"cliff": cliff, "waves": waves, "crowded": crowded}


def published(name: str) -> Shape:
    fixed, work, linear, tree = PUBLISHED[name]
    return lambda m, s: fixed + work * s / m + linear * m + tree * np.log(m)


def grid(machines: Sequence[float], scales: Sequence[float]) -> Points:
    count, scale = (values.ravel().astype(float) for values in np.meshgrid(machines, scales))
    return Points(count, scale, np.ones(len(count)))


def plain(runs: Runs, points: Points) -> Floats:
    """The default terms and nothing but NNLS, without any of this project's code."""

    def features(p: Points) -> Floats:
        return np.column_stack(
            [np.ones(len(p)), p.scale / p.machines, np.log(p.machines), p.machines]
        )

    coef, _ = nnls(features(runs.points), runs.seconds)
    return np.asarray(features(points) @ coef)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--noise", type=float, default=0.05)
    options = parser.parse_args()
    settings = Settings(read_terms("default", items=None))
    document: dict[str, Any] = {"noise_pct": 100 * options.noise, "seeds": options.seeds}
    far, rows, held = Configuration(64, 1.0), {}, []
    question = Points.of([far])
    for name in PUBLISHED:
        shape = published(name)
        truth = float(shape(question.machines, question.scale)[0])
        errors: dict[str, list[float]] = {"plain": [], "ours": []}
        kinds = []
        for seed in range(options.seeds):
            random = np.random.default_rng(seed)
            points = grid(MACHINES, SCALES)
            seconds = shape(points.machines, points.scale)
            runs = Runs(points, seconds * (1 + options.noise * random.standard_normal(len(points))))
            model = fit_runs(runs, settings)
            answer = model.predict(far)
            errors["ours"].append(abs(answer.median / truth - 1))
            errors["plain"].append(abs(float(plain(runs, question)[0]) / truth - 1))
            new = truth * (1 + options.noise * random.standard_normal(20))
            held.append(float(np.mean((new >= answer.lower) & (new <= answer.upper))))
            kinds.append(model.fit.kind)
        rows[name] = {
            **{f"{key}_pct": 100 * float(np.mean(value)) for key, value in errors.items()},
            "kinds": sorted(set(kinds)),
        }
    document["published"] = rows
    document["mean_pct"] = {
        key: float(np.mean([row[f"{key}_pct"] for row in rows.values()]))
        for key in ("plain", "ours")
    }
    document["coverage_at_64_machines"] = float(np.mean(held))
    document["broken"] = {
        name: between(shape, settings, options.seeds) for name, shape in BROKEN.items()
    }
    print(json.dumps(document, indent=2))


def between(shape: Shape, settings: Settings, seeds: int) -> dict[str, Any]:
    """Errors at half of the configurations, trained on the other half."""
    errors: dict[str, list[float]] = {"plain": [], "amdahl": [], "repeat_nearest": [], "ours": []}
    kinds, held, refused = [], [], 0
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        points = grid(range(1, 17), (0.02, 0.04, 0.06, 0.08, 0.1))
        seconds = shape(points.machines, points.scale)
        noisy = seconds * (1 + 0.02 * random.standard_normal(len(points)))
        trained = random.permutation(len(points)) < len(points) // 2
        runs, left = Runs(points.take(trained), noisy[trained]), points.take(~trained)
        model = fit_runs(runs, settings)
        truth = seconds[~trained]
        load = float("inf") if model.edge is None else model.edge.inside
        answered = left.load <= load * (1.0 + 1e-9)
        refused += int(np.sum(~answered))
        left, truth = left.take(answered), truth[answered]
        measured = noisy[~trained][answered]
        answers = [model.predict(at) for at in left.configurations()]
        held.append(
            float(
                np.mean([a.lower <= t <= a.upper for a, t in zip(answers, measured, strict=True)])
            )
        )
        for key, predicted in (
            ("plain", plain(runs, left)),
            ("amdahl", fit_amdahl(runs).predict(left)),
            ("repeat_nearest", fit_nearest(runs).predict(left)),
            ("ours", np.array([a.median for a in answers])),
        ):
            errors[key].append(float(np.mean(np.abs(predicted / truth - 1))))
        kinds.append(model.fit.kind)
    return {
        **{f"{key}_pct": 100 * float(np.mean(value)) for key, value in errors.items()},
        "coverage": float(np.mean(held)),
        "refused": refused,
        "kinds": sorted(set(kinds)),
    }


if __name__ == "__main__":
    main()
