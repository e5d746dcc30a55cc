"""A CSV of runs, read with care: what is wrong is told with its row and its column."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kongming.errors import InputError
from kongming.scale.points import Points, Runs

__all__ = ["Columns", "Table", "read_table"]


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of columns. ``scale``: None for the default name, which may be absent (scale 1);
    the last three are used only when they are named."""

    machines: str = "machines"
    scale: str | None = None
    seconds: str = "seconds"
    iterations: str | None = None
    group: str | None = None
    machine_type: str | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """A checked table: its runs by (group, machine type), None where there is no such column.

    ``identities`` are the values of a column ``identity``, as ``kongming scale run`` writes it.
    """

    path: str
    parts: Mapping[tuple[str | None, str | None], Runs]
    has_scale: bool
    iterated: bool
    identities: Mapping[tuple[str | None, str | None], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    line: int
    cells: Mapping[str, str]

    def where(self, column: str) -> str:
        return f"row {self.number} (line {self.line}), column {column!r}"


def read_table(path: str | Path, columns: Columns = Columns()) -> Table:
    """Read runs from a CSV with a header. Rows count from 1, below the header.

    Raises:
        InputError: the file cannot be read, a column is missing, a cell is empty, no number or
            out of range, or the runs can tell nothing of scaling (with row and column).
    """
    file = Path(path)
    header, rows = _read(file)
    _require(header, columns, file)
    scale_column = columns.scale or ("scale" if "scale" in header else None)
    kept: dict[tuple[str | None, str | None], list[tuple[_Row, tuple[float, ...]]]] = {}
    for row in rows:
        machines = _number(row, columns.machines, least=1.0)
        scale = 1.0 if scale_column is None else _number(row, scale_column)
        seconds = _number(row, columns.seconds)
        turns = 1.0 if columns.iterations is None else _number(row, columns.iterations, least=1.0)
        key = (_label(row, columns.group), _label(row, columns.machine_type))
        kept.setdefault(key, []).append((row, (machines, scale, seconds, turns)))
    if not kept:
        raise InputError(
            "has a header and no row.",
            field=f"{file}: row 1, column {columns.seconds!r}",
            hint="Each run is one row; a scale model needs runs at two machine counts or more.",
        )
    parts, identities = {}, {}
    for key, found in kept.items():
        _check_varied(found, columns, key)
        values = np.array([numbers for _, numbers in found], dtype=np.float64)
        parts[key] = Runs(Points(values[:, 0], values[:, 1], values[:, 3]), values[:, 2])
        names = dict.fromkeys(row.cells.get("identity", "") for row, _ in found)
        identities[key] = tuple(name for name in names if name)
    return Table(
        path=str(file),
        parts=parts,
        has_scale=scale_column is not None,
        iterated=columns.iterations is not None,
        identities=identities,
    )


def _read(file: Path) -> tuple[list[str], list[_Row]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InputError(f"There is no file {file}.") from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file} is not UTF-8 text (at byte {error.start}), which a table has to be."
        ) from error
    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    separator = max(",;\t", key=first.count)
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    header: list[str] = []
    rows: list[_Row] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = [cell.strip() for cell in cells]
                continue
            number = len(rows) + 1
            if len(cells) > len(header):
                raise InputError(
                    f"has {len(cells)} cells; the header has {len(header)}.",
                    field=f"row {number} (line {reader.line_num}), column {len(header) + 1}",
                )
            named = dict(zip(header, (cell.strip() for cell in cells), strict=False))
            rows.append(_Row(number, reader.line_num, named))
    except csv.Error as error:
        raise InputError(f"{file}: line {reader.line_num} is no CSV: {error}.") from error
    if not header:
        raise InputError(
            f"{file} is empty.", hint="A table has a header, as machines,scale,seconds."
        )
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise InputError("is there twice.", field=f"header (row 0), column {twice!r}")
    return header, rows


def _require(header: Sequence[str], columns: Columns, file: Path) -> None:
    needed = (
        (columns.machines, "--machines-column"),
        (columns.seconds, "--time-column"),
        (columns.scale, "--scale-column"),
        (columns.iterations, "--iterations-column"),
        (columns.group, "--group"),
        (columns.machine_type, "--type-column"),
    )
    for name, option in needed:
        if name is not None and name not in header:
            raise InputError(
                f"{file} has no such column.",
                field=f"header (row 0), column {name!r}",
                found=", ".join(header),
                hint=f"Name the column with {option}.",
            )


def _number(row: _Row, column: str, *, least: float = 0.0) -> float:
    """A finite number above 0, and not below ``least``."""
    text = row.cells.get(column, "")
    allowed = "a number above 0" if least == 0.0 else f"a number from {least:g} upward"
    try:
        # What Python takes for numbers besides: 1_000 and the digits of other scripts.
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if math.isnan(value):
        what = "is empty." if not text else "is no number."
        raise InputError(what, field=row.where(column), found=text, allowed=allowed)
    if not math.isfinite(value) or value <= 0.0 or value < least:
        raise InputError("is out of range.", field=row.where(column), found=text, allowed=allowed)
    return value


def _label(row: _Row, column: str | None) -> str | None:
    if column is None:
        return None
    text = row.cells.get(column, "")
    if not text:
        raise InputError("is empty.", field=row.where(column), allowed="a name")
    return text


def _check_varied(
    found: Sequence[tuple[_Row, tuple[float, ...]]],
    columns: Columns,
    key: tuple[str | None, str | None],
) -> None:
    """One point, or one machine count, tells nothing of machines."""
    names = [name for name in key if name is not None]
    of = f" of {' on '.join(names)}" if names else ""
    first, last = found[0][0], found[-1][0]
    counts = {numbers[0] for _, numbers in found}
    if len({numbers[:2] for _, numbers in found}) == 1:
        raise InputError(
            f"is the only configuration{of}: nothing can be told of scaling from one point.",
            field=first.where(columns.machines),
            found=found[0][1][0],
            hint="Add runs at other machine counts, and at other scales.",
        )
    if len(counts) == 1:
        raise InputError(
            f"all runs{of} are at one machine count: nothing can be told of others.",
            field=f"rows {first.number} to {last.number}, column {columns.machines!r}",
            found=next(iter(counts)),
            hint="Add runs at two machine counts or more.",
        )
