"""The agent's settings: one TOML file, every key with a default and a check.

``kongming.settings`` reads and lists them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from kongming.addresses import is_address
from kongming.probes.folders import state_folder
from kongming.records.fingerprint import PLACEMENTS, NodeFacts
from kongming.records.questions import DEFAULT_PLACEMENT
from kongming.settings import ABOVE_ZERO, ANY, NOT_NEGATIVE, REMOTE_ADDRESS, Check, setting

_SHARE: Check = (lambda value: 0.0 < value <= 1.0, "above 0, up to 1")
_JITTER: Check = (lambda value: 0.0 <= value < 1.0, "0 or more, below 1")
_SPOOL: Check = (lambda value: value >= 1 << 20, "1048576 or more")
_ADDRESS_OR_NONE: Check = (lambda value: not value or is_address(value), 'HOST:PORT, or ""')


@dataclass(frozen=True, slots=True)
class Server:
    """The server that receives reports."""

    address: str = setting("127.0.0.1:7400", "The server's gRPC address.", REMOTE_ADDRESS)
    ca: str = setting("", "File of the certificate authority of the server.", ANY)
    cert: str = setting("", "File of the agent's certificate, for mutual TLS.", ANY)
    key: str = setting("", "File of the key of the agent's certificate.", ANY)
    token_file: str = setting("", "File with a bearer token of the role agent.", ANY)
    timeout_s: float = setting(10.0, "Timeout of a call, in seconds.", ABOVE_ZERO)
    longest_retry_s: float = setting(
        60.0, "Maximum delay between two connection attempts, in seconds.", ABOVE_ZERO
    )
    least_heartbeat_s: float = setting(
        5.0, "Heartbeats are no more frequent, whatever the server asks; in seconds.", ABOVE_ZERO
    )


@dataclass(frozen=True, slots=True)
class Node:
    """The identity of this node."""

    id: str = setting(
        "",
        "Id of the node; empty: derived from the machine id and the hardware. Set it for "
        "machines that were cloned with their machine id, and for several agents on one "
        "machine, each of which also needs its own files.state.",
        ANY,
    )
    name: str = setting("", "Name of the node; empty: the host name.", ANY)

    def identified(self, facts: NodeFacts) -> NodeFacts:
        """Return ``facts`` with the id and the name of the settings."""
        return replace(facts, id=self.id or facts.id, name=self.name or facts.name)


@dataclass(frozen=True, slots=True)
class Files:
    """Folders of the agent's state and of the disk probes."""

    state: str = setting(
        "",
        "Folder of the spool and the reference, of this agent only; empty: $STATE_DIRECTORY, else "
        "$XDG_STATE_HOME/kongming/agent.",
        ANY,
    )
    io: str = setting(
        "", "Folder whose disk is probed; empty: KONGMING_DIR or the cache folder.", ANY
    )
    spool_bytes: int = setting(
        64 << 20,
        "Size of the spool in bytes above which fingerprints are thinned, oldest first.",
        _SPOOL,
    )

    inbox: str = setting(
        "",
        "Folder of the reports of a scheduler's prolog and epilog; empty: 'local' in the "
        "state folder.",
        ANY,
    )

    def state_path(self) -> Path:
        """Return the state folder."""
        # systemd gives the unit's StateDirectory= under this name.
        given = self.state or os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
        return Path(given).expanduser() if given else state_folder() / "agent"

    def inbox_path(self) -> Path:
        """Return the folder of reports."""
        return Path(self.inbox).expanduser() if self.inbox else self.state_path() / "local"


