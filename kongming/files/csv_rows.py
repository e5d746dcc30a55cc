"""Rows of a CSV file: an error names the row and the column."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kongming.files.missing_file import unreadable
from kongming.quantities import DECIMAL_MARK, THOUSANDS, has_thousands, with_point
from kongming.records.errors import InputError


@dataclass(frozen=True, slots=True)
class Row:
    """One row of ``file``; ``number`` counts from 1, below the header. ``places`` are those of the
    cells of columns that have a name."""

    file: str
    number: int
    line: int
    places: dict[str, int]
    cells: Sequence[str]

    def where(self, *columns: str) -> str:
        listed = ", ".join(repr(column) for column in columns)
        noun = "column" if len(columns) == 1 else "columns"
        return f"{self.file}: row {self.number} (line {self.line}), {noun} {listed}"

    def text(self, column: str) -> str:
        """The cell, stripped; empty where the table has no such column."""
        place = self.places.get(column, -1)
        return self.cells[place].strip() if 0 <= place < len(self.cells) else ""

    def name(self, column: str) -> str:
        """Raises InputError where the cell is empty."""
        text = self.text(column)
        if not text:
            raise InputError("is empty.", field=self.where(column), allowed="a name")
        return text

    def number_in(
        self, column: str, *, least: float = 0.0, above: bool = False, integer: bool = False
    ) -> float:
        """A finite number of ``least`` or more (``above``: not ``least`` itself).

        Raises:
            InputError: the cell is empty, no number, or out of range.
        """
        text = self.text(column)
        allowed = f"a {'whole ' if integer else ''}number {'above' if above else 'from'} {least:g}"
        value = plain_number(text)
        if math.isnan(value):
            what = "is not a number." if text else "is empty."
            raise InputError(
                what,
                field=self.where(column),
                value=text,
                allowed=allowed,
                hint=hint_of_commas(text),
            )
        if (
            not math.isfinite(value)
            or value < least
            or (above and value == least)
            or (integer and value != int(value))
        ):
            raise InputError(
                "is out of range.", field=self.where(column), value=text, allowed=allowed
            )
        return value

    def optional(self, column: str, *, least: float = 0.0, above: bool = True) -> float | None:
        """Parse a number as ``number_in`` does, but return None for an empty cell or a column that
        is not there."""
        if not self.text(column):
            return None
        return self.number_in(column, least=least, above=above)


def plain_number(text: str) -> float:
    """Return the number that a text is; NaN if it is none. What only Python takes for numbers is
    none: 1_000 and the digits of other scripts."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def read_rows(
    path: Path,
    required: Sequence[str],
    known: Collection[str] | None = None,
    *,
    hints: Mapping[str, str] | None = None,
    separators: str = ",",
    columns: str = "",
) -> Iterator[Row]:
    """The rows of a CSV with a header, one by one; empty lines are skipped.

    Args:
        known: all columns that there may be; None for any.
        hints: by required column, the way out where it is missing.
        separators: that which the header has most of separates cells.
        columns: what the columns are, for who has no such file yet; default: the required ones.

    Raises:
        InputError: the file cannot be read, a column is missing, unknown or there twice, or a
            row has more or fewer cells than the header.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            header = next((line for line in lines if line.strip()), "")
            lines.seek(0)
            separator = max(separators, key=header.count)
            yield from _rows(str(path), lines, separator, required, known, hints or {})
    except OSError as error:
        needed = columns or ", ".join(required)
        raise unreadable(path, error, needed and f"It is a CSV of {needed}.") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (at byte {error.start}), which a table has to be."
        ) from error
    except csv.Error as error:
        raise InputError(f"{path} is no CSV: {error}.") from error


def _rows(
    file: str,
    lines: Iterable[str],
    separator: str,
    required: Sequence[str],
    known: Collection[str] | None,
    hints: Mapping[str, str],
) -> Iterator[Row]:
    places: dict[str, int] | None = None
    number = width = 0
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if places is None:
            places = _header(file, [cell.strip() for cell in cells], required, known, hints)
            # Columns without a name, as spreadsheets leave them, are cells too.
            width = len(cells)
            continue
        number += 1
        row = Row(file, number, reader.line_num, places, cells)
        if len(cells) != width:
            place = min(len(cells), width) + 1
            raise InputError(
                f"has {len(cells)} cells; the header has {width}.",
                field=f"{file}: row {number} (line {reader.line_num}), column {place}",
            )
        yield row
    if places is None:
        raise InputError(f"{file} is empty.", hint=f"A header is needed: {','.join(required)}")


def _header(
    file: str,
    names: list[str],
    required: Sequence[str],
    known: Collection[str] | None,
    hints: Mapping[str, str],
) -> dict[str, int]:
    for name in names:
        if name and names.count(name) > 1:
            raise InputError(
                "is there twice.",
                field=f"{file}: header (row 0), column {name!r}",
                value=", ".join(names),
                allowed="columns of different names",
            )
        if known is not None and name not in known:
            raise InputError(
                "is not known.",
                field=f"{file}: header (row 0), column {name!r}",
                allowed=", ".join(known),
                hint=_separated(names),
            )
    for name in required:
        if name not in names:
            raise InputError(
                "is missing.",
                field=f"{file}: header (row 0), column {name!r}",
                value=", ".join(names),
                allowed=f"a header with {', '.join(dict.fromkeys(required))}",
                hint=_separated(names) or hints.get(name),
            )
    return {name: place for place, name in enumerate(names) if name}


def unnamed_columns(rows: Iterable[Row]) -> list[int]:
    """Return which columns, from 1, have a cell that is not empty but no name. Spreadsheets leave
    empty ones behind the last."""
    used: set[int] = set()
    unnamed: set[int] | None = None
    for row in rows:
        if unnamed is None:
            unnamed = set(range(len(row.cells))) - set(row.places.values())
        used |= {place for place in unnamed - used if row.cells[place].strip()}
    return sorted(place + 1 for place in used)


def refuse_unnamed(rows: Sequence[Row], hint: str) -> None:
    """Raise InputError for a column that has a cell that is not empty but no name."""
    for place in unnamed_columns(rows)[:1]:
        raise InputError(
            "has cells, but no name.",
            field=f"{rows[0].file}: header (row 0), column {place}",
            value="",
            allowed="a name",
            hint=hint,
        )


def hint_of_commas(text: str) -> str | None:
    """Return the way out for a number with commas; None for other text."""
    if has_thousands(text):
        return THOUSANDS
    point = with_point(text)
    return f"Write {point}: {DECIMAL_MARK[0].lower()}{DECIMAL_MARK[1:]}" if point else None


def _separated(names: Sequence[str]) -> str | None:
    """Return the way out where the whole header is one cell, as spreadsheets of many countries
    write it."""
    if len(names) == 1 and any(separator in names[0] for separator in ";\t"):
        return f"Separate the cells by commas, and write numbers as 0.5. {DECIMAL_MARK}"
    return None
