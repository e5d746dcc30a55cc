"""Output of a prediction as text: runtime, slowdown, its drivers, and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kongming.cli import output
from kongming.quantities import per_cent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from kongming.records.prediction import Driver, Interval

_BAR = 24
"""Width in characters of a full bar of a driver's share."""

_WORTH_A_WORD = 1.02
"""Minimum slowdown for which drivers are shown: shares of a smaller one mislead."""


def add_runtime(grid: Table, runtime: Interval, unit: str) -> None:
    """Add rows with the runtime, or the application's own metric, and its two intervals: where one
    run will fall, and where the median of many will."""
    from rich.text import Text

    sure = "" if runtime.calibrated else ", not calibrated"
    grid.add_row(
        "runtime" if unit == "s" else "metric",
        Text(f"{_value(runtime.median, unit)}", style="bold"),
        f"one run {_value(runtime.lower, unit)} to {_value(runtime.upper, unit)} "
        f"({per_cent(100.0 * runtime.level, 'g')}{sure})",
    )
    if runtime.expected is not None:
        low, high = runtime.expected
        grid.add_row("", "", f"median of many {_value(low, unit)} to {_value(high, unit)}")


def add_slowdown(grid: Table, slowdown: Interval, solo: float | None, unit: str) -> None:
    """Add a row with the slowdown and its interval, and with the solo runtime if it is known."""
    from rich.text import Text

    over = "" if solo is None else f", over {_value(solo, unit)} alone"
    grid.add_row(
        "slowdown",
        Text(f"{slowdown.median:.2f}", style="bold"),
        f"{slowdown.lower:.2f} to {slowdown.upper:.2f}{over}",
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
