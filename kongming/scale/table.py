"""Read and validate a CSV of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kongming.files.csv_rows import Row, read_rows
from kongming.records.errors import InputError
from kongming.scale.context_columns import MOST, Context, Value, number, out_of_range
from kongming.scale.points import (
    ITERATIONS,
    MACHINES,
    SCALES,
    SECONDS,
    Integers,
    Points,
    Runs,
)

STATUS = "status"
GOOD = ("", "ok", "done", "completed", "success", "succeeded")
FAILED = ("failed", "timeout", "error", "oom", "killed")
"""What a column ``status`` says of runs that count and of those that are left out, whatever their
time: ``kongming explore run`` writes ok, failed and timeout."""

SCRIPTS = "+"
"""Between a program's identity and the digest of its scripts, as ``kongming explore run`` writes
them; rows from before scripts counted have none."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Column names. ``scale``: None for the default name, which may be absent (scale 1); the last
    three columns are used only if they are named."""

    machines: str = "machines"
    scale: str | None = None
    seconds: str = "seconds"
    iterations: str | None = None
    group: str | None = None
    machine_type: str | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """A validated table: runs by (group, machine type), None where there is no such column.

    ``identities`` are those of the programs in the column ``identity`` that ``kongming scale run``
    writes; ``failed`` counts the rows that were left out as their runs failed.
    """

    path: str
    parts: Mapping[tuple[str | None, str | None], Runs]
    has_scale: bool
    iterated: bool
    identities: Mapping[tuple[str | None, str | None], tuple[str, ...]]
    failed: Mapping[tuple[str | None, str | None], int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True)
class ContextTable:
    """The runs of one job in all of its contexts: ``owner`` (n,) is the number of each run's;
    ``failed`` counts the rows that were left out as their runs failed."""

    runs: Runs
    columns: tuple[str, ...]
    contexts: tuple[Context, ...]
    owner: Integers
    iterated: bool = False
    group: str | None = None
    type_column: str | None = None
    failed: int = 0


def read_table(path: str | Path, columns: Columns = Columns()) -> Table:
    """Read runs from a CSV with a header. Rows count from 1, below the header.

    Raises:
        InputError: the file cannot be read, a column is missing, a cell is empty, not a number or
            out of range, a status unknown, or the runs do not suffice for a scale model (with row
            and column).
    """
    file = Path(path)
    hints = _hints(columns)
    scale_column = columns.scale
    rows_of: dict[tuple[str | None, str | None], list[tuple[Row, tuple[float, ...]]]] = {}
    failed: Counter[tuple[str | None, str | None]] = Counter()
    named = {columns.group, columns.machine_type}
    for row in read_rows(file, tuple(hints), hints=hints, separators=",;\t"):
        if scale_column is None and "scale" in row.places:
            scale_column = "scale"
        group = None if columns.group is None else row.name(columns.group)
        machine_type = None if columns.machine_type is None else row.name(columns.machine_type)
        if STATUS not in named and _has_failed(row):
            failed[group, machine_type] += 1
            continue
        numbers = _numbers(row, columns, scale_column)
        rows_of.setdefault((group, machine_type), []).append((row, numbers))
    if not rows_of:
        raise _empty(file, columns, failed.total())
    parts, identities = {}, {}
    for key, rows in rows_of.items():
        _check_varied(rows, columns, key)
        values = np.array([numbers for _, numbers in rows], dtype=np.float64)
        parts[key] = Runs(Points(values[:, 0], values[:, 1], values[:, 3]), values[:, 2])
        identities[key] = _programs([row.text("identity") for row, _ in rows])
    return Table(
        path=str(file),
        parts=parts,
        has_scale=scale_column is not None,
        iterated=columns.iterations is not None,
        identities=identities,
        failed=failed,
    )


def read_context_table(
    path: str | Path, columns: Columns, names: Sequence[str]
) -> tuple[ContextTable, ...]:
    """Read runs in contexts, one table for each group. A column has numbers
    or names, never both; a column of machine types is one of the contexts' columns.

    Raises:
        InputError: as ``read_table``, or a column is named twice, is not of contexts, has a name
            with '=', has both numbers and names, or only tells the machine count.
    """
    file = Path(path)
    named = _hints(columns)
    if columns.machine_type is not None and columns.machine_type not in names:
        names = (*names, columns.machine_type)
    used = {
        columns.machines: "machine counts",
        columns.seconds: "times",
        columns.scale or "scale": "scales",
        columns.group: "jobs",
        columns.iterations: "iterations",
    }
    for name in names:
        _check_name(name, names, used)
    hints = named | dict.fromkeys(
        names, "Name columns of the table with --context; commas separate them."
    )
    scale_column = columns.scale
    rows_of: dict[str | None, list[tuple[Row, tuple[float, ...], tuple[str, ...]]]] = {}
    failed: Counter[str | None] = Counter()
    for row in read_rows(file, tuple(hints), hints=hints, separators=",;\t"):
        if scale_column is None and "scale" in row.places:
            scale_column = "scale"
        group = None if columns.group is None else row.name(columns.group)
        if STATUS not in (*names, columns.group) and _has_failed(row):
            failed[group] += 1
            continue
        texts = tuple(_value(row, name) for name in names)
        rows_of.setdefault(group, []).append((row, _numbers(row, columns, scale_column), texts))
    if not rows_of:
        raise _empty(file, columns, failed.total())
    tables = []
    for group, rows in rows_of.items():
        _check_machines([(row, numbers) for row, numbers, _ in rows], columns, (group, None))
        cells = list(zip(*(texts for _, _, texts in rows), strict=True))
        values = [
            column if name == columns.machine_type else _values(name, column, rows)
            for name, column in zip(names, cells, strict=True)
        ]
        machines = [numbers[0] for _, numbers, _ in rows]
        for name, column in zip(names, values, strict=True):
            option = "--type-column" if name == columns.machine_type else "--context"
            _check_effect(option, name, column, machines)
        contexts: dict[Context, int] = {}
        owner = [contexts.setdefault(row, len(contexts)) for row in zip(*values, strict=True)]
        numbers = np.array([each for _, each, _ in rows], dtype=np.float64)
        tables.append(
            ContextTable(
                runs=Runs(Points(numbers[:, 0], numbers[:, 1], numbers[:, 3]), numbers[:, 2]),
                columns=tuple(names),
                contexts=tuple(contexts),
                owner=np.array(owner, dtype=np.intp),
                iterated=columns.iterations is not None,
                group=group,
                type_column=columns.machine_type,
                failed=failed[group],
            )
        )
    return tuple(tables)


def _programs(identities: Sequence[str]) -> tuple[str, ...]:
    """Return the identities that differ, in their order; one that says nothing of scripts is that
    of the same program with any."""
    names = dict.fromkeys(name for name in identities if name)
    with_scripts = {name.partition(SCRIPTS)[0] for name in names if SCRIPTS in name}
    return tuple(name for name in names if name not in with_scripts)


def _check_name(name: str, names: Sequence[str], used: Mapping[str | None, str]) -> None:
    """Raise InputError for a column of contexts that is named twice, is ``used`` for something
    else, or cannot be named in a question."""
    if list(names).count(name) > 1:
        raise InputError(
            "is there twice.", field="--context", value=name, hint=f"Name {name} only once."
        )
    if name in used:
        raise InputError(
            "has another meaning already.",
            field="--context",
            value=name,
            hint=f"It is the column of {used[name]}: leave it out of --context.",
        )
    if "=" in name:
        raise InputError(
            "has a '=' in its name, which ends the name in a question (COLUMN=VALUE).",
            field="--context",
            value=name,
            hint="Rename the column in the table.",
        )


def _has_failed(row: Row) -> bool:
    """Return whether a run failed, by its status.

    Raises:
        InputError: the status is neither that of a good run nor of a failed one.
    """
    word = row.text(STATUS).lower()
    if word not in (*GOOD, *FAILED):
        raise InputError(
            "is no known status.",
            field=row.where(STATUS),
            value=row.text(STATUS),
            allowed=", ".join((*GOOD[1:], *FAILED)),
            hint="Correct the cell, or give a column that says something else another name.",
        )
    return word in FAILED


def _value(row: Row, name: str) -> str:
    """Return a context's value as text."""
    text = row.text(name)
    if not text:
        raise InputError(
            "is empty.",
            field=row.where(name),
            value=text,
            allowed="a number or a name",
            hint="Fill the cell or remove its row; a name as 'none' is allowed among names.",
        )
    if _is_not_finite(text):
        raise InputError(
            "is not a finite number.",
            field=row.where(name),
            value=text,
            allowed="a finite number or a name",
            hint="Correct the cell or remove its row.",
        )
    return text


