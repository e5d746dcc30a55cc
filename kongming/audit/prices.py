"""What a run costs on each type of machine, and which type gives most for its price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log

import numpy as np

from kongming.audit.intervals import Bounds

__all__ = ["Value", "values"]

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Value:
    """``cost`` is money for one run (or for one operation), by the median; ``interval`` from that
    of the median. ``relative`` is over the cheapest type's. The name "" stands for the geometric
    mean of ``relative`` over the names that all types have."""

    machine_type: str
    name: str
    price: float
    cost: float | None
    interval: Bounds
    relative: float


def values(
    medians: Mapping[str, Mapping[str, float]],
    intervals: Mapping[str, Mapping[str, Bounds]],
    prices: Mapping[str, float],
) -> list[Value]:
    """Seconds by type and name, prices in money per machine and hour. Types without a price are
    left out; so are names that a single type has."""
    types = [one for one in medians if one in prices]
    names = dict.fromkeys(name for one in types for name in medians[one])
    found: list[Value] = []
    shared: dict[str, list[float]] = {one: [] for one in types}
    for name in names:
        having = [one for one in types if name in medians[one]]
        costs = {one: medians[one][name] / HOUR_S * prices[one] for one in having}
        least = min(costs.values())
        for one in having:
            bounds = intervals[one].get(name)
            money = tuple(b / HOUR_S * prices[one] for b in bounds) if bounds else None
            found.append(
                Value(
                    one,
                    name,
                    prices[one],
                    costs[one],
                    (money[0], money[1]) if money else None,
                    costs[one] / least,
                )
            )
            if len(having) == len(types):
                shared[one].append(log(costs[one] / least))
    overall = {one: exp(float(np.mean(logs))) for one, logs in shared.items() if logs}
    least = min(overall.values(), default=1.0)
    found += [Value(one, "", prices[one], None, None, overall[one] / least) for one in overall]
    return found
