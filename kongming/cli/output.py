"""What commands print: JSON for programs, tables and progress for people."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from kongming.cli import failures

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID
    from rich.table import Table

PIPE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe, unless COLUMNS says otherwise."""

LINE_EVERY_S = 10.0
"""Seconds between two lines of progress where stderr is not a terminal."""


def emit_json(obj: Any) -> None:
    """Print ``obj`` as the command's one JSON document on stdout.

    Raises:
        ValueError: it holds NaN or an infinity, which JSON has no word for.
    """
    text = json.dumps(obj, indent=2, allow_nan=False)
    failures.note_document()
    click.echo(text)


def console() -> Console:
    """Rich console on stdout, for people."""
    return _console(stderr=False)


def error_console() -> Console:
    """Rich console on stderr: progress, warnings, remarks beside a JSON document."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, emoji=False)
    # Rich takes a pipe for 80 columns and cuts names off.
    if not made.is_terminal and "COLUMNS" not in made._environ:
        made.width = PIPE_WIDTH
    return made


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    right: Collection[str] = (),
) -> Table:
    """A table of ``rows``; columns named in ``right`` are aligned to the right.

    Cells are shown as they are (no markup), None as a dash. A cell may be a rich renderable.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left")
    for row in rows:
        made.add_row(
            *(
                cell
                if hasattr(cell, "__rich_console__")
                else Text("-" if cell is None else str(cell))
                for cell in row
            )
        )
    return made


def format_seconds(seconds: float | None) -> str:
    """``12.3 ns``, ``4.56 us``, ``789 ms``, ``1.50 s``: three digits in a familiar unit."""
    if seconds is None:
        return "-"
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        # 999.5 of a unit would be shown as 1000: that is one of the next.
        if abs(seconds) * factor < 999.5:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds)} s"


def format_bandwidth(bytes_per_second: float | None) -> str:
    """``31.2 GB/s`` (powers of ten, as disks and STREAM are told)."""
    if bytes_per_second is None:
        return "-"
    for factor, unit in ((1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s")):
        if bytes_per_second / factor < 999.5:
            return f"{_three_digits(bytes_per_second / factor)} {unit}"
    return f"{_three_digits(bytes_per_second / 1e9)} GB/s"


def format_bytes(count: float | None) -> str:
    """``1.00 MiB`` (powers of two, as memory and files are told)."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1023.5:
            return f"{_three_digits(value) if unit != 'B' else int(value)} {unit}"
        value /= 1024.0
    return f"{_three_digits(value)} GiB"


def format_duration(seconds: float) -> str:
    """``45 s``, ``2 min 05 s``, ``1 h 02 min``: a time to wait for."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


class Progress(Protocol):
    """What a command tells while it works."""

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
        TextColumn("{task.percentage:>3.0f}%"),
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
        self._last = time.monotonic()

    def update(
        self, done: float | None = None, *, total: float | None = None, text: str | None = None
    ) -> None:
        self._done = self._done if done is None else done
        self._total = self._total if total is None else total
        self._text = self._text if text is None else text
        now = time.monotonic()
        if now - self._last < LINE_EVERY_S:
            return
        self._last = now
        share = f": {100.0 * self._done / self._total:.0f}%" if self._total else ""
        click.echo(f"{self._text}{share}", err=True)
