"""The cost of a run on each type of machine, and the type with the best price for performance."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import exp, log

import numpy as np

from kongming.audit.analysis.quantile_intervals import Bounds, bounds_columns
from kongming.audit.analysis.series import Row, Series
from kongming.audit.analysis.summaries import Summaries

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class RunCost:
    """Cost of one run (or of one operation) on a type, by the median; ``interval`` from that of
    the median. ``relative`` is over the cheapest type. The name "" is the geometric mean of
    ``relative`` over the names that all types have."""

    machine_type: str
    name: str
    price: float
    cost: float | None
    interval: Bounds
    relative: float


def price_rows(
    series: Series,
    by_type: Summaries,
    by_machine: Summaries,
    price_of: Mapping[str, float],
    unlike: Collection[str] = (),
) -> list[Row]:
    """Rows of programs and of surrogates, without those that are ``unlike`` between types; none
    without prices."""
    if not price_of:
        return []
    rows = []
    for kind in ("program", "surrogate"):
        medians: dict[str, dict[str, float]] = {label: {} for label in series.types}
        intervals: dict[str, dict[str, Bounds]] = {label: {} for label in series.types}
        for (k, t), summary in by_type.items():
            name = series.names[k]
            if name.kind != kind or name.unit != "s" or summary.least <= 0.0:
                continue
            if kind == "surrogate" and name.name in unlike:
                continue
            label = series.types[t]
            medians[label][name.name] = summary.median
            members = series.members(t).tolist()
            # A type with one machine has the interval of that machine.
            source = by_machine[k, members[0]] if len(members) == 1 else summary
            intervals[label][name.name] = source.intervals[1]
        rows += [
            {
                "type": cost.machine_type,
                "kind": kind,
                "name": cost.name or None,
                "price_per_hour": cost.price,
                "cost": cost.cost,
                **bounds_columns("cost", cost.interval),
                "over_cheapest": cost.relative,
            }
            for cost in run_costs(medians, intervals, price_of)
        ]
    return rows


def run_costs(
    medians: Mapping[str, Mapping[str, float]],
    intervals: Mapping[str, Mapping[str, Bounds]],
    prices: Mapping[str, float],
) -> list[RunCost]:
    """Costs from seconds by type and name and prices per machine and hour. Types without a price
    are left out, and so are names that one of several types has alone: nothing is cheaper."""
    types = [label for label in medians if label in prices]
    costs: list[RunCost] = []
    shared: dict[str, list[float]] = {label: [] for label in types}
    for name in dict.fromkeys(name for label in types for name in medians[label]):
        own = {
            label: medians[label][name] / HOUR_S * prices[label]
            for label in types
            if name in medians[label]
        }
        if len(own) == 1 < len(types):
            continue
        least = min(own.values())
        for label, cost in own.items():
            bounds = intervals[label].get(name)
            interval: Bounds = None
            if bounds is not None:
                lower, upper = (bound / HOUR_S * prices[label] for bound in bounds)
                interval = (lower, upper)
            costs.append(RunCost(label, name, prices[label], cost, interval, cost / least))
            if len(own) == len(types):
                shared[label].append(log(cost / least))
    overall = {label: exp(float(np.mean(logs))) for label, logs in shared.items() if logs}
    least = min(overall.values(), default=1.0)
    costs += [
        RunCost(label, "", prices[label], None, None, mean / least)
        for label, mean in overall.items()
    ]
    return costs
