"""The coupling that pairs and profiles were measured at, and the errors by it.

It is a stratum: pairs at a high coupling are slowed more, and a profile made at another one says
less about them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from kongming.evaluate.trivial import SOLO
from kongming.learning.coupling import couplings, unlike
from kongming.records.run import Run, Signature

LEAST_PAIRS = 6
"""Fewer pairs are not divided by their coupling."""


def coupling_section(
    pairs: Sequence[Mapping[str, Any]],
    coruns: Sequence[Run],
    profiles: Mapping[str, Iterable[Run | Signature]],
    model: str,
) -> dict[str, Any] | None:
    """Describe the coupling of an evaluation; None if none was read during its co-runs.

    ``pairs`` are the document's, ``coruns`` their runs, ``profiles`` the records of each
    application's profile.

    Returns:
        ``pairs`` and ``profiles``: median, low, high and number of readings (``profiles`` None
        without any). ``unlike``: applications whose profile was made at a coupling clearly unlike
        that of their co-runs, with the medians of both. ``strata``: the pairs in two halves by
        coupling with their mean slowdown and the mean absolute log errors of ``model`` and SOLO in
        per cent; empty if too few pairs were measured, or all at about the same coupling.
        ``explained``: the share of the variance of the repeats of a pair, in logs, that goes with
        the log of the coupling before them (squared correlation within pairs): what a model that
        knew it could gain on single runs. None if it did not vary among repeats.
    """
    by_pair: dict[tuple[str, str], list[float]] = {}
    by_app: dict[str, list[float]] = {}
    for run in coruns:
        if run.ok and len(run.neighbours) == 1:
            seen = couplings([run])
            by_pair.setdefault((run.app, run.neighbours[0]), []).extend(seen)
            by_app.setdefault(run.app, []).extend(seen)
    every = [value for values in by_app.values() for value in values]
    if not every:
        return None
    profiled = {app: couplings(records) for app, records in sorted(profiles.items())}
    return {
        "pairs": _summary(every),
        "profiles": _summary([value for values in profiled.values() for value in values]),
        "unlike": {
            app: {"profile": median(values), "pairs": median(by_app[app])}
            for app, values in profiled.items()
            if values and by_app.get(app) and unlike(median(values), median(by_app[app]))
        },
        "strata": _strata(pairs, by_pair, model),
        "explained": _explained(coruns),
    }


def _summary(values: Sequence[float]) -> dict[str, Any] | None:
    if not values:
        return None
    return {"median": median(values), "low": min(values), "high": max(values), "n": len(values)}


def _explained(coruns: Iterable[Run]) -> float | None:
    repeats: dict[tuple[str, tuple[str, ...]], list[tuple[float, float]]] = {}
    for run in coruns:
        if run.ok and run.neighbours and (seen := couplings([run])):
            logs = math.log(seen[0]), math.log(run.cost)
            repeats.setdefault((run.app, run.neighbours), []).append(logs)
    moved: list[tuple[float, float]] = []
    for values in repeats.values():
        middle = _mean(x for x, _ in values), _mean(y for _, y in values)
        moved += [(x - middle[0], y - middle[1]) for x, y in values]
    together, of_coupling, of_cost = (
        math.fsum(a[i] * a[j] for a in moved) for i, j in ((0, 1), (0, 0), (1, 1))
    )
    if min(of_coupling, of_cost) <= 0.0:
        return None
    return together**2 / (of_coupling * of_cost)


def _strata(
    pairs: Sequence[Mapping[str, Any]],
    by_pair: Mapping[tuple[str, str], Sequence[float]],
    model: str,
) -> list[dict[str, Any]]:
    known = sorted(
        (
            (median(values), pair)
            for pair in pairs
            if (values := by_pair.get((pair["app"], pair["neighbour"])))
        ),
        key=lambda entry: entry[0],
    )
    if len(known) < LEAST_PAIRS:
        return []
    middle = len(known) // 2
    halves = known[:middle], known[middle:]
    if not unlike(*(median(coupling for coupling, _ in half) for half in halves)):
        return []
    return [
        {
            "low": half[0][0],
            "high": half[-1][0],
            "pairs": len(half),
            "slowdown": math.exp(_mean(math.log(pair["slowdown"]) for _, pair in half)),
            "error_pct": {
                name: _log_error_pct([pair for _, pair in half], name) for name in (model, SOLO)
            },
        }
        for half in halves
    ]


def _log_error_pct(pairs: Iterable[Mapping[str, Any]], model: str) -> float | None:
    values = [
        abs(math.log(pair["predictions"][model]["value"] / pair["measured"]))
        for pair in pairs
        if pair["predictions"].get(model, {}).get("value")
    ]
    return 100.0 * _mean(values) if values else None


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)
