"""Model card as text: tables, and sensitivity curves as bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kongming.cli import output
from kongming.cli.predict.errors_view import (
    chosen_lines,
    distinct,
    errors_table,
    label,
    percent,
    size,
)
from kongming.quantities import count, per_cent

Card = Mapping[str, Any]

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 33
"""Maximum width of a curve in characters: one for each of its points."""

_AROUND_BARS = 60
"""Characters of the other columns of the table of curves."""

_NAMED = 8
"""How many surrogates or inducers are named; the rest are only counted."""


def show(card: Card) -> None:
    """Print the whole card."""
    from rich.table import Table
    from rich.text import Text

    console = output.console()
    heading = f"{card['app']}, {card['placement']}: model version {card['version']}"
    if card["version"] != card["in_service"]:
        heading += f" (in service is version {card['in_service']})"
    console.print(Text(heading, style="bold"))
    facts = Table.grid(padding=(0, 2))
    for name, text in _facts(card):
        facts.add_row(name, Text(text))
    console.print(facts)
    console.print()
    variants = distinct(card["variants"])
    console.print(errors_table(variants))
    for line in chosen_lines(variants):
        console.print(line, markup=False)
    if card["remark"] is not None:
        console.print(f"! {card['remark']}", markup=False)
    console.print()
    for line in _selected(card):
        console.print(line, markup=False)
    for part in _curves(card, min(max(console.width - _AROUND_BARS, 10), _WIDTH)):
        console.print(part)


def _facts(card: Card) -> list[tuple[str, str]]:
    runs, solo, node = card["runs"], card["solo"], card["node"]
    unit = solo["metric_unit"]
    value = output.format_seconds(solo["value"]) if unit == "s" else f"{solo['value']:.4g} {unit}"
    noise = "" if solo["noise_pct"] is None else f", repeat noise {per_cent(solo['noise_pct'])}"
    dropped = f", {len(runs['dropped'])} left out" if runs["dropped"] else ""
    when = "" if runs["first_at"] is None else f", {_span(runs['first_at'], runs['last_at'])}"
    columns = [
        f"{size(variant)} ({label(name)})" for name, variant in distinct(card["variants"]).items()
    ]
    full = card["variants"]["full"]
    error = full["errors"][full["chosen"]].get("mean_pct")
    facts = [
        ("model", f"{full['chosen']}, mean error {percent(error)} on loads that were left out"),
        ("solo", f"{value}{noise} ({count(solo['runs'], 'run')})"),
        (
            "runs",
            f"{runs['total']} ({runs['solo']} solo, {runs['induced']} induced{dropped}){when}",
        ),
        ("profile", _judged(card["profile"])),
        ("node", _machine(node)),
        (
            "trained",
            f"{_moment(card['trained_at'])}, suite {card['suite_version']}, surrogates: "
            f"{', '.join(columns)}",
        ),
        ("interval", _sureness(card["interval"])),
    ]
    if card["elsewhere"]:
        places = [f"{place['placement']} on {place['node_id'][:12]}" for place in card["elsewhere"]]
        facts.append(("elsewhere", ", ".join(places)))
    return facts


def _judged(profile: Mapping[str, Any] | None) -> str:
    """Return the verdict on the profile that the model was trained on, and what to do."""
    if profile is None:
        return "not judged by the version that trained it; kongming train judges it"
    return " ".join(filter(None, (profile["text"], profile["advice"])))


def _machine(node: Mapping[str, Any]) -> str:
    if node["name"] is None:
        return f"{node['id']} (the store has no facts of it)"
    cache = f", {output.format_bytes(node['llc_bytes'])} cache" if node["llc_bytes"] else ""
    return (
        f"{node['name']}: {node['cpu_model']}, {count(node['cpus'], 'CPU')}{cache}, "
        f"{output.format_bytes(node['memory_bytes'])} memory, {node['id'][:12]}"
    )


def _sureness(interval: Mapping[str, Any]) -> str:
    idle = interval["idle"]
    sure = "calibrated" if interval["calibrated"] else "not calibrated"
    learnt = (
        f"widening {interval['widening']:.2f} by {count(interval['coruns'], 'co-run')} of "
        f"{count(interval['applications'], 'other application')}"
        if interval["applications"]
        else "no co-runs of other applications"
    )
    return (
        f"{per_cent(100.0 * interval['level'], 'g')}, {sure}: {interval['left_out']} groups left "
        f"out in turn, {learnt}; {idle['lower']:.2f} to {idle['upper']:.2f} when idle"
    )


def _selected(card: Card) -> list[str]:
    """Return the selections of genetic models and the members of a stack, on the full columns."""
    variant = card["variants"]["full"]
    lines = []
    for name, members in variant["members"].items():
        heaviest = sorted(members, key=lambda member: (-members[member], member))
        shares = [f"{per_cent(100.0 * members[member], '.0f')} {member}" for member in heaviest]
        equal = len(set(members.values())) == 1
        lines.append(
            f"{name} is " + (f"the mean of {_listed(heaviest)}" if equal else _listed(shares))
        )
    for name, selection in variant["selected"].items():
        taken = {key: n for key, n in selection["observations"].items() if n}
        observations = [f"{key} x{n}" if n > 1 else key for key, n in sorted(taken.items())]
        lines.append(
            f"{name} selected {len(selection['surrogates'])} of {len(variant['columns'])} "
            f"surrogates: {_listed(selection['surrogates'])}"
        )
        lines.append(
            f"  and {sum(taken.values())} runs of {len(taken)} of "
            f"{len(selection['observations'])} inducers: {_listed(observations)}"
        )
    return [*lines, ""] if lines else []


def _curves(card: Card, width: int) -> list[Any]:
    """Return a row for each family, then one for each surrogate with a large effect, and a legend.
    All bars have the same scale and are at most ``width`` characters wide.
    """
    sensitivity = card["sensitivity"]
    curves = sensitivity["curves"]
    values = [math.log(value) for curve in curves for value in curve["slowdown"]]
    # Below 1.1 a full bar would exaggerate a small slowdown.
    low, high = min(*values, 0.0), max(*values, math.log(1.1))
    rows = []
    for curve in curves:
        family = curve["kind"] == "family"
        pressure = card["pressure"].get(curve["name"])
        rows.append(
            (
                f"{curve['name']} ({len(curve['surrogates'])})" if family else f"  {curve['name']}",
                f"{curve['load'][-1]:.2f}",
                f"{curve['slowdown'][-1]:.2f}",
                bars([math.log(value) for value in curve["slowdown"]], low, high, width),
                ("-" if pressure is None else f"{pressure:.2f}") if family else "",
            )
        )
    columns = ("family or surrogate", "highest load", "slowdown", "idle to highest", "slows others")
    title = f"Sensitivity by {sensitivity['model']}, one family or one surrogate at a time"
    right = ("highest load", "slowdown", "slows others")
    return [
        output.table(columns, rows, title=title, right=right),
        "Highest load: the largest cost of the surrogates in training over their idle cost. The "
        "slowdown is predicted there; the bars show its rise from idle to there, on a scale of "
        f"{math.exp(low):.2f} to {math.exp(high):.2f}. Slows others: the slowdown of surrogates "
        f"next to {card['app']}.",
    ]


def bars(values: Sequence[float], low: float, high: float, width: int) -> str:
    """Return ``values`` from ``low`` to ``high`` as a line of bars, ``width`` characters wide."""
    places = [round(k * (len(values) - 1) / max(width - 1, 1)) for k in range(width)]
    scale = (len(_BARS) - 1) / (high - low)
    return "".join(
        _BARS[min(max(round((values[place] - low) * scale), 0), len(_BARS) - 1)] for place in places
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _moment(at: str) -> str:
    return at[:16].replace("T", " ")


def _span(first: str, last: str) -> str:
    start, end = _moment(first), _moment(last)
    if start == end:
        return start
    return f"{start} to {end[11:] if start[:10] == end[:10] else end}"
