"""What stands out in an audit, in sentences: the strongest first, of each kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kongming.audit.markup import ratio

__all__ = ["findings"]

Row = Mapping[str, Any]

MOST = 12
"""Names or machines that one sentence lists."""

SAME_TIME_S = 600.0
"""Changes of one machine no farther apart are told in one sentence."""


def findings(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Each has a ``kind`` and a ``text``."""
    found = [
        *_slow(document),
        *_changes(document["changes"]),
        *_over_time(document),
        *_explained(document["explanations"]),
        *_order(document),
        *_varying(document["summaries"]),
        *_failed(document),
    ]
    return [{"kind": kind, "text": text} for kind, text in found]


Found = list[tuple[str, str]]


def _slow(document: Mapping[str, Any]) -> Found:
    own: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in document["slow_machines"]:
        if row["slow"]:
            own[row["type"], row["machine"]].append(row)
    told = []
    order = sorted(own.items(), key=lambda one: -max(r["over_typical_pct"] for r in one[1]))
    for (label, machine), rows in order[:MOST]:
        worst = max(rows, key=lambda row: row["over_typical_pct"])
        told.append(
            (
                "slow machine",
                f"{machine} ({label}) is slower than the typical machine of its type in "
                f"{_count(len(rows), 'name')}, most in {worst['name']}: "
                f"{worst['over_typical_pct']:+.1f} %.",
            )
        )
    if len(order) > MOST:
        told.append(("slow machine", f"{len(order) - MOST} more machines are slow."))
    return told


def _changes(rows: Sequence[Row]) -> Found:
    told: list[tuple[float, str]] = []
    by_machine: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_machine[row["machine"]].append(row)
    for machine, own in by_machine.items():
        own.sort(key=lambda row: row["at"])
        groups: list[list[Row]] = []
        for row in own:
            if groups and _seconds(row) - _seconds(groups[-1][-1]) <= SAME_TIME_S:
                groups[-1].append(row)
            else:
                groups.append([row])
        for group in groups:
            most = max(group, key=lambda row: abs(row["change_pct"]))
            names = len({row["name"] for row in group})
            what = most["name"] if names == 1 else f"{names} names, most {most['name']}"
            told.append(
                (
                    -abs(most["change_pct"]),
                    f"{machine} went to another level at {_time(group[0]['at'])}: {what}, "
                    f"{most['change_pct']:+.1f} %.",
                )
            )
    told.sort()
    return [("change", text) for _, text in told[:MOST]]


def _over_time(document: Mapping[str, Any]) -> Found:
    day = sorted(
        (row for row in document["time_of_day"] if row["claimed"]), key=lambda r: -r["swing_pct"]
    )
    told = [
        (
            "time of day",
            f"{row['name']} on {row['machine']} follows the time of day: {row['swing_pct']:.1f} % "
            f"from trough to peak, slowest at {row['slowest_hour_utc']:.0f} h UTC.",
        )
        for row in day[:MOST]
    ]
    drifting = sorted(
        (row for row in document["drift"] if row["claimed"]), key=lambda r: -abs(r["change_pct"])
    )
    told += [
        (
            "drift",
            f"{row['name']} on {row['machine']} drifts: {row['change_pct']:+.1f} % over the "
            "recording.",
        )
        for row in drifting[:MOST]
    ]
    return told


def _explained(rows: Sequence[Row]) -> Found:
    own: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["chosen"]:
            own[row["type"], row["program"]].append(row)
    return [
        (
            "explained",
            f"{program} ({label}) goes with "
            + ", then ".join(
                f"{row['name']} (rank correlation {row['partial_rho']:+.2f})" for row in chosen
            )
            + ".",
        )
        for (label, program), chosen in own.items()
    ]


def _order(document: Mapping[str, Any]) -> Found:
    told = []
    for row in document["place"]:
        if row["claimed"]:
            told.append(
                (
                    "order",
                    f"{row['name']} ({row['type']}) depends on its place in the block: the first "
                    f"is {row['first_pct']:+.1f} % off the others.",
                )
            )
    for row in document["predecessor"]:
        if row["claimed"]:
            told.append(
                (
                    "order",
                    f"{row['name']} ({row['type']}) depends on what ran before: "
                    f"{row['effect_pct']:+.1f} % after {row['after']}.",
                )
            )
    return told


def _varying(rows: Sequence[Row]) -> Found:
    programs = [
        row
        for row in rows
        if row["kind"] == "program" and row["machine"] is None and row["p95_over_p5"]
    ]
    if not programs:
        return []
    worst = max(programs, key=lambda row: row["p95_over_p5"])
    return [
        (
            "variability",
            f"The most variable program is {worst['name']} ({worst['type']}): p95/p5 is "
            f"{ratio(worst['p95_over_p5'])}, longest/shortest "
            f"{ratio(worst['longest_over_shortest'])} over {worst['n']} runs.",
        )
    ]


def _failed(document: Mapping[str, Any]) -> Found:
    counts = document["counts"]
    if not counts["failed"]:
        return []
    names = sorted({row["name"] for row in document["failures"]})
    listed = ", ".join(names[:MOST]) + (", …" if len(names) > MOST else "")
    share = 100.0 * counts["failed"] / counts["readings"]
    return [("missing", f"{counts['failed']:,} readings ({share:.2g} %) are missing, of {listed}.")]


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _seconds(row: Row) -> float:
    return datetime.fromisoformat(row["at"]).timestamp()


def _time(iso: str) -> str:
    return iso.replace("T", " ").replace("Z", " UTC")
