"""An audit as one document: every table of the report, as plain lists and dicts.

``analyse`` asks the questions; each has a module of its own. False alarms are controlled over all
that is asked of one kind (Benjamini and Hochberg), at 1 - confidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from kongming.audit.between import explanations_rows, prices_rows, slow_rows
from kongming.audit.movements import movement
from kongming.audit.over_time import changes_rows, drift_rows, order_rows, time_of_day_rows
from kongming.audit.readings import Observations, machine_of
from kongming.audit.rows import Row, iso
from kongming.audit.series import Series, in_order
from kongming.audit.spreads import histograms_rows, repetitions_rows, summary_row
from kongming.audit.summaries import Summary, of_machine, of_type
from kongming.errors import CannotAnswerError

__all__ = ["FORMAT", "Audit", "Settings", "analyse"]

FORMAT = 1
"""Version of the document."""


@dataclass(frozen=True, slots=True)
class Settings:
    """``precisions`` for the number of repetitions; ``target``: how much slower than the typical
    machine the slowest may be when extra machines are launched, for clusters of ``wanted``."""

    confidence: float = 0.95
    precisions: tuple[float, ...] = (0.01, 0.05)
    target: float = 1.1
    wanted: tuple[int, ...] = (10, 50)


@dataclass(frozen=True, eq=False, slots=True)
class Audit:
    """The document, and what its plots are drawn from."""

    document: Mapping[str, Any]
    series: Series


def analyse(
    observations: Observations,
    settings: Settings = Settings(),
    price_of: Mapping[str, float] | None = None,
) -> Audit:
    """All tables.

    Raises:
        CannotAnswerError: there is no good reading of a surrogate or program.
    """
    series = in_order(observations)
    if not any(series.names[name].timed for name, _ in series.slices):
        raise CannotAnswerError(
            "The files hold no good reading of a surrogate or a program.",
            hint="See why they failed: the column reason.",
        )
    by_machine = {
        key: of_machine(series.value[where], settings.confidence, settings.precisions)
        for key, where in series.slices.items()
    }
    by_type = _by_type(series, settings)
    moves = {
        key: movement(series.seconds[where], series.value[where])
        for key, where in series.slices.items()
        if series.names[key[0]].timed and series.value[where].min() > 0.0
    }
    machines = _machines(observations, series)
    document: dict[str, Any] = {
        "format": FORMAT,
        "confidence": settings.confidence,
        "precisions_pct": [100.0 * r for r in settings.precisions],
        "counts": _counts(series),
        "machines": machines,
        "failures": _failures(series),
        "summaries": [
            *(summary_row(series, k, t, None, one) for (k, t), one in by_type.items()),
            *(
                summary_row(series, k, int(series.machine_type[m]), m, one)
                for (k, m), one in by_machine.items()
            ),
        ],
        "repetitions": [
            row
            for scope, found in (("type", by_type), ("machine", by_machine))
            for row in repetitions_rows(series, scope, found)
        ],
        "histograms": histograms_rows(series),
        "time_of_day": time_of_day_rows(series, moves, settings),
        "drift": drift_rows(series, moves, settings),
        "changes": changes_rows(series, moves, settings),
        **order_rows(series, settings),
        "explanations": explanations_rows(series, settings),
        **slow_rows(series, by_machine, settings),
        "prices": prices_rows(series, by_type, by_machine, price_of or {}),
    }
    return Audit(_plain(document), series)


def _plain(value: Any) -> Any:
    """The same in types that JSON has; what is not finite becomes None."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not isfinite(value) else value


def _by_type(series: Series, settings: Settings) -> dict[tuple[int, int], Summary]:
    found = {}
    for k in range(len(series.names)):
        for t in range(len(series.types)):
            parts = [series.of(k, m) for m in series.members(t).tolist() if (k, m) in series.slices]
            if parts:
                found[k, t] = of_type(parts, settings.confidence, settings.precisions)
    return found


def _counts(series: Series) -> Row:
    failed = sum(one.count for one in series.failures)
    return {
        "readings": series.readings,
        "good": series.readings - failed,
        "failed": failed,
        "machines": len(series.machines),
        "types": len(series.types),
        "sessions": len(series.sessions),
        "programs": sum(one.kind == "program" for one in series.names),
        "surrogates": sum(one.kind == "surrogate" for one in series.names),
        "from": iso(float(series.seconds.min())),
        "to": iso(float(series.seconds.max())),
    }


def _machines(observations: Observations, series: Series) -> list[Row]:
    good = np.bincount(series.machine, minlength=len(series.machines))
    first = np.full(len(series.machines), np.inf)
    last = np.full(len(series.machines), -np.inf)
    np.minimum.at(first, series.machine, series.seconds)
    np.maximum.at(last, series.machine, series.seconds)
    failed: Counter[str] = Counter()
    for one in series.failures:
        failed[one.machine] += one.count
    rows = []
    for m, machine in enumerate(series.machines):
        own = [s for s in observations.sessions.values() if str(s["machine"]) == machine]
        facts = machine_of(own[0])
        instance = own[0].get("instance") or {}
        rows.append(
            {
                "machine": machine,
                "type": series.types[series.machine_type[m]],
                "cpu_model": facts["cpu_model"],
                "kernel": ", ".join(sorted({str(machine_of(s)["kernel"]) for s in own})),
                "hypervisor": facts["hypervisor"],
                "zone": instance.get("zone"),
                "tags": ", ".join(
                    sorted({f"{k}={v}" for s in own for k, v in (s.get("tags") or {}).items()})
                ),
                "sessions": len(own),
                "from": iso(first[m]) if good[m] else None,
                "to": iso(last[m]) if good[m] else None,
                "hours": (last[m] - first[m]) / 3600.0 if good[m] else 0.0,
                "good": int(good[m]),
                "failed": failed[machine],
            }
        )
    return rows


def _failures(series: Series) -> list[Row]:
    good = {
        (series.names[k].kind, series.names[k].name, series.machines[m]): where.stop - where.start
        for (k, m), where in series.slices.items()
    }
    return [
        {
            "machine": one.machine,
            "kind": one.kind,
            "name": one.name,
            "reason": one.reason or "(none given)",
            "count": one.count,
            "good": good.get((one.kind, one.name, one.machine), 0),
        }
        for one in series.failures
    ]
