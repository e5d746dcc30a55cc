"""What the bridge asks of Slurm and tells it, by Slurm's own commands."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kongming.errors import InputError, ServiceError, UnavailableError
from kongming_slurm.hostlist import expanded
from kongming_slurm.tags import Note, is_name, note

Command = Callable[[Sequence[str]], str]
"""Runs a command and gives what it wrote. Raises ServiceError."""

_BAR = "|"
_USABLE = frozenset(
    {"IDLE", "ALLOCATED", "MIXED", "COMPLETING", "RESERVED", "PLANNED", "POWERED_DOWN"}
    | {"POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP", "FUTURE"}
)
_JOBS_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a cluster in Slurm's order, with the weight that each has now; ``partitions``
    name theirs by place."""

    names: tuple[str, ...] = ()
    up: tuple[bool, ...] = ()
    cpus: tuple[int, ...] = ()
    memory_mb: tuple[int, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending job that job_submit.lua has chosen for. ``id`` is as scontrol takes it."""

    id: str
    waited_s: float
    partitions: tuple[str, ...]
    excluded: frozenset[str]
    note: Note


class Slurm:
    """The Slurm of this machine. ``folder`` is where its commands are ("" for the PATH's),
    ``configuration`` its slurm.conf ("" for the usual one)."""

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
        for line in self._run(["scontrol", "show", "config"]).splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "ClusterName":
                return value.strip()
        raise ServiceError("scontrol did not say what the cluster is called.")

    def nodes(self) -> Nodes:
        """Nodes whose names or partitions the rankings cannot hold are left out.

        Raises ServiceError.
        """
        rows = _rows(self._run(["sinfo", "-h", "-a", "-N", "-o", "%N|%w|%T|%P|%c|%m"]), 6)
        names: dict[str, int] = {}
        seen: list[tuple[bool, int, int, int]] = []
        partitions: dict[str, list[int]] = {}
        for name, weight, state, partition, cpus, memory in rows:
            if not is_name(name):
                continue
            place = names.setdefault(name, len(names))
            if place == len(seen):
                seen.append((_usable(state), _whole(weight), _whole(cpus), _whole(memory)))
            called = partition.removesuffix("*")
            if is_name(called):
                partitions.setdefault(called, []).append(place)
        return Nodes(
            names=tuple(names),
            up=tuple(each[0] for each in seen),
            cpus=tuple(each[2] for each in seen),
            memory_mb=tuple(each[3] for each in seen),
            weights={name: seen[place][1] for name, place in names.items()},
            partitions={name: tuple(places) for name, places in partitions.items()},
        )

    def waiting(self) -> list[Waiting]:
        """Pending jobs with a note, the one that waits longest first. Raises ServiceError."""
        what = "JobID:|,JobArrayID:|,PendingTime:|,Partition:|,admin_comment:"
        found = []
        # The note is last: an administrator may have written a bar before it.
        for id_, array, waited, partition, comment in _rows(
            self._run(["squeue", "-h", "-a", "-t", "PENDING", "-O", what]), 5
        ):
            noted = note(comment)
            if noted is not None:
                found.append((id_, array, float(_whole(waited)), partition, noted))
        if not found:
            return []
        told = self._run(["squeue", "-h", "-a", "-t", "PENDING", "-o", "%A|%x"])
        excluded = {id_: hosts for id_, hosts in _rows(told, 2)}
        jobs = []
        for id_, array, waited_s, partition, noted in found:
            try:
                now = frozenset(expanded(excluded.get(id_, "")))
            except InputError:
                continue
            jobs.append(Waiting(array, waited_s, tuple(partition.split(",")), now, noted))
        return sorted(jobs, key=lambda job: -job.waited_s)

    def present(self) -> set[tuple[str, str]]:
        """(Id, how often it was started again) of all jobs that have nodes now."""
        states = "RUNNING,CONFIGURING,COMPLETING,SUSPENDED,STOPPED,STAGE_OUT,SIGNALING"
        told = self._run(["squeue", "-h", "-a", "-t", states, "-O", "JobID:|,RestartCnt:"])
        return {(id_, restarts) for id_, restarts in _rows(told, 2)}

    def set_weight(self, names: Iterable[str], weight: int) -> None:
        """Raises ServiceError."""
        self._run(["scontrol", "update", f"NodeName={','.join(names)}", f"Weight={weight}"])

    def exclude(self, job: str, names: Iterable[str]) -> None:
        """What a pending job is kept from; no names for nothing. Raises ServiceError."""
        self._run(["scontrol", "update", f"JobId={job}", f"ExcNodeList={','.join(names)}"])

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
            said = " ".join(done.stderr.split())[:200] or f"status {done.returncode}"
            raise ServiceError(f"{' '.join(words[:3])[:80]} failed: {said}")
        return done.stdout


def _rows(text: str, count: int) -> list[list[str]]:
    """Lines of so many parts; a line of fewer is none of ours."""
    rows = (line.split(_BAR, count - 1) for line in text.splitlines())
    return [[part.strip() for part in row] for row in rows if len(row) == count]


def _usable(state: str) -> bool:
    """Whether jobs may come to run there: a state such as ``mixed`` or ``idle*``."""
    return state.rstrip("*~#!%$@^-+").upper() in _USABLE and not state.endswith("*")


def _whole(text: str) -> int:
    digits = text.rstrip("+")
    return int(digits) if digits.isascii() and digits.isdigit() else 0


__all__ = ["Nodes", "Slurm", "Waiting"]
