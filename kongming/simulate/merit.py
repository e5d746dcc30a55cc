"""Figures of merit of a replayed trace, including those of Bubble-Up and Paragon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.simulate.fleet import Fleet
from kongming.simulate.replay import Outcome
from kongming.simulate.trace import Trace

UNDEGRADED = 0.95
"""Lowest quality (speed over solo speed) at which a job counts as undegraded, as in Paragon."""

HELD = (0.90, 0.95, 0.98, 0.99)
"""Quality levels at which the share of jobs is reported."""

_ROUNDING = 1e-6

COMPARED = (
    ("makespan_s",),
    ("slowdown", "mean"),
    ("slowdown", "p95"),
    ("waiting_s", "mean"),
    ("stretch", "mean"),
    ("work_per_busy_node",),
)
"""Figures that are reported relative to the random policy and to the oracle."""


def slowdowns(trace: Trace, outcome: Outcome) -> Floats:
    """(n,) run time over the solo time on a node of speed 1."""
    return np.asarray((outcome.end_s - outcome.start_s) / trace.work_s)


def merit(trace: Trace, outcome: Outcome, fleet: Fleet) -> dict[str, Any]:
    """Compute the figures of one policy.

    ``slowdown`` is run time over work, ``stretch`` waiting plus run time over work, and ``quality``
    the reciprocal of the slowdown. ``alone_gap_pct`` is the gap between the mean quality and 1,
    ``undegraded_share`` the share of jobs of quality 0.95 or more (Paragon's figures).
    ``work_per_busy_node`` is solo seconds of work per second that a node is in use: 1 without
    co-location; ``gained_pct`` is the excess over 1 (Bubble-Up's gained utilisation).
    ``nodes_in_use`` is a share of the nodes, each counted by its speed.
    """
    slowed = slowdowns(trace, outcome)
    waits = np.maximum(outcome.start_s - trace.arrival_s, 0.0)
    quality = 1.0 / slowed
    span = float(outcome.end_s.max() - trace.arrival_s[0])
    runs = float((outcome.end_s - outcome.start_s).sum())
    work = float(trace.work_s.sum())
    limited = np.isfinite(trace.limit)
    over = slowed > trace.limit * (1.0 + _ROUNDING)
    per_node = work / outcome.busy_s
    speeds = sum(kind.nodes * kind.speed for kind in fleet.kinds)
    return {
        "makespan_s": span,
        "slowdown": _spread(slowed),
        "stretch": _spread((waits + slowed * trace.work_s) / trace.work_s),
        "waiting_s": _spread(waits),
        "waited_share": float(np.mean(waits > _ROUNDING)),
        "over_limit_share": float(np.mean(over[limited])) if limited.any() else None,
        "quality": {
            "mean": float(quality.mean()),
            "alone_gap_pct": float(100.0 * (1.0 - quality.mean())),
            "undegraded_share": held(slowed, UNDEGRADED),
            "held": {f"{target:.2f}": held(slowed, target) for target in HELD},
        },
        "slots_in_use": runs / (span * fleet.slots),
        "nodes_in_use": outcome.busy_s / (span * speeds),
        "shared_share": outcome.shared_s / runs,
        "work_per_busy_node": per_node,
        "gained_pct": 100.0 * (per_node - 1.0),
        "forced_jobs": outcome.forced,
        "states": outcome.states,
    }


def held(slowed: Floats, quality: float) -> float:
    """Share of jobs with at least this quality."""
    return float(np.mean(slowed <= (1.0 + _ROUNDING) / quality))


def add_ratios(figures: Mapping[str, Mapping[str, Any]], references: Sequence[str]) -> None:
    """Add each policy's ratios to the figures of the reference policies, under ``over``."""
    for own in figures.values():
        own["over"] = {  # type: ignore[index]
            name: {
                ".".join(path): _ratio(_at(own, path), _at(figures[name], path))
                for path in COMPARED
            }
            for name in references
            if name in figures
        }


def captured(
    figures: Mapping[str, Mapping[str, Any]], name: str, path: tuple[str, ...]
) -> float | None:
    """Share of the oracle's gain over random that a policy achieves: 1 is all of it."""
    if not {"random", "oracle"} <= figures.keys():
        return None
    random, oracle = _at(figures["random"], path), _at(figures["oracle"], path)
    if abs(random - oracle) <= _ROUNDING * abs(random):
        return None
    return (random - _at(figures[name], path)) / (random - oracle)


def _spread(values: Floats) -> dict[str, float]:
    median, p95, p99 = np.quantile(values, (0.5, 0.95, 0.99))
    return {
        "mean": float(values.mean()),
        "median": float(median),
        "p95": float(p95),
        "p99": float(p99),
        "max": float(values.max()),
    }


def _at(figures: Mapping[str, Any], path: Sequence[str]) -> float:
    value: Any = figures
    for name in path:
        value = value[name]
    return float(value)


def _ratio(own: float, other: float) -> float | None:
    return own / other if other > _ROUNDING else None
