"""Settings with units and bounds: sections of dataclass fields, their table, a TOML file over it.

A configuration file is TOML, one table for each section of a program's ``Config``, whose fields are
sections with their defaults; options of the command line win over it. What is not said keeps its
default.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from kongming.errors import InputError, UnknownNameError

__all__ = ["Setting", "as_file", "load", "setting", "split_address", "table"]

Config = TypeVar("Config")


def setting(
    default: Any,
    *,
    help: str,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field of a section, with what the table and the checks say of it."""
    said = {
        "help": help,
        "unit": unit,
        "minimum": minimum,
        "maximum": maximum,
        "choices": choices,
    }
    return field(default=default, metadata=said)


@dataclass(frozen=True, slots=True)
class Setting:
    """A line of the table of settings. ``key`` is ``section.name``."""

    key: str
    kind: type
    default: Any
    unit: str
    help: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]

    @property
    def allowed(self) -> str:
        if self.choices:
            return ", ".join(self.choices)
        if self.kind is bool:
            return "true, false"
        if self.minimum is None and self.maximum is None:
            return f"a {_KINDS[self.kind]}"
        low = "" if self.minimum is None else f"from {self.minimum:g}"
        high = "" if self.maximum is None else f"to {self.maximum:g}"
        return " ".join(filter(None, (f"a {_KINDS[self.kind]}", low, high)))


_KINDS = {str: "text", int: "whole number", float: "number", bool: "truth value"}


def table(kind: type[Any]) -> list[Setting]:
    """Every setting of a ``Config``, in the order of the sections."""
    return [
        Setting(
            key=f"{section.name}.{one.name}",
            kind=type(one.default),
            default=one.default,
            **one.metadata,
        )
        for section in fields(kind)
        for one in fields(section.default)  # type: ignore[arg-type]
    ]


def load(
    kind: type[Config], path: Path | None = None, options: Mapping[str, Any] | None = None
) -> Config:
    """The defaults of ``kind``, what the file at ``path`` says, and over both ``options`` by key.

    Raises:
        InputError: the file cannot be read, or a value is of the wrong kind or out of range.
        UnknownNameError: a key that no setting has.
    """
    known = {one.key: one for one in table(kind)}
    sections: dict[str, Any] = {
        section.name: section.default
        for section in fields(kind)  # type: ignore[arg-type]
    }
    said = {} if path is None else _read(path, list(sections))
    said |= {key: value for key, value in (options or {}).items() if value is not None}
    for key in said:
        if key not in known:
            raise UnknownNameError("setting", key, known)
    values = {key: _checked(known[key], value) for key, value in said.items()}
    for name, section in sections.items():
        changed = {key: value for key, value in values.items() if key.startswith(f"{name}.")}
        sections[name] = replace(
            section, **{key.partition(".")[2]: value for key, value in changed.items()}
        )
    return kind(**sections)


def as_file(settings: list[Setting]) -> str:
    """All settings as a configuration file that says the defaults."""
    lines: list[str] = []
    section = ""
    for one in settings:
        of, _, name = one.key.partition(".")
        if of != section:
            lines += ["", f"[{of}]"] if lines else [f"[{of}]"]
            section = of
        unit = f" [{one.unit}]" if one.unit else ""
        lines += [f"# {one.help}{unit} Allowed: {one.allowed}.", f"{name} = {_toml(one.default)}"]
    return "\n".join(lines) + "\n"


def split_address(text: str, field_name: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT`` or ``[HOST]:PORT``; raises InputError naming the field."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InputError(
            "is no address.", field=field_name, found=text, allowed="HOST:PORT, port 0 to 65535"
        )
    return host, int(port)


def _read(path: Path, sections: list[str]) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"The configuration {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"The configuration {path} is not TOML: {error}.") from error
    values: dict[str, Any] = {}
    for name, section in document.items():
        if name not in sections:
            raise UnknownNameError("section of the configuration", name, sections)
        if not isinstance(section, dict):
            raise InputError(
                "is not a section.", field=name, found=section, allowed=f"a table [{name}]"
            )
        values.update({f"{name}.{key}": value for key, value in section.items()})
    return values


def _checked(one: Setting, value: Any) -> Any:
    if one.kind is float and type(value) is int:
        value = float(value)
    wrong = type(value) is not one.kind
    if not wrong and one.kind in (int, float):
        low = -math.inf if one.minimum is None else one.minimum
        high = math.inf if one.maximum is None else one.maximum
        wrong = not low <= value <= high
    if wrong or (one.choices and value not in one.choices):
        raise InputError("is not allowed.", field=one.key, found=value, allowed=one.allowed)
    return value


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)
