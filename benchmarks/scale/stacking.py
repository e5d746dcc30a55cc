"""Generated tables: the stack beside each of its forms, and one model over contexts.

    python benchmarks/scale/stacking.py [--tables 300] [--contexts 40] [--seed 100000]

Prints one JSON document. Each table (``generated.py``) is asked for its largest machine counts
(one, a third, half of them left out) and for single counts that are left out; an error is the mean
of |predicted / measured - 1| at what was left out. The factors of the stack were chosen with seeds
below 3000: prove it with others.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from typing import Any

import numpy as np
from generated import GeneratedContexts, contexts, table
from threadpoolctl import threadpool_limits

from kongming.arrays import Floats
from kongming.scale.fit.context_fitting import fit_contexts
from kongming.scale.fit.ernest import fit_ernest
from kongming.scale.fit.fitting import Settings
from kongming.scale.fit.stack import fit_stack
from kongming.scale.fit.stack_spread import measure_stack_spread
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Runs
from kongming.scale.table import ContextTable

TERMS = read_terms("default", items=None)
PLAIN = ("ernest", "ernest-relative", "nearest", "power-law", "universal-scalability")
"""Single forms that are not of this project's making."""


def questions(runs: Runs, random: np.random.Generator) -> list[tuple[str, Runs, Runs]]:
    """Return kinds of question, with the runs to learn from and those left out."""
    machines = runs.points.machines
    counts = np.unique(machines)
    asked = []
    for left in sorted({1, max(1, len(counts) // 3), len(counts) // 2}):
        small = machines <= counts[-left - 1] if len(counts) > left + 1 else machines < 0
        if runs.take(small).count >= 3:
            asked.append(("largest_out", runs.take(small), runs.take(~small)))
    inner = random.permutation(counts[1:-1])[:2]
    for count in (counts[0], *inner):
        rest = machines != count
        if len(np.unique(machines[rest])) >= 2 and runs.take(rest).count >= 3:
            kind = "smallest_out" if count == counts[0] else "one_out"
            asked.append((kind, runs.take(rest), runs.take(~rest)))
    return asked


def judge(training: Runs, left: Runs) -> tuple[dict[str, float], float]:
    """Return the errors of the stack and of its forms, and the share of runs in the interval."""
    fit = fit_stack(training, TERMS.terms)
    spread = measure_stack_spread(training, fit)
    points, truth = left.configurations, left.typical
    logs, parts = fit.answer(points)
    errors = {"stack": _error(np.exp(logs), truth)}
    for name, values in zip(fit.names, np.exp(fit.logs(points)).T, strict=True):
        errors[name] = _error(values, truth)
    limit = np.array([np.log(spread.factor(float(each), 0.9)) for each in spread.of(parts)])
    away = np.abs(np.log(left.unit_seconds) - logs[left.owner])
    return errors, float(np.mean(away <= limit[left.owner]))


def _error(predicted: Floats, truth: Floats) -> float:
    return float(np.mean(np.abs(predicted / truth - 1.0)))


def of_tables(count: int, seed: int) -> dict[str, Any]:
    """Compare over tables: the mean over each table's questions counts once."""
    by_table: list[dict[str, float]] = []
    by_kind: dict[str, list[dict[str, float]]] = defaultdict(list)
    held: dict[str, list[float]] = defaultdict(list)
    for number in range(seed, seed + count):
        errors = []
        for kind, training, left in questions(table(number).runs, np.random.default_rng(number)):
            error, share = judge(training, left)
            errors.append(error)
            by_kind[kind].append(error)
            held[kind].append(share)
        if not errors:
            continue
        by_table.append(
            {name: float(np.mean([error[name] for error in errors])) for name in errors[0]}
        )
    means = {name: _mean(by_table, name) for name in by_table[0]}
    ratios = np.array([each["stack"] / max(each["ernest-relative"], 1e-6) for each in by_table])
    singles = {name: mean for name, mean in means.items() if name != "stack"}
    return {
        "tables": len(by_table),
        "error_pct": {name: 100.0 * mean for name, mean in means.items()},
        "stack_over_best_form": means["stack"] / min(singles.values()),
        "stack_over_best_plain_form": means["stack"] / min(singles[name] for name in PLAIN),
        "over_ernest_relative": {
            "of_means": means["stack"] / means["ernest-relative"],
            "geometric_mean": float(np.exp(np.mean(np.log(ratios)))),
            "median": float(np.median(ratios)),
            "p95": float(np.quantile(ratios, 0.95)),
        },
        "questions": {
            kind: {
                "count": len(rows),
                "stack_pct": 100.0 * _mean(rows, "stack"),
                "ernest_pct": 100.0 * _mean(rows, "ernest"),
                "ernest_relative_pct": 100.0 * _mean(rows, "ernest-relative"),
                "median_stack_pct": 100.0 * float(np.median([row["stack"] for row in rows])),
                "median_ernest_relative_pct": 100.0
                * float(np.median([row["ernest-relative"] for row in rows])),
                "coverage": float(np.mean(held[kind])),
            }
            for kind, rows in by_kind.items()
        },
    }


def _mean(rows: list[dict[str, float]], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def context_table(made: GeneratedContexts) -> ContextTable:
    """Return generated contexts as they are read from a CSV."""
    rows = list(zip(*made.columns.values(), strict=True))
    numbers: dict[tuple[float | str, ...], int] = {}
    owner = [numbers.setdefault(row, len(numbers)) for row in rows]
    return ContextTable(
        made.runs, tuple(made.columns), tuple(numbers), np.array(owner), type_column="type"
    )


def of_contexts(count: int, seed: int) -> dict[str, Any]:
    """Leave each context out, but for none, one, two or three of its configurations."""
    errors: dict[str, list[float]] = defaultdict(list)
    held: dict[str, list[float]] = defaultdict(list)
    for number in range(seed, seed + count):
        random = np.random.default_rng(number)
        whole = context_table(contexts(number))
        for i in random.permutation(len(whole.contexts))[:2]:
            own = whole.runs.take(whole.owner == i)
            if own.count < 5:
                continue
            order = random.permutation(own.count)
            for kept in (0, 1, 2, 3):
                mine = np.flatnonzero(whole.owner == i)
                left = np.isin(own.owner, order[3:])
                learn = np.ones(len(whole.runs), dtype=bool)
                learn[mine[~np.isin(own.owner, order[:kept])]] = False
                model = _fitted(whole, learn)
                fit = model.fit_at(whole.contexts[i])
                test = own.take(left)
                predicted = fit.predict(test.configurations)
                errors[f"{kept}_runs"].append(_error(predicted, test.typical))
                spread = model.known if kept else model.new
                deviation = spread.deviation(fit, test.configurations, beyond=False)
                limit = np.log([spread.factor(float(each), 0.9) for each in deviation])
                away = np.abs(np.log(test.unit_seconds / predicted[test.owner]))
                held[f"{kept}_runs"].append(float(np.mean(away <= limit[test.owner])))
                if kept >= 2:
                    alone = own.within(order[:kept])
                    if len(np.unique(alone.points.machines)) > 1:
                        plain = fit_ernest(alone, TERMS.terms, relative=True, rounds=0)
                        errors[f"{kept}_runs_alone"].append(
                            _error(plain.predict(test.configurations), test.typical)
                        )
    return {
        "tables": count,
        "mean_pct": {name: 100.0 * float(np.mean(each)) for name, each in errors.items()},
        "median_pct": {name: 100.0 * float(np.median(each)) for name, each in errors.items()},
        "coverage": {name: float(np.mean(each)) for name, each in held.items()},
    }


def _fitted(whole: ContextTable, learn: Any) -> Any:
    owner = whole.owner[learn]
    present = sorted(set(owner.tolist()))
    renumbered = np.array([present.index(i) for i in owner.tolist()])
    part = ContextTable(
        whole.runs.take(learn),
        whole.columns,
        tuple(whole.contexts[i] for i in present),
        renumbered,
        type_column=whole.type_column,
    )
    return fit_contexts(part, Settings(TERMS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--contexts", type=int, default=40)
    parser.add_argument("--seed", type=int, default=100_000)
    options = parser.parse_args()
    document: dict[str, Any] = {"seed": options.seed}
    with threadpool_limits(1, user_api="blas"):
        if options.tables:
            document["tables"] = of_tables(options.tables, options.seed)
        if options.contexts:
            document["contexts"] = of_contexts(options.contexts, options.seed)
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
