"""Sections on what readings go with: time, order, surrogates, machines dropped, money."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from kongming.audit import plots
from kongming.audit.analysis import Audit
from kongming.audit.markup import NOTHING, Markup, join, ratio, tag
from kongming.audit.page_parts import (
    DETAILS,
    Document,
    Row,
    folded,
    grid,
    signed,
)

__all__ = ["cost_section", "drop_section", "explain_section", "order_section", "time_section"]

TIMELINES = 10
CLOCKS = 6


def drop_section(document: Document) -> Markup | None:
    """Ernest's over-allocation: what dropping the slowest gains."""
    rows = document["dropping"]
    if not rows:
        return None
    table = [
        (
            row["drop"],
            ", ".join(row["machines"][-6:]) + (", …" if len(row["machines"]) > 6 else ""),
            f"{row['worst_after']:.3f}",
            f"{row['gain_pct']:.1f} %",
            signed(row["program_gain_pct"]),
            signed(row["program_mean_gain_pct"]),
        )
        for row in rows
    ]
    extra = [
        (
            row["wanted"],
            "no number will do" if row["extra"] is None else row["extra"],
            None if row["extra"] is None else f"{100 * row['probability']:.0f} %",
            None if row["extra"] is None else f"{100 * row['probability_without']:.0f} %",
            signed(row["gain_pct"]),
        )
        for row in document["extra_machines"]
    ]
    allowed = document["extra_machines"][0]["slowest_allowed"]
    return join(
        tag("h3", "Dropping the slowest"),
        tag(
            "p",
            "Machines are chosen by their surrogates of memory and network, before any job runs "
            "(Ernest, section 4.3). The gain is the share of a parallel step's time, which ends "
            "with its slowest machine, against as many machines drawn at random. That of the "
            "programs is what the choice is worth: below 0 the surrogates chose badly.",
            class_="faint",
        ),
        tag(
            "div",
            tag("figure", tag("figcaption", tag("b", "Gain")), plots.gains(rows)),
            class_="cards",
        ),
        grid(
            ("drop", "machines", "slowest kept", "gain", "programs", "programs, mean"),
            table,
            left=("machines",),
        ),
        grid(
            ("machines wanted", "extra", "works in", "without extra", "gain"),
            extra,
            caption="How many more to launch, so that with 95 % probability none that is kept is "
            f"slower than {allowed:g} times the typical one.",
        ),
    )


def time_section(audit: Audit, document: Document) -> Markup:
    """Changes, drift and time of day."""
    changes = sorted(document["changes"], key=lambda row: -abs(row["change_pct"]))
    drifts = [row for row in document["drift"] if row["claimed"]]
    clocks = [row for row in document["time_of_day"] if row["claimed"]]
    drifts.sort(key=lambda row: -abs(row["change_pct"]))
    clocks.sort(key=lambda row: -row["swing_pct"])
    moving = [(r["machine"], r["kind"], r["name"]) for r in (*changes, *drifts)]
    still = [
        (row["machine"], name.kind, name.name)
        for name in audit.series.names
        if name.kind == "program"
        for row in document["machines"]
    ]
    moving = list(dict.fromkeys(moving))[:TIMELINES]
    still = [key for key in still if key not in moving][:TIMELINES]
    moved_figures, still_figures = (
        [one for key in keys if (one := _timeline(audit, key, changes)) is not None]
        for keys in (moving, still)
    )
    said = []
    if not document["time_of_day"]:
        said.append("Nothing is said of the time of day: that takes three days of most hours.")
    elif not clocks:
        said.append("No series follows the time of day.")
    if not document["drift"]:
        said.append("Nothing is said of drift: that takes an hour and 24 readings.")
    elif not drifts:
        said.append("No series drifts.")
    if not changes:
        said.append("No series changed its level.")
    moved = [
        *((r["name"], r["machine"], "change", _moment(r["at"]), r["change_pct"]) for r in changes),
        *((r["name"], r["machine"], "drift", "whole recording", r["change_pct"]) for r in drifts),
        *(
            (r["name"], r["machine"], "time of day", f"slowest {r['slowest_hour_utc']:.0f} h UTC",
             r["swing_pct"])
            for r in clocks
        ),
    ]  # fmt: skip
    table = [(*row[:4], signed(row[4])) for row in moved[:DETAILS]]
    columns = ("name", "machine", "what", "when", "by")
    return join(
        tag("h3", "Over time"),
        tag("p", " ".join(said), class_="faint") if said else None,
        grid(columns, table, left=("machine", "what", "when")) if table else None,
        tag("div", *moved_figures, class_="lines") if moved_figures else None,
        folded(
            f"Timelines of programs without a claim: {len(still_figures)}",
            tag("div", *still_figures, class_="lines"),
        )
        if still_figures
        else None,
        tag(
            "div",
            *(_clock(audit, row) for row in clocks[:CLOCKS]),
            class_="cards",
        )
        if clocks
        else None,
    )


