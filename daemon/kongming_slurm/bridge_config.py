"""The settings of kongming-slurm: one TOML file, every key with a default and a check.

Only the standard library is imported here: prolog and epilog read it before every job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kongming.records.errors import InputError
from kongming.settings import ABOVE_ZERO, ANY, NOT_NEGATIVE, REMOTE_ADDRESS, Check, setting

_RATIO: Check = (lambda value: 1.0 <= value < math.inf, "1 or more")
_RATIO_OR_NONE: Check = (
    lambda value: value == 0.0 or 1.0 <= value < math.inf,
    "0 for none, or 1 or more",
)
_WHOLE_FILE: Check = (lambda value: 4096 <= value <= 8 << 20, "4096 to 8388608")
_SPAN: Check = (lambda value: 10 <= value <= 100000, "10 to 100000")
_STEP: Check = (lambda value: 0.01 <= value <= 1.0, "0.01 to 1")
_JOBS: Check = (lambda value: 1 <= value <= 100000, "1 to 100000")
_SWITCH: Check = (lambda value: True, "true, false")
_LEVEL: Check = (lambda value: 0.5 <= value <= 0.99, "0.5 to 0.99")
_RUNS: Check = (lambda value: 1 <= value <= 1000000, "1 to 1000000")
_FILE: Check = (lambda value: bool(value), "a path")


@dataclass(frozen=True, slots=True)
class Server:
    """Server that is asked."""

    address: str = setting("127.0.0.1:7400", "The server's gRPC address.", REMOTE_ADDRESS)
    ca: str = setting("", "File of the authority that signed the server's certificate.", ANY)
    cert: str = setting("", "File of the bridge's own certificate, for mutual TLS.", ANY)
    key: str = setting("", "File of that certificate's key.", ANY)
    token_file: str = setting("", "File that holds a bearer token of the role scheduler.", ANY)
    timeout_s: float = setting(10.0, "Longest wait for one answer, in seconds.", ABOVE_ZERO)
    longest_retry_s: float = setting(
        60.0, "Longest wait between two attempts after trouble, in seconds.", ABOVE_ZERO
    )


@dataclass(frozen=True, slots=True)
class Rankings:
    """The file that job_submit.lua reads."""

    file: str = setting(
        "/var/lib/kongming-slurm/rankings",
        "Where it is; the same path stands in job_submit.lua. On a local disk of the controller.",
        _FILE,
    )
    refresh_s: float = setting(15.0, "It is written this often, in seconds.", ABOVE_ZERO)
    good_for_s: float = setting(
        120.0, "Seconds after it was written until the file is no longer used.", ABOVE_ZERO
    )
    most_bytes: int = setting(4 << 20, "Applications that do not fit are left out.", _WHOLE_FILE)
    apps: tuple[str, ...] = setting(
        [], "Applications to rank for, in this order; none for all that have a model.", ANY
    )
    limit: float = setting(
        1.5, "Slowdown above which a node is avoided, where a job names no limit.", _RATIO
    )
    resident_limit: float = setting(
        0.0,
        "A node is avoided by every job that would slow down a resident beyond this; 0: no limit.",
        _RATIO_OR_NONE,
    )


@dataclass(frozen=True, slots=True)
class Weights:
    """Node weights, which decide for jobs that name no application."""

    follow: bool = setting(True, "Whether weights follow the nodes' general slowdown.", _SWITCH)
    span: int = setting(
        1000, "Weights are changed within multiples of this: see docs/slurm.md.", _SPAN
    )
    step: float = setting(
        0.1, "A weight changes when the slowdown has by this share, 0.1 for 10%.", _STEP
    )


@dataclass(frozen=True, slots=True)
class Pending:
    """Jobs that wait."""

    refresh: bool = setting(
        True, "Whether their exclusions are kept up with the rankings.", _SWITCH
    )
    longest_s: float = setting(
        1800.0,
        "A job that has waited so many seconds is kept from no node any more; 0: never so.",
        NOT_NEGATIVE,
    )
    most_changes: int = setting(
        200, "Jobs that are changed in one refresh at the most; the others come next.", _JOBS
    )


@dataclass(frozen=True, slots=True)
class Times:
    """--time-min of jobs whose application has a history, and advice on --time."""

    set: bool = setting(
        False,
        "Whether jobs get a --time-min; needs restore-limit.sh as PrologSlurmctld.",
        _SWITCH,
    )
    advise: bool = setting(
        True, "Whether to tell users that their --time is twice the prediction or more.", _SWITCH
    )
    level: float = setting(
        0.9, "Level of the interval of a run; its upper end counts: of 0.9, 95% of runs.", _LEVEL
    )
    margin: float = setting(
        0.1, "Added to it for what of a job is not the application, 0.1 for 10%.", NOT_NEGATIVE
    )
    least_runs: int = setting(
        10, "An application has a history from so many jobs on, if it does not drift.", _RUNS
    )
    apps: tuple[str, ...] = setting([], "Applications that this is for; none for all.", ANY)
    skip_apps: tuple[str, ...] = setting([], "Applications that this is not for.", ANY)
    users: tuple[str, ...] = setting(
        [], "Users, by name or number, that this is for; none for all.", ANY
    )
    skip_users: tuple[str, ...] = setting([], "Users that this is not for.", ANY)


@dataclass(frozen=True, slots=True)
class Slurm:
    """Ways to reach Slurm."""

    commands: str = setting(
        "", "Folder of scontrol, sinfo and squeue; empty: the PATH's. Nodes need squeue.", ANY
    )
    configuration: str = setting("", "File slurm.conf; empty: SLURM_CONF or the usual one.", ANY)
    timeout_s: float = setting(10.0, "Longest wait for one command, in seconds.", ABOVE_ZERO)


@dataclass(frozen=True, slots=True)
class Hooks:
    """Prolog and epilog, on the nodes."""

    inbox: str = setting(
        "/var/lib/kongming/local",
        "Folder of reports to the node's agent (its files.inbox); %n is the node's name.",
        _FILE,
    )
    state: str = setting(
        "/run/kongming-slurm",
        "Folder where prolog notes when a job started; %n is the node's name.",
        _FILE,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set, by section of the file."""

    server: Server = Server()
    rankings: Rankings = Rankings()
    weights: Weights = Weights()
    pending: Pending = Pending()
    times: Times = Times()
    slurm: Slurm = Slurm()
    hooks: Hooks = Hooks()

    def __post_init__(self) -> None:
        """Check that settings fit together. Raises InputError."""
        if self.rankings.good_for_s < 2.0 * self.rankings.refresh_s:
            raise InputError(
                "would be over before the file is written again.",
                field="rankings.good_for_s",
                value=self.rankings.good_for_s,
                allowed="twice rankings.refresh_s or more",
            )
