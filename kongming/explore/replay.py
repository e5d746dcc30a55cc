"""Replay a fully measured table: it answers for the program, so that policies can be compared.

Errors over ``all`` rows are those of the paper (4.1: over the whole space); ``unseen`` are the rows
that were not run. Failed runs have no value, so that they count in neither.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.explore import DecisionTreeProfiler, Space
from kongming.explore.cost import CONSTANT_COST
from kongming.explore.fitting import refuse_one_point
from kongming.explore.measured_table import MeasuredTable, Point
from kongming.explore.profiler import FEWEST_RUNS
from kongming.explore.runs import deviations_of_repeats
from kongming.expressions import parse
from kongming.records.errors import CannotAnswerError, InputError

_SMALL = 0.01
"""Share of the typical value below which widths are shares of that."""
MORE_RUNS = "Give a larger --budget, so that each profile has runs that succeed."
METRICS = ("mse", "mae", "mre_pct")


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Settings by which a table is replayed. ``cost`` is an expression in the parameters, None
    without one."""

    budget: int
    batch: int
    model: str = "auto"
    cost: str | None = None
    level: float = 0.9
    options: tuple[tuple[str, Any], ...] = ()
    """Further arguments of ``DecisionTreeProfiler``, or others in the place of these."""


@dataclass(frozen=True, eq=False, slots=True)
class Replayed:
    """One profile: errors by metric (None where no row has any), and what it took."""

    all: dict[str, float | None]
    unseen: dict[str, float | None]
    coverage: float | None
    width_pct: float | None
    cost: float
    failures: tuple[bool, ...]
    """Whether each run failed, in the order of the runs."""
    model: str
    suggest_s: Sequence[float]
    fit_s: float
    predicted: Floats
    seen: NDArray[np.bool_]


class World:
    """The table as the program under test: the runs of a point answer in the order of their rows,
    and begin again when all were used. ``costs`` (n,) are those of the rows; None: 1 each.

    Raises:
        InputError: all values of the target are equal, or all rows are of one point.
    """

    def __init__(self, table: MeasuredTable, costs: Floats | None = None) -> None:
        known = table.values[np.isfinite(table.values)]
        if len(known) > 0 and np.all(known == known[0]):
            failed = len(table) - len(known)
            what = "is constant" if len(known) > 1 else "has a single value"
            raise InputError(
                f"{what}: there is nothing to be learned."
                + (f" Rows without a value: {failed} of {len(table)}." if failed else ""),
                field=f"{table.path}: rows 1 to {len(table)}, column {table.target!r}",
                value=float(known[0]),
                allowed="a target that varies",
            )
        refuse_one_point(table.points, f"{table.path}: rows 1 to {len(table)}")
        self.table = table
        self.costs = np.ones(len(table)) if costs is None else costs
        self.priced = costs is not None
        self._rows: dict[tuple[float | str | None, ...], list[int]] = defaultdict(list)
        for row, point in enumerate(table.points):
            self._rows[self._key(point)].append(row)
        self.repeated = len(self._rows) < len(table)
        points = [table.points[rows[0]] for rows in self._rows.values()]
        self.space = Space.from_table(
            [{name: point.get(name) for name in table.names} for point in points],
            optional=[name for name in table.names if any(name not in each for each in points)],
        )

    def answer(self, point: Point, runs: int) -> int:
        """Return the row of a point that was run ``runs`` times before."""
        rows = self._rows[self._key(point)]
        return rows[runs % len(rows)]

    def rows(self, point: Point) -> list[int]:
        """Return all rows of a point."""
        return self._rows[self._key(point)]

    def noise_floor(self) -> dict[str, float | None] | None:
        """Compute the errors that are left to who knows the mean of every point, from the rows that
        repeat a point; None where fewer than half of the rows do: errors over all of them would
        have another floor."""
        point = np.empty(len(self.table), dtype=np.intp)
        for place, rows in enumerate(self._rows.values()):
            point[rows] = place
        deviations = deviations_of_repeats(point, self.table.values)
        repeated = np.isfinite(deviations)
        if not repeated.any() or 2 * repeated.sum() < np.isfinite(self.table.values).sum():
            return None
        values = self.table.values[repeated]
        return errors(values, values - deviations[repeated])

    def _key(self, point: Point) -> tuple[float | str | None, ...]:
        return tuple(
            None
            if name not in point
            else float(point[name])
            if name in self.table.numbers
            else str(point[name])
            for name in self.table.names
        )


