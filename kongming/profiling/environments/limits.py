"""Control groups that enforce an environment's limits, version 1 and 2."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kongming.probes.cgroups import Membership, membership, read_text, throttling
from kongming.profiling.environments.block_device import block_device
from kongming.profiling.environments.environment import LIMITED, Environment
from kongming.profiling.environments.limit_settings import MEMORY_LIMIT, controllers_of, settings
from kongming.profiling.runs.settle import settle
from kongming.profiling.seat_groups import group_names, parents, remove, sweep, try_to_enter
from kongming.records.errors import MeasurementError
from kongming.records.fingerprint import NodeFacts

# Names in version 1 and 2; they differ only for the I/O controller.
_CONTROLLERS = {"cpu": "cpu", "blkio": "io", "cpuset": "cpuset", "memory": "memory"}
_LOWERING_TRIES = 5


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """Group hierarchy with the controllers needed in it."""

    version: int
    folders: tuple[Path, ...]
    controllers: tuple[str, ...]

    @property
    def home(self) -> Path:
        return self.folders[0] / "cgroup.procs"


class Limits:
    """Context manager: the environment's groups exist while it is open.

    ``app_procs``, ``probe_procs`` and ``load_procs`` are the files that the program, the suite's
    probe and the co-located load enter. The probe stays out of a memory limit: the limit fits
    one program, and the surrogates' arrays are larger than most. At the end, remaining processes
    move to this process's group, and the groups are removed.

    Raises:
        MeasurementError: on entering, when the groups cannot be created; says why.
    """

    def __init__(
        self,
        environment: Environment,
        io_dir: Path,
        *,
        memory_bytes: int | None = None,
        root: Path = Path("/"),
    ) -> None:
        self.environment = environment
        self.warnings: tuple[str, ...] = ()
        self._io_dir = io_dir
        self._memory_bytes = memory_bytes
        self._root = root
        self._groups: list[tuple[Path, Path]] = []
        self._procs: dict[str, list[Path]] = {"app": [], "load": []}
        self._folders: dict[str, tuple[int, Path]] = {}

    @property
    def app_procs(self) -> tuple[Path, ...]:
        return tuple(self._procs["app"])

    @property
    def probe_procs(self) -> tuple[Path, ...]:
        return () if self.environment.kind == "memory" else self.app_procs

    @property
    def load_procs(self) -> tuple[Path, ...]:
        return tuple(self._procs["load"])

    @property
    def memory_bytes(self) -> int | None:
        """Current memory limit in bytes."""
        return self._memory_bytes

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def limit_memory(self, limit_bytes: int) -> None:
        """Set or change the memory limit of a memory environment.

        Raises:
            MeasurementError: the kernel could not free enough.
        """
        version, folder = self._folders["memory"]
        for tries_left in reversed(range(_LOWERING_TRIES)):
            try:
                _write(folder / MEMORY_LIMIT[version], str(limit_bytes))
                break
            except OSError as error:
                if error.errno != errno.EBUSY or not tries_left:
                    reason = f"The memory limit of {limit_bytes >> 20} MiB cannot be set"
                    raise MeasurementError(f"{reason}: {error.strerror}.") from error
                settle()  # dirty pages cannot be reclaimed
        self._memory_bytes = limit_bytes

    def held_bytes(self) -> int:
        """Return the group's memory without reclaimable page cache; 0 without a memory group."""
        if "memory" not in self._folders:
            return 0
        version, folder = self._folders["memory"]
        counters = _counters(folder / "memory.stat")
        unreclaimable = {
            1: ("rss", "shmem"),
            2: ("anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables", "sock"),
        }
        return sum(counters.get(name, 0) for name in unreclaimable[version])

    def out_of_memory_kills(self) -> int:
        """Return the number of out-of-memory kills in the group."""
        if "memory" not in self._folders:
            return 0
        version, folder = self._folders["memory"]
        file = {1: "memory.oom_control", 2: "memory.events"}[version]
        return _counters(folder / file).get("oom_kill", 0)

    def throttled(self) -> dict[str, int]:
        """Return ``nr_periods``, ``nr_throttled``, ``throttled_us`` of a CPU quota; else empty."""
        if self.environment.kind != "quota" or "cpu" not in self._folders:
            return {}
        version, folder = self._folders["cpu"]
        return throttling(Membership(version, (folder,)))

    def _make(self) -> None:
        device = ""
        if self.environment.kind == "io":
            device = block_device(self._io_dir, self._root)
        roles = ("app", "load") if self.environment.shares_cpu else ("app",)
        try:
            hierarchies = _hierarchies(controllers_of(self.environment), self._root)
            for hierarchy in hierarchies:
                self._create_in(hierarchy, roles, device)
        except MeasurementError as error:
            if self.environment.kind in LIMITED:
                raise
            self._remove()
            self.warnings = (f"no sibling cgroups of equal weight: {error.message}",)

    def _create_in(self, hierarchy: _Hierarchy, roles: Sequence[str], device: str) -> None:
        names = [_name(hierarchy.version, name) for name in hierarchy.controllers]
        controllers = " and ".join(names)
        reason = f"no {controllers} control group can be written by this user"
        for parent in parents(hierarchy.version, hierarchy.folders, names):
            sweep(parent)
            group_count = len(self._groups)
            try:
                groups = [parent / name for name in group_names(*roles)]
                for folder in groups:
                    # Register first, so that a Ctrl-C right after mkdir still removes it.
                    self._groups.append((folder, hierarchy.home))
                    folder.mkdir()
                    self._set(folder, parent, hierarchy, device)
                    try_to_enter(folder / "cgroup.procs")
            except OSError as error:
                culprit = parent if error.filename is None else Path(error.filename).name
                reason = f"{controllers}: {culprit} cannot be used in {parent} ({error.strerror})"
                self._remove(group_count)
                continue
            for role, folder in zip(roles, groups, strict=True):
                self._procs[role].append(folder / "cgroup.procs")
            for controller in hierarchy.controllers:
                self._folders[controller] = (hierarchy.version, groups[0])
            return
        raise MeasurementError(f"{reason}.")

    def _set(self, folder: Path, parent: Path, hierarchy: _Hierarchy, device: str) -> None:
        if hierarchy.version == 1 and "cpuset" in hierarchy.controllers:
            # A new group has no CPUs or memory nodes, and cannot be entered without them.
            _write(folder / "cpuset.mems", read_text(parent / "cpuset.mems") or "0")
        for controller in hierarchy.controllers:
            for setting in settings(
                controller,
                hierarchy.version,
                self.environment,
                device=device,
                memory_bytes=self._memory_bytes,
            ):
                if setting.optional and not (folder / setting.file).exists():
                    continue
                _write(folder / setting.file, setting.text)

    def _remove(self, keep: int = 0) -> None:
        while len(self._groups) > keep:
            folder, home = self._groups[-1]
            remove(folder, home)
            self._groups.pop()
        if not keep:
            self._folders.clear()
            for procs in self._procs.values():
                procs.clear()


