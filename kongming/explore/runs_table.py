"""The CSV of a campaign: a row for each run, on disk before the next one begins.

Columns: the parameters, the target, the seconds where that is a metric, and
``measured_table.RECORD``: what the run cost in seconds,
its status (ok, failed, timeout) with the reason, how it was measured, of which program and space,
when it began, and the time limit that ended it. A run that failed has no target, a parameter that
does not exist is empty.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import json
import math
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kongming.explore import Space
from kongming.explore.dimensions import Dimension, Value
from kongming.explore.errors import ExploreError
from kongming.explore.measured_table import (
    MEASURED,
    RECORD,
    SECONDS,
    check_status,
    finite,
    limit_of,
    loses_digits,
    number,
    target_of,
)
from kongming.explore.settings import within
from kongming.files.csv_rows import Row, read_rows
from kongming.files.line_file import of_one_command
from kongming.processes.deferred_signals import signals_deferred
from kongming.records.errors import InputError
from kongming.records.quantity import LARGEST

LONGEST_REASON = 300

_JOINT = "+"
"""Between the identity of a program and the digest of its scripts."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

Status = str
"""ok, failed, or timeout: a run that was ended at its time limit."""


@dataclass(frozen=True, slots=True)
class PointRun:
    """A run of a point. ``value`` is None where it failed; ``limit`` is the time limit that ended
    it, a lower bound of the value; ``cost`` is in seconds unless the table says otherwise.
    Where the value is a metric, ``seconds`` is how long it took, and ``seconds_limit`` the time
    limit that ended it: it failed then, and only the table's seconds have a bound. ``warnings`` of
    how it was run are no part of the table."""

    point: Mapping[str, Value | None]
    value: float | None
    cost: float | None = None
    error: str | None = None
    limit: float | None = None
    how: str = ""
    started_at: str = ""
    seconds: float | None = None
    seconds_limit: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def parameters(self) -> dict[str, Value]:
        """The point without the dimensions that do not exist there."""
        return {name: value for name, value in self.point.items() if value is not None}

    @property
    def status(self) -> Status:
        if self.value is not None:
            return "ok"
        return "failed" if self.limit is None else "timeout"