def _is_not_finite(text: str) -> bool:
    """Return whether a text is a number without a value: nan, inf or 1e999."""
    try:
        return not np.isfinite(float(text))
    except ValueError:
        return False


def _values(
    name: str, cells: Sequence[str], rows: Sequence[tuple[Row, tuple[float, ...], tuple[str, ...]]]
) -> list[Value]:
    """Return a column of contexts as numbers, or as names if none of its cells is a number.

    Raises:
        InputError: some are numbers and some are not, or one is out of range.
    """
    numbers = [number(cell) for cell in cells]
    known = [value for value in numbers if value is not None]
    if not known:
        return list(cells)
    if len(known) < len(cells):
        place = numbers.index(None)
        raise InputError(
            "is not a number, but other rows of the column have numbers.",
            field=rows[place][0].where(name),
            value=cells[place],
            allowed="a finite number",
            hint="Correct the cell or remove its row; in a column of names no cell is a number.",
        )
    for value, (row, *_), cell in zip(known, rows, cells, strict=True):
        if abs(value) > MOST:
            raise out_of_range(row.where(name), cell)
    return list(known)


def _check_effect(
    option: str, name: str, values: Sequence[Value], machines: Sequence[float]
) -> None:
    """Raise InputError for a column, of numbers or names, that only tells the machine count."""
    distinct = len(set(values))
    if distinct > 1 and distinct == len(set(machines)) == len(
        set(zip(values, machines, strict=True))
    ):
        raise InputError(
            "tells the same as the number of machines: their effects cannot be separated.",
            field=option,
            value=name,
            hint="Leave the column out, or add runs of each value at several machine counts.",
        )


