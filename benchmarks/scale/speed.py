"""How long a fit over contexts and a prediction take.

    python benchmarks/scale/speed.py

Prints one JSON document: CPU time of one core (other load on the machine does not count) of fits of
1,000 rows in 20 contexts, with five repeats of each configuration and with one; and the median CPU
time of a prediction, where runs were and beyond them, in a context with runs, with few, and without
any, and by a stack. The limits are those that the models were made for: 5 s, and 1 ms.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kongming.scale.fit.contexts.context_fitting import fit_contexts
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.model import ScaleModel
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Configuration, Points, Runs
from kongming.scale.table import ContextTable

ROWS, CONTEXTS = 1000, 20
FEW = 2
"""Configurations of the context with few."""

MOST_FIT_S, MOST_PREDICT_MS = 5.0, 1.0
PREDICTIONS = 400


def table(repeats: int) -> ContextTable:
    """Draw the runs of a job on as many machine counts as its rows allow."""
    random = np.random.default_rng(0)
    counts = np.arange(1.0, ROWS / CONTEXTS / repeats + 1.0)
    contexts = tuple((8.0 + i, float(3 + i % 3)) for i in range(CONTEXTS))
    machines = np.tile(np.repeat(counts, repeats), CONTEXTS)
    owner = np.repeat(np.arange(CONTEXTS), len(counts) * repeats)
    size, k = np.array(contexts).T[:, owner]
    seconds = (5.0 + 60.0 * size / machines + 0.5 * machines) * k**0.5
    seconds = seconds * np.exp(0.05 * random.standard_normal(len(owner)))
    points = Points(machines, np.ones(len(owner)), np.ones(len(owner)))
    return ContextTable(Runs(points, seconds), ("size_gb", "k"), contexts, owner)


def with_few(complete: ContextTable) -> ContextTable:
    """Return the table with few configurations of the first context."""
    learn = (complete.owner > 0) | (complete.runs.points.machines <= FEW)
    return ContextTable(
        complete.runs.take(learn), complete.columns, complete.contexts, complete.owner[learn]
    )


def timed(of: Callable[[], Any]) -> tuple[float, Any]:
    """Return seconds of CPU time, and the result."""
    begin = time.process_time()
    result = of()
    return time.process_time() - begin, result


def prediction_ms(model: ScaleModel, most: float) -> float:
    """Return the median time of a prediction, at up to twice ``most`` machines."""
    machines = np.linspace(1.0, 2.0 * most, PREDICTIONS).round()
    questions = [Configuration(each) for each in machines.tolist()]
    spent = [timed(lambda at=at: model.predict(at))[0] for at in questions]
    return 1000.0 * float(np.median(spent))


def main() -> None:
    settings = Settings(read_terms("default", items=None))
    document: dict[str, Any] = {"rows": ROWS, "contexts": CONTEXTS}
    fit_s, predict_ms = {}, {}
    with threadpool_limits(1, user_api="blas"):
        for repeats in (5, 1):
            complete = table(repeats)
            fit_s[f"{repeats}_repeats"] = timed(lambda of=complete: fit_contexts(of, settings))[0]
            fit_s[f"{repeats}_repeats_and_a_context_with_few"], model = timed(
                lambda of=complete: fit_contexts(with_few(of), settings)
            )
            most = float(complete.runs.points.machines.max())
            questions = {"few_runs": ("8", "3"), "runs": ("9", "4"), "no_runs": ("50", "5")}
            for name, (size, k) in questions.items():
                at = model.at({"size_gb": size, "k": k})
                predict_ms[f"{repeats}_repeats_{name}"] = prediction_ms(at, most)
        alone = complete.runs.take(complete.owner == 0)
        fit_s["stack"], stack = timed(lambda: fit_runs(alone, settings))
        predict_ms["stack"] = prediction_ms(stack, most)
    for key, values, limit in (
        ("fit_s", fit_s, MOST_FIT_S),
        ("predict_ms", predict_ms, MOST_PREDICT_MS),
    ):
        largest = max(values.values())
        document[key] = {**values, "limit": limit, "within": bool(largest <= limit)}
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