def space_identity(space: Space) -> str:
    """Return a hash of a space, 16 hexadecimal digits; runs of two spaces are never mixed."""
    text = json.dumps(space.to_dict(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def text_of(value: Value | None) -> str:
    """Return a value as a cell of the table, and as what a placeholder becomes."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # Short where that is the same number, since a point that is read again has to be the same.
        short = f"{value:.12g}"
        return short if float(short) == value else repr(value)
    return str(value)


def value_of(dimension: Dimension, text: str, field: str) -> Value:
    """Return the value of a dimension that a text stands for.

    Raises:
        InputError: the dimension has no such value.
    """
    value: Value = text
    if dimension.kind == "boolean":
        named = {"true": True, "false": False, "1": True, "0": False}
        value = named.get(text.lower(), text)
    elif not dimension.is_text:
        parsed = finite(text)
        if math.isnan(parsed):
            raise InputError(
                "is not a finite number." if text else "is empty.",
                field=field,
                value=text,
                allowed=dimension.allowed,
            )
        # Choices may be whole numbers of more digits than a float keeps.
        if loses_digits(text):
            value = int(text)
        else:
            value = int(parsed) if parsed == int(parsed) else parsed
    try:
        dimension.encode(value)
    except InputError as error:
        raise error.at(field) from error
    return value


def read_runs(
    path: Path, space: Space, target: str = "seconds", *, cost: str | None = None
) -> list[PointRun]:
    """Read the runs of a table, by this program or by another.

    Args:
        cost: the column of what runs cost; None: ``cost``, if there is one.

    Raises:
        InputError: the file cannot be read, a column of a parameter or the target is missing, or a
            cell is empty, no finite number, or no value of its parameter (with row and column), or
            its status contradicts its target.
    """
    # A parameter that exists under a condition may have no column.
    names = tuple(each.name for each in space.dimensions if each.when is None)
    required = (*names, target, *(() if cost is None else (cost,)))
    if target in space.names:
        raise InputError(
            "is a parameter of the space, and cannot be what is measured.",
            field="target",
            value=target,
            hint="Name the measured column, or give the parameter another name.",
        )
    hints = {target: "Name the measured column: --target COLUMN"}
    rows = read_rows(path, required, hints=hints, separators=",;\t")
    return [_run(row, space, target, cost or "cost") for row in rows]


def ignored_columns(path: Path, space: Space, target: str) -> tuple[str, ...]:
    """Return the columns of a table of runs that are no parameter, not the target and none that
    ``explore run`` writes. Raises InputError for a file that cannot be read."""
    first = next(iter(read_rows(path, (), separators=",;\t")), None)
    read = {*space.names, target, *RECORD, *MEASURED}
    return tuple(name for name in (first.places if first else ()) if name not in read)


def _run(row: Row, space: Space, target: str, cost: str) -> PointRun:
    point = {}
    for dimension in space.dimensions:
        text = row.text(dimension.name)
        if text or dimension.when is None:
            point[dimension.name] = value_of(dimension, text, row.where(dimension.name))
    try:
        space.encode([point])
    except ExploreError as error:
        concerned = error.dimensions or (str(error.field),)
        # A dimension that exists under a condition may have no column, which may be what is wrong.
        there = [name for name in concerned if name in row.places]
        missing = [name for name in concerned if name in space.names]
        raise error.at(row.where(*(there or missing or space.names[:1]))) from error
    check_status(row, target, space.names)
    measured = target_of(row, target)
    value = None if math.isnan(measured) else measured

    def written(column: str) -> str:
        """A cell of what ``explore run`` writes; none where a parameter has that name."""
        return "" if column in space.names else row.text(column)

    return PointRun(
        point=point,
        value=value,
        cost=_cost(row, cost) if written(cost) else None,
        error=None if value is not None else written("error") or "no value",
        limit=limit_of(row, target, space.names),
        how=written("how"),
        started_at=written("started_at"),
    )


def _cost(row: Row, column: str) -> float | None:
    if not row.text(column):
        return None
    try:
        return within(number(row, column), column, 0.0, LARGEST)
    except ExploreError as error:
        raise error.at(row.where(column)) from error


class RunsTable:
    """The table at ``path``, open and locked until ``close``; ``runs`` are those that it has, and
    ``removed`` is what was left of a row that a killed run did not write to its end.

    ``scripts`` is a digest of the scripts of the program, empty without any: it is a part of the
    identity of each row.

    Raises:
        InputError: the file is another table, of another program or space, or another process
            appends to it; or a parameter has the name of another column.
        StoreError: it cannot be created or written.
    """

    def __init__(
        self,
        path: Path,
        space: Space,
        target: str,
        *,
        identity: str,
        scripts: str = "",
    ) -> None:
        self.path = path
        self.identity = _JOINT.join(filter(None, (identity, scripts)))
        self.space_identity = space_identity(space)
        self._names = space.names
        self._target = target
        own = (*dict.fromkeys((target, SECONDS)), *RECORD)
        for name in space.names:
            # A reader of the table cannot tell a parameter of that name from what was measured.
            if name in (*own, *MEASURED):
                raise InputError(
                    "is the name of a column of the table of runs.",
                    field=f"space: {name}",
                    hint="Give the parameter another name.",
                )
        self.columns: tuple[str, ...] = (*self._names, *own)
        self.removed = ""
        self._file = of_one_command(path)
        try:
            self.runs = self._resume(space, target)
        except BaseException:
            self._file.close()
            raise
        self.close = self._file.close

    def add(self, run: PointRun) -> None:
        """Append a run; it is on disk when this returns. Raises StoreError."""
        reason = " ".join((run.error or "").split())[:LONGEST_REASON]
        # Without a column for it, readers would take the cost for it: machine-seconds, with set-up.
        keeps_limit = run.seconds_limit is not None and "at_least" in self.columns
        limit = run.seconds_limit if keeps_limit else run.limit
        values = {
            **{name: text_of(run.point.get(name)) for name in self._names},
            SECONDS: text_of(run.seconds),
            self._target: text_of(run.value),
            "cost": text_of(run.cost),
            "status": run.status if limit is None else "timeout",
            "error": reason,
            "how": run.how,
            "identity": self.identity,
            "space": self.space_identity,
            "started_at": run.started_at,
            "at_least": text_of(limit),
        }
        cells = [values[name] for name in self.columns]
        # In one piece with the first row: a header without rows is nothing to resume from.
        lines = [cells] if self.runs else [self.columns, cells]
        # Ctrl-C in between would say that fewer are kept than are on disk.
        with signals_deferred():
            self._file.write("".join(map(_line, lines)).encode())
            self._file.sync()
            self.runs.append(run)

    def _resume(self, space: Space, target: str) -> list[PointRun]:
        if not stat.S_ISREG(os.fstat(self._file.file.fileno()).st_mode):
            raise InputError(
                "is no regular file: nothing could be resumed from it.",
                field="--out",
                value=str(self.path),
                hint="Choose another file.",
            )
        self._file.file.seek(0)
        content = self._file.file.read() or b""
        # Spreadsheets begin a table with a byte order mark, and end its lines as Windows does.
        text = content.removeprefix(codecs.BOM_UTF8)
        header, ended, rows = text.partition(b"\n")
        header = header.removesuffix(b"\r")
        columns = self._columns_of(header, target)
        if columns is None and not (_line(self.columns).encode().startswith(text) and not ended):
            raise self._other_columns(header, target)
        if columns is not None:
            self.columns = columns
        if not rows:
            # Of a header alone, complete or not, nothing is lost.
            self._file.file.truncate(0)
            return []
        last = rows[rows.rfind(b"\n") + 1 :]
        if last and not self._is_complete(last):
            self.removed = last.decode(errors="replace")
            self._file.remove_incomplete_line()
        try:
            self._check_origin()
            runs = read_runs(self.path, space, target)
        except BaseException:
            if self.removed:
                self._file.write(last)
            raise
        if last and not self.removed:
            self._file.write(b"\n")
        return runs

    def _columns_of(self, header: bytes, target: str) -> tuple[str, ...] | None:
        """Return the columns of a table that this command can go on with; None for another."""
        for columns in self._known_columns(target):
            if header == _line(columns).rstrip("\n").encode():
                return columns
        return None

    def _known_columns(self, target: str) -> list[tuple[str, ...]]:
        # A table that was begun before one of these had a column goes on without it.
        return [
            tuple(n for n in self.columns if n == target or n not in missing)
            for missing in ((), ("at_least",), (SECONDS,), ("at_least", SECONDS))
        ]

    def _other_columns(self, header: bytes, target: str) -> InputError:
        """Return what to raise for a header that is none of this command for this space."""
        problem = "is a table with other columns, not written by this command for this space."
        hint = "Choose another file."
        for separator in (";", "\t"):
            if self._columns_of(header.replace(separator.encode(), b","), target) is not None:
                problem = f"is separated by {separator!r}, and rows are appended with commas."
                hint = "Save the table with commas: it has the columns of this space."
        cells = header.decode(errors="replace")
        if any(sorted(cells.split(",")) == sorted(each) for each in self._known_columns(target)):
            problem = "has the columns of this space in another order."
            hint = (
                "Give the columns the order that is allowed, or the parameters that of the table."
            )
        return InputError(
            problem,
            field=f"--out: {self.path}: header (row 0)",
            value=cells[:LONGEST_REASON],
            allowed=",".join(self.columns),
            hint=hint,
        )

    def _is_complete(self, line: bytes) -> bool:
        """Return whether a last line lacks nothing but its end, as an editor leaves it.

        A time limit, the last column, may have lost digits; the moment before it none.
        """
        try:
            [cells] = csv.reader([line.decode(errors="replace")])
        except csv.Error:
            return False
        if len(cells) != len(self.columns):
            return False
        row = dict(zip(self.columns, cells, strict=True))
        if "at_least" in row:
            return row["status"] != "timeout" and not row["at_least"].strip()
        return _MOMENT.fullmatch(row["started_at"].strip()) is not None

    def _check_origin(self) -> None:
        """Raise InputError for a row of another program or space."""
        program, _, scripts = self.identity.partition(_JOINT)
        for row in read_rows(self.path, self.columns):
            was, _, its_scripts = row.text("identity").partition(_JOINT)
            for column, own, same, what in (
                (
                    "identity",
                    self.identity,
                    was == program,
                    "program, its set-up or its environment",
                ),
                # A row of before scripts counted has none.
                (
                    "identity",
                    self.identity,
                    its_scripts in ("", scripts),
                    "content of a script that its commands name",
                ),
                (
                    "space",
                    self.space_identity,
                    row.text("space") == self.space_identity,
                    "space",
                ),
            ):
                if not same:
                    raise InputError(
                        f"the {what} was another one.",
                        field=row.where(column),
                        value=row.text(column),
                        allowed=own,
                        hint="Choose another file with --out: runs of two are not mixed.",
                    )


def _line(cells: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
