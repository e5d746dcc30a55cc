"""Checks of single values of an applications file. Every error names the key."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kongming.application import Command, Metric
from kongming.errors import ApplicationFileError


class Table:
    """One table of the file; ``where`` is its dotted key, empty for the file itself."""

    COMMAND: ClassVar[str] = "a shell line, or a list of an executable and its arguments"

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self._where = where
        self._values = values

    def refuse_unknown(self, known: Sequence[str]) -> None:
        for key in self._values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
                raise ApplicationFileError(
                    "is not a known key.",
                    field=self._field(key),
                    allowed=", ".join(known),
                    hint=f"Did you mean {near[0]}?" if near else None,
                )

    def string(self, key: str, allowed: str = "a string that is not empty") -> str | None:
        if key not in self._values:
            return None
        found = self._values[key]
        if not isinstance(found, str) or not found.strip() or "\0" in found:
            raise self._wrong(key, found, allowed)
        return found

    def command(self, key: str) -> Command | None:
        found = self._values.get(key)
        if not isinstance(found, list):
            return self.string(key, self.COMMAND)
        good = all(isinstance(part, str) and "\0" not in part for part in found)
        if not found or not good or not found[0].strip():
            raise self._wrong(key, found, self.COMMAND)
        return tuple(found)

    def choice(self, key: str, options: Sequence[str], default: str) -> str:
        found = self._values.get(key, default)
        if found not in options:
            raise self._wrong(key, found, " or ".join(f'"{option}"' for option in options))
        return str(found)

    def integer(self, key: str, default: int | None, *, least: int) -> int | None:
        if key not in self._values:
            return default
        found = self._values[key]
        if not isinstance(found, int) or isinstance(found, bool) or found < least:
            raise self._wrong(key, found, f"a whole number from {least}")
        return found

    def number(self, key: str, default: float, *, above_zero: bool) -> float:
        found = self._values.get(key, default)
        good = isinstance(found, int | float) and not isinstance(found, bool)
        if not good or not math.isfinite(found) or found < 0 or (above_zero and found == 0):
            limit = "above 0" if above_zero else "from 0"
            raise self._wrong(key, found, f"a number of seconds {limit}")
        return float(found)

    def strings(self, key: str) -> dict[str, str]:
        found = self._values.get(key, {})
        if not isinstance(found, Mapping):
            raise self._wrong(key, found, 'a table of strings, as in { LC_ALL = "C" }')
        for name, value in found.items():
            if not isinstance(value, str) or "\0" in value:
                raise self._wrong(f"{key}.{name}", value, "a string, in quotes")
            if not name or "=" in name or "\0" in name:
                raise self._wrong(key, name, "names of environment variables")
        return dict(found)

    def regex(self, key: str, *, group: bool = False) -> str | None:
        found = self.string(key, "a regular expression in a string")
        if found is None:
            return None
        try:
            compiled = re.compile(found, re.MULTILINE)
        except re.error as error:
            place = "" if error.pos is None else f" at position {error.pos}"
            raise ApplicationFileError(
                f"is not a valid regular expression: {error.msg}{place}.",
                field=self._field(key),
                found=found,
            ) from error
        if group and compiled.groups < 1:
            raise ApplicationFileError(
                "has no group, so it does not tell which part is the number.",
                field=self._field(key),
                found=found,
                allowed="a regular expression with a group, as in 'took ([0-9.]+) ms'",
            )
        return found

    def metric(self, key: str) -> Metric | None:
        if key not in self._values:
            return None
        found = self._values[key]
        if not isinstance(found, Mapping):
            raise self._wrong(key, found, "a table with pattern, unit and better")
        table = Table(self._field(key), found)
        table.refuse_unknown(("pattern", "unit", "better"))
        for needed in ("pattern", "unit"):
            if needed not in found:
                raise ApplicationFileError(
                    "is missing.", field=f"{self._field(key)}.{needed}", allowed="a string"
                )
        better = table.choice("better", ("lower", "higher"), "lower")
        return Metric(
            pattern=table.regex("pattern", group=True) or "",
            unit=table.string("unit") or "",
            better="higher" if better == "higher" else "lower",
        )

    def _field(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def _wrong(self, key: str, found: object, allowed: str) -> ApplicationFileError:
        return ApplicationFileError(
            "is not valid.", field=self._field(key), found=found, allowed=allowed
        )
