"""The agent's settings: one TOML file, every key with a default and a check.

The dataclasses below are the one place where keys, defaults, bounds and meanings are stated;
``table`` lists them for the documentation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kongming import settings as declared
from kongming.probes.folders import state_folder
from kongming.records.fingerprint import NodeFacts
from kongming.settings import (
    ABOVE_ZERO,
    ADDRESS,
    ANY,
    NOT_NEGATIVE,
    Check,
    Setting,
    is_address,
    setting,
)

_SHARE: Check = (lambda value: 0.0 < value <= 1.0, "above 0, up to 1")
_JITTER: Check = (lambda value: 0.0 <= value < 1.0, "0 or more, below 1")
_SPOOL: Check = (lambda value: value >= 1 << 20, "1048576 or more")
_ADDRESS_OR_NONE: Check = (lambda value: not value or is_address(value), 'HOST:PORT, or ""')


@dataclass(frozen=True, slots=True)
class Server:
    """Where reports go."""

    address: str = setting("127.0.0.1:7400", "The server's gRPC address.", ADDRESS)
    ca: str = setting("", "File of the authority that signed the server's certificate.", ANY)
    cert: str = setting("", "File of the agent's own certificate, for mutual TLS.", ANY)
    key: str = setting("", "File of that certificate's key.", ANY)
    token_file: str = setting("", "File that holds a bearer token of the role agent.", ANY)
    timeout_s: float = setting(10.0, "Longest wait for one answer, in seconds.", ABOVE_ZERO)
    longest_retry_s: float = setting(
        60.0, "Longest wait between two attempts to reach it, in seconds.", ABOVE_ZERO
    )
    least_heartbeat_s: float = setting(
        5.0, "Heartbeats are no more frequent, whatever the server asks; in seconds.", ABOVE_ZERO
    )


@dataclass(frozen=True, slots=True)
class Node:
    """Who this node is to the server."""

    id: str = setting(
        "",
        "Its identity; empty: made of the machine id and the hardware. For machines that were "
        "cloned with their machine id, and for several agents on one machine.",
        ANY,
    )
    name: str = setting("", "Its name for people; empty: the host's.", ANY)

    def identified(self, facts: NodeFacts) -> NodeFacts:
        """``facts`` with what is set here."""
        return replace(facts, id=self.id or facts.id, name=self.name or facts.name)


@dataclass(frozen=True, slots=True)
class Files:
    """Where the agent keeps what it may not lose, and where it probes the disk."""

    state: str = setting(
        "",
        "Folder of the spool and the reference; empty: $STATE_DIRECTORY, else "
        "$XDG_STATE_HOME/kongming/agent.",
        ANY,
    )
    io: str = setting("", "Folder whose disk is probed; empty: KONGMING_DIR or the cache.", ANY)
    spool_bytes: int = setting(
        64 << 20, "Fingerprints are thinned, oldest first, above so many bytes.", _SPOOL
    )

    inbox: str = setting(
        "",
        "Folder in which a scheduler's prolog and epilog leave reports; empty: local, in the "
        "folder of the state.",
        ANY,
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

    signals_s: float = setting(2.0, "Passive signals are read this often, in seconds.", ABOVE_ZERO)
    period_s: float = setting(
        120.0, "A quick fingerprint is due after so many seconds.", ABOVE_ZERO
    )
    jitter: float = setting(0.2, "That period varies by up to this share of it.", _JITTER)
    start_s: float = setting(10.0, "The first one is taken within so many seconds.", NOT_NEGATIVE)
    least_gap_s: float = setting(15.0, "Two fingerprints are at least so far apart.", NOT_NEGATIVE)
    longest_gap_s: float = setting(
        1800.0, "Under pressure the period doubles up to this, in seconds.", ABOVE_ZERO
    )
    step: float = setting(
        0.3,
        "How much a passive signal has to change to call for a fingerprint: a share of time, or "
        "the logarithm of a rate.",
        ABOVE_ZERO,
    )
    idle_s: float = setting(
        60.0, "A node that was idle for so long may have its reference taken.", NOT_NEGATIVE
    )
    reference_s: float = setting(
        86400.0, "A reference is taken again after so many seconds.", ABOVE_ZERO
    )
    write_s: float = setting(
        0.03, "Measuring time of the surrogates that write, in seconds.", ABOVE_ZERO
    )
    carry_s: float = setting(
        900.0,
        "Where the bytes that may be written are spent, readings of surrogates that write are "
        "repeated, and marked, for so long.",
        NOT_NEGATIVE,
    )
    memory_pressure: float = setting(
        0.1,
        "Probing backs off above this share of time in which all tasks wait for memory.",
        _SHARE,
    )
    io_pressure: float = setting(
        0.6, "Probing backs off above this share of time in which all tasks wait for I/O.", _SHARE
    )


@dataclass(frozen=True, slots=True)
class Budget:
    """What the agent and its probes may cost. Enforced, and exported as metrics."""

    cpu_share: float = setting(
        0.01, "Share of one core, agent and probes together, over any twenty minutes.", _SHARE
    )
    probe_share: float = setting(
        0.01, "Share of the time that may be probed, in any twenty minutes.", _SHARE
    )
    bytes_per_day: float = setting(
        float(16 << 30), "Bytes that agent and probes may write in any day.", NOT_NEGATIVE
    )


@dataclass(frozen=True, slots=True)
class Profile:
    """What may be profiled here, by the operator or on the server's request."""

    apps: str = setting("", "Applications file (TOML, as for 'kongming profile').", ANY)
    allow: tuple[str, ...] = setting([], "Names in it that may be profiled; none by default.", ANY)
    placement: str = setting(
        "cross-core",
        "Where the load runs relative to the application.",
        (
            lambda value: value in ("same-core", "smt-sibling", "cross-core", "cross-socket"),
            "same-core, smt-sibling, cross-core, cross-socket",
        ),
    )
    plan: str = setting(
        "quick", "Which load levels.", (lambda value: value in ("quick", "paper"), "quick, paper")
    )
    minutes: float = setting(60.0, "A request stops after so many minutes; resumable.", ABOVE_ZERO)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where the agent's own figures are."""

    listen: str = setting("127.0.0.1:7402", "Address of /metrics; empty: none.", _ADDRESS_OR_NONE)
    textfile: str = setting(
        "", "File for node_exporter's textfile collector, such as DIR/kongming.prom.", ANY
    )
    textfile_s: float = setting(30.0, "It is written this often, in seconds.", ABOVE_ZERO)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set, by section of the file."""

    server: Server = Server()
    node: Node = Node()
    files: Files = Files()
    probing: Probing = Probing()
    budget: Budget = Budget()
    profile: Profile = Profile()
    metrics: Metrics = Metrics()


def table() -> list[Setting]:
    """Every setting, in the order of the file."""
    return declared.table(Settings)


def load(path: Path | None, options: Mapping[str, Any] | None = None) -> Settings:
    """The defaults, what the file at ``path`` says, and over both ``options`` by key.

    Raises:
        InputError: the file cannot be read, or a value is of the wrong kind or out of range.
        UnknownNameError: a section or key that no setting has.
    """
    return declared.load(Settings, path, options)


def parse(document: Mapping[str, Any]) -> Settings:
    """The settings of a document as TOML gives it. Raises as ``load``."""
    return declared.parse(Settings, document)
