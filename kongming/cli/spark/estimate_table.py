"""An estimate in words and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kongming.cli import output
from kongming.cli.spark.prices import Pricing
from kongming.quantities import count as counted
from kongming.quantities import per_cent

if TYPE_CHECKING:
    from kongming.spark.estimation import Estimate
    from kongming.spark.recommendation import Recommendation

_NEAR = 12
"""Rows above which the table shows the picks and an even choice of the rest."""


def show(
    answer: dict[str, Any],
    estimates: Sequence[Estimate],
    chosen: Recommendation,
    pricing: Pricing,
) -> None:
    """Print the answer's table, its executions and its warnings."""
    console = output.console()
    application = answer["application"]
    check = answer["self_check"]
    console.print(
        f"{application['name'] or application['id']} (Spark {application['spark_version']}): "
        f"{output.format_seconds(application['measured_s'])} on "
        f"{counted(application['executors'], 'executor')} of "
        f"{counted(application['cores'], 'core')}; replayed "
        f"{output.format_seconds(check['replayed_s'])} ({per_cent(check['error_pct'])} off). "
        "Driver "
        f"alone {output.format_seconds(answer['driver_s'])}, critical path "
        f"{output.format_seconds(answer['critical_path_s'])}.",
        markup=False,
    )
    rows, shown = [], []
    step = max(len(estimates) // _NEAR, 1)
    for number, each in enumerate(estimates):
        marks = [
            name
            for name, pick in (
                ("cheapest", chosen.cheapest),
                ("fastest", chosen.fastest),
                ("knee", chosen.knee),
            )
            if pick is each
        ]
        if number % step and not marks and number != len(estimates) - 1:
            continue
        shown.append(number)
        rows.append(
            [
                each.executors,
                each.cores,
                *(output.format_seconds(s) for s in (each.median_s, each.lower_s, each.upper_s)),
                output.format_seconds(each.baselines["constant_durations"]),
                f"{each.cost(pricing.price):.4g}",
                per_cent(100 * each.utilisation, ".0f"),
                ", ".join([*marks, *(["extrapolating"] if each.extrapolating else [])]),
            ]
        )
    columns = ["executors", "cores", "runtime", "from", "to", "constant", pricing.unit, "used", ""]
    # Rows that differ in their cores cannot be told apart without them.
    alike = len({each.cores for each in estimates}) == 1
    last = "cores" if alike else pricing.unit
    minor = ("from", "to", "constant", "used", last)
    console.print(output.table(columns, rows, right=columns[:-1], minor=minor))
    for execution in answer["executions"]:
        own = [execution["estimates"][number] for number in shown]
        sizes = [str(e["executors"]) + ("" if alike else f" x {e['cores']}") for e in own]
        times = ", ".join(
            f"{size}: {output.format_seconds(each['runtime_s']['median'])}"
            for size, each in zip(sizes, own, strict=True)
        )
        measured = output.format_seconds(execution["measured_s"])
        console.print(
            f"execution {execution['id']} ({execution['description']}), measured {measured}: "
            + times,
            markup=False,
        )
    if "deadline" in answer:
        meets = answer["deadline"]["meets"]
        console.print(
            "No number of executors here ends in time."
            if meets is None
            else f"The smallest that ends in time: {counted(meets['executors'], 'executor')} of "
            f"{counted(meets['cores'], 'core')}.",
            markup=False,
        )
    if "progress" in answer:
        progress = answer["progress"]
        console.print(
            f"{progress['jobs_done']} of {progress['jobs']} jobs are done after "
            f"{output.format_seconds(progress['elapsed_s'])}. Left: "
            + ", ".join(
                f"{counted(each['executors'], 'executor')} {output.format_seconds(each['left_s'])}"
                for each in progress["left"]
            ),
            markup=False,
        )
    output.print_warnings(answer["warnings"])
