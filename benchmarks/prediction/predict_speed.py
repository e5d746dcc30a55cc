"""How long prediction from a stored model takes, model by model. Prints one JSON document.

Each model is fitted to a made-up campaign and frozen; the frozen form goes through JSON and is
read back, and predicts for many environments at once, with numpy alone. The times are the medians
of repeats, after one that does not count.

    whole_ms    from seconds per operation to log slowdown, as a prediction needs it
    frozen_ms   the frozen form alone, its features (logs over idle, say) being there
    fit_ms      of the model on all runs, once
    bytes       of the frozen form as JSON
    worst_difference  between what the estimator and its frozen form predict, in logs

Limits are on ``whole_ms``: 5 ms for what is linear in its features or in the worst of a family,
50 ms for the rest. Run it on an idle machine. Exit status 0; 1 if something could not be run; 4
with --check when a limit is passed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.learning import model_kind, spaces
from kongming.learning import predictor_loading as frozen
from kongming.learning.estimators.base import ContextRegressor
from kongming.learning.estimators.context import Context
from kongming.learning.registry import KINDS, Kind
from kongming.probes.node import node_facts
from kongming.records.errors import KongmingError

LINEAR_LIMIT_MS = 5.0
LIMIT_MS = 50.0
LINEAR_FORMS = frozenset({"constant", "linear", "groups"})
FAMILIES = ("cache", "memory", "compute", "os", "read", "write", "metadata", "network")
READING_NOISE = 0.03
RUN_NOISE = 0.02


def environments(
    n: int, idle: Floats, random: np.random.Generator
) -> tuple[Floats, list[tuple[str, ...]]]:
    """(n, p) seconds per operation, each under a load on one family, and the inducers' names."""
    columns = len(idle)
    loaded = np.arange(n) % len(FAMILIES)
    strength = random.uniform(0.2, 1.0, n)
    logs = random.normal(0.0, READING_NOISE, (n, columns))
    for row in range(n):
        logs[row, loaded[row] :: len(FAMILIES)] += strength[row]
    return idle * np.exp(logs), [(FAMILIES[k],) for k in loaded]


def context_of(inducers: list[tuple[str, ...]], columns: int) -> Context:
    keys = [names[0] for names in inducers]
    return Context(
        folds=tuple(
            tuple(row for row, key in enumerate(keys) if key == family)
            for family in FAMILIES
            if family in keys
        ),
        inducers=tuple(inducers),
        families=tuple(FAMILIES[j % len(FAMILIES)] for j in range(columns)),
        columns=tuple(f"{FAMILIES[j % len(FAMILIES)]}.{j:03}" for j in range(columns)),
        reading_variance=np.full(columns, READING_NOISE**2),
    )


def median_ms(action: Callable[[], object], repeats: int) -> float:
    action()
    walls = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        walls.append(time.perf_counter() - start)
    return 1e3 * statistics.median(walls)


def forms(document: Mapping[str, Any]) -> list[str]:
    """The forms that a frozen model is made of."""
    if document["type"] == "sum":
        return [str(part["type"]) for part in document["parts"]]
    return [str(document["type"])]


def measure(kind: Kind, options: argparse.Namespace) -> dict[str, Any]:
    random = np.random.default_rng(options.seed)
    idle = 10.0 ** random.uniform(-9, -2, options.columns)
    times, inducers = environments(options.runs, idle, random)
    question_times, _ = environments(options.rows, idle, random)
    shares = random.uniform(0.0, 0.1, options.columns)
    logs = np.log(times / idle) @ shares + random.normal(0.0, RUN_NOISE, options.runs)
    bounds = spaces.credible_bounds(logs, RUN_NOISE)

    estimator = kind.make(options.seed)
    spread = np.zeros(len(idle))
    X, y = (
        spaces.features(times, idle, kind.space, spread),
        spaces.target(logs, kind.space),
    )
    start = time.perf_counter()
    if isinstance(estimator, ContextRegressor):
        estimator.fit(X, y, context=context_of(inducers, options.columns))
    else:
        estimator.fit(X, y)
    fit_s = time.perf_counter() - start

    text = json.dumps(estimator.freeze(), allow_nan=False)
    document = json.loads(text)
    predictor = frozen.load(document, options.columns)
    features = spaces.features(question_times, idle, kind.space, spread)

    def predict_slowdowns() -> Floats:
        predicted = predictor.predict(spaces.features(question_times, idle, kind.space, spread))
        return spaces.log_slowdown(predicted, kind.space, bounds)

    theirs = spaces.log_slowdown(estimator.predict(features), kind.space, bounds)
    linear = LINEAR_FORMS.issuperset(forms(document))
    limit = LINEAR_LIMIT_MS if linear else LIMIT_MS
    whole_ms = median_ms(predict_slowdowns, options.repeats)
    return {
        "forms": forms(document),
        "space": kind.space,
        "whole_ms": round(whole_ms, 3),
        "frozen_ms": round(median_ms(lambda: predictor.predict(features), options.repeats), 3),
        "limit_ms": limit,
        "met": whole_ms <= limit,
        "fit_ms": round(1e3 * fit_s, 1),
        "bytes": len(text),
        "worst_difference": float(np.max(np.abs(predict_slowdowns() - theirs))),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    results = {name: measure(model_kind(name), options) for name in options.models}
    return {
        "schema": 1,
        "benchmark": "prediction",
        "met": all(result["met"] for result in results.values()),
        "results": results,
        "rows": options.rows,
        "columns": options.columns,
        "runs": options.runs,
        "repeats": options.repeats,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "load1": os.getloadavg()[0],
        "node": node_facts().to_dict(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000, help="environments predicted for")
    parser.add_argument("--columns", type=int, default=35, help="surrogates")
    parser.add_argument("--runs", type=int, default=200, help="runs that are trained on")
    parser.add_argument("--repeats", type=int, default=15, help="timed predictions of each model")
    parser.add_argument("--models", nargs="+", default=list(KINDS), metavar="MODEL")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="exit 4 when a limit is passed")
    options = parser.parse_args()
    if min(options.rows, options.columns, options.repeats) < 1 or options.runs < len(FAMILIES):
        parser.error(
            f"--rows, --columns and --repeats must be 1 or more, --runs {len(FAMILIES)} or more"
        )
    try:
        document = run(options)
    except KongmingError as error:
        print(f"predict_speed: {error}", file=sys.stderr)
        return 1
    print(json.dumps(document, indent=2))
    return 4 if options.check and not document["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