def reasons(node: NodeFacts, io_dir: Path, root: Path = Path("/")) -> dict[str, str | None]:
    """Return, by kind of limit, None if it is available here, else the reason.

    Tries each kind with a limit that has no effect, in groups that are removed immediately.
    """
    no_effect = 1 << 40
    trials: dict[str, dict[str, Any]] = {
        "quota": {"cpu_quota": float(len(node.cpus))},
        "io": {"read_bytes_per_s": no_effect, "write_bytes_per_s": no_effect},
        "cpuset": {"cpu": min(node.cpus)},
        "memory": {},
    }
    by_kind: dict[str, str | None] = {}
    for kind in LIMITED:
        try:
            with Limits(
                Environment(kind, kind, trials[kind]), io_dir, memory_bytes=no_effect, root=root
            ):
                by_kind[kind] = None
        except MeasurementError as error:
            by_kind[kind] = str(error)
    return by_kind


def sweep_leftovers(root: Path = Path("/")) -> None:
    """Remove empty groups left by campaigns that were killed."""
    for controller in _CONTROLLERS:
        member = _membership(controller, root)
        for folder in () if member is None else member.folders:
            sweep(folder)


def _hierarchies(controllers: Sequence[str], root: Path) -> list[_Hierarchy]:
    """Find the hierarchies: one per controller in version 1, a single one in version 2."""
    hierarchies: list[_Hierarchy] = []
    unified: list[str] = []
    folders: tuple[Path, ...] = ()
    for controller in controllers:
        member = _membership(controller, root)
        if member is None:
            raise MeasurementError(f"There is no {controller} controller that can be seen here.")
        if member.version == 1:
            hierarchies.append(_Hierarchy(1, member.folders, (controller,)))
        else:
            unified.append(controller)
            folders = member.folders
    if unified:
        hierarchies.append(_Hierarchy(2, folders, tuple(unified)))
    return hierarchies


def _membership(controller: str, root: Path) -> Membership | None:
    member = membership(controller, root)
    return member or membership(_CONTROLLERS[controller], root)


def _name(version: int, controller: str) -> str:
    return controller if version == 1 else _CONTROLLERS[controller]


def _write(path: Path, text: str) -> None:
    """Write to a kernel file, without creating a missing one."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(fd, f"{text}\n".encode("ascii"))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(fd)


def _counters(path: Path) -> dict[str, int]:
    lines = (line.split() for line in (read_text(path) or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in lines if len(pair) == 2 and pair[1].isdigit()}
