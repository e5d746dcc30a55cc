"""Validation of individual values of an applications file. Every error names the key."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kongming.records.application import Command, Metric
from kongming.records.errors import ApplicationFileError, nearest_names


class Table:
    """Table of the file; ``where`` is its dotted key, empty for the file itself."""

    COMMAND: ClassVar[str] = "a shell line, or a list of an executable and its arguments"

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self._where = where
        self._values = values

    def refuse_unknown(self, known: Sequence[str]) -> None:
        for key in self._values:
            if key not in known:
                near = nearest_names(key, known, most=1)
                raise ApplicationFileError(
                    "is not a known key.",
                    field=self._field(key),
                    allowed=", ".join(known),
                    hint=f"Did you mean {near[0]}?" if near else None,
                )

    def string(self, key: str, allowed: str = "a string that is not empty") -> str | None:
        if key not in self._values:
            return None
        value = self._values[key]
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise self._wrong(key, value, allowed)
        return value

    def command(self, key: str) -> Command | None:
        value = self._values.get(key)
        if not isinstance(value, list):
            return self.string(key, self.COMMAND)
        valid = all(isinstance(part, str) and "\0" not in part for part in value)
        if not value or not valid or not value[0].strip():
            raise self._wrong(key, value, self.COMMAND)
        return tuple(value)

    def choice(self, key: str, options: Sequence[str], default: str) -> str:
        value = self._values.get(key, default)
        if value not in options:
            raise self._wrong(key, value, " or ".join(f'"{option}"' for option in options))
        return str(value)

    def integer(self, key: str, default: int | None, *, least: int) -> int | None:
        if key not in self._values:
            return default
        value = self._values[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self._wrong(key, value, f"a whole number from {least}")
        return value

    def number(self, key: str, default: float, *, above_zero: bool) -> float:
        value = self._values.get(key, default)
        valid = isinstance(value, int | float) and not isinstance(value, bool)
        # TOML has integers that no float holds.
        if not valid or not 0 <= value <= sys.float_info.max or (above_zero and value == 0):
            limit = "above 0" if above_zero else "from 0"
            raise self._wrong(key, value, f"a number of seconds {limit}")
        return float(value)

    def strings(self, key: str) -> dict[str, str]:
        values = self._values.get(key, {})
        if not isinstance(values, Mapping):
            raise self._wrong(key, values, 'a table of strings, as in { LC_ALL = "C" }')
        for name, value in values.items():
            if not isinstance(value, str) or "\0" in value:
                raise self._wrong(f"{key}.{name}", value, "a string, in quotes")
            if not name or "=" in name or "\0" in name:
                raise self._wrong(key, name, "names of environment variables")
        return dict(values)

    def regex(self, key: str, *, group: bool = False) -> str | None:
        pattern = self.string(key, "a regular expression in a string")
        if pattern is None:
            return None
        try:
            compiled = re.compile(pattern, re.MULTILINE)
        except re.error as error:
            place = "" if error.pos is None else f" at position {error.pos}"
            raise ApplicationFileError(
                f"is not a valid regular expression: {error.msg}{place}.",
                field=self._field(key),
                value=pattern,
            ) from error
        if group and compiled.groups < 1:
            raise ApplicationFileError(
                "has no group to mark the number.",
                field=self._field(key),
                value=pattern,
                allowed="a regular expression with a group, as in 'took ([0-9.]+) ms'",
            )
        return pattern

    def metric(self, key: str) -> Metric | None:
        if key not in self._values:
            return None
        values = self._values[key]
        if not isinstance(values, Mapping):
            raise self._wrong(key, values, "a table with pattern, unit and better")
        table = Table(self._field(key), values)
        table.refuse_unknown(("pattern", "unit", "better"))
        for required in ("pattern", "unit"):
            if required not in values:
                raise ApplicationFileError(
                    "is missing.", field=f"{self._field(key)}.{required}", allowed="a string"
                )
        better = table.choice("better", ("lower", "higher"), "lower")
        return Metric(
            pattern=table.regex("pattern", group=True) or "",
            unit=table.string("unit") or "",
            better="higher" if better == "higher" else "lower",
        )

    def _field(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def _wrong(self, key: str, value: object, allowed: str) -> ApplicationFileError:
        return ApplicationFileError(
            "is not valid.", field=self._field(key), value=value, allowed=allowed
        )
