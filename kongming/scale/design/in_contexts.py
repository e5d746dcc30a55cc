"""Choose experiments over contexts: those that make a model over contexts most certain at a target.

What a run tells about the target follows from the process's covariances alone, not from its time
(Krause, Singh and Guestrin 2008), so several runs can be chosen at once, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.records.errors import InputError
from kongming.scale.context_columns import Context
from kongming.scale.design.candidates import candidates as candidate_points
from kongming.scale.design.planning import configuration
from kongming.scale.fit.contexts.context_fitting import fit_contexts
from kongming.scale.fit.contexts.context_model import ContextModel, inputs_of, never_run
from kongming.scale.fit.fitting import Settings
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Configuration, Points
from kongming.scale.ranges import machine_counts, scales
from kongming.scale.table import Columns, read_context_table

MOST = 2000
"""Maximum number of candidates."""


@dataclass(frozen=True, slots=True)
class ContextExperiment:
    """A run in a context: its predicted cost in machine-seconds, and the variance (of the log of
    the time) at the target before and after it."""

    context: Context
    at: Configuration
    machine_seconds: float
    variance_now: float
    variance_after: float


def fit_context_runs(
    runs: Path, given: Mapping[str, str], terms: str, items: float | None
) -> ContextModel:
    """Fit the runs of a table over the columns of the target's context.

    Raises:
        InputError: the table has no such columns, or does not suffice.
    """
    (table,) = read_context_table(runs, Columns(), tuple(given))
    return fit_contexts(table, Settings(read_terms(terms, items=items), items=items))


def context_experiments(
    model: ContextModel,
    given: Mapping[str, str],
    machines: str,
    scales_text: str,
    target: str,
    *,
    count: int | None = None,
    budget: float | None = None,
    per_cost: bool = True,
) -> list[dict[str, Any]]:
    """Choose experiments for a target in the context ``given``, as JSON. Raises InputError."""
    names = [column.name for column in model.columns]
    chosen = choose_in_contexts(
        model,
        candidate_points(machine_counts(machines), scales(scales_text)).configurations(),
        model.complete(given),
        configuration(target, "--target"),
        count=count,
        budget=budget,
        per_cost=per_cost,
    )
    return [
        {
            "machines": int(experiment.at.machines),
            "scale": experiment.at.scale,
            "runs": 1,
            "context": dict(zip(names, experiment.context, strict=True)),
            "machine_seconds": experiment.machine_seconds,
            "variance_now": experiment.variance_now,
            "variance_after": experiment.variance_after,
        }
        for experiment in chosen
    ]


def warnings_at(model: ContextModel, given: Mapping[str, str]) -> list[str]:
    """Return what is to be known of experiments for the context ``given``: of the fit, and of names
    that no run had."""
    return [*never_run([model], [model.at(given)]), *model.report["warnings"]]


def context_design(
    given: Mapping[str, str],
    machines: str,
    scales_text: str,
    limits: tuple[float | None, int],
    target: str | None,
    done: Path | None,
    terms: str,
    items: float | None,
) -> dict[str, Any]:
    """Return a design over contexts; ``limits``: machine-seconds, or else a number of experiments.

    Raises:
        InputError: an input is missing or not valid.
    """
    if done is None or target is None:
        raise InputError(
            "A design over contexts needs the runs so far and a target.",
            field="--context",
            hint="Add --done RUNS.csv and --target M@S.",
        )
    model = fit_context_runs(done, given, terms, items)
    budget, count = limits
    experiments = context_experiments(
        model,
        given,
        machines,
        scales_text,
        target,
        count=count if budget is None else None,
        budget=budget,
    )
    return {
        "optimality": "I",
        "experiments": experiments,
        "count": len(experiments),
        "machine_seconds": sum(experiment["machine_seconds"] for experiment in experiments),
        "done": len(model.points),
        "warnings": warnings_at(model, given),
    }


def choose_in_contexts(
    model: ContextModel,
    candidates: Sequence[Configuration],
    context: Context,
    target: Configuration,
    *,
    count: int | None = None,
    budget: float | None = None,
    per_cost: bool = True,
) -> list[ContextExperiment]:
    """Choose up to ``count`` experiments, or as many as cost up to ``budget`` machine-seconds, in
    all contexts that were run and in the target's, which may have no runs.

    Raises:
        InputError: there are too many candidates, or none that the budget allows.
    """
    contexts = list(dict.fromkeys((*model.contexts, context)))
    if len(contexts) * len(candidates) > MOST:
        raise InputError(
            f"{len(contexts)} contexts and {len(candidates)} configurations are too many pairs.",
            field="--machines, --scale",
            allowed=f"{MOST} pairs",
        )
    pairs = [(own, at) for own in contexts for at in candidates]
    places = Points.of([target, *(at for _, at in pairs)])
    owner = np.array([contexts.index(own) for own in (context, *(own for own, _ in pairs))])
    inputs = inputs_of(model.columns, contexts, places, owner, model.center)
    covariance = model.process.posterior(inputs)
    seconds = np.array([float(model.fit_at(own).predict(Points.of([at]))[0]) for own, at in pairs])
    costs = seconds * np.array([at.machines for _, at in pairs])
    return _greedy(
        pairs,
        covariance,
        costs,
        float(model.process.sizes[7]) ** 2,
        count if count is not None else len(pairs),
        np.inf if budget is None else budget,
        per_cost,
    )


def _greedy(
    pairs: Sequence[tuple[Context, Configuration]],
    covariance: Floats,
    costs: Floats,
    noise: float,
    count: int,
    budget: float,
    per_cost: bool,
) -> list[ContextExperiment]:
    """Take the experiment with the largest reduction of the log variance (per cost), again and
    again. The first row of the ``covariance`` is the target's."""
    chosen: list[ContextExperiment] = []
    left = budget
    while len(chosen) < count:
        now = max(float(covariance[0, 0]), 1e-300)
        own = np.diag(covariance)[1:] + noise
        after = np.maximum(now - covariance[0, 1:] ** 2 / own, 1e-12 * now)
        gain = (np.log(now) - np.log(after)) / (costs if per_cost else 1.0)
        gain = np.where(costs <= left, gain, -np.inf)
        best = int(np.argmax(gain))
        if not np.isfinite(gain[best]):
            break
        context, at = pairs[best]
        chosen.append(ContextExperiment(context, at, float(costs[best]), now, float(after[best])))
        left -= float(costs[best])
        column = covariance[:, best + 1]
        covariance = covariance - np.outer(column, column) / own[best]
    if not chosen:
        raise InputError(
            "allows no experiment.",
            field="--budget-machine-seconds",
            value=budget,
            allowed=f"{float(costs.min()):.4g} or more",
        )
    return chosen
