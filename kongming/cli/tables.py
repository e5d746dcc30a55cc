"""Tables for people that never shorten a name or a number, however narrow the terminal is.

Where a table is too wide, its headings and its prose are folded, then the least important columns
are left out, which is said below it, and at last each row is printed as a few lines of its own.
What is shown is shown whole. ``--wide`` prints all columns next to each other, whatever the width.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from kongming.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table as RichTable

WIDE = "kongming.wide"
"""Key of ``--wide`` in the context's ``meta``."""

_PROSE = 24
"""A cell longer than this that has spaces is prose, which may be folded."""

_FOLDED = 20
"""Prose is not folded to fewer columns than this."""

_LINES = 4
"""Lines that a row of its own lines is brought down to, where enough columns may be left out."""

_BETWEEN, _EDGES = 3, 2
"""Columns that rich puts between two columns, and around a table."""


@dataclass(frozen=True, slots=True)
class Column:
    """Widths of a column: natural, of its longest word, and of its heading likewise."""

    width: int
    word: int
    heading: int
    heading_word: int
    empty: bool = False

    @property
    def prose(self) -> bool:
        return self.width > _PROSE and self.word < self.width

    @property
    def full(self) -> int:
        return max(self.width, self.heading)

    @property
    def low(self) -> int:
        """The width with a folded heading."""
        return max(self.width, self.heading_word)

    @property
    def least(self) -> int:
        """The width below which a word or a number would be cut."""
        if not self.prose:
            return self.low
        return max(self.word, self.heading_word, min(self.width, _FOLDED))


def layout(
    columns: Sequence[Column], minor: Sequence[int], available: int
) -> dict[int, int] | None:
    """Width of each column that is shown, by its place; None where not even the important ones fit
    next to each other. ``minor`` are places, the least important first. Pure."""
    shown = list(range(len(columns)))
    leaving = _leaving(columns, minor)
    while True:
        widths = _fitted([columns[place] for place in shown], available)
        if widths is not None:
            return dict(zip(shown, widths, strict=True))
        if not leaving:
            return None
        shown.remove(leaving.pop(0))


def _leaving(columns: Sequence[Column], minor: Sequence[int]) -> list[int]:
    """The places of ``minor`` in the order in which they leave: first those without content."""
    return sorted(minor, key=lambda place: not columns[place].empty)


def _fitted(columns: Sequence[Column], available: int) -> list[int] | None:
    room = available - _EDGES - _BETWEEN * (len(columns) - 1)
    for widths in ([column.full for column in columns], [column.low for column in columns]):
        if sum(widths) <= room:
            return widths
    widths = [column.least for column in columns]
    left = room - sum(widths)
    if left < 0:
        return None
    # What is left goes to the prose, to the narrowest first.
    growing = [place for place, column in enumerate(columns) if widths[place] < column.low]
    while left > 0 and growing:
        place = min(growing, key=widths.__getitem__)
        widths[place] += 1
        left -= 1
        if widths[place] == columns[place].low:
            growing.remove(place)
    return widths


@dataclass(frozen=True)
class Table:
    """A table to be printed on a rich console; see ``kongming.cli.output.table``."""

    columns: tuple[str, ...]
    rows: tuple[tuple[RenderableType, ...], ...]
    title: str | None
    right: frozenset[str]
    minor: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        columns = [self._measured(place, console, options) for place in range(len(self.columns))]
        if is_wide():
            yield self._side_by_side(dict(enumerate(column.full for column in columns)))
            return
        minor = [self.columns.index(name) for name in self.minor]
        widths = layout(columns, minor, options.max_width)
        if widths is None:
            # Columns without content take no line.
            filled = [place for place, column in enumerate(columns) if not column.empty]
            leaving = [place for place in minor if place in filled][: max(0, len(filled) - _LINES)]
            shown = [place for place in filled if place not in leaving]
            yield from self._stacked(options.max_width, shown)
        else:
            leaving = [p for p in range(len(columns)) if p not in widths]
            yield self._side_by_side(widths)
        left_out = [self.columns[place] for place in sorted(leaving) if self.columns[place]]
        if left_out:
            yield Text(f"Not shown: {', '.join(left_out)}. --wide shows all.", style="dim")

    def _measured(self, place: int, console: Console, options: ConsoleOptions) -> Column:
        from rich.measure import Measurement
        from rich.text import Text

        wide = options.update(width=100_000)
        cells = [row[place] for row in self.rows]
        widths, words, texts = [0], [0], []
        for cell in cells:
            if isinstance(cell, Text):
                widths += [len_of(line) for line in cell.plain.splitlines()]
                words += [len_of(word) for word in cell.plain.split()]
                texts.append(cell.plain)
            else:
                measured = Measurement.get(console, wide, cell)
                widths.append(measured.maximum)
                words.append(measured.maximum)
                texts.append("x")
        heading = self.columns[place]
        return Column(
            width=max(widths),
            word=max(words),
            heading=len_of(heading),
            heading_word=max([0, *map(len_of, heading.split())]),
            empty=all(text in ("", "-") for text in texts),
        )

    def _side_by_side(self, widths: dict[int, int]) -> RichTable:
        from rich import box
        from rich.table import Table as RichTable

        table = RichTable(
            title=self.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
        )
        for place, width in widths.items():
            name = self.columns[place]
            justify: Literal["left", "right"] = "right" if name in self.right else "left"
            # Rich would take some of the width of another column.
            table.add_column(
                name, justify=justify, min_width=width, max_width=max(1, width), overflow="fold"
            )
        for row in self.rows:
            table.add_row(*(row[place] for place in widths))
        return table

    def _stacked(self, available: int, shown: Sequence[int]) -> Iterable[RenderableType]:
        from rich.table import Table as RichTable
        from rich.text import Text

        if self.title:
            yield Text(self.title, style="italic", overflow="fold")
        longest = max((len_of(self.columns[place]) for place in shown), default=0)
        for row in self.rows:
            grid = RichTable.grid(padding=(0, 2, 0, 0))
            grid.add_column(max_width=min(longest, available // 2), style="bold", overflow="fold")
            grid.add_column(overflow="fold")
            for name, cell in ((self.columns[place], row[place]) for place in shown):
                if not (isinstance(cell, Text) and cell.plain in ("", "-")):
                    grid.add_row(Text(name), cell)
            yield grid
            yield Text("")


def make_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str | None,
    right: Collection[str],
    minor: Sequence[str],
) -> Table:
    """A table of cells as ``kongming.cli.output.table`` takes them."""
    from rich.text import Text

    unknown = set(minor) - set(columns)
    if unknown:
        raise ValueError(f"no such columns: {sorted(unknown)}")
    cells = tuple(
        tuple(
            cell
            if hasattr(cell, "__rich_console__") or isinstance(cell, Text)
            else Text("-" if cell is None else printable(str(cell)), overflow="fold")
            for cell in row
        )
        for row in rows
    )
    return Table(tuple(columns), cells, title, frozenset(right), tuple(minor))


def is_wide() -> bool:
    """Return whether the command was given ``--wide``."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(WIDE))


def len_of(text: str) -> int:
    """Columns that a text takes in a terminal."""
    from rich.cells import cell_len

    return cell_len(text)
