"""An estimate in words and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kongming.cli import output
from kongming.cli.spark.prices import Pricing
from kongming.quantities import count as counted
from kongming.quantities import exact_percent, per_cent

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
        console.print(_by_deadline(answer["deadline"]), markup=False)
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


def _by_deadline(deadline: dict[str, Any]) -> str:
    """Return sentences on the size that keeps a deadline, or on the likeliest to."""
    meets, risk = deadline["meets"], deadline["risk"]
    goal = f"ends within {_deadline_text(deadline['seconds'])}"
    if risk is None:
        if meets is None:
            return f"By the median, no number of executors here {goal}."
        return f"The smallest that {goal} by the median: {_size(meets)}."
    shown = meets or deadline["likeliest"]
    chance = f"{_size(shown)}, with probability {per_cent(100 * shown['probability'])}"
    required = f"required: {exact_percent(risk)}"
    if meets is None:
        sentence = (
            f"No number of executors here {goal} with the required probability. The likeliest: "
            f"{chance} ({required})."
        )
    else:
        sentence = f"The smallest that {goal}: {chance} ({required})."
    return sentence + "".join(f" It extrapolates: {reason}." for reason in shown["reasons"])


def _deadline_text(seconds: float) -> str:
    """Return a deadline as it was given, of a minute or more in minutes and hours."""
    return output.format_seconds(seconds) if seconds < 60 else output.format_duration(seconds)


def _size(size: dict[str, Any]) -> str:
    return f"{counted(size['executors'], 'executor')} of {counted(size['cores'], 'core')}"
