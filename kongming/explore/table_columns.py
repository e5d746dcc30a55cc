"""The columns of a table whose rows are the points of a space."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kongming.explore.errors import ExploreError
from kongming.explore.measured_table import finite, loses_digits
from kongming.files.csv_rows import read_rows, refuse_unnamed
from kongming.files.sealed_document import is_unicode
from kongming.records.errors import InputError

_UNNAMED = "Name it, or give the names of the columns that are dimensions."


def read_columns(
    table: str | Path | Sequence[Mapping[str, object]],
    columns: Sequence[str] | None,
    choices: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> tuple[str, dict[str, list[Any]]]:
    """Return what to call the table, and the values of its columns (by default of all), none of
    which is empty but in ``optional`` ones: None. Those of ``choices`` may be names that look like
    numbers that are not finite. A column without a name is none, if nothing is in it.

    Raises:
        ExploreError: the table has no rows, a column is missing or has no name, or a cell is no
            value.
    """
    for name in columns or ():
        if isinstance(name, str) and not name.strip():
            raise _unnamed("columns", name)
    if isinstance(table, str | Path):
        where, values = str(table), _of_file(Path(table), columns, choices, optional)
    else:
        where, values = "table", _of_rows(table, columns)
    if not values or not next(iter(values.values())):
        raise ExploreError("has no rows.", field=where, allowed="one or more")
    for name, cells in values.items():
        for number, value in enumerate(cells, start=1):
            if value is None and name in optional:
                continue
            cell = f"{where}: row {number}, column {name!r}"
            if _is_empty(value):
                raise ExploreError(
                    "is empty.", field=cell, value=repr(value), allowed="a value in each cell"
                )
            if not isinstance(value, bool | int | float | str | np.generic) or (
                isinstance(value, float) and math.isinf(value)
            ):
                raise ExploreError(
                    "is no value.",
                    field=cell,
                    value=repr(value),
                    allowed="finite numbers and texts",
                )
            integral = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if integral and name not in choices and loses_digits(int(value)):
                raise ExploreError(
                    "has more digits than a number keeps.",
                    field=cell,
                    value=value,
                    allowed=f"whole numbers within 2^53; or names, with choices=[{name!r}]",
                )
    return where, values


def _is_empty(value: object) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _of_file(
    path: Path,
    columns: Sequence[str] | None,
    choices: Sequence[str],
    optional: Sequence[str],
) -> dict[str, list[Any]]:
    try:
        cells = list(read_rows(path, columns or (), separators=",;\t"))
        if not columns:
            refuse_unnamed(cells, _UNNAMED)
    except InputError as error:
        raise ExploreError(error.message, hint=error.hint) from error
    names = columns or (cells[0].places if cells else ())
    return {
        name: _numbers(
            [(row.text(name) or None) if name in optional else row.text(name) for row in cells],
            *(str(path), name),
            strict=name not in choices,
        )
        for name in names
    }


def _unnamed(field: str, value: object) -> ExploreError:
    return ExploreError(
        "has no name.",
        field=field,
        value=value,
        allowed="a name for each column",
        hint=_UNNAMED,
    )


def _of_rows(table: object, columns: Sequence[str] | None) -> dict[str, list[Any]]:
    if not isinstance(table, Iterable):
        raise ExploreError(
            "is no table.",
            field="table",
            value=repr(table),
            allowed="a CSV file, a list of dicts",
        )
    rows = list(table)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise ExploreError(
                "is no row.", field=f"table: row {number}", value=repr(row), allowed="a dict"
            )
    names = list(columns or (rows[0] if rows else ()))
    for name in [name for name in names if isinstance(name, str) and not name.strip()]:
        for row in rows:
            if not _is_empty(row.get(name)):
                raise _unnamed(f"table: column {name!r}", row[name])
        names.remove(name)
    for name in names:
        if not isinstance(name, str) or not is_unicode(name):
            raise ExploreError(
                "is no name of a column.", field="table", value=repr(name), allowed="a text"
            )
    for number, row in enumerate(rows, start=1):
        for name in names:
            if name not in row:
                raise ExploreError(
                    "is missing.",
                    field=f"table: row {number}, column {name!r}",
                    value=", ".join(map(str, row)),
                    allowed=f"a row with {', '.join(map(str, names))}",
                )
        for name in () if columns else row:
            if name not in rows[0]:
                raise ExploreError(
                    "is not a column of the first row.",
                    field=f"table: row {number}, column {name!r}",
                    value=repr(row[name]),
                    allowed=", ".join(map(str, names)),
                    hint="Name the columns that are dimensions, or give each row all of them.",
                )
    return {name: [row[name] for row in rows] for name in names}


def _numbers(texts: list[str | None], where: str, name: str, *, strict: bool) -> list[Any]:
    """Cells of a column as numbers or booleans if all of them are; as texts if none is a number;
    None stays None.

    Raises:
        ExploreError: one is no finite number among numbers: no choice, but a run that went wrong.
    """
    filled = {row: text for row, text in enumerate(texts) if text is not None}
    if filled and all(text.lower() in ("true", "false") for text in filled.values()):
        return [None if text is None else text.lower() == "true" for text in texts]
    values = {row: finite(text) for row, text in filled.items()}
    known = {row: not math.isnan(value) for row, value in values.items()}
    if not any(known.values()):
        return list(texts)
    if not strict and (not all(known.values()) or any(map(loses_digits, filled.values()))):
        return list(texts)
    for row, text in filled.items():
        if known[row] and not loses_digits(text):
            continue
        problem = (
            "has more digits than a number keeps."
            if known[row]
            else "is no finite number, and others of its column are."
            if text
            else "is empty."
        )
        raise ExploreError(
            problem,
            field=f"{where}: row {row + 1}, column {name!r}",
            value=text,
            allowed=f"finite numbers, whole ones within 2^53; or names, with choices=[{name!r}]",
        )
    cells: list[Any] = [None] * len(texts)
    for row, value in values.items():
        cells[row] = int(value) if value.is_integer() and abs(value) < 2**53 else value
    return cells
