"""Columns that tell contexts apart: numbers (input size, iterations) and names (machine type)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.files.csv_rows import plain_number
from kongming.records.errors import InputError, UnknownNameError
from kongming.scale.points import SCALES

LEAST, MOST = SCALES
"""Limits of the sizes of numbers in contexts, of the least one only in columns in logs."""

Value = float | str
Context = tuple[Value, ...]
"""One value for each column."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of contexts. Numbers are centred and divided by ``size`` (in logs if ``log``, in
    logs of their sum with ``shift`` if that is above 0); ``names`` are a column's values in order,
    empty for numbers."""

    name: str
    names: tuple[str, ...] = ()
    log: bool = False
    center: float = 0.0
    size: float = 1.0
    shift: float = 0.0

    @classmethod
    def of(cls, name: str, values: Sequence[Value]) -> Column:
        """Take a column of all numbers as numbers, in logs if all are above 0. Where some are 0 and
        none is below, the least of the others is added first: straight lines of the numbers
        themselves would be exponentials of the time, far beyond the runs."""
        if not all(isinstance(value, float) for value in values):
            return cls(name, tuple(sorted({show(value) for value in values})))
        numbers = np.array(sorted({float(value) for value in values}))
        log = bool(numbers.min() >= LEAST)
        second = float(numbers[:2].max())
        shift = second if numbers[0] == 0.0 and second >= LEAST else 0.0
        numbers = np.log(numbers + shift) if log or shift else numbers
        return cls(name, (), log, float(numbers.mean()), float(numbers.std()) or 1.0, shift)

    @property
    def in_logs(self) -> bool:
        """Return whether differences of encoded numbers are of logs."""
        return self.log or self.shift > 0.0

    def encode(self, values: Sequence[Value]) -> Floats:
        """(n, 1) numbers, or (n, names) with a one for each value's name; zeros for a name without
        runs."""
        if self.names:
            texts = [show(value) for value in values]
            return np.array([[float(text == name) for name in self.names] for text in texts])
        numbers = np.array([float(value) for value in values])
        numbers = np.log(numbers + self.shift) if self.in_logs else numbers
        return (numbers - self.center)[:, None] / self.size

    def read(self, text: str) -> Value:
        """Return the value of a text.

        Raises:
            InputError: the column has numbers, and this is none, or none that has a logarithm.
        """
        if self.names:
            return text
        value = number(text)
        if value is None or (self.log and value <= 0.0) or (self.shift and value < 0.0):
            limit = " above 0" if self.log else " from 0 on" if self.shift else ""
            raise InputError(
                f"is not a number{limit}.",
                field=f"--context {self.name}",
                value=text,
            )
        if abs(value) > MOST or (self.log and value < LEAST):
            raise out_of_range(f"--context {self.name}", text)
        return value

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "names": list(self.names),
            "log": self.log,
            "center": self.center,
            "size": self.size,
            "shift": self.shift,
        }


def out_of_range(field: str, text: str) -> InputError:
    """Return the error of a number of a context that is too large or too small."""
    allowed = f"sizes of {LEAST:g} to {MOST:g}"
    return InputError("is out of range.", field=field, value=text, allowed=allowed)


def number(text: str) -> float | None:
    """Return the finite number that a text is, else None."""
    value = plain_number(text)
    return value if np.isfinite(value) else None


def complete(
    columns: Sequence[Column], known: Sequence[Context], given: Mapping[str, str]
) -> Context:
    """Return the context of these values. A value that is missing is taken from the contexts that
    were run, if all that share the given names (as of a machine type) agree in it.

    Raises:
        UnknownNameError: no such column, or a value is missing that only a name tells which no run
            had.
        InputError: a value is missing or is no number.
    """
    names = [column.name for column in columns]
    for name in given:
        if name not in names:
            raise UnknownNameError("context column", name, names)
    values = {
        column.name: column.read(given[column.name]) for column in columns if column.name in given
    }
    alike = [
        context
        for context in known
        if all(
            values[column.name] == show(context[i])
            for i, column in enumerate(columns)
            if column.names and column.name in values
        )
    ]
    for i, name in enumerate(names):
        if name in values:
            continue
        if not alike:
            _refuse_unknown_names(columns, given, [other for other in names if other not in values])
        possible = {context[i] for context in alike}
        if len(possible) != 1:
            raise InputError(
                f"The value of {name} is missing.",
                field="--context",
                allowed=", ".join(map(show, _in_order({context[i] for context in known})[:8])),
                hint=f"Add it: --context {name}=VALUE",
            )
        values[name] = next(iter(possible))
    return tuple(values[name] for name in names)


def _refuse_unknown_names(
    columns: Sequence[Column], given: Mapping[str, str], missing: Sequence[str]
) -> None:
    """Raise UnknownNameError for the first value that is no name of its column."""
    for column in columns:
        value = given.get(column.name)
        if column.names and value is not None and value not in column.names:
            raise UnknownNameError(
                f"{column.name} in the runs",
                value,
                column.names,
                hint=f"For another one, also give {', '.join(missing)} with --context.",
            )


def _in_order(values: Collection[Value]) -> list[Value]:
    """Return numbers by their size, names by the alphabet."""
    numbers = sorted(value for value in values if isinstance(value, float))
    return [*numbers, *sorted(value for value in values if isinstance(value, str))]


def by_name(columns: Sequence[Column]) -> list[int]:
    """Return the places of columns in the order of their names, in whatever order they are."""
    return sorted(range(len(columns)), key=lambda i: columns[i].name)


def describe(columns: Sequence[Column], context: Context) -> str:
    """``size_gb=40, type=large``."""
    return ", ".join(
        f"{column.name}={show(value)}" for column, value in zip(columns, context, strict=True)
    )


def show(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else value
