"""Sections on how readings are spread: histograms, repetitions, machines beside one another."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from kongming.audit import plots
from kongming.audit.markup import NOTHING, Markup, join, quantity, ratio, tag
from kongming.audit.page_parts import (
    DETAILS,
    Document,
    Row,
    folded,
    grid,
    interval,
    levels_of,
    share,
    with_interval,
)

__all__ = ["machine_section", "repetition_section", "spread_section"]

STRIPS = 12
"""Machines that a histogram shows one by one."""

MACHINES = 60
"""Rows of the table of machines and names."""


def spread_section(document: Document) -> Markup:
    """Histograms (the paper's Figure 2) and the table of the type."""
    whole = {row["name"]: row for row in document["summaries"] if row["machine"] is None}
    levels = levels_of(document)
    cards: dict[str, list[Markup]] = {"program": [], "surrogate": []}
    for row in document["histograms"]:
        if row["machine"] is not None:
            continue
        one = whole[row["name"]]
        own = [
            other
            for other in document["histograms"]
            if other["machine"] is not None and other["name"] == row["name"]
        ]
        own.sort(key=lambda other: levels.get((other["machine"], row["name"]), 0.0))
        shown = _ends(own, STRIPS) if len(own) > 1 else []
        cards[row["kind"]].append(
            tag(
                "figure",
                tag(
                    "figcaption",
                    tag("b", row["name"]),
                    tag(
                        "span",
                        f"longest/shortest {ratio(one['longest_over_shortest'])}, p95/p5 "
                        f"{ratio(one['p95_over_p5'])}",
                    ),
                    tag("span", f"median {with_interval(one, 'median')}, n = {one['n']:,}"),
                    tag("span", _outside(row, len(own), len(shown))),
                ),
                plots.histogram(row, shown, one),
            )
        )
    table = [
        (
            row["name"],
            f"{row['n']:,}",
            quantity(row["median"], row["unit"]),
            interval(row, "median"),
            quantity(row["p5"], row["unit"]),
            quantity(row["p95"], row["unit"]),
            ratio(row["p95_over_p5"]),
            ratio(row["longest_over_shortest"]),
            share(row["cv"]),
            share(row["robust_cv"]),
        )
        for row in whole.values()
    ]
    columns = (
        *("name", "n", "median", "interval", "p5", "p95", "p95/p5"),
        *("longest/shortest", "CV", "robust CV"),
    )
    return join(
        tag("h3", "How much it varies"),
        tag(
            "p",
            "Bars: all readings of the type, with the median and marks at p5 and p95. Below them a "
            "strip of shades for each machine, fastest first.",
            class_="faint",
        ),
        tag("div", *cards["program"], class_="cards") if cards["program"] else None,
        folded(
            f"Histograms of {len(cards['surrogate'])} surrogates",
            tag("div", *cards["surrogate"], class_="cards"),
            opened=not cards["program"],
        )
        if cards["surrogate"]
        else None,
        folded("Table", grid(columns, table), opened=True),
        _all_machines(document),
    )


def _all_machines(document: Document) -> Markup | None:
    rows = [row for row in document["summaries"] if row["machine"] is not None]
    table = [
        (
            row["machine"],
            row["name"],
            f"{row['n']:,}",
            quantity(row["median"], row["unit"]),
            interval(row, "median"),
            ratio(row["p95_over_p5"]),
            share(row["robust_cv"]),
            None if row["autocorrelation"] is None else f"{row['autocorrelation']:+.2f}",
            f"{row['effective']:.0f}",
        )
        for row in rows[:DETAILS]
    ]
    if not table:
        return None
    more = (
        f" The first {DETAILS:,} of {len(rows):,} rows; JSON and CSV have all."
        if len(rows) > DETAILS
        else ""
    )
    columns = (
        *("machine", "name", "n", "median", "interval", "p95/p5", "robust CV"),
        *("autocorrelation", "counts as"),
    )
    caption = (
        "Counts as: how many independent readings the median rests on, the autocorrelation "
        f"accounted for.{more}"
    )
    return folded("Table of each machine", grid(columns, table, left=("name",), caption=caption))


def machine_section(document: Document) -> Markup | None:
    """Machines and names: by how much each is off the typical machine."""
    levels = levels_of(document)
    machines = list(dict.fromkeys(machine for machine, _ in levels))
    if len(machines) < 2:
        return None
    kinds = {row["name"]: row["kind"] for row in document["summaries"]}
    names = [n for n in dict.fromkeys(name for _, name in levels) if kinds[n] != "passive"]
    typical = {
        name: float(np.median([levels[m, name] for m in machines if (m, name) in levels]))
        for name in names
    }
    off = {
        key: value / typical[key[1]] - 1.0
        for key, value in levels.items()
        if key[1] in typical and typical[key[1]] > 0.0
    }
    worst = {m: max((off.get((m, n), 0.0) for n in names), default=0.0) for m in machines}
    machines.sort(key=lambda m: -worst[m])
    claimed = {(row["machine"], row["name"]) for row in document["slow_machines"] if row["slow"]}
    rows = [
        [m, *(_shade(off.get((m, n)), (m, n) in claimed) for n in names)]
        for m in machines[:MACHINES]
    ]
    few = len(machines) < 3
    return join(
        tag("h3", "Machines beside one another"),
        tag(
            "p",
            "Median of each machine over that of the typical machine. "
            + (
                "Two machines do not say which of them is typical: nothing is claimed."
                if few
                else "Framed: slower by more than 5 %, beyond doubt (Holm over all cells)."
            )
            + (f" The {MACHINES} slowest of {len(machines)}." if len(machines) > MACHINES else ""),
            class_="faint",
        ),
        grid(("machine", *names), rows),
    )


def repetition_section(document: Document) -> Markup | None:
    """CONFIRM."""
    rows = [row for row in document["repetitions"] if row["machine"] is None]
    # Of a type of one machine, what is taken in a row on it is known as well.
    alone = {
        (row["name"], row["precision_pct"]): row
        for row in document["repetitions"]
        if row["machine"] is not None
    }
    single = len(document["machines"]) == 1
    precisions = list(dict.fromkeys(row["precision_pct"] for row in rows))
    names = list(dict.fromkeys(row["name"] for row in rows))
    found = {(row["name"], row["precision_pct"]): row for row in rows}
    if not any(row["needed"] for row in rows):
        return None
    drawn = [
        (n, [found[n, p]["needed"] for p in precisions], float(found[n, precisions[0]]["measured"]))
        for n in names
    ]
    table = [
        [
            n,
            f"{found[n, precisions[0]]['measured']:,}",
            *(_needed(found[n, p]) for p in precisions),
            *(
                (f"{alone[n, p]['in_a_row']:,}" if alone[n, p]["in_a_row"] else None)
                for p in precisions
                if single
            ),
        ]
        for n in names
    ]
    columns = ["name", "measured", *(f"within {p:g} %" for p in precisions)]
    columns += [f"in a row, {p:g} %" for p in precisions] if single else []
    legend = [f"within {p:g} %" for p in precisions]
    return join(
        tag("h3", "How many repetitions are needed"),
        tag(
            "p",
            "Until the interval of the median is within so much of it (CONFIRM). The tick is how "
            "many were measured.",
            class_="faint",
        ),
        tag("figure", tag("div", plots.dots(drawn, legend), class_="sideways"), class_="one"),
        folded("Table", grid(columns, table)),
    )


def _ends(rows: Sequence[Row], most: int) -> list[Row]:
    if len(rows) <= most:
        return list(rows)
    return [*rows[: most // 2], *rows[len(rows) - most // 2 :]]


def _outside(row: Row, machines: int, shown: int) -> str | None:
    parts = []
    beyond = row["below"] + row["above"]
    if beyond:
        parts.append(f"{beyond:,} of the readings outside the picture")
    if shown < machines and machines > 1:
        parts.append(f"strips: the {shown // 2} fastest and slowest of {machines} machines")
    return "; ".join(parts) or None


def _shade(value: float | None, claimed: bool) -> Markup:
    if value is None:
        return tag("td", NOTHING)
    # Full shade at a factor of 1.5.
    depth = min(1.0, abs(log(max(1.0 + value, 1e-9))) / log(1.5))
    classes = ["slow" if value > 0.0 else "fast"] + (["chosen"] if claimed else [])
    return tag(
        "td",
        f"{100.0 * value:+.1f} %",
        class_=" ".join(classes),
        style=f"--v:{70.0 * depth:.0f}%",
    )


def _needed(row: Row) -> str | None:
    if row["needed"] is None:
        return None
    return ("~ " if row["extrapolated"] else "") + f"{row['needed']:,}"
