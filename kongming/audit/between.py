"""Tables of what programs have to do with surrogates, and machines and types with one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kongming.audit import explaining, prices, slow_machines
from kongming.audit.intervals import Bounds
from kongming.audit.rows import Row, bounds_of
from kongming.audit.series import Series
from kongming.audit.summaries import Summary
from kongming.scale.overallocation import slowness

if TYPE_CHECKING:
    from kongming.audit.analysis import Settings

__all__ = ["explanations_rows", "prices_rows", "slow_rows"]


def explanations_rows(series: Series, settings: Settings) -> list[Row]:
    prints = explaining.fingerprints(series)
    rows = []
    for program in range(len(series.names)):
        if series.names[program].kind != "program":
            continue
        for t in range(len(series.types)):
            found = explaining.explain(
                series, prints, program, series.members(t), 1.0 - settings.confidence
            )
            rows += [
                {
                    "type": series.types[t],
                    "program": series.names[program].name,
                    "kind": series.names[one.name].kind,
                    "name": series.names[one.name].name,
                    "rho": one.rho,
                    "effective": one.effective,
                    "p": one.p,
                    "adjusted_p": one.adjusted,
                    "claimed": bool(one.adjusted <= 1.0 - settings.confidence),
                    "chosen": one.chosen,
                    "partial_rho": one.partial,
                }
                for one in found
            ]
    return rows


def slow_rows(
    series: Series, summaries: Mapping[tuple[int, int], Summary], settings: Settings
) -> Mapping[str, list[Row]]:
    slow, drops, extras = [], [], []
    for t, label in enumerate(series.types):
        members = series.members(t).tolist()
        if len(members) < slow_machines.MACHINES_FOR_SLOW:
            continue
        costs: dict[str, dict[str, dict[str, float]]] = {"surrogate": {}, "program": {}}
        bounds: dict[str, dict[str, Bounds]] = {}
        for m in members:
            machine = series.machines[m]
            bounds[machine] = {}
            for kind in costs:
                costs[kind][machine] = {}
            for name in series.timed():
                one = summaries.get((name, m))
                if one is not None and one.least > 0.0:
                    what = series.names[name]
                    cost, interval = _cost(one, what.lower_is_better)
                    costs[what.kind][machine][what.name] = cost
                    bounds[machine][what.name] = interval
        for kind, own in costs.items():
            for found in slow_machines.differences(own, bounds, settings.confidence):
                slow.append(
                    {
                        "type": label,
                        "machine": found.machine,
                        "kind": kind,
                        "name": found.name,
                        "over_typical_pct": 100.0 * (found.ratio - 1.0),
                        "adjusted_p": found.p,
                        "slow": found.slow,
                    }
                )
        chosen = slow_machines.choosing(_shared(costs["surrogate"]))
        by = {
            m: {name: own[name] for name in chosen if name in own}
            for m, own in costs["surrogate"].items()
        }
        by = {m: own for m, own in by.items() if own}
        if not chosen or len(by) < slow_machines.MACHINES_FOR_SLOW:
            continue
        for keep in range(len(by) - 1, max(0, len(by) // 2 - 1), -1):
            drop = slow_machines.dropped(by, costs["program"], keep)
            drops.append(
                {
                    "type": label,
                    "keep": keep,
                    "drop": len(by) - keep,
                    "machines": list(drop.by.dropped),
                    "worst_before": drop.by.worst_before,
                    "worst_after": drop.by.worst_after,
                    "gain_pct": 100.0 * drop.by.gain,
                    "program_gain_pct": _percent(drop.program_gain),
                    "program_mean_gain_pct": _percent(drop.program_mean_gain),
                }
            )
        levels = slowness(by)
        for wanted in settings.wanted:
            more = slow_machines.extras(levels, wanted, settings.target)
            extras.append(
                {
                    "type": label,
                    "wanted": wanted,
                    "slowest_allowed": settings.target,
                    "extra": None if more is None else more.extra,
                    "probability": None if more is None else more.probability,
                    "probability_without": None if more is None else more.without,
                    "gain_pct": None if more is None else 100.0 * more.gain,
                }
            )
    return {"slow_machines": slow, "dropping": drops, "extra_machines": extras}


def _cost(one: Summary, lower_is_better: bool) -> tuple[float, Bounds]:
    bounds = one.intervals[1]
    if lower_is_better:
        return one.median, bounds
    return 1.0 / one.median, (1.0 / bounds[1], 1.0 / bounds[0]) if bounds else None


def _shared(costs: Mapping[str, Mapping[str, float]]) -> Sequence[str]:
    """Names that most machines have."""
    counts = Counter(name for own in costs.values() for name in own)
    return [name for name, count in counts.items() if count > len(costs) / 2]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def prices_rows(
    series: Series,
    by_type: Mapping[tuple[int, int], Summary],
    by_machine: Mapping[tuple[int, int], Summary],
    price_of: Mapping[str, float],
) -> list[Row]:
    if not price_of:
        return []
    rows = []
    for kind in ("program", "surrogate"):
        medians: dict[str, dict[str, float]] = {label: {} for label in series.types}
        bounds: dict[str, dict[str, Bounds]] = {label: {} for label in series.types}
        for (name, t), one in by_type.items():
            what = series.names[name]
            if what.kind != kind or what.unit != "s" or one.least <= 0.0:
                continue
            label = series.types[t]
            medians[label][what.name] = one.median
            members = series.members(t).tolist()
            # A type of one machine stands for that machine alone.
            single = by_machine[name, members[0]] if len(members) == 1 else one
            bounds[label][what.name] = single.intervals[1]
        for value in prices.values(medians, bounds, price_of):
            rows.append(
                {
                    "type": value.machine_type,
                    "kind": kind,
                    "name": value.name or None,
                    "price_per_hour": value.price,
                    "cost": value.cost,
                    **bounds_of("cost", value.interval),
                    "over_cheapest": value.relative,
                }
            )
    return rows
