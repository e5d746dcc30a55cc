"""The tables of a page that are no plain rows of the document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import numpy as np

from kongming.audit.analysis.series import Row
from kongming.quantities import format_duration, per_cent
from kongming.web.formats import moment

Document = Mapping[str, Any]

MAX_MACHINES = 60
"""Maximum number of rows of the table of machines and names."""

DARKEST = 1.5
"""The factor between a machine and the typical one that has the darkest shade."""


def levels_of(document: Document) -> dict[tuple[str, str], float]:
    """Medians by machine and name."""
    return {
        (row["machine"], row["name"]): row["median"]
        for row in document["summaries"]
        if row["machine"] is not None
    }


def machine_matrix(document: Document) -> Mapping[str, Any] | None:
    """Median of each machine over that of the typical machine, by name; the slowest machines first.
    None for one machine."""
    levels = levels_of(document)
    machines = list(dict.fromkeys(machine for machine, _ in levels))
    if len(machines) < 2:
        return None
    kinds = {row["name"]: row["kind"] for row in document["summaries"]}
    rates = {row["name"] for row in document["summaries"] if row["better"] == "higher"}
    # What differs within a type differs between all machines as well.
    unlike = {row["name"] for row in document["unlike"]}
    names = [
        name
        for name in dict.fromkeys(name for _, name in levels)
        if kinds[name] != "passive" and not (kinds[name] == "surrogate" and name in unlike)
    ]
    typical = {
        name: float(np.median([levels[m, name] for m in machines if (m, name) in levels]))
        for name in names
    }
    change = {
        key: value / typical[key[1]] - 1.0
        for key, value in levels.items()
        if key[1] in typical and typical[key[1]] > 0.0
    }
    slower = {
        key: 1.0 / max(1.0 + value, 1e-9) - 1.0 if key[1] in rates else value
        for key, value in change.items()
    }
    worst = {m: max((slower.get((m, n), 0.0) for n in names), default=0.0) for m in machines}
    machines.sort(key=lambda machine: -worst[machine])
    slow = {(row["machine"], row["name"]) for row in document["slow_machines"] if row["slow"]}
    return {
        "names": names,
        "count": len(machines),
        "rows": [
            (m, [_difference(change.get((m, n)), n in rates, (m, n) in slow) for n in names])
            for m in machines[:MAX_MACHINES]
        ],
    }


def _difference(change: float | None, is_rate: bool, slow: bool) -> Mapping[str, Any] | None:
    if change is None:
        return None
    depth = abs(log(max(1.0 + change, 1e-9))) / log(DARKEST)
    classes = ("slow" if (change > 0.0) != is_rate else "fast") + (" chosen" if slow else "")
    return {"text": per_cent(100.0 * change, "+.1f"), "depth": min(1.0, depth), "class": classes}


def movement_rows(document: Document) -> list[Row]:
    """Changes, drifts and daily rhythms that are claimed, in one table."""
    changes = sorted(document["changes"], key=lambda row: -abs(row["change_pct"]))
    drifts = sorted(claimed(document["drift"]), key=lambda row: -abs(row["change_pct"]))
    days = sorted(claimed(document["time_of_day"]), key=lambda row: -row["swing_pct"])
    rows = [
        *((row, "change", f"{moment(row['at'])} UTC", row["change_pct"]) for row in changes),
        *(
            (row, "drift", f"in {format_duration(3600.0 * row['hours'])}", row["change_pct"])
            for row in drifts
        ),
        *(
            (row, "time of day", f"slowest {row['slowest_hour_utc']:.0f} h UTC", row["swing_pct"])
            for row in days
        ),
    ]
    return [
        {"name": row["name"], "machine": row["machine"], "what": what, "when": when, "pct": pct}
        for row, what, when, pct in rows
    ]


def negative_results(document: Document) -> list[str]:
    """Sentences on tests over time that claim nothing, or were not possible."""
    sentences = []
    if not document["time_of_day"]:
        sentences.append("The time of day is not tested: that takes three days of most hours.")
    elif not claimed(document["time_of_day"]):
        sentences.append("No series follows the time of day.")
    if not document["drift"]:
        sentences.append("Drift is not tested: that takes a recording of an hour, and 24 readings.")
    elif not claimed(document["drift"]):
        sentences.append("No series drifts.")
    if not document["changes"]:
        sentences.append("No series changed its level.")
    return sentences


def claimed(rows: Sequence[Row]) -> list[Row]:
    """The rows whose test is significant."""
    return [row for row in rows if row["claimed"]]


def explanation_matrix(document: Document) -> Mapping[str, Any] | None:
    """Rank correlations of surrogates and signals with programs, the strongest first."""
    rows = sorted(document["explanations"], key=lambda row: (row["kind"], row["name"]))
    if not rows:
        return None
    programs = list(dict.fromkeys(row["program"] for row in document["explanations"]))
    by_name: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_name.setdefault(row["name"], {})[row["program"]] = row
    names = sorted(by_name, key=lambda name: -max(abs(r["rho"]) for r in by_name[name].values()))
    return {
        "programs": programs,
        "rows": [(n, [_correlation(by_name[n].get(p)) for p in programs]) for n in names],
    }


def _correlation(row: Row | None) -> Mapping[str, Any] | None:
    if row is None:
        return None
    classes = []
    if row["claimed"]:
        classes.append("slow" if row["rho"] > 0.0 else "fast")
    if row["chosen"]:
        classes.append("chosen")
    text = f"{row['rho']:+.2f}" + (f" ({row['chosen']})" if row["chosen"] else "")
    return {"text": text, "depth": abs(row["rho"]), "class": " ".join(classes)}


def order_effects(document: Document) -> list[Row]:
    """Effects of the place in the block and of the predecessor that are claimed."""
    rows = [
        (row, "place in the block", f"first {per_cent(row['first_pct'], '+.1f')}")
        for row in claimed(document["place"])
    ] + [
        (row, "predecessor", f"{per_cent(row['effect_pct'], '+.1f')} after {row['after']}")
        for row in claimed(document["predecessor"])
    ]
    return [
        {"name": row["name"], "on": on, "by": by, "p": row["adjusted_p"]} for row, on, by in rows
    ]


def repetition_counts(document: Document) -> Mapping[str, list[Row]]:
    """Rows of the type by name, in order of precision; empty where there are too few readings."""
    rows = [row for row in document["repetitions"] if row["machine"] is None]
    by_name: dict[str, list[Row]] = {}
    if any(row["needed"] for row in rows):
        for row in rows:
            by_name.setdefault(row["name"], []).append(row)
    return by_name


def repetition_table(document: Document) -> Mapping[str, Any] | None:
    """Repetitions needed by name and precision. On one machine, which alone has an order of time,
    the number in a row as well."""
    by_name = repetition_counts(document)
    if not by_name:
        return None
    precisions = [per_cent(row["precision_pct"], "g") for row in next(iter(by_name.values()))]
    columns = ["name", "measured", *(f"within {precision}" for precision in precisions)]
    single = len(document["machines"]) == 1
    in_a_row: dict[str, list[str | None]] = {name: [] for name in by_name}
    if single:
        columns += [f"in a row, {precision}" for precision in precisions]
        for row in document["repetitions"]:
            if row["machine"] is not None:
                in_a_row[row["name"]].append(row["in_a_row"] and f"{row['in_a_row']:,}")
    return {
        "columns": columns,
        "rows": [
            (name, f"{rows[0]['measured']:,}", *map(_needed, rows), *in_a_row[name])
            for name, rows in by_name.items()
        ],
    }


def _needed(row: Row) -> str | None:
    if row["needed"] is None:
        return None
    return ("~ " if row["extrapolated"] else "") + f"{row['needed']:,}"
