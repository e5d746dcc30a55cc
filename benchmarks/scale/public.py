"""Public tables of runs: our models next to relative Ernest, of each job.

    python benchmarks/scale/public.py FOLDER [--contexts 6]

Prints one JSON document. FOLDER has tables of one job each: ``*.tsv`` with a column
``instance_count`` of machines, ``gross_runtime``, and what the job was run with
(dos-group/c3o-experiments), or ``*.csv`` with ``Nodes`` and ``Runtime``
(dos-group/runtime-prediction-experiments, ``analysis/data``). ``slots`` and ``memory`` are totals
that follow from the machine type and the count, and left out. Nothing of the models was chosen on
these tables, and nothing should be.

Every context alone is fitted by ``--model auto``: each machine count between two others is left
out by turns, the smallest, and the largest ones. Of jobs with contexts, so many of them, drawn at
random, are predicted from all others and none, one, two, ... of their own configurations: the same
third of their counts, of which none is learnt from. An error is the mean of |predicted / measured
- 1|.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from generated import GeneratedContexts
from numpy.typing import NDArray
from stacking import (
    ENDS,
    LEAST_ERROR,
    TERMS,
    context_table,
    fitted_part,
    judge_context,
    own_runs_questions,
)
from threadpoolctl import threadpool_limits

from kongming.arrays import Floats
from kongming.records.errors import CannotAnswerError
from kongming.scale.fit.ernest import fit_ernest
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.points import Points, Runs

MACHINES, SECONDS = ("instance_count", "Nodes"), ("gross_runtime", "Runtime")
TOTALS = ("slots", "memory")
TYPE = "machine_type"
LEAST = 3
"""Minimum number of configurations that a fit learns from."""


def read(path: Path) -> GeneratedContexts:
    """Read a table; columns with one value in all rows are left out."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    if not rows:
        raise SystemExit(f"{path}: has no rows")
    names = list(rows[0])
    machines, seconds = (
        np.array([float(row[next(name for name in of if name in names)]) for row in rows])
        for of in (MACHINES, SECONDS)
    )
    columns = {}
    for name in names:
        if name not in (*MACHINES, *SECONDS, *TOTALS):
            cells = [row[name] for row in rows]
            if len(set(cells)) > 1:
                columns["type" if name == TYPE else name] = tuple(map(_value, cells))
    points = Points(machines, np.ones(len(rows)), np.ones(len(rows)))
    return GeneratedContexts(Runs(points, seconds), columns)


def _value(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def parts(job: GeneratedContexts) -> list[Runs]:
    """Return the runs of each context."""
    if not job.columns:
        return [job.runs]
    table = context_table(job)
    return [job.runs.take(table.owner == i) for i in range(len(table.contexts))]


def questions(runs: Runs) -> dict[str, list[NDArray[np.bool_]]]:
    """Return which runs are left out."""
    machines = runs.points.machines
    counts = np.unique(machines)
    largest = sorted({1, max(1, len(counts) // 3)})
    return {
        "between": [machines == count for count in counts[1:-1]],
        "smallest": [machines == counts[0]],
        **{f"largest_{n}": [machines >= counts[-n]] for n in largest},
    }


def alone(runs: Runs, out: NDArray[np.bool_]) -> tuple[float, float, list[bool]] | None:
    """Return our error, that of relative Ernest, and for each run whether the interval holds it."""
    training, left = runs.take(~out), runs.take(out)
    if training.count < LEAST or len(np.unique(training.points.machines)) < 2:
        return None
    model = fit_runs(training, Settings(TERMS))
    points, truth = left.configurations, left.typical
    held = []
    for at, seconds in zip(left.points.configurations(), left.seconds.tolist(), strict=True):
        try:
            answer = model.predict(at)
        except CannotAnswerError:
            continue
        lower, upper = (getattr(answer, end) for end in ENDS)
        held.append(bool(lower <= seconds <= upper))
    plain = fit_ernest(training, TERMS.terms, relative=True, rounds=0)
    return (_error(model.seconds(points), truth), _error(plain.predict(points), truth), held)


def _error(predicted: Floats, truth: Floats) -> float:
    return float(np.mean(np.abs(predicted / truth - 1.0)))


def of_alone(runs: list[Runs]) -> dict[str, Any]:
    """Compare over the contexts of a job, each fitted alone."""
    rows: dict[str, list[tuple[float, float, list[bool]]]] = {}
    for part in runs:
        for kind, splits in questions(part).items():
            judged = [row for row in (alone(part, out) for out in splits) if row is not None]
            rows.setdefault(kind, []).extend(judged)
    document = {}
    for kind, judged in rows.items():
        if not judged:
            continue
        ours, plain = (np.array([row[i] for row in judged]) for i in (0, 1))
        held = [each for row in judged for each in row[2]]
        document[kind] = {
            "questions": len(judged),
            **_compared(ours, plain, "relative_ernest"),
            "coverage": float(np.mean(held)) if held else None,
        }
    return document


def _compared(ours: Floats, other: Floats, name: str) -> dict[str, Any]:
    ratio = (ours + LEAST_ERROR) / (other + LEAST_ERROR)
    return {
        "mean_pct": 100.0 * float(ours.mean()),
        f"mean_pct_of_{name}": 100.0 * float(other.mean()),
        f"over_{name}": {
            "of_means": float(ours.mean() / other.mean()),
            "geometric_mean": float(np.exp(np.mean(np.log(ratio)))),
            "p95": float(np.quantile(ratio, 0.95)),
        },
    }


def of_contexts(job: GeneratedContexts, most: int) -> dict[str, Any]:
    """Compare contexts that are left out, but for some of their configurations."""
    table = context_table(job)
    rows: dict[int, list[tuple[float, float, float, float]]] = {}
    for i, left, learns in own_runs_questions(table, np.random.default_rng(0), most):
        judged = (table.owner == i) & np.isin(job.runs.points.machines, left)
        none = 0.0
        for own, learn in enumerate(learns):
            error = judge_context(fitted_part(table, learn), table, learn, i, judged)
            none = error["stack"] if own == 0 else none
            plain = error.get("ernest-relative", np.nan)
            rows.setdefault(own, []).append((error["stack"], none, plain, error["held"]))
    document = {}
    for own, each in sorted(rows.items()):
        ours, none, plain, held = np.array(each).T
        both = np.isfinite(plain)
        document[str(own)] = {
            "contexts": len(ours),
            **_compared(ours, none, "none"),
            "alone": _compared(ours[both], plain[both], "relative_ernest") if both.any() else None,
            "coverage": float(np.mean(held)),
        }
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--contexts", type=int, default=6, help="left-out contexts of each job")
    options = parser.parse_args()
    files = sorted([*options.folder.glob("*.tsv"), *options.folder.glob("*.csv")])
    document: dict[str, Any] = {}
    with threadpool_limits(1, user_api="blas"):
        for path in files:
            job = read(path)
            runs = parts(job)
            document[path.stem] = {
                "runs": len(job.runs),
                "contexts": len(runs),
                "columns": list(job.columns),
                "alone": of_alone(runs),
            }
            if len(runs) > 2 and options.contexts:
                document[path.stem]["over_contexts"] = of_contexts(job, options.contexts)
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
