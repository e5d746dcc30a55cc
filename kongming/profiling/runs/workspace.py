"""Scratch folder, environment and untimed commands (set-up, prepare, clean-up) of applications."""

from __future__ import annotations

import abc
import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from kongming.processes.boot import boot_id
from kongming.profiling.plans.identity import inputs_named
from kongming.profiling.runs.execution import Execution
from kongming.profiling.runs.outcome import Outcome, why_failed
from kongming.profiling.runs.page_cache import evict
from kongming.records.application import SCRATCH, Application, Command, fill
from kongming.records.errors import ApplicationRunError

SETUP_TIMEOUT_S = 1800.0
"""Minimum time limit of set-up: it creates inputs, and ``timeout_s`` is for runs."""

PREFIX = "kongming-app-"
SWEEP_AGE_S = 60.0
_BOOT_DIGITS = 12
"""Digits of the boot's id in the name of a scratch folder: short, for paths of sockets have a
hundred characters, and of no two machines that share a work folder alike."""


class AnyRunner(abc.ABC):
    """Base class of the runners of batch applications and services. Entering runs ``setup``.

    The scratch folder is created below ``work_dir`` and removed on leaving, after ``cleanup``.
    ``evict_node``: before a run with a cold cache, the page cache of the whole node is dropped if
    that is permitted: for programs that run alone, since elsewhere it would drop that of their
    neighbours, and runs alone and next to one would not start from the same cache.
    ``any_metric``: a metric may be 0 or below it; else such a run counts as failed, since it has
    no slowdown.

    Raises:
        ApplicationRunError: on entering, when the folder cannot be created or set-up fails.
    """

    def __init__(
        self,
        app: Application,
        work_dir: str | Path,
        *,
        evict_node: bool = False,
        any_metric: bool = False,
    ) -> None:
        self.app = app
        self.work_dir = Path(work_dir).absolute()
        self.evict_node = evict_node
        self.any_metric = any_metric
        self.scratch: Path | None = None
        self._lock = -1
        self._untimed_command: Execution | None = None

    def __enter__(self) -> Self:
        try:
            self._make_scratch()
            if self.app.setup is not None:
                limit = max(SETUP_TIMEOUT_S, self.app.timeout_s)
                self._untimed("setup", self.app.setup, timeout_s=limit)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abc.abstractmethod
    def start(self, cpus: Sequence[int], cgroup_procs: Sequence[str | Path] = ()) -> None:
        """Start what a run on ``cpus`` needs; called by the profiler and by ``run``."""

    @abc.abstractmethod
    def run(
        self,
        cpus: Sequence[int],
        *,
        cgroup_procs: Sequence[str | Path] = (),
        timeout_s: float | None = None,
        neighbour: int | None = None,
    ) -> Outcome:
        """Time one run on ``cpus``; called by the profiler. A failure is in the outcome.
        ``neighbour`` is the CPU whose idle states are among the outcome's signals."""

    def close(self) -> None:
        """Run ``cleanup`` and remove the scratch folder. May be called twice."""
        if self.scratch is None:
            return
        scratch = self.scratch
        try:
            if self.app.cleanup is not None:
                # A failed clean-up must not hide the measurements.
                with contextlib.suppress(ApplicationRunError):
                    self._untimed("cleanup", self.app.cleanup)
        finally:
            self.scratch = None
            shutil.rmtree(scratch, ignore_errors=True)
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def execute(
        self,
        command: Command,
        *,
        cpus: Sequence[int] = (),
        cgroup_procs: Sequence[str | Path] = (),
        timeout_s: float | None = None,
        loop: bool = False,
    ) -> Execution:
        """Start ``command`` with ``{dir}`` filled, in the application's folder and environment.

        Raises:
            ApplicationRunError: the working folder does not exist.
        """
        scratch = str(self._entered())
        cwd = None if self.app.workdir is None else self.app.workdir.replace(SCRATCH, scratch)
        if cwd is not None and not Path(cwd).is_dir():
            raise ApplicationRunError(f"The workdir {cwd} of {self.app.name} is not a folder.")
        app_env = {name: value.replace(SCRATCH, scratch) for name, value in self.app.env.items()}
        return Execution(
            fill(command, scratch),
            cpus=cpus,
            cgroup_procs=cgroup_procs,
            cwd=cwd,
            env=os.environ | app_env,
            timeout_s=timeout_s,
            loop=loop,
        )

    def prepare(self, cpus: Sequence[int] = ()) -> None:
        """Run ``prepare``, if there is one, on the application's CPUs.

        Raises:
            ApplicationRunError: it failed.
        """
        if self.app.prepare is not None:
            self._untimed("prepare", self.app.prepare, cpus=cpus)

    def evict(
        self, *, whole_node: bool = False, named: bool = True, commands: Sequence[Command] = ()
    ) -> str:
        """Evict from the page cache what a run of an application with a cold cache is to read from
        the device: the files of its scratch folder and, unless ``named`` is false, those that its
        commands name; ``commands`` are those that run instead of its own. With ``whole_node`` and
        permission to, everything. Returns what was evicted."""
        apps = [replace(self.app, command=command) for command in commands] or [self.app]
        files = dict.fromkeys(file for app in apps for file in inputs_named(app)) if named else ()
        return evict(self._entered(), files, whole_node=whole_node)

    def make_cold(self, commands: Sequence[Command] = ()) -> tuple[str, ...]:
        """Evict what the next run, perhaps of other ``commands``, is to find cold; return the run's
        warnings of it, none where the application's cache is warm."""
        if self.app.cache != "cold":
            return ()
        return (self.evict(whole_node=self.evict_node, commands=commands),)

    def interrupt(self) -> None:
        """End the untimed command that is running in another thread, if any."""
        if self._untimed_command is not None:
            self._untimed_command.close()

    def _untimed(
        self,
        key: str,
        command: Command,
        *,
        cpus: Sequence[int] = (),
        timeout_s: float | None = None,
    ) -> None:
        limit = self.app.timeout_s if timeout_s is None else timeout_s
        with self.execute(command, cpus=cpus, timeout_s=limit) as running:
            self._untimed_command = running
            reason = why_failed(running.result(), running.output, limit)
            if reason is not None:
                raise ApplicationRunError(f"The {key} of {self.app.name} failed: {reason}")

    def _entered(self) -> Path:
        if self.scratch is None:
            raise ApplicationRunError(f"{self.app.name} has no scratch folder: it is not open.")
        return self.scratch

    def _make_scratch(self) -> None:
        try:
            self.work_dir.mkdir(parents=True, exist_ok=True)
            _sweep(self.work_dir)
            boot = _boot()
            prefix = f"{PREFIX}{self.app.name}-{boot}{'-' if boot else ''}"
            scratch = tempfile.mkdtemp(prefix=prefix, dir=self.work_dir)
        except OSError as error:
            raise ApplicationRunError(
                f"No scratch folder can be created in {self.work_dir}: {error.strerror}.",
                hint="Name a writable folder with free space.",
            ) from error
        self.scratch = Path(scratch)
        # Held until this process ends, even by kill -9: without the lock it may be removed.
        with contextlib.suppress(OSError):
            self._lock = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _boot() -> str:
    return boot_id()[:_BOOT_DIGITS]


def _sweep(work_dir: Path) -> None:
    """Remove scratch folders left by processes that were killed: of this boot of this machine.

    A lock says nothing of the processes of other machines that share the work folder, as by NFS.
    The name says which machine made a folder, since it has it from its first moment on; a file in
    it could come too late, and programs may want their folder empty.
    """
    boot = _boot()
    if not boot:
        return
    own = re.compile(rf"{PREFIX}.+-{boot}-[a-z0-9_]{{8}}")
    for folder in work_dir.glob(f"{PREFIX}*"):
        if own.fullmatch(folder.name) is None:
            continue
        try:
            # A folder that was just created may not be locked yet.
            if time.time() - folder.stat().st_mtime < SWEEP_AGE_S:
                continue
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(fd)
