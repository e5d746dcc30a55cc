"""The findings of an audit as sentences, the strongest of each kind first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from kongming.quantities import count, format_duration, per_cent
from kongming.records import moments
from kongming.web.formats import ratio

Row = Mapping[str, Any]

_TOO_SHORT = (
    (600.0, "it shows this moment, not how variable the machine is."),
    (3600.0, "whether the machine drifts, or changes from hour to hour, is not known."),
)
"""What a recording shorter than so many seconds cannot tell."""

MAX_ITEMS = 12
"""Maximum number of findings of a kind, and of names in a sentence."""

SAME_TIME_S = 600.0
"""Changes of one machine at most this far apart are one finding."""


def findings(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """List the findings; each has a ``kind`` and a ``text``."""
    pairs = [
        *_short(document["machines"]),
        *_slow(document),
        *_changes(document["changes"]),
        *_over_time(document),
        *_explained(document["explanations"]),
        *_order(document),
        *_varying(document["summaries"]),
        *_failed(document),
        *_unlike(document["unlike"]),
        *_identities(document["identities"]),
    ]
    return [{"kind": kind, "text": text} for kind, text in pairs]


Findings = list[tuple[str, str]]
"""Kind and text of each."""


def _short(machines: Sequence[Row]) -> Findings:
    """Return what the longest recording is too short for."""
    longest_s = 3600.0 * max((row["longest_hours"] for row in machines), default=0.0)
    limit_s, cannot = next(
        ((limit_s, cannot) for limit_s, cannot in _TOO_SHORT if longest_s < limit_s), (0.0, "")
    )
    if not limit_s:
        return []
    return [
        (
            "short recording",
            f"The longest recording lasts {format_duration(longest_s)}: {cannot} "
            f"Record for {format_duration(limit_s)} or more to know it.",
        )
    ]


def _slow(document: Mapping[str, Any]) -> Findings:
    by_machine: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in document["slow_machines"]:
        if row["slow"]:
            by_machine[row["type"], row["machine"]].append(row)
    result = []
    order = sorted(
        by_machine.items(), key=lambda item: -max(r["over_typical_pct"] for r in item[1])
    )
    for (label, machine), rows in order[:MAX_ITEMS]:
        worst = max(rows, key=lambda row: row["over_typical_pct"])
        result.append(
            (
                "slow machine",
                f"{machine} ({label}) is slower than the typical machine of its type in "
                f"{count(len(rows), 'name')}, most in {worst['name']}: "
                f"{per_cent(worst['over_typical_pct'], '+.1f')}.",
            )
        )
    if len(order) > MAX_ITEMS:
        result.append(("slow machine", f"{len(order) - MAX_ITEMS} more machines are slow."))
    return result


def _changes(rows: Sequence[Row]) -> Findings:
    result: list[tuple[float, str]] = []
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
            result.append(
                (
                    -abs(most["change_pct"]),
                    f"{machine} changed its level at {_time(group[0]['at'])}: {what}, "
                    f"{per_cent(most['change_pct'], '+.1f')}.",
                )
            )
    result.sort()
    return [("change", text) for _, text in result[:MAX_ITEMS]]


def _over_time(document: Mapping[str, Any]) -> Findings:
    day = sorted(
        (row for row in document["time_of_day"] if row["claimed"]), key=lambda r: -r["swing_pct"]
    )
    result = [
        (
            "time of day",
            f"{row['name']} on {row['machine']} follows the time of day: "
            f"{per_cent(row['swing_pct'])} "
            f"from trough to peak, slowest at {row['slowest_hour_utc']:.0f} h UTC.",
        )
        for row in day[:MAX_ITEMS]
    ]
    drifting = sorted(
        (row for row in document["drift"] if row["claimed"]), key=lambda r: -abs(r["change_pct"])
    )
    result += [
        (
            "drift",
            f"{row['name']} on {row['machine']} drifts: {per_cent(row['change_pct'], '+.1f')} "
            f"in {format_duration(3600.0 * row['hours'])}.",
        )
        for row in drifting[:MAX_ITEMS]
    ]
    return result


def _explained(rows: Sequence[Row]) -> Findings:
    by_program: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["chosen"]:
            by_program[row["type"], row["program"]].append(row)
    return [
        (
            "explained",
            f"{program} ({label}) correlates with "
            + ", then ".join(
                f"{row['name']} (rank correlation {row['partial_rho']:+.2f})" for row in chosen
            )
            + ".",
        )
        for (label, program), chosen in by_program.items()
    ]


def _order(document: Mapping[str, Any]) -> Findings:
    result = []
    for row in document["place"]:
        if row["claimed"]:
            result.append(
                (
                    "order",
                    f"{row['name']} ({row['type']}) depends on its place in the block: the first "
                    f"is {per_cent(row['first_pct'], '+.1f')} from the others.",
                )
            )
    for row in document["predecessor"]:
        if row["claimed"]:
            result.append(
                (
                    "order",
                    f"{row['name']} ({row['type']}) depends on what ran before: "
                    f"{per_cent(row['effect_pct'], '+.1f')} after {row['after']}.",
                )
            )
    return result


def _varying(rows: Sequence[Row]) -> Findings:
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


def _failed(document: Mapping[str, Any]) -> Findings:
    counts = document["counts"]
    if not counts["failed"]:
        return []
    names = sorted({row["name"] for row in document["failures"]})
    listed = ", ".join(names[:MAX_ITEMS]) + (", …" if len(names) > MAX_ITEMS else "")
    share = 100.0 * counts["failed"] / counts["readings"]
    return [
        (
            "missing",
            f"{counts['failed']:,} readings ({per_cent(share, '.2g')}) are missing, of {listed}.",
        )
    ]


def _unlike(rows: Sequence[Row]) -> Findings:
    by_type: dict[str | None, list[Row]] = defaultdict(list)
    for row in rows:
        by_type[row["type"]].append(row)
    result = []
    for label, own in by_type.items():
        between = "types" if label is None else f"recordings of {label}"
        where = f"not compared between {between}"
        listed = "; ".join(f"{row['name']} {row['reason']}" for row in own[:MAX_ITEMS])
        more = f"; and {len(own) - MAX_ITEMS} more" if len(own) > MAX_ITEMS else ""
        result.append(("other sizes", f"{count(len(own), 'surrogate')} {where}: {listed}{more}."))
    return result


def _identities(rows: Sequence[Row]) -> Findings:
    return [
        (
            "several programs",
            f"{row['name']} ({row['type']}) is {row['identities']} programs of one name: their "
            "commands, settings or executables differ, and so may their times.",
        )
        for row in rows[:MAX_ITEMS]
    ]


def _seconds(row: Row) -> float:
    return moments.unix(row["at"], "at")


def _time(iso: str) -> str:
    return iso.replace("T", " ").replace("Z", " UTC")
