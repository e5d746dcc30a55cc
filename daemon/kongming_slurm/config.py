"""The settings of kongming-slurm: one TOML file, every key with a default and a check.

Only the standard library is imported here: prolog and epilog read it before every job.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from kongming.errors import InputError

_Check = tuple[Callable[[Any], bool], str]

_ABOVE_ZERO: _Check = (lambda value: 0.0 < value < math.inf, "above 0")
_NOT_NEGATIVE: _Check = (lambda value: 0.0 <= value < math.inf, "0 or more")
_RATIO: _Check = (lambda value: 1.0 <= value < math.inf, "1 or more")
_RATIO_OR_NONE: _Check = (
    lambda value: value == 0.0 or 1.0 <= value < math.inf,
    "0 for none, or 1 or more",
)
_ANY: _Check = (lambda value: True, "any text")
_WHOLE_FILE: _Check = (lambda value: 4096 <= value <= 8 << 20, "4096 to 8388608")
_SPAN: _Check = (lambda value: 10 <= value <= 100000, "10 to 100000")
_STEP: _Check = (lambda value: 0.01 <= value <= 1.0, "0.01 to 1")
_JOBS: _Check = (lambda value: 1 <= value <= 100000, "1 to 100000")
_SWITCH: _Check = (lambda value: True, "true, false")
_FILE: _Check = (lambda value: bool(value), "a path")


def _is_address(value: str) -> bool:
    host, colon, port = value.rpartition(":")
    return bool(host and colon) and port.isdigit() and 0 < int(port) < 65536


_ADDRESS: _Check = (_is_address, "HOST:PORT")


def _key(default: Any, meaning: str, check: _Check) -> Any:
    about = {"meaning": meaning, "check": check}
    if isinstance(default, list):
        return field(default=tuple(default), metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True, slots=True)
class Server:
    """Who is asked."""

    address: str = _key("127.0.0.1:7400", "The server's gRPC address.", _ADDRESS)
    ca: str = _key("", "File of the authority that signed the server's certificate.", _ANY)
    cert: str = _key("", "File of the bridge's own certificate, for mutual TLS.", _ANY)
    key: str = _key("", "File of that certificate's key.", _ANY)
    token_file: str = _key("", "File that holds a bearer token of the role scheduler.", _ANY)
    timeout_s: float = _key(10.0, "Longest wait for one answer, in seconds.", _ABOVE_ZERO)
    longest_retry_s: float = _key(
        60.0, "Longest wait between two attempts after trouble, in seconds.", _ABOVE_ZERO
    )


@dataclass(frozen=True, slots=True)
class Rankings:
    """The file that job_submit.lua reads."""

    file: str = _key(
        "/var/lib/kongming-slurm/rankings",
        "Where it is; the same path stands in job_submit.lua. On a local disk of the controller.",
        _FILE,
    )
    refresh_s: float = _key(15.0, "It is written this often, in seconds.", _ABOVE_ZERO)
    good_for_s: float = _key(
        120.0, "So many seconds after it was written nobody goes by it any more.", _ABOVE_ZERO
    )
    most_bytes: int = _key(4 << 20, "Applications that do not fit are left out.", _WHOLE_FILE)
    apps: tuple[str, ...] = _key(
        [], "Applications to rank for, in this order; none for all that have a model.", _ANY
    )
    limit: float = _key(
        1.5, "Slowdown above which a node is avoided, where a job names no limit.", _RATIO
    )
    resident_limit: float = _key(
        0.0,
        "A node is avoided by every job that would slow down a resident beyond this; 0: no limit.",
        _RATIO_OR_NONE,
    )


@dataclass(frozen=True, slots=True)
class Weights:
    """Node weights, which decide for jobs that name no application."""

    follow: bool = _key(True, "Whether weights follow the nodes' general slowdown.", _SWITCH)
    span: int = _key(
        1000, "Weights are changed within multiples of this: see docs/slurm.md.", _SPAN
    )
    step: float = _key(
        0.1, "A weight changes when the slowdown has by this share, 0.1 for 10%.", _STEP
    )


@dataclass(frozen=True, slots=True)
class Pending:
    """Jobs that wait."""

    refresh: bool = _key(True, "Whether their exclusions are kept up with the rankings.", _SWITCH)
    longest_s: float = _key(
        1800.0,
        "A job that has waited so many seconds is kept from no node any more; 0: never so.",
        _NOT_NEGATIVE,
    )
    most_changes: int = _key(
        200, "Jobs that are changed in one refresh at the most; the others come next.", _JOBS
    )


@dataclass(frozen=True, slots=True)
class Slurm:
    """How Slurm is reached."""

    commands: str = _key("", "Folder of scontrol, sinfo and squeue; empty: the PATH's.", _ANY)
    configuration: str = _key("", "File slurm.conf; empty: SLURM_CONF or the usual one.", _ANY)
    timeout_s: float = _key(10.0, "Longest wait for one command, in seconds.", _ABOVE_ZERO)


@dataclass(frozen=True, slots=True)
class Hooks:
    """Prolog and epilog, on the nodes."""

    inbox: str = _key(
        "/var/lib/kongming/local",
        "Folder of reports to the node's agent (its files.inbox); %n is the node's name.",
        _FILE,
    )
    state: str = _key(
        "/run/kongming-slurm",
        "Folder where prolog notes when a job started; %n is the node's name.",
        _FILE,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set, by section of the file."""

    server: Server = field(default_factory=Server)
    rankings: Rankings = field(default_factory=Rankings)
    weights: Weights = field(default_factory=Weights)
    pending: Pending = field(default_factory=Pending)
    slurm: Slurm = field(default_factory=Slurm)
    hooks: Hooks = field(default_factory=Hooks)