@dataclass(frozen=True, slots=True)
class Probing:
    """The schedule of fingerprints."""

    signals_s: float = setting(
        2.0, "Interval between readings of passive signals, in seconds.", ABOVE_ZERO
    )
    period_s: float = setting(120.0, "Period of quick fingerprints, in seconds.", ABOVE_ZERO)
    jitter: float = setting(0.2, "Random variation of the period, as a share of it.", _JITTER)
    start_s: float = setting(
        10.0, "Maximum delay of the first fingerprint, in seconds.", NOT_NEGATIVE
    )
    least_gap_s: float = setting(
        15.0, "Minimum time between two fingerprints, in seconds.", NOT_NEGATIVE
    )
    longest_gap_s: float = setting(
        1800.0, "Maximum period under pressure, in seconds; it doubles up to there.", ABOVE_ZERO
    )
    step: float = setting(
        0.3,
        "Change of a passive signal that triggers a fingerprint: a share of time, or the "
        "logarithm of a rate.",
        ABOVE_ZERO,
    )
    idle_s: float = setting(
        60.0,
        "Idle time of the node before a reference is taken, in seconds: work of 0.2 CPUs or less "
        "on all of the node's, not only on those that the agent may use.",
        NOT_NEGATIVE,
    )
    reference_s: float = setting(86400.0, "Period of idle references, in seconds.", ABOVE_ZERO)
    write_s: float = setting(
        0.03, "Measurement time of the surrogates that write, in seconds.", ABOVE_ZERO
    )
    carry_s: float = setting(
        900.0,
        "Maximum age in seconds of readings of surrogates that write, which are repeated "
        "and marked when the write budget is spent.",
        NOT_NEGATIVE,
    )
    coupling_s: float = setting(
        300.0,
        "Minimum time in seconds between two measurements of what one CPU does to another that "
        "shares its cache; only on idle CPUs.",
        ABOVE_ZERO,
    )
    memory_pressure: float = setting(
        0.1,
        "Share of time in which all tasks wait for memory, above which probing backs off.",
        _SHARE,
    )
    io_pressure: float = setting(
        0.6, "Share of time in which all tasks wait for I/O, above which probing backs off.", _SHARE
    )


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on the cost of the agent and its probes. They are enforced, and exported as
    metrics.
    """

    cpu_share: float = setting(
        0.01,
        "Maximum share of one core for agent and probes together, in any twenty minutes.",
        _SHARE,
    )
    probe_share: float = setting(
        0.01, "Maximum share of time with a running probe, in any twenty minutes.", _SHARE
    )
    bytes_per_day: float = setting(
        float(16 << 30), "Maximum bytes that agent and probes write in any day.", NOT_NEGATIVE
    )


@dataclass(frozen=True, slots=True)
class Profile:
    """Applications that the operator or the server may profile here."""

    apps: str = setting("", "Applications file (TOML, as for 'kongming profile').", ANY)
    allow: tuple[str, ...] = setting(
        [], "Names of the applications in it that may be profiled; none by default.", ANY
    )
    placement: str = setting(
        DEFAULT_PLACEMENT,
        "Placement of the load relative to the application.",
        (lambda value: value in PLACEMENTS, ", ".join(PLACEMENTS)),
    )
    plan: str = setting(
        "quick", "Plan of load levels.", (lambda value: value in ("quick", "paper"), "quick, paper")
    )
    minutes: float = setting(
        60.0,
        "Time limit of a requested profile in minutes, set-up not counted; resumable.",
        ABOVE_ZERO,
    )
    pause_s: float = setting(
        3600.0,
        "Minimum time in seconds between requested profiles of one application; a request that "
        "comes sooner waits.",
        NOT_NEGATIVE,
    )


@dataclass(frozen=True, slots=True)
class Metrics:
    """Export of the agent's own metrics."""

    listen: str = setting("127.0.0.1:7402", "Address of /metrics; empty: none.", _ADDRESS_OR_NONE)
    textfile: str = setting(
        "", "File for node_exporter's textfile collector, such as DIR/kongming.prom.", ANY
    )
    textfile_s: float = setting(
        30.0, "Interval between writes of this file, in seconds.", ABOVE_ZERO
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, by section of the file."""

    server: Server = Server()
    node: Node = Node()
    files: Files = Files()
    probing: Probing = Probing()
    budget: Budget = Budget()
    profile: Profile = Profile()
    metrics: Metrics = Metrics()
