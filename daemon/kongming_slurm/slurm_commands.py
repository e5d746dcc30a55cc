"""Slurm's nodes and jobs, read and changed by its own commands."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kongming.records.errors import InputError, ServiceError, UnavailableError
from kongming_slurm.hostlist import expand, joined
from kongming_slurm.tags import Note, is_name, note

Command = Callable[[Sequence[str]], str]
"""Runs a command and returns its output. Raises ServiceError."""

OWN_CHANGE = "Contiguous=no"
"""Changes nothing of a job with a note, which never asks for contiguous nodes: by it job_submit.lua
knows the bridge's changes of excluded nodes from those of users and administrators."""

_BAR = "|"
_HAS_NODES = "RUNNING,CONFIGURING,COMPLETING,SUSPENDED,STOPPED,STAGE_OUT,SIGNALING"
_TIME = re.compile(r"(?:(?:([0-9]{1,6})-)?([0-9]{1,6}):)?([0-9]{1,6}):([0-9]{2})")
_JOB = re.compile(r"[0-9]+(?:_[0-9]+|_\[[0-9,:-]+\]|\+[0-9]+)?")
_AT_A_TIME = re.compile(r"%[0-9]+")
_USABLE = frozenset(
    {"IDLE", "ALLOCATED", "MIXED", "COMPLETING", "RESERVED", "PLANNED", "POWERED_DOWN"}
    | {"POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP", "FUTURE"}
)


@dataclass(frozen=True, slots=True)
class SlurmNodes:
    """The nodes of a cluster in Slurm's order, with their current weights, and the CPUs and memory
    that jobs may have of them; ``threads`` are those of a core, 0 where not known. ``partitions``
    list their nodes by place. ``longest_min`` are the greatest time limits of partitions that have
    one, in minutes."""

    names: tuple[str, ...] = ()
    up: tuple[bool, ...] = ()
    cpus: tuple[int, ...] = ()
    memory_mb: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    longest_min: Mapping[str, int] = field(default_factory=dict)


