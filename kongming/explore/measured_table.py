"""Read a CSV of measured points: one row a run, a column per parameter and one of the target.

Rows count from 1, below the header. A run that failed has an empty target.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kongming.arrays import Floats
from kongming.explore.settings import summable
from kongming.files.csv_rows import Row, hint_of_commas, plain_number, read_rows, refuse_unnamed
from kongming.records.errors import InputError

Point = Mapping[str, float | str]

RECORD = ("cost", "status", "error", "how", "identity", "space", "started_at", "at_least")
"""Columns that ``explore run`` writes next to the parameters and what was measured."""

SECONDS = "seconds"
MEASURED = (SECONDS, "metric")
"""Columns of what ``explore run`` measures: the time of a run, and its metric where it has one."""

STATUSES = ("ok", "failed", "timeout")
"""What a run came to, as ``explore run`` writes it; timeout: it was ended at its time limit."""

_MOST_INDICATORS = 1 << 25
"""Rows times different names of a column: models have an indicator for each name (256 MiB)."""

NO_RUN = "the table has no value for it"
"""Reason of a failed run of which the table says no more."""


@dataclass(frozen=True, eq=False, slots=True)
class MeasuredTable:
    """Rows of a table: ``points`` and their ``values`` (n,), NaN where the run failed. A point
    lacks those of ``names`` that do not exist there.

    ``numbers`` are the columns of numbers among ``names``; ``costs`` (n,) are those of the column
    that was named for them, else None. ``errors`` are the reasons of failed runs, ``limits`` (n,)
    what those took at the least that were ended at a time limit, else NaN; None: of no row.
    """

    path: str
    target: str
    names: tuple[str, ...]
    numbers: tuple[str, ...]
    points: tuple[Point, ...]
    values: Floats
    costs: Floats | None
    errors: tuple[str | None, ...]
    limits: Floats | None = None

    def __len__(self) -> int:
        return len(self.points)


def read_measured(
    path: str | Path,
    target: str,
    *,
    choices: Collection[str] = (),
    cost: str | None = None,
    ignored: Collection[str] = (),
) -> MeasuredTable:
    """Read a measured table.

    Args:
        target: column of the measured value; empty in the row of a failed run.
        choices: columns of names, even where they look like numbers.
        cost: column of what a run costs, from 0.
        ignored: columns that are no parameters.

    Raises:
        InputError: the file cannot be read, a column is missing or there twice, a cell is empty (of
            a table of ``explore run``, all of its column are), no finite number, or out of range
            (with row and column), or no parameter or row is left.
    """
    file = Path(path)
    needed = (target, *choices, *ignored, *(() if cost is None else (cost,)))
    hints = {target: "Name the measured column: --target COLUMN"}
    if target in (*choices, *ignored):
        option = "--choices" if target in choices else "--ignore"
        raise InputError("is the target, no parameter.", field=option, value=target)
    rows = list(read_rows(file, needed, hints=hints, separators=",;\t"))
    if not rows:
        raise InputError("has a header but no rows.", field=f"{file}: row 1, column {target!r}")
    refuse_unnamed(rows, "If it is no parameter, name it and leave it out: --ignore NAME")
    header = rows[0].places
    written = {*RECORD, *MEASURED} if header.keys() >= {"identity", "space", "status"} else set()
    left_out = {target, cost, *ignored, *(written - set(choices))}
    names = tuple(name for name in header if name not in left_out)
    if not names:
        raise InputError(
            "has no column of a parameter.",
            field=f"{file}: header (row 0)",
            value=", ".join(header),
            hint="Every column besides the target and the cost is a parameter.",
        )
    filled = {name: [row for row in rows if row.text(name)] for name in names}
    for name in names:
        # That command writes a parameter that does not exist at a point as an empty cell.
        if not written or not filled[name]:
            _refuse_empty(rows, name)
    columns: dict[str, list[float] | list[str]] = {
        name: _texts(at, name) if name in choices else _cells(at, name)
        for name, at in filled.items()
    }
    numbers = tuple(n for n in names if isinstance(columns[n][0], float))
    for name in set(names) - set(numbers):
        _refuse_identifiers(rows, name)
    values = np.array([target_of(row, target) for row in rows])
    if written:
        for row in rows:
            check_status(row, target, {*names, *ignored})
    failed = np.isnan(values)
    return MeasuredTable(
        path=str(file),
        target=target,
        names=names,
        numbers=numbers,
        points=_points(rows, columns),
        values=values,
        costs=None if cost is None else np.array([row.number_in(cost) for row in rows]),
        errors=tuple(
            (row.text("error") or NO_RUN) if is_failed else None
            for row, is_failed in zip(rows, failed, strict=True)
        ),
        limits=np.array([limit_of(row, target, names) or math.nan for row in rows])
        if written
        else None,
    )


def _points(rows: Sequence[Row], columns: Mapping[str, Sequence[float | str]]) -> tuple[Point, ...]:
    """Return the point of each row, of columns without their empty cells."""
    cells = {name: iter(column) for name, column in columns.items()}
    return tuple({name: next(at) for name, at in cells.items() if row.text(name)} for row in rows)


def _refuse_empty(rows: Sequence[Row], name: str) -> None:
    for row in rows:
        if not row.text(name):
            raise InputError(
                "is empty.",
                field=row.where(name),
                value="",
                allowed="a value in each row",
                hint="Only in a table of 'explore run' an empty cell is a parameter that does not "
                f"exist there. With --ignore {name}, rows that differ in it alone are repeats.",
            )


def _refuse_identifiers(rows: Sequence[Row], name: str) -> None:
    """Refuse a column of names of which models would have more indicators than fit into memory."""
    different = len({row.text(name) for row in rows})
    if different * len(rows) > _MOST_INDICATORS:
        raise InputError(
            "has too many different names to be a parameter.",
            field=f"{rows[0].where(name).partition(': row')[0]}: column {name!r}",
            value=f"{different} in {len(rows)} rows",
            allowed=f"{_MOST_INDICATORS // len(rows)}",
            hint=f"Leave it out with --ignore {name}.",
        )


def check_status(row: Row, target: str, parameters: Collection[str] = ()) -> None:
    """Check that the status of a row agrees with its target. ``parameters`` are no such columns.

    Raises:
        InputError: a run that failed or was ended has a value, other than a cost; or, in a table of
            ``explore run``, one that is ok has none, or the status is none of ``STATUSES``.
    """
    status = "" if "status" in parameters else row.text("status")
    if not status or target in RECORD:
        return
    own = row.places.keys() - set(parameters) >= {"identity", "space"}
    if status not in STATUSES:
        if own:
            raise InputError(
                "is no status of a run.",
                field=row.where("status"),
                value=status,
                allowed=", ".join(STATUSES),
            )
        return
    has_value = bool(row.text(target))
    if has_value and status != "ok":
        raise InputError(
            f"contradicts the value in column {target!r}.",
            field=row.where("status"),
            value=status,
            allowed=f"ok; or a row without {target!r}",
            hint="What such a run measured does not count: empty the cell of the value.",
        )
    if own and not has_value and status == "ok" and target in MEASURED:
        raise InputError(
            f"has no value in column {target!r}.",
            field=row.where("status"),
            value=status,
            allowed="failed, timeout; or a row with a value",
        )


def limit_of(row: Row, target: str, parameters: Collection[str] = ()) -> float | None:
    """Return the lower bound of a run that was ended at its time limit and has no target; None
    where nothing is known of it. In a table of ``explore run`` the limit is one of the seconds
    alone; one without a limit has what the run cost, with the set-up. ``parameters`` are no such
    columns."""

    def text(column: str) -> str:
        return "" if column in parameters else row.text(column)

    if row.text(target) or text("status") != "timeout":
        return None
    own = bool(text("identity") and text("space"))
    if own and target != SECONDS:
        return None
    column = "at_least" if text("at_least") else "cost"
    return row.optional(column) if text(column) and (own or column == "at_least") else None


def has_column(path: Path, name: str) -> bool:
    """Return whether a table has a column. Raises InputError for a file that cannot be read."""
    first = next(iter(read_rows(path, (), separators=",;\t")), None)
    return first is not None and name in first.places


def finite(text: str) -> float:
    """Return the number of a cell; NaN if it is no number, or not a finite one."""
    value = plain_number(text)
    return value if math.isfinite(value) else math.nan


def loses_digits(value: str | int) -> bool:
    """Return whether a whole number has digits that a float does not keep: two of them would be one
    value of a parameter. False for other text, and for what is too large for any float."""
    try:
        return int(value) != float(value)
    except (ValueError, OverflowError):
        return False


def number(row: Row, column: str) -> float:
    """Return the finite number of a cell, of any sign. Raises InputError."""
    text = row.text(column)
    value = finite(text)
    if math.isnan(value):
        raise InputError(
            "is not a finite number." if text else "is empty.",
            field=row.where(column),
            value=text,
            allowed="a finite number",
            hint=hint_of_commas(text),
        )
    return value


def target_of(row: Row, column: str) -> float:
    """Return the measured value of a row, NaN where it failed. Raises InputError."""
    if not row.text(column):
        return math.nan
    try:
        return summable(number(row, column), column)
    except InputError as error:
        raise error.at(row.where(column)) from error


def _texts(rows: Sequence[Row], column: str) -> list[str]:
    return [row.text(column) for row in rows]


def _cells(rows: Sequence[Row], column: str) -> list[float] | list[str]:
    """A column of numbers, or of names if no cell is a number."""
    if all(math.isnan(_any_number(row.text(column))) for row in rows):
        return [row.name(column) for row in rows]
    for row in rows:
        if math.isnan(finite(row.text(column))) and row.text(column):
            raise InputError(
                "is not a finite number, and others of its column are.",
                field=row.where(column),
                value=row.text(column),
                allowed=f"a finite number; or names throughout, with --choices {column}",
            )
        if loses_digits(row.text(column)):
            raise InputError(
                "has more digits than a number keeps.",
                field=row.where(column),
                value=row.text(column),
                allowed=f"whole numbers within 2^53; or names, with --choices {column}",
            )
    return [number(row, column) for row in rows]


def _any_number(text: str) -> float:
    """Parse a number as ``finite`` does, but return 0 for one that is not finite."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return finite(text) if math.isfinite(value) else 0.0
