"""Output of a prediction as text: runtime, slowdown, its drivers, and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kongming.cli import output
from kongming.quantities import format_slowdown, per_cent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from kongming.records.answers import RankedNode
    from kongming.records.prediction import Driver, Interval

_BAR = 24
"""Width in characters of a full bar of a driver's share."""

_WORTH_A_WORD = 1.02
"""Minimum slowdown for which drivers are shown: shares of a smaller one mislead."""


def median_text(slowdown: Interval) -> str:
    """Return the median, or what it is at the least."""
    return format_slowdown(slowdown.median, slowdown.at_least)


def range_text(slowdown: Interval) -> str:
    """Return the ends between which one run will fall, the lower one alone where there is no other
    that is known."""
    upper = "or more" if slowdown.at_least else f"to {slowdown.upper:.2f}"
    return f"{slowdown.lower:.2f} {upper}"


def slowdown_text(slowdown: Interval) -> str:
    """Return both, for a cell or a sentence."""
    return f"{median_text(slowdown)} ({range_text(slowdown)})"


def worst_resident_text(nodes: Sequence[RankedNode]) -> str | None:
    """Return the slowdown of the resident that would be slowed most on any of these nodes, or what
    it is at the least; None where there is no resident."""
    if not any(node.residents for node in nodes):
        return None
    return format_slowdown(
        max(node.worst_resident_slowdown for node in nodes),
        any(node.worst_resident_at_least for node in nodes),
    )


def add_runtime(grid: Table, runtime: Interval, unit: str) -> None:
    """Add rows with the runtime, or the application's own metric, and its two intervals: where one
    run will fall, and where the median of many will."""
    from rich.text import Text

    sure = "" if runtime.calibrated else ", not calibrated"
    # Of a metric it is not known here whether more is worse.
    is_open = runtime.at_least and unit == "s"

    def ends(low: float, high: float) -> str:
        return f"{_value(low, unit)} {'or more' if is_open else f'to {_value(high, unit)}'}"

    grid.add_row(
        "runtime" if unit == "s" else "metric",
        Text(f"{'>=' if is_open else ''}{_value(runtime.median, unit)}", style="bold"),
        f"one run {ends(runtime.lower, runtime.upper)} "
        f"({per_cent(100.0 * runtime.level, 'g')}{sure})",
    )
    if runtime.expected is not None:
        grid.add_row("", "", f"median of many {ends(*runtime.expected)}")


def runtime_text(runtime: Interval) -> str:
    """Return a runtime in seconds with the ends between which one run will fall, for a cell: what
    it is at the least where no upper end is known."""
    upper = "or more" if runtime.at_least else f"to {_value(runtime.upper, 's')}"
    bound = ">=" if runtime.at_least else ""
    return f"{bound}{_value(runtime.median, 's')} ({_value(runtime.lower, 's')} {upper})"


def add_slowdown(grid: Table, slowdown: Interval, solo: float | None, unit: str) -> None:
    """Add a row with the slowdown and its interval, and with the solo runtime if it is known."""
    from rich.text import Text

    over = "" if solo is None else f", over {_value(solo, unit)} alone"
    grid.add_row(
        "slowdown",
        Text(median_text(slowdown), style="bold"),
        f"{range_text(slowdown)}{over}",
    )


def add_drivers(grid: Table, drivers: Sequence[Driver], slowdown: Interval) -> None:
    """Add a row with a bar for each family that drives the slowdown."""
    shown = drivers if slowdown.median >= _WORTH_A_WORD else ()
    for number, driver in enumerate(shown):
        if driver.share >= 0.005:
            bar = "█" * max(1, round(_BAR * driver.share))
            grid.add_row(
                "driven by" if number == 0 else "",
                driver.family,
                f"{bar.ljust(_BAR)} {per_cent(100 * driver.share, '.0f')}",
            )


def _value(value: float, unit: str) -> str:
    return output.format_seconds(value) if unit == "s" else f"{value:.4g} {unit}"