def _hints(columns: Columns) -> dict[str, str]:
    """Return the required columns, each with the option that names it.

    Raises:
        InputError: two options name the same column.
    """
    options = (
        ("--machines-column", columns.machines),
        ("--time-column", columns.seconds),
        ("--scale-column", columns.scale),
        ("--iterations-column", columns.iterations),
        ("--group", columns.group),
        ("--type-column", columns.machine_type),
    )
    named: dict[str, str] = {}
    for option, name in options:
        if name is None:
            continue
        first = named.setdefault(name, option)
        # Without an option the column 'scale' is that of scales.
        if first == option and name == "scale" and columns.scale is None:
            first = option if option in ("--group", "--type-column") else "--scale-column"
        if first != option:
            raise InputError(
                f"names the same column as {first}.",
                field=option,
                value=name,
                hint=f"Name another column with {option} or {first}, or rename it in the table.",
            )
    return {name: f"Name the column with {option}." for name, option in named.items()}


def _numbers(row: Row, columns: Columns, scale_column: str | None) -> tuple[float, ...]:
    """Return machines, scale, seconds and iterations of a row."""
    machines = row.number_in(columns.machines, least=1.0, integer=True)
    scale = 1.0 if scale_column is None else row.number_in(scale_column, above=True)
    seconds = row.number_in(columns.seconds, above=True)
    iterations = 1.0
    if columns.iterations is not None:
        iterations = row.number_in(columns.iterations, least=1.0)
    for name, value, (least, most) in (
        (columns.machines, machines, MACHINES),
        (scale_column, scale, SCALES),
        (columns.seconds, seconds, SECONDS),
        (columns.iterations, iterations, ITERATIONS),
    ):
        if name is not None and not least <= value <= most:
            raise InputError(
                "is out of range.",
                field=row.where(name),
                value=row.text(name),
                allowed=f"{least:g} to {most:g}",
            )
    return machines, scale, seconds, iterations


def _empty(file: Path, columns: Columns, failed: int) -> InputError:
    if failed:
        return InputError(
            f"All {failed} runs failed, by their status: there is nothing to fit.",
            field=f"{file}: column {STATUS!r}",
        )
    return InputError(
        "has a header but no rows.",
        field=f"{file}: row 1, column {columns.seconds!r}",
        hint="Each run is one row; a scale model needs runs at two machine counts or more.",
    )


def _check_varied(
    rows: Sequence[tuple[Row, tuple[float, ...]]],
    columns: Columns,
    key: tuple[str | None, str | None],
) -> None:
    """Raise InputError unless the runs have at least two machine counts, telling a single
    configuration apart."""
    if len({numbers[:2] for _, numbers in rows}) == 1:
        raise InputError(
            f"is the only configuration{_of(key)}: scaling cannot be estimated from one point.",
            field=rows[0][0].where(columns.machines),
            value=rows[0][1][0],
            hint="Add runs at other machine counts, and at other scales.",
        )
    _check_machines(rows, columns, key)


def _check_machines(
    rows: Sequence[tuple[Row, tuple[float, ...]]],
    columns: Columns,
    key: tuple[str | None, str | None],
) -> None:
    """Raise InputError unless the runs have at least two machine counts."""
    counts = {numbers[0] for _, numbers in rows}
    if len(counts) == 1:
        first, last = rows[0][0], rows[-1][0]
        raise InputError(
            f"all runs{_of(key)} are at one machine count: others cannot be predicted from it.",
            field=f"{first.file}: rows {first.number} to {last.number}, "
            f"column {columns.machines!r}",
            value=next(iter(counts)),
            hint="Add runs at two machine counts or more.",
        )


def _of(key: tuple[str | None, str | None]) -> str:
    names = [name for name in key if name is not None]
    return f" of {' on '.join(names)}" if names else ""
