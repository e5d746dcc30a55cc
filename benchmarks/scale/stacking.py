"""Generated tables: the stack next to each of its forms, and one model over contexts.

    python benchmarks/scale/stacking.py [--tables 300] [--contexts 40] [--own-runs 0]
        [--seed 100000] [--simulated]

Prints one JSON document. For each table (``generated.py``) its largest machine counts (one, a
third, half of them) and single counts are left out and predicted; an error is the mean of
|predicted / measured - 1| at what was left out. The factors of the stack were chosen with seeds
below 50000 of ``generated.py``: prove it with others, or with ``--simulated``. ``--own-runs`` takes
so many tables, and predicts the same left-out machine counts of a context from all other contexts
and none, one, up to five of its own configurations.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import generated
import numpy as np
import simulated
from generated import Generated, GeneratedContexts
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from kongming.arrays import Floats
from kongming.scale.context_columns import show
from kongming.scale.fit.contexts.context_fitting import fit_contexts
from kongming.scale.fit.contexts.context_model import ContextModel
from kongming.scale.fit.ernest import fit_ernest
from kongming.scale.fit.fitting import Settings
from kongming.scale.fit.model import Ranges, ScaleModel
from kongming.scale.fit.nearest import fit_amdahl
from kongming.scale.fit.stack import fit_stack
from kongming.scale.fit.stack_spread import measure_stack_spread
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Runs
from kongming.scale.table import ContextTable

TERMS = read_terms("default", items=None)
PLAIN = (
    "ernest-relative",
    "ernest",
    "amdahl",
    "universal-scalability",
    "power-law",
    "nearest",
)
"""Single forms that are not of this project's making."""

SINGLE = ("largest_of_one", "smallest_of_one", "between_of_one")
MORE = 2
"""The questions of ``SINGLE`` are repeated for so many more contexts of a table, drawn again: what
is worse in one question of twenty takes many to show."""

MOST_OWN, CONTEXTS_OF_TABLE, LEAST_COUNTS = 5, 3, 4
"""Own configurations of a context that is predicted with few, contexts of a table that are, and the
minimum number of machine counts of each."""

ENDS = ("lower", "upper")
LEAST_ERROR = 0.005