_SECTIONS: dict[str, type[Any]] = {
    "server": Server,
    "rankings": Rankings,
    "weights": Weights,
    "pending": Pending,
    "slurm": Slurm,
    "hooks": Hooks,
}


class Row(NamedTuple):
    """One key of the file: ``section.key``, its default, what is allowed, what it means."""

    key: str
    default: Any
    allowed: str
    meaning: str


def table() -> Iterator[Row]:
    """Every setting, in the order of the file."""
    for section, kind in _SECTIONS.items():
        for known in fields(kind):
            default: Any = known.default
            yield Row(
                f"{section}.{known.name}",
                list(default) if isinstance(default, tuple) else default,
                known.metadata["check"][1],
                known.metadata["meaning"],
            )


def load(path: Path | None, **given: Mapping[str, Any]) -> Settings:
    """The settings of a file (all defaults for None), with what was ``given`` by section: None
    changes nothing.

    Raises:
        InputError: it cannot be read, is no TOML, or a key is wrong (with the key).
    """
    document: dict[str, Any] = {}
    if path is not None:
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.", field="config") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8 text, which TOML has to be.") from error
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path} is not valid TOML: {error}.") from error
    for section, values in given.items():
        told = {key: value for key, value in values.items() if value is not None}
        if told and isinstance(document.setdefault(section, {}), dict):
            document[section] |= told
    return parse(document)


def parse(document: Mapping[str, Any]) -> Settings:
    """The settings of a document as TOML gives it. Pure.

    Raises:
        InputError: a section or key is unknown, or a value is of the wrong kind or out of range.
    """
    made: dict[str, Any] = {}
    for section, values in document.items():
        if section not in _SECTIONS:
            raise InputError("is no section.", field=section, allowed=", ".join(_SECTIONS))
        if not isinstance(values, Mapping):
            raise InputError("is not a table.", field=section, found=values, allowed=f"[{section}]")
        made[section] = _section(section, _SECTIONS[section], values)
    settings = Settings(**made)
    if settings.rankings.good_for_s < 2.0 * settings.rankings.refresh_s:
        raise InputError(
            "would be over before the file is written again.",
            field="rankings.good_for_s",
            found=settings.rankings.good_for_s,
            allowed="twice rankings.refresh_s or more",
        )
    return settings


def _section(section: str, kind: type[Any], values: Mapping[str, Any]) -> Any:
    known = {each.name: each for each in fields(kind)}
    checked: dict[str, Any] = {}
    for key, found in values.items():
        where = f"{section}.{key}"
        if key not in known:
            raise InputError("is no setting.", field=where, allowed=", ".join(known))
        value = _converted(known[key].default, found, where)
        passes, allowed = known[key].metadata["check"]
        if not passes(value):
            raise InputError("is out of range.", field=where, found=found, allowed=allowed)
        checked[key] = value
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
