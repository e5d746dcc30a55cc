"""The agent's settings: one TOML file, every key with a default and a check.

The dataclasses below are the one place where keys, defaults, bounds and meanings are stated;
``table`` lists them for the documentation.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from kongming.errors import InputError
from kongming.fingerprint import NodeFacts
from kongming.probes.folders import state_folder

_Check = tuple[Callable[[Any], bool], str]

_ABOVE_ZERO: _Check = (lambda value: 0.0 < value < math.inf, "above 0")
_NOT_NEGATIVE: _Check = (lambda value: 0.0 <= value < math.inf, "0 or more")
_SHARE: _Check = (lambda value: 0.0 < value <= 1.0, "above 0, up to 1")
_JITTER: _Check = (lambda value: 0.0 <= value < 1.0, "0 or more, below 1")
_ANY: _Check = (lambda value: True, "any text")
_SPOOL: _Check = (lambda value: value >= 1 << 20, "1048576 or more")


def _is_address(value: str) -> bool:
    host, colon, port = value.rpartition(":")
    return bool(host and colon) and port.isdigit() and int(port) < 65536


_ADDRESS: _Check = (_is_address, "HOST:PORT")
_ADDRESS_OR_NONE: _Check = (lambda value: not value or _is_address(value), 'HOST:PORT, or ""')


def _key(default: Any, meaning: str, check: _Check) -> Any:
    about = {"meaning": meaning, "check": check}
    if isinstance(default, list):
        return field(default=tuple(default), metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True, slots=True)
class Server:
    """Where reports go."""

    address: str = _key("127.0.0.1:7400", "The server's gRPC address.", _ADDRESS)
    ca: str = _key("", "File of the authority that signed the server's certificate.", _ANY)
    cert: str = _key("", "File of the agent's own certificate, for mutual TLS.", _ANY)
    key: str = _key("", "File of that certificate's key.", _ANY)
    token_file: str = _key("", "File that holds a bearer token of the role agent.", _ANY)
    timeout_s: float = _key(10.0, "Longest wait for one answer, in seconds.", _ABOVE_ZERO)
    longest_retry_s: float = _key(
        60.0, "Longest wait between two attempts to reach it, in seconds.", _ABOVE_ZERO
    )


@dataclass(frozen=True, slots=True)
class Node:
    """Who this node is to the server."""

    id: str = _key(
        "",
        "Its identity; empty: made of the machine id and the hardware. For machines that were "
        "cloned with their machine id, and for several agents on one machine.",
        _ANY,
    )
    name: str = _key("", "Its name for people; empty: the host's.", _ANY)

    def identified(self, facts: NodeFacts) -> NodeFacts:
        """``facts`` with what is set here."""
        return replace(facts, id=self.id or facts.id, name=self.name or facts.name)


@dataclass(frozen=True, slots=True)
class Files:
    """Where the agent keeps what it may not lose, and where it probes the disk."""

    state: str = _key(
        "",
        "Folder of the spool and the reference; empty: $STATE_DIRECTORY, else "
        "$XDG_STATE_HOME/kongming/agent.",
        _ANY,
    )
    io: str = _key("", "Folder whose disk is probed; empty: KONGMING_DIR or the cache.", _ANY)
    spool_bytes: int = _key(
        64 << 20, "Fingerprints are thinned, oldest first, above so many bytes.", _SPOOL
    )

    inbox: str = _key(
        "",
        "Folder in which a scheduler's prolog and epilog leave reports; empty: local, in the "
        "folder of the state.",
        _ANY,
    )

    def state_path(self) -> Path:
        """The state folder as it is to be used."""
        # systemd gives the unit's StateDirectory= under this name.
        given = self.state or os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
        return Path(given).expanduser() if given else state_folder() / "agent"

    def inbox_path(self) -> Path:
        """The folder of reports as it is to be used."""
        return Path(self.inbox).expanduser() if self.inbox else self.state_path() / "local"


@dataclass(frozen=True, slots=True)
class Probing:
    """When fingerprints are taken."""

    signals_s: float = _key(2.0, "Passive signals are read this often, in seconds.", _ABOVE_ZERO)
    period_s: float = _key(120.0, "A quick fingerprint is due after so many seconds.", _ABOVE_ZERO)
    jitter: float = _key(0.2, "That period varies by up to this share of it.", _JITTER)
    start_s: float = _key(10.0, "The first one is taken within so many seconds.", _NOT_NEGATIVE)
    least_gap_s: float = _key(15.0, "Two fingerprints are at least so far apart.", _NOT_NEGATIVE)
    longest_gap_s: float = _key(
        1800.0, "Under pressure the period doubles up to this, in seconds.", _ABOVE_ZERO
    )
    step: float = _key(
        0.3,
        "How much a passive signal has to change to call for a fingerprint: a share of time, or "
        "the logarithm of a rate.",
        _ABOVE_ZERO,
    )
    idle_s: float = _key(
        60.0, "A node that was idle for so long may have its reference taken.", _NOT_NEGATIVE
    )
    reference_s: float = _key(
        86400.0, "A reference is taken again after so many seconds.", _ABOVE_ZERO
    )
    write_s: float = _key(
        0.03, "Measuring time of the surrogates that write, in seconds.", _ABOVE_ZERO
    )
    carry_s: float = _key(
        900.0,
        "Where the bytes that may be written are spent, readings of surrogates that write are "
        "repeated, and marked, for so long.",
        _NOT_NEGATIVE,
    )
    memory_pressure: float = _key(
        0.1,
        "Probing backs off above this share of time in which all tasks wait for memory.",
        _SHARE,
    )
    io_pressure: float = _key(
        0.6, "Probing backs off above this share of time in which all tasks wait for I/O.", _SHARE
    )


@dataclass(frozen=True, slots=True)
class Budget:
    """What the agent and its probes may cost. Enforced, and exported as metrics."""

    cpu_share: float = _key(
        0.01, "Share of one core, agent and probes together, over any twenty minutes.", _SHARE
    )
    probe_share: float = _key(
        0.01, "Share of the time that may be probed, in any twenty minutes.", _SHARE
    )
    bytes_per_day: float = _key(
        float(16 << 30), "Bytes that agent and probes may write in any day.", _NOT_NEGATIVE
    )
    peer_bytes: int = _key(8 << 20, "Bytes that one timing of the network may send.", _ABOVE_ZERO)
    peer_seconds: float = _key(
        0.25, "Seconds that one timing of the network may take.", _ABOVE_ZERO
    )
    peer_period_s: float = _key(
        600.0, "The network is timed at most once in so many seconds.", _ABOVE_ZERO
    )


@dataclass(frozen=True, slots=True)
class Peer:
    """Timing of the network by other agents; off by default, since anyone may connect."""

    listen: str = _key("", "Answer other agents here; empty: not at all.", _ADDRESS_OR_NONE)
    advertise: str = _key(
        "", "Address that others use; empty: the one that is listened on.", _ADDRESS_OR_NONE
    )


@dataclass(frozen=True, slots=True)
class Profile:
    """What may be profiled here, by the operator or on the server's request."""

    apps: str = _key("", "Applications file (TOML, as for 'kongming profile').", _ANY)
    allow: tuple[str, ...] = _key([], "Names in it that may be profiled; none by default.", _ANY)
    placement: str = _key(
        "cross-core",
        "Where the load runs relative to the application.",
        (
            lambda value: value in ("same-core", "smt-sibling", "cross-core", "cross-socket"),
            "same-core, smt-sibling, cross-core, cross-socket",
        ),
    )
    plan: str = _key(
        "quick", "Which load levels.", (lambda value: value in ("quick", "paper"), "quick, paper")
    )
    minutes: float = _key(60.0, "A request stops after so many minutes; resumable.", _ABOVE_ZERO)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where the agent's own figures are."""

    listen: str = _key("127.0.0.1:7402", "Address of /metrics; empty: none.", _ADDRESS_OR_NONE)
    textfile: str = _key(
        "", "File for node_exporter's textfile collector, such as DIR/kongming.prom.", _ANY
    )
    textfile_s: float = _key(30.0, "It is written this often, in seconds.", _ABOVE_ZERO)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set, by section of the file."""

    server: Server = field(default_factory=Server)
    node: Node = field(default_factory=Node)
    files: Files = field(default_factory=Files)
    probing: Probing = field(default_factory=Probing)
    budget: Budget = field(default_factory=Budget)
    peer: Peer = field(default_factory=Peer)
    profile: Profile = field(default_factory=Profile)
    metrics: Metrics = field(default_factory=Metrics)


_SECTIONS: dict[str, type[Any]] = {
    "server": Server,
    "node": Node,
    "files": Files,
    "probing": Probing,
    "budget": Budget,
    "peer": Peer,
    "profile": Profile,
    "metrics": Metrics,
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


def load(path: Path | None) -> Settings:
    """The settings of a file; all defaults for None.

    Raises:
        InputError: it cannot be read, is no TOML, or a key is wrong (with the key).
    """
    if path is None:
        return Settings()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.", field="config") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text, which TOML has to be.") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from error
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
    return Settings(**made)


def changed(settings: Settings, **given: Mapping[str, Any]) -> Settings:
    """``settings`` with what was given on the command line, by section; None changes nothing.

    Raises:
        InputError: as for ``parse``.
    """
    made = {}
    for section, values in given.items():
        kept = getattr(settings, section)
        asked = {key: value for key, value in values.items() if value is not None}
        document = {known.name: _plain(getattr(kept, known.name)) for known in fields(kept)}
        made[section] = _section(section, _SECTIONS[section], document | asked)
    others = {name: getattr(settings, name) for name in _SECTIONS if name not in made}
    return Settings(**made, **others)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


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
        kinds = {str: "a text", int: "a whole number", float: "a number"}
        raise InputError(
            "is of the wrong kind.", field=where, found=found, allowed=kinds[type(default)]
        )
    return found