def questions(runs: Runs, random: np.random.Generator) -> list[tuple[str, Runs, Runs]]:
    """Return kinds of question, with the runs to learn from and those left out."""
    machines = runs.points.machines
    counts = np.unique(machines)
    splits = []
    for left in sorted({1, max(1, len(counts) // 3), len(counts) // 2}):
        small = machines <= counts[-left - 1] if len(counts) > left + 1 else machines < 0
        if runs.take(small).count >= 3:
            splits.append(("largest_out", runs.take(small), runs.take(~small)))
    inner = random.permutation(counts[1:-1])[:2]
    scale = runs.points.scale
    scales = np.unique(scale)
    alone = [
        (machines, counts[0], "smallest_out"),
        *((machines, count, "one_out") for count in inner),
    ]
    if len(scales) > 2:
        alone += [(scale, inner_scale, "one_scale_out") for inner_scale in scales[1:-1]]
        alone.append((scale, scales[-1], "largest_scale_out"))
    for values, omitted, kind in alone:
        rest = values != omitted
        if len(np.unique(machines[rest])) >= 2 and runs.take(rest).count >= 3:
            splits.append((kind, runs.take(rest), runs.take(~rest)))
    return splits


def judge(training: Runs, left: Runs) -> tuple[dict[str, float], float]:
    """Return the errors of the stack, of its forms and of Amdahl's law, and the share of runs in
    the interval."""
    training = training.in_order()
    fit = fit_stack(training, TERMS.terms)
    model = ScaleModel(fit, measure_stack_spread(training, fit), Ranges.of(training), {})
    points, truth = left.configurations, left.typical
    answers = [model.predict(at) for at in points.configurations()]
    errors = {"stack": _error(np.array([answer.median for answer in answers]), truth)}
    for name, values in zip(fit.names, np.exp(fit.logs(points)).T, strict=True):
        errors[name] = _error(values, truth)
    errors["amdahl"] = _error(fit_amdahl(training).predict(points), truth)
    lower, upper = (np.array([getattr(each, end) for each in answers]) for end in ENDS)
    times = left.unit_seconds
    held = (times >= lower[left.owner]) & (times <= upper[left.owner])
    return errors, float(np.mean(held))


def _error(predicted: Floats, truth: Floats) -> float:
    return float(np.mean(np.abs(predicted / truth - 1.0)))


def of_tables(tables: Iterable[Generated], seed: int) -> dict[str, Any]:
    """Compare over tables: the mean over each table's questions counts once."""
    by_table: list[dict[str, float]] = []
    by_kind: dict[str, list[dict[str, float]]] = defaultdict(list)
    by_shape: dict[str, list[dict[str, float]]] = defaultdict(list)
    held: dict[str, list[float]] = defaultdict(list)
    for number, table in enumerate(tables):
        errors = []
        for kind, training, left in questions(table.runs, np.random.default_rng(seed + number)):
            error, share = judge(training, left)
            errors.append(error)
            by_kind[kind].append(error)
            by_shape[f"{table.shape} {kind}"].append(error)
            held[kind].append(share)
            held[f"{table.shape} {kind}"].append(share)
        if errors:
            by_table.append(
                {name: float(np.mean([error[name] for error in errors])) for name in errors[0]}
            )
    means = {name: _mean(by_table, name) for name in by_table[0]}
    singles = {name: mean for name, mean in means.items() if name != "stack"}
    # What choosing the form in hindsight would reach: for each shape and kind, for each question.
    rows = [row for each in by_shape.values() for row in each]
    of_family = [min(_mean(each, name) for name in singles) for each in by_shape.values()]
    sizes = [len(each) for each in by_shape.values()]
    return {
        "tables": len(by_table),
        "error_pct": {name: 100.0 * mean for name, mean in means.items()},
        "stack_over_best_form": means["stack"] / min(singles.values()),
        "in_hindsight_pct": {
            "stack": 100.0 * _mean(rows, "stack"),
            "best_form_overall": 100.0 * min(_mean(rows, name) for name in singles),
            "best_form_of_shape_and_kind": 100.0 * float(np.average(of_family, weights=sizes)),
            "best_form_of_question": 100.0
            * float(np.mean([min(row[name] for name in singles) for row in rows])),
        },
        "over_ernest_relative": ratios(by_table),
        "questions": {kind: _of_kind(rows, held[kind]) for kind, rows in by_kind.items()},
        "shapes": {
            shape: {
                "count": len(rows),
                "stack_pct": 100.0 * _mean(rows, "stack"),
                "ernest_relative_pct": 100.0 * _mean(rows, "ernest-relative"),
                "over_ernest_relative": ratios(rows),
                "coverage": float(np.mean(held[shape])),
            }
            for shape, rows in sorted(by_shape.items())
        },
    }


def ratios(rows: list[dict[str, float]]) -> dict[str, float]:
    """Compare the stack with relative Ernest; half a percent is added to both errors, below which
    a difference is of no use."""
    own, relative = (
        np.array([each[name] for each in rows]) for name in ("stack", "ernest-relative")
    )
    ratio = (own + LEAST_ERROR) / (relative + LEAST_ERROR)
    return {
        "of_means": float(own.mean() / relative.mean()),
        "geometric_mean": float(np.exp(np.mean(np.log(ratio)))),
        "p95": float(np.quantile(ratio, 0.95)),
    }


def _of_kind(rows: list[dict[str, float]], held: list[float]) -> dict[str, Any]:
    names = ("stack", *PLAIN)
    return {
        "count": len(rows),
        "mean_pct": {name: 100.0 * _mean(rows, name) for name in names},
        "median_pct": {name: 100.0 * float(np.median([r[name] for r in rows])) for name in names},
        "over_ernest_relative": ratios(rows),
        "coverage": float(np.mean(held)),
    }


def _mean(rows: list[dict[str, float]], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def context_table(job: GeneratedContexts) -> ContextTable:
    """Return generated contexts as they are read from a CSV."""
    rows = list(zip(*job.columns.values(), strict=True))
    numbers: dict[tuple[float | str, ...], int] = {}
    owner = [numbers.setdefault(row, len(numbers)) for row in rows]
    return ContextTable(
        job.runs, tuple(job.columns), tuple(numbers), np.array(owner), type_column="type"
    )


def of_contexts(jobs: Iterable[GeneratedContexts], seed: int) -> dict[str, Any]:
    """Leave the largest machine counts out of all contexts or of one, the smallest or one between
    out of one, and one context but for none or three of its configurations. ``over_alone``: the
    ratio to the error of relative Ernest fitted to the same context alone; ``all_questions``: of
    the means over all questions of a table."""
    rows: dict[str, list[list[dict[str, float]]]] = defaultdict(list)
    by_table: list[dict[str, float]] = []
    for number, each in enumerate(jobs):
        random = np.random.default_rng(seed + number)
        complete = context_table(each)
        judged_here: list[dict[str, float]] = []
        splits = context_questions(complete, random)
        for more in range(MORE):
            of_another = context_questions(complete, np.random.default_rng([seed + number, more]))
            splits += [(kind, learn) for kind, learn in of_another if kind in SINGLE]
        for kind, learn in splits:
            model = fitted_part(complete, learn)
            of_table = [
                judge_context(model, complete, learn, i)
                for i in np.unique(complete.owner[~learn]).tolist()
            ]
            rows[kind].append(of_table)
            judged_here += [row for row in of_table if "ernest-relative" in row]
        if judged_here:
            names = ("stack", "ernest-relative")
            by_table.append({name: _mean(judged_here, name) for name in names})
    document: dict[str, Any] = {}
    if by_table:
        document["all_questions"] = {"tables": len(by_table), "over_alone": ratios(by_table)}
    for kind, tables in rows.items():
        flat = [row for table in tables for row in table]
        both = [[row for row in table if "ernest-relative" in row] for table in tables]
        document[kind] = {
            "count": len(flat),
            "mean_pct": 100.0 * _mean(flat, "stack"),
            "median_pct": 100.0 * float(np.median([row["stack"] for row in flat])),
            "coverage": _mean(flat, "held"),
        }
        if any(both):
            judged = [row for table in both for row in table]
            of_tables = [
                {name: _mean(table, name) for name in ("stack", "ernest-relative")}
                for table in both
                if table
            ]
            document[kind]["alone"] = {
                "mean_pct": 100.0 * _mean(judged, "ernest-relative"),
                "median_pct": 100.0 * float(np.median([row["ernest-relative"] for row in judged])),
                "mean_pct_of_ours": 100.0 * _mean(judged, "stack"),
            }
            document[kind]["over_alone"] = ratios(of_tables)
    return document


def context_questions(
    complete: ContextTable, random: np.random.Generator
) -> list[tuple[str, NDArray[np.bool_]]]:
    """Return kinds of question, with the runs to learn from."""
    machines = complete.runs.points.machines
    counts = np.unique(machines)
    splits = [
        (kind, machines <= counts[-left - 1])
        for kind, left in (("largest_of_all", 1), ("largest_third_of_all", len(counts) // 3))
        if left and (kind == "largest_of_all" or left > 1)
    ]
    own = complete.owner == random.integers(len(complete.contexts))
    some = np.unique(machines[own])
    if len(some) < 4:
        return splits
    three = random.choice(some, 3, replace=False)
    return [
        *splits,
        ("largest_of_one", ~(own & (machines > some[-2]))),
        ("smallest_of_one", ~(own & (machines == some[0]))),
        ("between_of_one", ~(own & (machines == random.choice(some[1:-1])))),
        ("all_of_one", ~own),
        ("all_but_three_of_one", ~(own & ~np.isin(machines, three))),
    ]


def own_runs_questions(
    complete: ContextTable, random: np.random.Generator, most: int = CONTEXTS_OF_TABLE
) -> list[tuple[int, Floats, list[NDArray[np.bool_]]]]:
    """Return at most so many contexts by number, each with a third of its machine counts, which are
    predicted, and the runs to learn from: with none, one, two, ... configurations of its own, which
    are drawn at random; each is among the next ones."""
    machines, splits = complete.runs.points.machines, []
    for i in random.permutation(len(complete.contexts)).tolist():
        own = complete.owner == i
        counts = random.permutation(np.unique(machines[own]))
        if len(counts) < LEAST_COUNTS or len(splits) == most:
            continue
        left, rest = np.split(counts, [len(counts) // 3])
        learn = [~own | np.isin(machines, rest[:k]) for k in range(min(MOST_OWN, len(rest)) + 1)]
        splits.append((i, left, learn))
    return splits


def of_own_runs(jobs: Iterable[GeneratedContexts], seed: int) -> dict[str, Any]:
    """Compare the errors of the same left-out configurations by the number of own ones, with those
    without any: ``over_none`` is the ratio, by context."""
    rows: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for number, each in enumerate(jobs):
        complete = context_table(each)
        random = np.random.default_rng([seed + number, 2])
        for i, left, learns in own_runs_questions(complete, random):
            judged = (complete.owner == i) & np.isin(complete.runs.points.machines, left)
            none = 0.0
            for own, learn in enumerate(learns):
                error = judge_context(fitted_part(complete, learn), complete, learn, i, judged)
                none = error["stack"] if own == 0 else none
                rows[own].append((error["stack"], none, error["held"]))
    document: dict[str, Any] = {}
    for own, each_row in sorted(rows.items()):
        errors, without, held = np.array(each_row).T
        ratio = (errors + LEAST_ERROR) / (without + LEAST_ERROR)
        document[str(own)] = {
            "contexts": len(errors),
            "mean_pct": 100.0 * float(errors.mean()),
            "median_pct": 100.0 * float(np.median(errors)),
            "mean_pct_of_none": 100.0 * float(without.mean()),
            "over_none": {
                "geometric_mean": float(np.exp(np.mean(np.log(ratio)))),
                "p95": float(np.quantile(ratio, 0.95)),
            },
            "coverage": float(held.mean()),
        }
    return document


def judge_context(
    model: ContextModel,
    complete: ContextTable,
    learn: NDArray[np.bool_],
    i: int,
    judged: NDArray[np.bool_] | None = None,
) -> dict[str, float]:
    """Return the errors of the model and of relative Ernest on one context's left-out runs, or
    those of them that are ``judged``."""
    own = complete.owner == i
    training = complete.runs.take(own & learn)
    left = complete.runs.take(own & ~learn if judged is None else judged)
    points = left.configurations
    at = model.at(dict(zip(complete.columns, map(show, complete.contexts[i]), strict=True)))
    answers = [at.predict(each) for each in points.configurations()]
    error = {"stack": _error(np.array([answer.median for answer in answers]), left.typical)}
    lower, upper = (np.array([getattr(each, end) for each in answers]) for end in ENDS)
    times = left.unit_seconds
    error["held"] = float(np.mean((times >= lower[left.owner]) & (times <= upper[left.owner])))
    if len(np.unique(training.points.machines)) > 1:
        plain = fit_ernest(training, TERMS.terms, relative=True, rounds=0)
        error["ernest-relative"] = _error(plain.predict(points), left.typical)
    return error


def fitted_part(complete: ContextTable, learn: NDArray[np.bool_]) -> ContextModel:
    """Fit some of the runs; contexts without any are left out."""
    owner = complete.owner[learn]
    present = sorted(set(owner.tolist()))
    renumbered = np.array([present.index(i) for i in owner.tolist()])
    part = ContextTable(
        complete.runs.take(learn),
        complete.columns,
        tuple(complete.contexts[i] for i in present),
        renumbered,
        type_column=complete.type_column,
    )
    return fit_contexts(part, Settings(TERMS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--contexts", type=int, default=40)
    parser.add_argument("--own-runs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--simulated", action="store_true", help="tables of simulated.py")
    options = parser.parse_args()
    source = simulated if options.simulated else generated
    document: dict[str, Any] = {"seed": options.seed, "made_by": source.__name__}
    seeds = range(
        options.seed, options.seed + max(options.tables, options.contexts, options.own_runs)
    )
    with threadpool_limits(1, user_api="blas"):
        if options.tables:
            tables = (source.table(each) for each in seeds[: options.tables])
            document["tables"] = of_tables(tables, options.seed)
        if options.contexts:
            jobs = (source.contexts(each) for each in seeds[: options.contexts])
            document["contexts"] = of_contexts(jobs, options.seed)
        if options.own_runs:
            jobs = (source.contexts(each) for each in seeds[: options.own_runs])
            document["own_runs"] = of_own_runs(jobs, options.seed)
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
