"""Settings of programs: declared once as fields of dataclasses, read from TOML, checked, listed.

A program's settings are a frozen dataclass whose fields are sections, each a frozen dataclass of
``setting`` fields. A configuration file has one table for each section; options of the command line
win over it; what neither says keeps its default.

Only the standard library is imported here: what runs before every job of a scheduler reads
settings too.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from kongming.addresses import is_address
from kongming.records.errors import InputError, UnknownNameError

Config = TypeVar("Config")

Check = tuple[Callable[[Any], bool], str]
"""Whether a value passes, and in words what does."""

_KINDS: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true, false",
    tuple: '["NAME", ...]',
}


def url_in_file(path: Path) -> str:
    """Return the store's URL that a file holds: arguments can be read by every user of a machine,
    and a URL may hold a password.

    Raises:
        InputError: the file cannot be read, or holds no URL.
    """
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(
            f"cannot be read: {reason}.", field="store_file", value=str(path)
        ) from error
    if "://" not in text or len(text.split()) != 1:
        # What it holds may be a password: it is not shown.
        raise InputError(
            "holds no URL of a store.", field="store_file", value=str(path), allowed="one URL"
        )
    return text


ABOVE_ZERO: Check = (lambda value: 0.0 < value < math.inf, "above 0")
NOT_NEGATIVE: Check = (lambda value: 0.0 <= value < math.inf, "0 or more")
ANY: Check = (lambda value: True, "any text")
REMOTE_ADDRESS: Check = (
    lambda value: value.startswith("unix:") or is_address(value, least_port=1),
    "HOST:PORT, port from 1, or unix:PATH",
)
"""Of what is connected to: at port 0 nothing can be reached."""


def setting(
    default: Any,
    help: str,
    check: Check | None = None,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field of a section: its default, what it does, and what is allowed.

    A value has the type of the default, where a list stands for a tuple of names. It passes
    ``check``, or lies within the bounds, or is one of the choices.
    """
    default = tuple(default) if isinstance(default, list) else default
    passes, allowed = check or _bounds(type(default), minimum, maximum, choices)
    described = {"help": help, "unit": unit, "allowed": allowed, "passes": passes}
    return field(default=default, metadata=described)


def _bounds(
    kind: type, minimum: float | None, maximum: float | None, choices: tuple[str, ...]
) -> Check:
    if choices:
        return (lambda value: value in choices), ", ".join(choices)
    words = [_KINDS[kind]]
    words += [] if minimum is None else [f"from {minimum:g}"]
    words += [] if maximum is None else [f"to {maximum:g}"]
    if kind not in (int, float):
        return (lambda value: True), words[0]
    low = -math.inf if minimum is None else minimum
    high = math.inf if maximum is None else maximum
    return (lambda value: low <= value <= high), " ".join(words)


@dataclass(frozen=True, slots=True)
class Setting:
    """A line of the table of settings. ``key`` is ``section.name``."""

    key: str
    default: Any
    help: str
    unit: str
    allowed: str
    passes: Callable[[Any], bool]

    @property
    def kind(self) -> type:
        return type(self.default)

    def checked(self, value: Any) -> Any:
        """The value as it is used. Raises InputError where it is not allowed."""
        kind = self.kind
        if kind is float and type(value) is int:
            # TOML has integers that no float holds.
            with suppress(OverflowError):
                value = float(value)
        if kind is tuple and isinstance(value, list) and all(isinstance(v, str) for v in value):
            value = tuple(value)
        if type(value) is not kind:
            known = _KINDS[kind]
            allowed = self.allowed if self.allowed.startswith(known) else f"{known}, {self.allowed}"
            raise InputError("is of the wrong kind.", field=self.key, value=value, allowed=allowed)
        if not self.passes(value):
            problem = "is not allowed." if kind in (str, tuple) else "is out of range."
            raise InputError(problem, field=self.key, value=value, allowed=self.allowed)
        return value


def table(kind: type[Any]) -> list[Setting]:
    """Every setting of a ``Config``, in the order of the sections."""
    return [
        Setting(f"{section.name}.{known.name}", known.default, **known.metadata)
        for section in fields(kind)
        for known in fields(section.default)  # type: ignore[arg-type]
    ]


def load(
    kind: type[Config], path: Path | None = None, options: Mapping[str, Any] | None = None
) -> Config:
    """The defaults of ``kind``, what the file at ``path`` says, and over both ``options`` by key;
    an option that is None says nothing.

    Raises:
        InputError: the file cannot be read, or a value is of the wrong kind or out of range.
        UnknownNameError: a section or key that no setting has.
    """
    values = {} if path is None else _by_key(kind, _read(path))
    values |= {key: value for key, value in (options or {}).items() if value is not None}
    return _build(kind, values)


def parse(kind: type[Config], document: Mapping[str, Any]) -> Config:
    """The settings of a document as TOML gives it. Raises as ``load``."""
    return _build(kind, _by_key(kind, document))


def as_file(kind: type[Any]) -> str:
    """All settings of a ``Config`` as a configuration file that says the defaults."""
    lines: list[str] = []
    section = ""
    for known in table(kind):
        name, _, key = known.key.partition(".")
        if name != section:
            lines += ["", f"[{name}]"] if lines else [f"[{name}]"]
            section = name
        unit = f" [{known.unit}]" if known.unit else ""
        lines += [f"# {known.help}{unit} Allowed: {known.allowed}."]
        # JSON's texts, lists, numbers and truth values are TOML's as well.
        lines += [f"{key} = {json.dumps(known.default)}"]
    return "\n".join(lines) + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"The configuration {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"The configuration {path} is not UTF-8 text (at byte {error.start}), which TOML "
            "requires."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"The configuration {path} is not TOML: {error}.") from error


def _by_key(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    sections = [section.name for section in fields(kind)]
    values: dict[str, Any] = {}
    for name, section in document.items():
        if name not in sections:
            raise _unknown("section of the configuration", name, sections)
        if not isinstance(section, Mapping):
            raise InputError(
                "is not a section.", field=name, value=section, allowed=f"a table [{name}]"
            )
        values |= {f"{name}.{key}": value for key, value in section.items()}
    return values


def _build(kind: type[Config], values: Mapping[str, Any]) -> Config:
    known = {setting.key: setting for setting in table(kind)}
    changed: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        if key not in known:
            raise _unknown("setting", key, known)
        section, _, name = key.partition(".")
        changed.setdefault(section, {})[name] = known[key].checked(value)
    sections = {
        section.name: replace(section.default, **changed.get(section.name, {}))  # type: ignore[type-var]
        for section in fields(kind)  # type: ignore[arg-type]
    }
    return kind(**sections)


def _unknown(what: str, name: str, known: Any) -> UnknownNameError:
    error = UnknownNameError(what, name, known)
    error.field = name
    return error
