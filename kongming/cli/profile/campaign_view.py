"""Progress of a campaign: a live table on stderr, or regular lines."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kongming.cli import output
from kongming.cli.profile.pace import Pace
from kongming.profiling.events import Doing, Dropped, Event, Short
from kongming.quantities import format_slowdown, per_cent
from kongming.records.judging import learned_from
from kongming.records.run import Run, Signature, solo_time

if TYPE_CHECKING:
    from rich.console import Group


@dataclass
class AppRow:
    """The runs of one application so far."""

    measured: list[Run] = field(default_factory=list)
    failed: int = 0
    signatures: int = 0
    lacking: set[str] = field(default_factory=set)
    """Surrogates of which none of the signatures has a reading."""
    dropped: str | None = None
    reasons: list[str] = field(default_factory=list)

    @property
    def runs(self) -> int:
        return len(self.measured)

    @property
    def solo(self) -> list[Run]:
        return [run for run in learned_from(self.measured) if run.kind == "solo"]

    @property
    def worst(self) -> float | None:
        """Return the largest slowdown, below 1 where every load made it faster; None before a run
        alone and one under a load.
        """
        solo = solo_time(self.solo)
        slowest = self._slowest
        return None if solo is None or slowest is None else slowest.cost / solo.median

    @property
    def worst_at_least(self) -> bool:
        """Return whether the largest slowdown is a lower bound: of a run that was cut off."""
        return self._slowest is not None and self._slowest.cut_off

    @property
    def _slowest(self) -> Run | None:
        loaded = [run for run in self.measured if run.kind != "solo" and run.ok]
        return max(loaded, key=lambda run: run.cost, default=None)

    @property
    def solo_metric(self) -> float | None:
        """Return the median of the solo runs, in the application's metric unit."""
        solo = solo_time(self.solo)
        if solo is None:
            return None
        return solo.median if self.measured[0].better == "lower" else 1.0 / solo.median


class CampaignView:
    """Collects events and shows them; usable without a terminal and with ``quiet``."""

    def __init__(self, apps: Sequence[str], title: str, *, quiet: bool = False) -> None:
        self.rows = {app: AppRow() for app in apps}
        self.title = title
        self.quiet = quiet
        self.doing = "starting"
        self.step = self.steps = 0
        self._pace = Pace()
        self.time_left: Callable[[], float | None] = lambda: None
        """The seconds that are left of a limit, None without one."""
        self._started = time.monotonic()
        self._last_line = -math.inf
        self._live = None
        if sys.stderr.isatty() and not quiet:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                get_renderable=self._table,
                console=Console(stderr=True),
                refresh_per_second=4,
                transient=True,
            )

    def __enter__(self) -> CampaignView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def failed(self) -> int:
        return sum(row.failed for row in self.rows.values())

    def seconds_left(self) -> float | None:
        """Estimate from the pace so far, at most what a limit leaves; None where neither says."""
        left, limit = self._pace.seconds_left(), self.time_left()
        if left is not None and limit is not None:
            left = min(left, limit)
        return None if left is None or math.isinf(left) else left

    def see(self, event: Event) -> None:
        """Process one event."""
        if isinstance(event, Doing):
            self.doing, self.step, self.steps = event.text, event.step, event.steps
            self._pace.see(event.part, event.step, event.steps)
            self._line()
        elif isinstance(event, Dropped):
            row = self.rows[event.app]
            row.dropped = event.reason
            if event.reason not in row.reasons:
                row.failed += 1
                row.reasons.append(event.reason)
        elif isinstance(event, Short):
            self._say(
                f"{event.app} runs for {output.format_seconds(event.wall_s)}. Below "
                f"{output.format_seconds(event.needed_s)} some surrogates may not be seen next to "
                "it, and no program next to it can be predicted. Ctrl-C stops here; a larger "
                "input, or a loop in its command, makes it longer."
            )
        elif isinstance(event, Signature):
            # That of an inducer application that is not profiled itself has no row.
            row = self.rows.get(event.app, AppRow())
            readings = event.fingerprint.surrogates
            lacking = {name for name, reading in readings.items() if not reading.ok}
            row.lacking = row.lacking & lacking if row.signatures else lacking
            row.signatures += 1
        elif isinstance(event, Run):
            self._run(event)

    def _run(self, run: Run) -> None:
        row = self.rows.get(run.app, AppRow())
        row.measured.append(run)
        if not run.ok:
            row.failed += 1
            row.reasons.append(run.error or "no metric")

    def _say(self, text: str) -> None:
        console = output.error_console() if self._live is None else self._live.console
        console.print(text, markup=False, highlight=False)

    def _line(self) -> None:
        if self.quiet or self._live is not None:
            return
        now = time.monotonic()
        if not output.is_line_due(now, self._last_line, self._started):
            return
        self._last_line = now
        left = self.seconds_left()
        rest = "" if left is None else f", about {left / 60:.1f} min left"
        print(  # noqa: T201 (progress for a log)
            f"[{self.step}/{self.steps}{rest}] {self.doing}", file=sys.stderr, flush=True
        )

    def _table(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        left = self.seconds_left()
        rest = "" if left is None else f" · about {left / 60:.1f} min left"
        columns = ("application", "solo", "noise", "worst slowdown", "runs", "failed")
        rows = []
        for app, row in self.rows.items():
            solo = solo_time(row.solo)
            rows.append(
                (
                    app,
                    None if row.solo_metric is None else f"{row.solo_metric:.3g}",
                    None if solo is None or solo.noise_pct is None else per_cent(solo.noise_pct),
                    "left out" if row.dropped else worst_text(row.worst, row.worst_at_least),
                    row.runs,
                    row.failed or "",
                )
            )
        title = f"{self.title} · {self.step}/{self.steps}{rest}"
        table = output.table(
            columns, rows, title=title, right=columns[1:], minor=("runs", "noise", "failed")
        )
        return Group(table, Text(self.doing, style="dim"))


def worst_text(worst: float | None, at_least: bool) -> str | None:
    """Return the largest slowdown of a row for a table."""
    return None if worst is None else format_slowdown(worst, at_least)