def _timeline(audit: Audit, key: tuple[str, str, str], changes: Sequence[Row]) -> Markup | None:
    series = audit.series
    machine, kind, name = key
    k = next(i for i, one in enumerate(series.names) if (one.kind, one.name) == (kind, name))
    where = series.slices.get((k, series.machines.index(machine)))
    if where is None or where.stop - where.start < 8:
        return None
    seconds, values = series.seconds[where], series.value[where]
    own = sorted(r["at"] for r in changes if (r["machine"], r["name"]) == (machine, name))
    starts = [int(np.searchsorted(seconds, _epoch(at))) for at in own]
    edges = [0, *starts, len(values)]
    levels = [(a, b) for a, b in itertools.pairwise(edges) if b > a] if own else []
    shown = min(plots.POINTS, len(values))
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("b", f"{name} on {machine}"),
            tag("span", f"{shown:,} of {len(values):,} readings are drawn; lines are of all."),
        ),
        tag(
            "div",
            plots.timeline(seconds, values, series.names[k].unit, name, levels),
            class_="sideways",
        ),
    )


def _clock(audit: Audit, row: Row) -> Markup:
    series = audit.series
    k = next(i for i, one in enumerate(series.names) if one.name == row["name"])
    where = series.slices[k, series.machines.index(row["machine"])]
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("b", f"{row['name']} on {row['machine']}"),
            tag("span", f"{row['swing_pct']:.1f} % over {row['days']} days, hours in UTC"),
        ),
        plots.hours(series.seconds[where], series.value[where], series.names[k].unit, row["name"]),
    )


def explain_section(document: Document) -> Markup | None:
    """Programs and surrogates."""
    rows = document["explanations"]
    if not rows:
        return None
    programs = list(dict.fromkeys(row["program"] for row in rows))
    names = list(
        dict.fromkeys(row["name"] for row in sorted(rows, key=lambda r: (r["kind"], r["name"])))
    )
    found = {(row["name"], row["program"]): row for row in rows}
    best = {n: max(abs(found[n, p]["rho"]) for p in programs if (n, p) in found) for n in names}
    names.sort(key=lambda name: -best[name])
    table = [[n, *(_rho(found.get((n, p))) for p in programs)] for n in names]
    return join(
        tag("h3", "Which surrogates explain which programs"),
        tag(
            "p",
            "Rank correlation of runs with the fingerprint before them, within machines. Shaded: "
            "claimed (false discoveries controlled). Framed: says something that stronger ones do "
            "not, in the order of the number.",
            class_="faint",
        ),
        grid(("surrogate or signal", *programs), table),
    )


def order_section(document: Document) -> Markup:
    """Place in the block and predecessor."""
    rows = [
        (row["name"], "place in the block", f"first {row['first_pct']:+.1f} %", row["adjusted_p"])
        for row in document["place"]
        if row["claimed"]
    ] + [
        (row["name"], "predecessor", f"{row['effect_pct']:+.1f} % after {row['after']}",
         row["adjusted_p"])
        for row in document["predecessor"]
        if row["claimed"]
    ]  # fmt: skip
    tested = len(document["place"]) + len(document["predecessor"])
    table = [
        (name, what, how, "< 0.001" if p < 0.001 else f"{p:.3f}") for name, what, how, p in rows
    ]
    text = (
        f"No effect of the order among {tested} tests."
        if tested
        else "Too few readings to look for an effect of the order."
    )
    return join(
        tag("h3", "Effects of the order"),
        grid(("name", "depends on", "by", "adjusted p"), table, left=("depends on", "by"))
        if table
        else tag("p", text, class_="faint"),
    )


def cost_section(document: Document) -> Markup | None:
    """Price-performance, over all types."""
    rows = document["prices"]
    if not rows:
        return None
    table = [
        (
            row["type"],
            row["name"] or f"all {row['kind']}s (geometric mean)",
            f"{row['price_per_hour']:g}",
            None if row["cost"] is None else f"{row['cost']:.3g}",
            None
            if row["cost_lower"] is None
            else f"{row['cost_lower']:.3g} to {row['cost_upper']:.3g}",
            ratio(row["over_cheapest"]),
        )
        for row in sorted(rows, key=lambda r: (r["kind"], r["name"] or "", r["over_cheapest"]))
        if row["kind"] == "program" or not row["name"]
    ]
    return join(
        tag("h2", "Price and performance"),
        tag(
            "p",
            "Money for one run, by the median. Over the cheapest: 1 is the best buy.",
            class_="faint",
        ),
        grid(
            ("type", "program", "price per hour", "cost of a run", "interval", "over cheapest"),
            table,
            left=("program",),
        ),
    )


def _rho(row: Row | None) -> Markup:
    if row is None:
        return tag("td", NOTHING)
    classes = []
    if row["claimed"]:
        classes.append("slow" if row["rho"] > 0.0 else "fast")
    if row["chosen"]:
        classes.append("chosen")
    text = f"{row['rho']:+.2f}" + (f" ({row['chosen']})" if row["chosen"] else "")
    return tag(
        "td", text, class_=" ".join(classes) or None, style=f"--v:{70.0 * abs(row['rho']):.0f}%"
    )


def _moment(iso: str) -> str:
    return iso.replace("T", " ").rstrip("Z") + " UTC"


def _epoch(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()
