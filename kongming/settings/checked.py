"""Settings with a check each: sections of dataclass fields, their table, a TOML document over it.

Only the standard library is imported here: what runs before every job of a scheduler reads
settings too.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, NamedTuple

from kongming.errors import InputError

__all__ = [
    "ABOVE_ZERO",
    "ADDRESS",
    "ANY",
    "NOT_NEGATIVE",
    "Check",
    "Row",
    "Sections",
    "is_address",
    "parse",
    "read",
    "section",
    "setting",
    "table",
]

Check = tuple[Callable[[Any], bool], str]
"""Whether a value passes, and in words what does."""

Sections = Mapping[str, type[Any]]
"""The dataclass of each section, in the order of the file."""

ABOVE_ZERO: Check = (lambda value: 0.0 < value < math.inf, "above 0")
NOT_NEGATIVE: Check = (lambda value: 0.0 <= value < math.inf, "0 or more")
ANY: Check = (lambda value: True, "any text")


def is_address(value: str, *, least_port: int = 0) -> bool:
    host, colon, port = value.rpartition(":")
    return bool(host and colon) and port.isdigit() and least_port <= int(port) < 65536


ADDRESS: Check = (is_address, "HOST:PORT")


def setting(default: Any, meaning: str, check: Check) -> Any:
    """A field of a section; a list as its default stands for a tuple of names."""
    about = {"meaning": meaning, "check": check}
    return field(default=tuple(default) if isinstance(default, list) else default, metadata=about)


class Row(NamedTuple):
    """One key of the file: ``section.key``, its default, what is allowed, what it means."""

    key: str
    default: Any
    allowed: str
    meaning: str


def table(sections: Sections) -> Iterator[Row]:
    """Every setting, in the order of the file."""
    for name, kind in sections.items():
        for known in fields(kind):
            default: Any = known.default
            yield Row(
                f"{name}.{known.name}",
                list(default) if isinstance(default, tuple) else default,
                known.metadata["check"][1],
                known.metadata["meaning"],
            )


def read(path: Path) -> dict[str, Any]:
    """The document of a TOML file.

    Raises:
        InputError: it cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.", field="config") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text, which TOML has to be.") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from error


def parse(sections: Sections, document: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that a document, as TOML gives it, speaks of. Pure.

    Raises:
        InputError: a section or key is unknown, or a value is of the wrong kind or out of range.
    """
    made: dict[str, Any] = {}
    for name, values in document.items():
        if name not in sections:
            raise InputError("is no section.", field=name, allowed=", ".join(sections))
        if not isinstance(values, Mapping):
            raise InputError("is not a table.", field=name, found=values, allowed=f"[{name}]")
        made[name] = section(name, sections[name], values)
    return made


def section(name: str, kind: type[Any], values: Mapping[str, Any]) -> Any:
    """One section; raises as ``parse``."""
    known = {each.name: each for each in fields(kind)}
    checked: dict[str, Any] = {}
    for own, found in values.items():
        where = f"{name}.{own}"
        if own not in known:
            raise InputError("is no setting.", field=where, allowed=", ".join(known))
        value = _converted(known[own].default, found, where)
        passes, allowed = known[own].metadata["check"]
        if not passes(value):
            raise InputError("is out of range.", field=where, found=found, allowed=allowed)
        checked[own] = value
    return kind(**checked)


def _converted(default: Any, found: Any, where: str) -> Any:
    if isinstance(default, tuple):
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise InputError("is no list.", field=where, found=found, allowed='["NAME", ...]')
        return tuple(found)
    if isinstance(default, float) and type(found) in (int, float):
        return float(found)
    if type(found) is not type(default):
        kinds = {bool: "true, false", str: "a text", int: "a whole number", float: "a number"}
        raise InputError(
            "is of the wrong kind.", field=where, found=found, allowed=kinds[type(default)]
        )
    return found