def costs_of(table: MeasuredTable, cost: str) -> Floats:
    """Return the cost (n,) of each row by an expression in its parameters.

    Raises:
        InputError: it is no expression, or is no finite number above 0 at a row (with the row).
    """
    numbers = {
        name: [point.get(name, np.nan) for point in table.points] for name in sorted(table.numbers)
    }
    expression = parse(cost, field="--cost", variables=list(numbers), constant=CONSTANT_COST)
    costs = expression({name: np.array(each, dtype=np.float64) for name, each in numbers.items()})
    wrong = ~(np.isfinite(costs) & (costs > 0.0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            "is no cost there.",
            field=f"--cost at {table.path}: row {row + 1}",
            value=float(costs[row]),
            allowed="a finite number above 0",
        )
    return costs


def replay(world: World, policy: str, settings: ReplaySettings, seed: int) -> Replayed:
    """Profile the table by one policy.

    Raises:
        InputError: an argument of the profiler is not valid.
        CannotAnswerError: all runs failed or were ended, or all but those of one point.
    """
    arguments: dict[str, Any] = {
        "budget": settings.budget,
        "batch": settings.batch,
        "policy": policy,
        "model": settings.model,
        "cost": settings.cost or ("told" if world.priced else None),
        "level": settings.level,
        "random_state": seed,
        "repeats": world.repeated,
    }
    profiler = DecisionTreeProfiler(world.space, **(arguments | dict(settings.options)))
    table = world.table
    runs: Counter[tuple[int, ...]] = Counter()
    seen = np.zeros(len(table), dtype=np.bool_)
    suggest_s: list[float] = []
    failures: list[bool] = []
    cost = 0.0
    while True:
        begun = time.perf_counter()
        points = profiler.suggest()
        if not points:
            break
        suggest_s.append(time.perf_counter() - begun)
        for point in points:
            rows = tuple(world.rows(point))
            row = world.answer(point, runs[rows])
            runs[rows] += 1
            seen[list(rows)] = True
            spent = float(world.costs[row])
            cost += spent
            options: dict[str, Any] = {"cost": spent} if world.priced else {}
            value = None if np.isnan(table.values[row]) else float(table.values[row])
            if table.limits is not None and np.isfinite(table.limits[row]):
                options["at_least"] = float(table.limits[row])
            else:
                options["error"] = table.errors[row]
            failures.append(value is None and "at_least" not in options)
            profiler.tell(point, value, **options)
    profile = f"policy {policy}, seed {seed}"
    way_out = MORE_RUNS if np.isfinite(table.values).any() else None
    if failures and all(failures):
        reasons = Counter(error for error in table.errors if error is not None).most_common(3)
        named = ", ".join(reason for reason, _ in reasons)
        raise CannotAnswerError(
            f"All {len(failures)} runs failed ({profile}): {named}", hint=way_out
        )
    if way_out is None:
        raise CannotAnswerError(
            f"No row of {table.path} has a value of {table.target!r}: the runs failed or were "
            "ended at their time limit."
        )
    if len(profiler.observations.repeatable) < FEWEST_RUNS:
        ended = profiler.report()["timed_out"]
        raise CannotAnswerError(
            f"Fewer than {FEWEST_RUNS} points have a value of {table.target!r} ({profile}): "
            f"{sum(failures)} of {len(failures)} runs failed, {ended} were ended.",
            hint=way_out,
        )
    begun = time.perf_counter()
    forecast = profiler.predict(list(table.points))
    fit_s = time.perf_counter() - begun
    known = np.isfinite(table.values)
    unseen = known & ~seen
    judged = unseen if unseen.any() else known
    inside = (forecast.lower <= table.values) & (table.values <= forecast.upper)
    # Next to a target of 0 a share of the prediction says nothing; its typical size does.
    typical = float(np.mean(np.abs(table.values[known])))
    sizes = np.maximum(np.abs(forecast.median), _SMALL * typical)[judged]
    shares = (forecast.upper - forecast.lower)[judged] / sizes
    return Replayed(
        all=errors(table.values[known], forecast.median[known]),
        unseen=errors(table.values[unseen], forecast.median[unseen]),
        coverage=float(np.mean(inside[judged])) if judged.any() else None,
        width_pct=100.0 * float(np.median(shares)) if len(shares) else None,
        cost=cost,
        failures=tuple(failures),
        model=profiler.model_name,
        suggest_s=suggest_s,
        fit_s=fit_s,
        predicted=np.asarray(forecast.median, dtype=np.float64),
        seen=seen,
    )


def errors(measured: Floats, predicted: Floats) -> dict[str, float | None]:
    """Compute the mean squared, absolute and relative error (per cent of the measured values that
    are not 0)."""
    if len(measured) == 0:
        return dict.fromkeys(METRICS)
    missed = predicted - measured
    sizes = np.abs(measured)
    relative = np.abs(missed)[sizes > 0] / sizes[sizes > 0]
    return {
        "mse": float(np.mean(missed**2)),
        "mae": float(np.mean(np.abs(missed))),
        "mre_pct": 100.0 * float(np.mean(relative)) if len(relative) else None,
    }


def compare(
    world: World,
    policies: Sequence[str],
    settings: ReplaySettings,
    *,
    repeats: int,
    seed: int,
    observe: Callable[[int, str], object] = lambda done, policy: None,
) -> dict[str, Any]:
    """Replay each policy ``repeats`` times, with seeds from ``seed``, and return the document of
    ``explore replay``. Profiles that end without a model, as too few of their runs had a value, are
    counted and left out.

    Raises:
        CannotAnswerError: no profile of a policy ended with a model.
    """
    summaries = {}
    for place, policy in enumerate(policies):
        profiles = []
        refusals: list[CannotAnswerError] = []
        for repeat in range(repeats):
            observe(place * repeats + repeat, policy)
            try:
                profiles.append(replay(world, policy, settings, seed + repeat))
            except CannotAnswerError as error:
                refusals.append(error)
        if not profiles:
            raise refusals[0]
        summaries[policy] = summary(profiles)
        if refusals:
            summaries[policy]["without_model"] = len(refusals)
    document = {"rows": len(world.table), "budget": settings.budget, "policies": summaries}
    floor = world.noise_floor()
    return document if floor is None else {**document, "noise_floor": floor}


def summary(profiles: Sequence[Replayed]) -> dict[str, Any]:
    """Summarise the profiles of one policy: medians, and quartiles of errors."""
    suggest_s = [seconds for profile in profiles for seconds in profile.suggest_s]
    return {
        "all": {m: _quartiles([profile.all[m] for profile in profiles]) for m in METRICS},
        "unseen": {m: _quartiles([profile.unseen[m] for profile in profiles]) for m in METRICS},
        "coverage": _median([profile.coverage for profile in profiles]),
        "width_pct": _median([profile.width_pct for profile in profiles]),
        "cost": _median([profile.cost for profile in profiles]),
        "failed_runs": _median([float(sum(profile.failures)) for profile in profiles]),
        "models": dict(Counter(profile.model for profile in profiles).most_common()),
        "seconds": {
            "suggest_p50": float(np.median(suggest_s)),
            "suggest_max": float(np.max(suggest_s)),
            "fit": _median([profile.fit_s for profile in profiles]),
        },
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _quartiles(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    if not known:
        return {"median": None, "iqr": [None, None]}
    lower, median, upper = np.percentile(known, (25.0, 50.0, 75.0))
    return {"median": float(median), "iqr": [float(lower), float(upper)]}
