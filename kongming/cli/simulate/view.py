"""Output of a placement study: a line for each policy, and the sources of the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kongming.cli import output
from kongming.quantities import count, per_cent


def show(document: Mapping[str, Any]) -> None:
    """Print the tables, and notes on stderr."""
    console = output.console()
    trace, fleet = document["trace"], document["fleet"]
    console.print(
        f"{trace['jobs']} jobs of {len(trace['apps'])} applications ({trace['source']}) on "
        f"{fleet['nodes']} nodes with {fleet['slots']} slots; offered load "
        f"{trace['offered_load']:.2f}",
        markup=False,
    )
    for table, minor in (
        (_policies, ("x oracle", "x random", "p95", "stretch", "makespan")),
        (_utilisation, ("forced", "below alone", "shared")),
    ):
        console.print(output.table(*table(document["policies"]), minor=minor))
    console.print(
        "Undegraded: jobs at 95 % of their speed alone or more. Below alone: how far the mean "
        "speed is below it. Forced: jobs that took a slot beyond the limits, after waiting."
    )
    if document["quality"]:
        console.print("Work gained per node in use / share of jobs that held the quality:")
        console.print(output.table(*_quality(document["quality"])))
    for line in remarks(document):
        console.print(line, markup=False)


def remarks(document: Mapping[str, Any]) -> list[str]:
    """Return notes on the sources of the numbers, and on which of them were not measured."""
    pairs, predictions, settings = document["pairs"], document["predictions"], document["settings"]
    noise = "" if pairs["noise_pct"] is None else f", repeat noise {per_cent(pairs['noise_pct'])}"
    lines = [f"pairs: {pairs['measured']} measured ({pairs['source']}{noise})"]
    if pairs["estimated"]:
        shown = ", ".join(f"{a} next to {b}" for a, b in pairs["estimated"][:3])
        more = ", ..." if len(pairs["estimated"]) > 3 else ""
        lines.append(
            f"{len(pairs['estimated'])} pairs were not measured, but estimated from the others: "
            f"{shown}{more}"
        )
    if predictions is not None:
        error = (
            ""
            if predictions["error_pct"] is None
            else f", median error {per_cent(predictions['error_pct'])}"
        )
        lines.append(f"predictions: {predictions['source']}{error}")
        if bounds := predictions["at_least"]:
            lines.append(
                f'Lower bounds ("at least"), which keep no limit: {count(bounds, "prediction")}.'
            )
        if predictions["made_up"]:
            lines.append("No model made these predictions: the gain of kongming is hypothetical.")
    patience = settings["patience"]
    if patience is None:
        lines.append("A job waits until a slot keeps the limits.")
    else:
        times = "as long as" if patience == 1.0 else f"{patience:g} times"
        lines.append(f"A job that has waited {times} its own work takes a slot beyond the limits.")
    for entry in document["quality"]:
        if entry["too_slow"]:
            lines.append(
                f"At a quality of {entry['target']:g}, policies that respect limits leave nodes "
                f"unused: no job reaches it on {', '.join(entry['too_slow'])}, even alone."
            )
    return lines


_Table = tuple[Sequence[str], list[list[object]]]


def _policies(figures: Mapping[str, Mapping[str, Any]]) -> _Table:
    """Print the table of jobs."""
    columns = (
        *("policy", "slowdown", "p95", "over limit", "waiting", "stretch", "makespan"),
        *("x random", "x oracle"),
    )
    rows: list[list[object]] = []
    for name, own in figures.items():
        over = own["over"]
        rows.append(
            [
                name,
                f"{own['slowdown']['mean']:.3f}",
                f"{own['slowdown']['p95']:.3f}",
                _percent(own["over_limit_share"]),
                output.format_duration(own["waiting_s"]["mean"]),
                f"{own['stretch']['mean']:.3f}",
                output.format_duration(own["makespan_s"]),
                *(
                    None if other not in over else f"{over[other]['slowdown.mean']:.3f}"
                    for other in ("random", "oracle")
                ),
            ]
        )
    return columns, rows


def _utilisation(figures: Mapping[str, Mapping[str, Any]]) -> _Table:
    """Print the tables of nodes and of quality."""
    columns = ("policy", "slots used", "shared", "work/node", "undegraded", "below alone", "forced")
    rows: list[list[object]] = [
        [
            name,
            _percent(own["slots_in_use"]),
            _percent(own["shared_share"]),
            f"{own['work_per_busy_node']:.2f}",
            _percent(own["quality"]["undegraded_share"]),
            per_cent(own["quality"]["alone_gap_pct"]),
            own["forced_jobs"],
        ]
        for name, own in figures.items()
    ]
    return columns, rows


def _quality(entries: Sequence[Mapping[str, Any]]) -> _Table:
    names = list(entries[0]["policies"])
    columns = ["quality", *names]
    rows: list[list[object]] = []
    for entry in entries:
        results = [entry["policies"][name] for name in names]
        rows.append(
            [
                f"{entry['target']:g}",
                *(
                    f"{max(result['gained_pct'], 0.0):.0f} / {_percent(result['held_share'])}"
                    for result in results
                ),
            ]
        )
    return columns, rows


def _percent(share: float | None) -> str:
    return "-" if share is None else per_cent(100.0 * share)
