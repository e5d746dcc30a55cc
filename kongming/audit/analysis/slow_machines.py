"""Slow machines of a type, and the gain of dropping them.

Ernest (NSDI 2016), section 4.3: launch some more, measure memory and network, drop the slowest.
Here machines are chosen by surrogates, and the choice is evaluated by the programs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from scipy import special

from kongming.arrays import Floats
from kongming.audit.analysis.multiple import holm
from kongming.audit.analysis.quantile_intervals import Bounds
from kongming.audit.analysis.series import Ints, Row, Series
from kongming.audit.analysis.settings import Settings
from kongming.audit.analysis.summaries import Summaries, Summary
from kongming.records.errors import CannotAnswerError, InputError
from kongming.scale.decide.overallocation import (
    Dropping,
    Extra,
    drop_slowest,
    extra_machines,
    slowness,
)

MIN_MACHINES = 3
"""Minimum number of machines of a type for a comparison of machines."""

MACHINES_WITHOUT_ITSELF = 4
"""Number of machines from which the typical one is the median of the others. The median of two is
their mean, which one of them moves: beside a fast machine both normal ones would be slow."""

TOLERANCE = 0.05
"""A machine is slow where a median is more than this share above the typical one."""

PREFIXES = ("memory.", "stream.", "net.")
"""Surrogates of memory and network, by which Ernest chooses."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A machine's median over that of the typical machine, for one name; ``p`` of the hypothesis
    that it is at most ``TOLERANCE`` above it, adjusted (Holm) over all machines and names of the
    type."""

    machine: str
    name: str
    ratio: float
    p: float
    slow: bool


@dataclass(frozen=True, slots=True)
class Drop:
    """Machines dropped by surrogates: ``dropping`` has the choice and its gain there.

    ``program_gain`` is the gain of the same choice in the programs: by how much the slowest machine
    left is faster than the slowest of as many drawn at random, averaged over programs;
    ``program_mean_gain`` the same of their mean. None without programs.
    """

    dropping: Dropping
    program_gain: float | None
    program_mean_gain: float | None


def slow_machine_rows(
    series: Series, summaries: Summaries, settings: Settings
) -> Mapping[str, list[Row]]:
    """The tables ``slow_machines``, ``dropping`` and ``extra_machines``."""
    tables: dict[str, list[Row]] = {"slow_machines": [], "dropping": [], "extra_machines": []}
    for t, label in enumerate(series.types):
        members = series.members(t)
        if len(members) < MIN_MACHINES:
            continue
        costs, intervals = _costs(series, summaries, members)
        tables["slow_machines"] += _difference_rows(label, costs, intervals, settings.confidence)
        chosen = _choosing_names(costs["surrogate"])
        surrogates = {
            m: {name: own[name] for name in chosen if name in own}
            for m, own in costs["surrogate"].items()
        }
        surrogates = {m: own for m, own in surrogates.items() if own}
        if not chosen or len(surrogates) < MIN_MACHINES:
            continue
        tables["dropping"] += _drop_rows(label, surrogates, costs["program"])
        tables["extra_machines"] += _extra_rows(label, slowness(surrogates), settings)
    return tables


def differences(
    costs: Mapping[str, Mapping[str, float]],
    intervals: Mapping[str, Mapping[str, Bounds]],
    confidence: float,
) -> list[Difference]:
    """Compare costs (less is better) by machine and name, with their intervals."""
    tests: list[tuple[str, str, float, float]] = []
    normal = float(special.ndtri(0.5 + confidence / 2.0))
    names = dict.fromkeys(name for own in costs.values() for name in own)
    for name in names:
        own = {m: costs[m][name] for m in costs if name in costs[m]}
        if len(own) < MIN_MACHINES:
            continue
        # By how much a machine may be faster than its median says, and a typical one slower.
        below = {m: _error(own[m], intervals[m].get(name), 0, normal) for m in own}
        above = {m: _error(own[m], intervals[m].get(name), 1, normal) for m in own}
        for machine, value in own.items():
            others: Floats = np.array([own[m] for m in own if m != machine])
            few = len(own) < MACHINES_WITHOUT_ITSELF
            typical = float(np.median([value, *others] if few else others))
            ratio = value / typical
            error = below[machine]
            known = [e for m, e in above.items() if m != machine and e is not None]
            # Of too few others is it known how well their medians are.
            if error is None or len(known) < max(2, len(others) / 2):
                p = 1.0
            else:
                # The median of few is one of them, and known no better than it.
                rest = float(np.median(known)) / (1.0 if few else sqrt(len(known)))
                deviation = sqrt(error**2 + rest**2)
                gap = log(ratio) - log(1.0 + TOLERANCE)
                p = float(special.ndtr(-gap / deviation)) if deviation > 0 else float(gap <= 0)
            tests.append((machine, name, ratio, p))
    adjusted = holm([p for *_, p in tests])
    return [
        Difference(machine, name, ratio, float(p), bool(p <= 1.0 - confidence))
        for (machine, name, ratio, _), p in zip(tests, adjusted, strict=True)
    ]


def drop(
    surrogates: Mapping[str, Mapping[str, float]],
    programs: Mapping[str, Mapping[str, float]],
    keep: int,
) -> Drop:
    """Drop all but the ``keep`` fastest machines by surrogates (cost by machine and name).

    Raises:
        InputError: the machines have no reading in common.
    """
    slow = slowness(surrogates)
    chosen = drop_slowest(slow, keep)
    worst, mean = [], []
    for name in dict.fromkeys(name for own in programs.values() for name in own):
        own = {m: programs[m][name] for m in slow if name in programs.get(m, {})}
        if len(own) < len(slow):
            continue
        best = drop_slowest(own, keep)
        after = np.array([own[m] for m in chosen.retained])
        worst.append(1.0 - float(after.max()) / best.worst_before)
        mean.append(1.0 - float(after.mean()) / float(np.mean(list(own.values()))))
    return Drop(
        chosen,
        float(np.mean(worst)) if worst else None,
        float(np.mean(mean)) if mean else None,
    )


Costs = Mapping[str, Mapping[str, float]]
"""By machine and name; less is better."""

Intervals = Mapping[str, Mapping[str, Bounds]]


def _costs(
    series: Series, summaries: Summaries, members: Ints
) -> tuple[Mapping[str, Costs], Intervals]:
    """Medians as costs, by kind, and their intervals."""
    costs: dict[str, dict[str, dict[str, float]]] = {"surrogate": {}, "program": {}}
    intervals: dict[str, dict[str, Bounds]] = {}
    for m in members.tolist():
        machine = series.machines[m]
        intervals[machine] = {}
        for own in costs.values():
            own[machine] = {}
        for k in series.timed():
            summary = summaries.get((k, m))
            if summary is not None and summary.least > 0.0:
                name = series.names[k]
                cost, interval = _cost(summary, name.lower_is_better)
                costs[name.kind][machine][name.name] = cost
                intervals[machine][name.name] = interval
    return costs, intervals


def _cost(summary: Summary, lower_is_better: bool) -> tuple[float, Bounds]:
    bounds = summary.intervals[1]
    if lower_is_better:
        return summary.median, bounds
    return 1.0 / summary.median, (1.0 / bounds[1], 1.0 / bounds[0]) if bounds else None


def _choosing_names(costs: Costs) -> Sequence[str]:
    """The surrogates to choose by, of those that most machines have: memory and network, or all
    where there are none of these."""
    counts = Counter(name for own in costs.values() for name in own)
    names = [name for name, count in counts.items() if count > len(costs) / 2]
    return [name for name in names if name.startswith(PREFIXES)] or names


def _difference_rows(
    label: str, costs: Mapping[str, Costs], intervals: Intervals, confidence: float
) -> Iterator[Row]:
    kinds = {name: kind for kind, by in costs.items() for own in by.values() for name in own}
    machines = dict.fromkeys(machine for by in costs.values() for machine in by)
    # Programs and surrogates together: the type has one chance of a false claim.
    of_all = {m: {k: v for by in costs.values() for k, v in by[m].items()} for m in machines}
    for difference in differences(of_all, intervals, confidence):
        yield {
            "type": label,
            "machine": difference.machine,
            "kind": kinds[difference.name],
            "name": difference.name,
            "over_typical_pct": 100.0 * (difference.ratio - 1.0),
            "adjusted_p": difference.p,
            "slow": difference.slow,
        }


def _drop_rows(label: str, surrogates: Costs, programs: Costs) -> Iterator[Row]:
    """Rows of dropping one machine, two, and so on, up to half of them."""
    for keep in range(len(surrogates) - 1, max(0, len(surrogates) // 2 - 1), -1):
        result = drop(surrogates, programs, keep)
        yield {
            "type": label,
            "keep": keep,
            "drop": len(surrogates) - keep,
            "machines": list(result.dropping.dropped),
            "worst_before": result.dropping.worst_before,
            "worst_after": result.dropping.worst_after,
            "gain_pct": 100.0 * result.dropping.gain,
            "program_gain_pct": _percent(result.program_gain),
            "program_mean_gain_pct": _percent(result.program_mean_gain),
        }


def _extra_rows(label: str, slow: Mapping[str, float], settings: Settings) -> Iterator[Row]:
    for wanted in settings.cluster_sizes:
        extra = _extra(slow, wanted, settings.target)
        yield {
            "type": label,
            "wanted": wanted,
            "slowest_allowed": settings.target,
            "extra": None if extra is None else extra.extra,
            "probability": None if extra is None else extra.probability,
            "probability_without": None if extra is None else extra.without,
            "gain_pct": None if extra is None else 100.0 * extra.gain,
        }


def _extra(slow: Mapping[str, float], wanted: int, target: float) -> Extra | None:
    """Extra machines to launch, of the same distribution; None where no number is enough."""
    try:
        return extra_machines(list(slow.values()), wanted, target=target)
    except (CannotAnswerError, InputError):
        return None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _error(median: float, bounds: Bounds, end: int, normal: float) -> float | None:
    """Standard error of the log of a median to one side, from that end of its interval: where times
    have two peaks, a median at one of them may be at the other just as well."""
    if bounds is None or bounds[0] <= 0.0:
        return None
    return abs(log(bounds[end] / median)) / normal
