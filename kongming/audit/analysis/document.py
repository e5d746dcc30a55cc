"""An audit as one document: all tables of the report, as plain lists and dicts.

``analyse`` calls the analyses; each has a module of its own. False discoveries are controlled over
all tests of one kind (Benjamini and Hochberg), at 1 - confidence; any false claim of a slow machine
over all machines, programs and surrogates of a type (Holm).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from kongming.audit.analysis.explanation import explanation_rows
from kongming.audit.analysis.likeness import Likeness, alike, unlike_between_types
from kongming.audit.analysis.movements import (
    change_rows,
    drift_rows,
    movements_of,
    time_of_day_rows,
)
from kongming.audit.analysis.ordering import order_rows
from kongming.audit.analysis.prices import price_rows
from kongming.audit.analysis.series import Row, Series, iso, series_of
from kongming.audit.analysis.settings import Settings
from kongming.audit.analysis.slow_machines import slow_machine_rows
from kongming.audit.analysis.summaries import (
    histogram_rows,
    repetition_rows,
    summarise_machines,
    summarise_types,
    summary_rows,
)
from kongming.audit.readings import Observations, machine_of
from kongming.records.errors import CannotAnswerError

FORMAT = 1
"""Version of the document."""


@dataclass(frozen=True, eq=False, slots=True)
class Audit:
    """The document, and the series that its plots are drawn from."""

    document: Mapping[str, Any]
    series: Series


def analyse(
    observations: Observations,
    settings: Settings | None = None,
    price_of: Mapping[str, float] | None = None,
) -> Audit:
    """Compute all tables.

    Raises:
        CannotAnswerError: there is no successful reading of a surrogate or program.
    """
    settings = settings or Settings()
    likeness = alike(observations)
    series = series_of(likeness.observations)
    if not any(series.names[name].timed for name, _ in series.slices):
        raise _nothing_to_analyse(likeness)
    by_machine = summarise_machines(series, settings)
    by_type = {
        (k, t): summary
        for (k, t), summary in summarise_types(series, settings).items()
        if likeness.comparable(series.types[t], series.names[k])
    }
    compared = {
        (k, m): summary
        for (k, m), summary in by_machine.items()
        if (k, int(series.machine_type[m])) in by_type
    }
    movements = movements_of(series)
    document: dict[str, Any] = {
        "format": FORMAT,
        "confidence": settings.confidence,
        "precisions_pct": [100.0 * precision for precision in settings.precisions],
        "counts": _counts(series),
        "machines": _machine_rows(observations, series),
        "failures": _failure_rows(series),
        "unlike": likeness.unlike,
        "identities": likeness.identities,
        "summaries": summary_rows(series, by_type, by_machine),
        "repetitions": repetition_rows(series, by_type, by_machine),
        "histograms": histogram_rows(series, by_type),
        "time_of_day": time_of_day_rows(series, movements, settings),
        "drift": drift_rows(series, movements, settings),
        "changes": change_rows(series, movements, settings),
        **order_rows(series, settings),
        "explanations": explanation_rows(series, settings),
        **slow_machine_rows(series, compared, settings),
        "prices": price_rows(
            series, by_type, by_machine, price_of or {}, unlike_between_types(likeness.unlike)
        ),
    }
    return Audit(_as_json(document), series)


def _nothing_to_analyse(likeness: Likeness) -> CannotAnswerError:
    if not likeness.unlike:
        return CannotAnswerError(
            "The files hold no successful reading of a surrogate or a program.",
            hint="The column reason says why they failed.",
        )
    reasons = dict.fromkeys(f"{row['name']} {row['reason']}" for row in likeness.unlike)
    return CannotAnswerError(
        "The files hold no successful run of a program, and no surrogate that is the same in all "
        f"recordings of a machine: {'; '.join(reasons)}.",
        hint="Give files of one suite version only.",
    )


def _as_json(value: Any) -> Any:
    """Convert to types that JSON has; numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not isfinite(value) else value


def _counts(series: Series) -> Row:
    failed = sum(failure.count for failure in series.failures)
    return {
        "readings": series.readings,
        "good": series.readings - failed,
        "failed": failed,
        "machines": len(series.machines),
        "types": len(series.types),
        "sessions": len(series.sessions),
        "programs": sum(name.kind == "program" for name in series.names),
        "surrogates": sum(name.kind == "surrogate" for name in series.names),
        "from": iso(float(series.seconds.min())),
        "to": iso(float(series.seconds.max())),
    }


def _machine_rows(observations: Observations, series: Series) -> list[Row]:
    good = np.bincount(series.machine, minlength=len(series.machines))
    first = np.full(len(series.machines), np.inf)
    last = np.full(len(series.machines), -np.inf)
    np.minimum.at(first, series.machine, series.seconds)
    np.maximum.at(last, series.machine, series.seconds)
    lengths = _lengths(series)
    failed: Counter[str] = Counter()
    for failure in series.failures:
        failed[failure.machine] += failure.count
    rows = []
    for m, machine in enumerate(series.machines):
        own = {k: s for k, s in observations.sessions.items() if str(s["machine"]) == machine}
        sessions, hours = list(own.values()), [lengths.get(key, 0.0) / 3600.0 for key in own]
        facts = machine_of(sessions[0])
        instance = sessions[0].get("instance") or {}
        rows.append(
            {
                "machine": machine,
                "type": series.types[series.machine_type[m]],
                "cpu_model": facts["cpu_model"],
                "kernel": ", ".join(sorted({str(machine_of(s)["kernel"]) for s in sessions})),
                "hypervisor": facts["hypervisor"],
                "zone": instance.get("zone"),
                "tags": ", ".join(
                    sorted({f"{k}={v}" for s in sessions for k, v in (s.get("tags") or {}).items()})
                ),
                "sessions": len(sessions),
                "from": iso(first[m]) if good[m] else None,
                "to": iso(last[m]) if good[m] else None,
                "hours": sum(hours),
                "longest_hours": max(hours),
                "good": int(good[m]),
                "failed": failed[machine],
            }
        )
    return rows


def _lengths(series: Series) -> dict[str, float]:
    """Seconds from the first to the last reading of each recording."""
    count = len(series.sessions)
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first, series.steps.session, series.seconds)
    np.maximum.at(last, series.steps.session, series.seconds)
    return dict(zip(series.sessions, np.maximum(last - first, 0.0).tolist(), strict=True))


def _failure_rows(series: Series) -> list[Row]:
    good = {
        (series.names[k].kind, series.names[k].name, series.machines[m]): where.stop - where.start
        for (k, m), where in series.slices.items()
    }
    return [
        {
            "machine": failure.machine,
            "kind": failure.kind,
            "name": failure.name,
            "reason": failure.reason or "(none given)",
            "count": failure.count,
            "good": good.get((failure.kind, failure.name, failure.machine), 0),
        }
        for failure in series.failures
    ]