class NodeSize(NamedTuple):
    """CPUs and memory of a node that jobs may have, and the threads of each of its cores; no size
    where Slurm shows none, so that nothing counts on the node."""

    cpus: int = 0
    memory_mb: int = 0
    threads: int = 0


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A pending job with a note of job_submit.lua. ``id`` is as scontrol takes it, ``user`` the
    number of its user."""

    id: str
    user: int
    waited_s: float
    partitions: tuple[str, ...]
    excluded: frozenset[str]
    note: Note
    limit_min: int = 0
    time_min: int = 0

    @property
    def array(self) -> str:
        """Its id, for an array that of all its tasks together, which squeue takes."""
        return self.id.partition("_")[0]


@dataclass(frozen=True, slots=True)
class LimitedJob:
    """A running job with a note, its time limit and its --time-min (0 for none), in minutes."""

    id: str
    limit_min: int
    time_min: int
    note: Note


class Slurm:
    """The Slurm of this machine. ``folder`` holds its commands ("" for the PATH's),
    ``configuration`` is its slurm.conf ("" for the default)."""

    def __init__(
        self,
        *,
        folder: str = "",
        configuration: str = "",
        timeout_s: float = 10.0,
        command: Command | None = None,
    ) -> None:
        self._folder, self._timeout_s = folder, timeout_s
        self._env = {**os.environ, "LC_ALL": "C", "SLURM_BITSTR_LEN": "0"}
        if configuration:
            self._env["SLURM_CONF"] = configuration
        self._run = command or self._command

    def cluster(self) -> str:
        """The cluster's name. Raises ServiceError."""
        return self._configured("ClusterName")

    def nodes(self) -> SlurmNodes:
        """Read all nodes; those whose names the ranking file cannot hold are left out.

        Raises ServiceError.
        """
        rows = _rows(self._run(["sinfo", "-h", "-a", "-N", "-o", "%N|%w|%T|%P|%l"]), 5)
        # sinfo counts what is reserved for the system, too.
        sizes = node_sizes(self._run(["scontrol", "-a", "-o", "show", "node"]))
        names: dict[str, int] = {}
        rows_by_place: list[tuple[bool, int, NodeSize]] = []
        partitions: dict[str, list[int]] = {}
        longest_min: dict[str, int] = {}
        for name, weight, state, partition, longest in rows:
            if not is_name(name):
                continue
            place = names.setdefault(name, len(names))
            if place == len(rows_by_place):
                size = sizes.get(name, NodeSize())
                rows_by_place.append((_usable(state), _integer(weight), size))
            partition_name = partition.removesuffix("*")
            if minutes(longest):
                longest_min[partition_name] = minutes(longest)
            if is_name(partition_name):
                partitions.setdefault(partition_name, []).append(place)
        return SlurmNodes(
            names=tuple(names),
            up=tuple(row[0] for row in rows_by_place),
            cpus=tuple(row[2].cpus for row in rows_by_place),
            memory_mb=tuple(row[2].memory_mb for row in rows_by_place),
            threads=tuple(row[2].threads for row in rows_by_place),
            weights={name: rows_by_place[place][1] for name, place in names.items()},
            partitions={name: tuple(places) for name, places in partitions.items()},
            longest_min=longest_min,
        )

    def pending_jobs(self) -> list[PendingJob]:
        """Pending jobs with a note, the one that waits longest first. Raises ServiceError."""
        fields = (
            "JobID:|,JobArrayID:|,UserID:|,PendingTime:|,Partition:|,TimeLimit:|,MinTime:|,"
            "admin_comment:"
        )
        noted_jobs = []
        # The note is last: an administrator may have written a bar before it.
        for id_, array, user, waited, partition, limit, least, comment in _rows(
            self._run(["squeue", "-h", "-a", "-t", "PENDING", "-O", fields]), 8
        ):
            job_note = note(comment)
            if job_note is not None:
                numbers = (_integer(user), float(_integer(waited)))
                times = (minutes(limit), minutes(least))
                noted_jobs.append((id_, array, *numbers, partition, job_note, *times))
        if not noted_jobs:
            return []
        output = self._run(["squeue", "-h", "-a", "-t", "PENDING", "-o", "%A|%x"])
        excluded = {id_: hosts for id_, hosts in _rows(output, 2)}
        jobs = []
        for id_, array, user_id, waited_s, partition, job_note, limit_min, time_min in noted_jobs:
            try:
                # The empty list of job_submit.lua is a comma.
                now = frozenset(expand(excluded.get(id_, "").strip(",")))
            except InputError:
                continue
            partitions = tuple(partition.split(","))
            # scontrol does not take the most tasks at a time, as in 12_[0-9%2].
            array = _AT_A_TIME.sub("", array)
            job = PendingJob(
                array, user_id, waited_s, partitions, now, job_note, limit_min, time_min
            )
            jobs.append(job)
        return sorted(jobs, key=lambda job: -job.waited_s)

    def jobs_with_nodes(self) -> set[tuple[str, str]]:
        """(Id, count of restarts) of all jobs that have nodes now."""
        output = self._run(["squeue", "-h", "-a", "-t", _HAS_NODES, "-O", "JobID:|,RestartCnt:"])
        return {(id_, restarts) for id_, restarts in _rows(output, 2)}

    def limited_jobs(self) -> list[LimitedJob]:
        """Running jobs with a note of their user's time limit. Raises ServiceError."""
        fields = "JobArrayID:|,TimeLimit:|,MinTime:|,admin_comment:"
        jobs = []
        for id_, limit, least, comment in _rows(
            self._run(["squeue", "-h", "-a", "-t", _HAS_NODES, "-O", fields]), 4
        ):
            job_note = note(comment)
            if job_note is not None and job_note.limit_min:
                jobs.append(LimitedJob(id_, minutes(limit), minutes(least), job_note))
        return jobs

    def comment(self, job: str) -> str:
        """The comment of a job. Raises ServiceError."""
        return self._run(["squeue", "-h", "-a", "-j", job, "-O", "comment:"])

    def comments(self) -> dict[str, list[str]]:
        """Comments of all jobs that wait or have nodes, by id as of PendingJob and LimitedJob.

        Several for one id where a comment has a line that looks like that of another job. Raises
        ServiceError.
        """
        states = f"PENDING,{_HAS_NODES}"
        output = self._run(["squeue", "-h", "-a", "-t", states, "-O", "JobArrayID:|,comment:"])
        comments: dict[str, list[str]] = {}
        last: list[str] = []
        for line in output.splitlines():
            id_, bar, text = line.partition(_BAR)
            id_ = _AT_A_TIME.sub("", id_.strip())
            if bar and _JOB.fullmatch(id_):
                last = comments.setdefault(id_, [])
                last.append(text)
            elif last:
                last[-1] += f"\n{line}"
        return comments

    def state(self, job: str) -> tuple[str, int | None]:
        """The state of a job, for some minutes after its end too, and the seconds that it has run
        for without those that it was suspended for; None where Slurm prints none.

        Raises ServiceError.
        """
        fields = "JobID:|,State:|,TimeUsed:"
        # Of an array's first task squeue lists them all.
        output = self._run(["squeue", "-h", "-a", "-t", "all", "-j", job, "-O", fields])
        for id_, state, used in _rows(output, 3):
            if id_ == job:
                return state, seconds(used)
        raise ServiceError(f"squeue did not print the job {job}.")

    def restores_limits(self) -> bool:
        """Return whether a script runs on the controller when a job starts. Raises ServiceError."""
        return self._configured("PrologSlurmctld") not in ("", "(null)")

    def has_reservation_ahead(self) -> bool:
        """Return whether a reservation has yet to begin. Raises ServiceError."""
        output = self._run(["scontrol", "-o", "show", "reservation"])
        return any("State=INACTIVE" in line.split() for line in output.splitlines())

    def set_time_min(self, job: str, least: int) -> None:
        """Set the --time-min of a pending job in minutes, 0 for none. Raises ServiceError."""
        self._run(["scontrol", "update", f"JobId={job}", f"TimeMin={least}"])

    def set_time_limit(self, job: str, limit: int) -> None:
        """Set the time limit of a job in minutes. Raises ServiceError."""
        self._run(["scontrol", "update", f"JobId={job}", f"TimeLimit={limit}"])

    def set_weight(self, names: Iterable[str], weight: int) -> None:
        """Set the weight of nodes. Raises ServiceError."""
        self._run(["scontrol", "update", f"NodeName={joined(names)}", f"Weight={weight}"])

    def exclude(self, job: str, names: Iterable[str]) -> None:
        """Set the nodes that a pending job must not get. Raises ServiceError."""
        words = [f"JobId={job}", f"ExcNodeList={joined(names)}", OWN_CHANGE]
        self._run(["scontrol", "update", *words])

    def _configured(self, name: str) -> str:
        for line in self._run(["scontrol", "show", "config"]).splitlines():
            key, _, value = line.partition("=")
            # Later versions number the scripts: PrologSlurmctld[0].
            if key.strip().partition("[")[0] == name:
                return value.strip()
        raise ServiceError(f"scontrol did not print the setting {name}.")

    def _command(self, words: Sequence[str]) -> str:
        program = str(Path(self._folder) / words[0]) if self._folder else words[0]
        try:
            done = subprocess.run(
                [program, *words[1:]],
                env=self._env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(
                f"{words[0]} did not answer in {self._timeout_s:g} s."
            ) from error
        except OSError as error:
            raise ServiceError(f"{program} cannot be run: {error.strerror}.") from error
        if done.returncode != 0:
            reason = " ".join(done.stderr.split())[:200] or f"status {done.returncode}"
            raise ServiceError(f"{' '.join(words[:3])[:80]} failed: {reason}")
        return done.stdout


def node_sizes(text: str) -> dict[str, NodeSize]:
    """Read by name, from lines of ``scontrol -o show node``, what is not reserved for the system by
    CoreSpecCount, CpuSpecList and MemSpecLimit."""
    sizes = {}
    for line in text.splitlines():
        # What an administrator writes comes after it.
        words = line.partition(" Reason=")[0].split()
        fields = {key: value for key, _, value in (word.partition("=") for word in words)}
        threads = _integer(fields.get("ThreadsPerCore", ""))
        reserved = _integer(fields.get("CoreSpecCount", "")) * max(1, threads)
        # Slurm before 22.05 prints no CPUEfctv.
        cpus = fields.get("CPUEfctv") or str(_integer(fields.get("CPUTot", "")) - reserved)
        memory_mb = _integer(fields.get("RealMemory", ""))
        memory_mb -= _integer(fields.get("MemSpecLimit", ""))
        sizes[fields.get("NodeName", "")] = NodeSize(_integer(cpus), max(0, memory_mb), threads)
    return sizes


def _rows(text: str, count: int) -> list[list[str]]:
    """Lines of ``count`` parts; those of fewer are ignored."""
    rows = (line.split(_BAR, count - 1) for line in text.splitlines())
    return [[part.strip() for part in row] for row in rows if len(row) == count]


def _usable(state: str) -> bool:
    """Return whether a node in this state may get jobs: ``mixed``, but not ``idle*``."""
    return state.rstrip("*~#!%$@^-+").upper() in _USABLE and not state.endswith("*")


def seconds(text: str) -> int | None:
    """Slurm's ``1-02:05:00`` or ``8:00`` in seconds; None for whatever is no time."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, hours, mins, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + mins) * 60 + rest


def minutes(text: str) -> int:
    """The same in minutes, a part of one counted as a whole; 0 for UNLIMITED and whatever else is
    no time."""
    return -(-(seconds(text) or 0) // 60)


def _integer(text: str) -> int:
    digits = text.rstrip("+")
    return int(digits) if digits.isascii() and digits.isdigit() else 0
