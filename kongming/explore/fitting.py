"""Fit a model to a table of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from kongming.explore import DecisionTreeProfiler, Space
from kongming.explore.choice import FEWEST
from kongming.explore.cost import REPORTED
from kongming.explore.model_file import ExploreModel
from kongming.explore.profiler import FEWEST_RUNS
from kongming.explore.runs_table import PointRun
from kongming.records import moments
from kongming.records.errors import CannotAnswerError, InputError

REASONS = 3
"""Different reasons that are named where all runs failed."""


def fit_runs(
    space: Space,
    runs: Sequence[PointRun],
    target: str,
    where: str,
    *,
    model: str = "auto",
    level: float = 0.9,
    seed: int = 0,
) -> ExploreModel:
    """Tell a profiler of all runs, and fit its model.

    Raises:
        InputError: there are too few runs, or all values are equal; ``where`` names the table.
        CannotAnswerError: no run came to its end, or those of a single point alone.
    """
    if len(runs) < FEWEST_RUNS:
        raise InputError(
            "has too few runs for any model.",
            field=where,
            value=len(runs),
            allowed=f"{FEWEST_RUNS} rows or more",
        )
    refuse_all_failed(runs)
    values = np.array([run.value for run in runs if run.value is not None])
    failed = len(runs) - len(values)
    bounds = sum(run.limit is not None for run in runs)
    if len(values) + bounds < FEWEST_RUNS:
        raise InputError(
            "has too few values for any model.",
            field=f"{where}: column {target!r}",
            value=f"{len(values)} in {len(runs)} rows",
            allowed=f"{FEWEST_RUNS} or more",
            hint="The other runs failed." if failed else None,
        )
    if len(values) >= FEWEST_RUNS and np.all(values == values[0]):
        raise InputError(
            "is constant: there is nothing to be learned."
            + (f" Failed runs: {failed} of {len(runs)}." if failed else ""),
            field=f"{where}: rows 1 to {len(runs)}, column {target!r}",
            value=float(values[0]),
            allowed="a target that varies",
        )
    refuse_one_point([run.point for run in runs], where)
    needed = FEWEST.get(model, FEWEST_RUNS)
    points = {tuple(run.point.items()) for run in runs if run.status != "failed"}
    if len(points) < needed:
        raise InputError(
            f"has too few points with a value for the model {model!r}.",
            field=where,
            value=len(points),
            allowed=f"{needed} or more",
            hint="Run more points, or let the kind of model be chosen (auto).",
        )
    profiler = DecisionTreeProfiler(
        space,
        budget=len(runs),
        batch=len(runs),
        model=model,
        level=level,
        random_state=seed,
    )
    for run in runs:
        tell(profiler, run)
    profiler.predict([runs[0].parameters])
    return ExploreModel(profiler, target, moments.now("seconds"))


def refuse_one_point(points: Sequence[Mapping[str, object]], where: str) -> None:
    """Raise InputError if all runs are of the same point: ``where`` names the table."""
    if all(point == points[0] for point in points):
        raise InputError(
            "has no parameter that varies: what one does cannot be learned.",
            field=where,
            value=f"{len(points)} runs of {dict(points[0])}",
            allowed="runs of 2 points or more",
        )


def tell(profiler: DecisionTreeProfiler, run: PointRun) -> None:
    """Tell a profiler of a run, and of its cost unless the profiler has an expression for that.

    Raises:
        InputError: the point is none of its space.
    """
    error = run.error if run.limit is None else None
    cost = run.cost if profiler.cost in (None, REPORTED) else None
    profiler.tell(run.parameters, run.value, error=error, cost=cost, at_least=run.limit)


def refuse_all_failed(runs: Sequence[PointRun]) -> None:
    """Raise CannotAnswerError with the reasons if there are runs, and none came to its end."""
    if not runs or any(run.value is not None for run in runs):
        return
    ended = sum(run.limit is not None for run in runs)
    reasons = Counter(run.error or "no reason given" for run in runs if run.limit is None)
    named = "; ".join(
        f"{count} times: {' '.join(reason.split())}"
        for reason, count in reasons.most_common(REASONS)
    )
    if not ended:
        raise CannotAnswerError(f"All {len(runs)} runs failed: {named}")
    raise CannotAnswerError(
        f"No run came to its end: {ended} of {len(runs)} were ended at their time limit"
        + (f", the others failed: {named}" if named else "."),
        hint="Raise the time limit, or run points that take less.",
    )
