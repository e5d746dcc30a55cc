"""Output of commands: JSON for programs, tables and progress for people."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from kongming import quantities
from kongming.cli import failures
from kongming.printable import printable
from kongming.processes.entry import json_text
from kongming.quantities import per_cent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from kongming.cli.tables import Table

format_bandwidth = quantities.format_bandwidth
format_bytes = quantities.format_bytes
format_duration = quantities.format_duration
format_seconds = quantities.format_seconds

PIPE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe, unless COLUMNS says otherwise."""

WIDE_WIDTH = 2000
"""Columns with ``--wide``: the terminal breaks what is longer than its own lines."""

LINE_EVERY_S = 10.0
"""Least seconds between two lines of progress where stderr is not a terminal."""

LINE_SHARE = 0.05
"""Least share of the time so far between two such lines: a day is 130 of them and not 8,640."""


def is_line_due(now: float, last: float, began: float) -> bool:
    """Return whether a line of progress may follow the one at ``last``; monotonic seconds. Pure."""
    return now - last >= max(LINE_EVERY_S, LINE_SHARE * (now - began))


def emit_json(obj: Any) -> None:
    """Print ``obj`` as the command's one JSON document on stdout.

    Raises:
        ValueError: it holds NaN or an infinity, which JSON has no word for.
    """
    text = json_text(obj)
    failures.note_document()
    click.echo(text)


def console() -> Console:
    """Rich console on stdout, for people."""
    return _console(stderr=False)


def error_console() -> Console:
    """Rich console on stderr: progress, warnings, remarks that are not part of a JSON document."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from kongming.cli import tables

    class PrintableConsole(Console):
        """Obeys the styles of rich, and no escape sequence in what it prints."""

        def on_broken_pipe(self) -> None:
            # Ends as any command does whose reader went away; rich would end it with status 1.
            raise BrokenPipeError

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                if segment.control or segment.text == "\n":
                    yield segment
                else:
                    yield Segment(printable(segment.text, lines=True), segment.style)

    console = PrintableConsole(stderr=stderr, highlight=False, emoji=False)
    # Rich takes a pipe for 80 columns and cuts names off.
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    if tables.is_wide():
        console.width = WIDE_WIDTH
    return console


def print_warnings(texts: Iterable[str], label: str = "warning") -> None:
    """Print warnings on stderr, folded between words; without a known width each is one line."""
    console = error_console()
    folded = console.is_terminal or "COLUMNS" in os.environ
    for text in texts:
        console.print(f"{label}: {text}", markup=False, soft_wrap=not folded)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    right: Collection[str] = (),
    minor: Sequence[str] = (),
) -> Table:
    """A table of ``rows``; columns named in ``right`` are aligned to the right.

    Cells are shown as they are (no markup), None as a dash. A cell may be a rich renderable. On a
    narrow terminal the columns of ``minor`` are left out first, in this order.
    """
    from kongming.cli import tables

    return tables.make_table(columns, rows, title, right, minor)


class Progress(Protocol):
    """Messages of a command while it works."""

    def update(
        self,
        done: float | None = None,
        *,
        total: float | None = None,
        text: str | None = None,
    ) -> None:
        """``done`` of ``total`` steps; ``text`` replaces the description."""


@contextmanager
def progress(text: str, total: float | None = None) -> Iterator[Progress]:
    """Progress on stderr: a bar on a terminal, otherwise a line now and then."""
    if not sys.stderr.isatty():
        yield _Lines(text, total)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        console=error_console(),
        transient=True,
    ) as bars:
        yield _Bar(bars, bars.add_task(text, total=total))


class _Bar:
    def __init__(self, bars: Bars, task: TaskID) -> None:
        self._bars, self._task = bars, task

    def update(
        self, done: float | None = None, *, total: float | None = None, text: str | None = None
    ) -> None:
        self._bars.update(self._task, completed=done, total=total, description=text)


class _Lines:
    def __init__(self, text: str, total: float | None) -> None:
        self._text, self._total, self._done = text, total, 0.0
        self._last = self._began = time.monotonic()

    def update(
        self, done: float | None = None, *, total: float | None = None, text: str | None = None
    ) -> None:
        self._done = self._done if done is None else done
        self._total = self._total if total is None else total
        self._text = self._text if text is None else text
        now = time.monotonic()
        if not is_line_due(now, self._last, self._began):
            return
        self._last = now
        share = f": {per_cent(100.0 * self._done / self._total, '.0f')}" if self._total else ""
        click.echo(printable(f"{self._text}{share}"), err=True)
