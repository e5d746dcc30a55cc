"""Sibling CPU control groups of equal weight, for a program and a neighbour on one core.

Without them the scheduler weighs processes: a neighbour with two would get twice the time of a
program with one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from kongming.probes.cgroups import membership, read_text

PREFIX = "kongming-"
REMOVE_S = 2.0
"""Time limit for removal: a group is busy until its last process is reaped."""

_numbers = itertools.count()
_WEIGHTS = {1: ("cpu.shares", 1024), 2: ("cpu.weight", 100)}


class CpuGroups(ABC):
    """Context manager of CPU control groups; ``active`` is whether they exist, ``reason`` why they
    do not.

    They are created below this process's own group or its nearest writable ancestor, and removed on
    leaving; remaining processes move to this process's group.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._groups: list[Path] = []
        self._home: Path | None = None
        self.reason: str | None = "not entered yet"

    @property
    def active(self) -> bool:
        return self.reason is None

    def __enter__(self) -> Self:
        member = membership("cpu", self._root)
        if member is None:
            self.reason = "there is no cpu controller that this process can see"
            return self
        self._home = member.folders[0] / "cgroup.procs"
        self.reason = "no cpu control group can be written by this user"
        for parent in parents(member.version, member.folders):
            try:
                sweep(parent)
                self._make(parent, member.version)
            except OSError as error:
                self.reason = f"{parent} cannot be used ({error.strerror})"
                self._remove()
            except BaseException:
                self._remove()
                raise
            else:
                self.reason = None
                break
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()
        self.reason = "left"

    @abstractmethod
    def _make(self, parent: Path, version: int) -> None:
        """Create the groups below ``parent`` by ``_add``. Raises OSError."""

    def _add(self, folder: Path, values: Mapping[str, str]) -> None:
        folder.mkdir()
        self._groups.append(folder)
        for name, value in values.items():
            (folder / name).write_text(f"{value}\n", encoding="ascii")
        try_to_enter(folder / "cgroup.procs")

    def _remove(self) -> None:
        for folder in reversed(self._groups):
            remove(folder, self._home)
        self._groups.clear()


class SiblingGroups(CpuGroups):
    """Two groups of equal weight. ``app_procs`` and ``load_procs`` are the ``cgroup.procs`` files
    to enter; empty if inactive."""

    @property
    def app_procs(self) -> tuple[Path, ...]:
        return (self._groups[0] / "cgroup.procs",) if self.active else ()

    @property
    def load_procs(self) -> tuple[Path, ...]:
        return (self._groups[1] / "cgroup.procs",) if self.active else ()

    def _make(self, parent: Path, version: int) -> None:
        name, weight = _WEIGHTS[version]
        for group in group_names("app", "load"):
            self._add(parent / group, {name: str(weight)})


def group_names(*roles: str) -> tuple[str, ...]:
    """Return names for related groups, unique for each call."""
    number = next(_numbers)
    return tuple(f"{PREFIX}{os.getpid()}-{number}-{role}" for role in roles)


def remove(folder: Path, home: Path | None) -> None:
    """Remove a group; processes that remain in it are moved to ``home`` (a cgroup.procs)."""
    deadline = time.monotonic() + REMOVE_S
    while True:
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                return
            _send_home(folder, home)
            time.sleep(0.01)


def _send_home(folder: Path, home: Path | None) -> None:
    """Move a group's processes, such as a service that outlives its runs, to ``home``."""
    if home is None:
        return
    for pid in (read_text(folder / "cgroup.procs") or "").split():
        with contextlib.suppress(OSError):  # it has ended, or is ending
            home.write_text(f"{pid}\n", encoding="ascii")


def parents(
    version: int, folders: tuple[Path, ...], controllers: Sequence[str] = ("cpu",)
) -> Iterator[Path]:
    """Yield groups below which siblings with these controllers can be created, nearest first.

    In version 2 only groups whose children already have the controllers: enabling one would
    change the scheduling of the complete subtree.
    """
    for folder in folders:
        if version == 2:
            enabled = (read_text(folder / "cgroup.subtree_control") or "").split()
            if not set(controllers) <= set(enabled):
                continue
        if os.access(folder, os.W_OK):
            yield folder


def try_to_enter(procs: Path) -> None:
    """Raise OSError if a process of this user cannot be moved there."""
    shell = shutil.which("sh") or "/bin/sh"
    attempt = subprocess.run(
        [shell, "-c", 'echo $$ > "$0"', str(procs)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if attempt.returncode != 0:
        raise PermissionError(1, "no process may enter it")


def sweep(parent: Path) -> None:
    """Remove empty groups left by processes that were killed."""
    for folder in parent.glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
