"""One measurement at a time on a CPU: advisory locks, shared by all programs of ours on a machine.

Two campaigns on one CPU slow each other: what either calls the idle time is neither's. A lock is a
file for each CPU, held with flock(2) for as long as something is measured there, so that it ends
with its process however that ends. Measuring all the same is possible (``anyway``); then both sides
can tell, and mark what they measured meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kongming.records import moments
from kongming.records.errors import MeasurementError

FOLDER = "KONGMING_LOCKS"
"""The environment variable that names another folder for the locks."""

PATIENCE_S = 5.0
"""A fingerprint of an agent takes a second or less, with a disk that is slow a few."""

_POLL_S = 0.05
_LONGEST_NOTE = 4096
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Holder:
    """Holder of a measurement: ``pid`` 0, empty texts where that could not be read."""

    cpu: int
    pid: int = 0
    command: str = ""
    since: str = ""

    def __str__(self) -> str:
        who = self.command or "Another measurement"
        known = [f"process {self.pid}"] if self.pid else []
        known += [f"since {self.since}"] if self.since else []
        return f"{who} ({', '.join(known)})" if known else who


class BusyError(MeasurementError):
    """Somebody else measures on a CPU: ``holder``."""

    def __init__(self, holder: Holder, *, avoidable: bool) -> None:
        way_out = ", or measure all the same with --anyway: then the runs of both are marked"
        super().__init__(
            f"{holder} measures on CPU {holder.cpu}.",
            hint="Two measurements on one CPU slow each other, and both keep wrong times. "
            "Wait until it has ended"
            f"{way_out if avoidable else ''}.",
        )
        self.holder = holder


def locks_folder() -> Path:
    """KONGMING_LOCKS, else a folder that all users of the machine share."""
    configured = os.environ.get(FOLDER)
    if configured:
        return Path(configured)
    shared = Path("/run/lock")
    if os.access(shared / "kongming", os.W_OK | os.X_OK):
        # It is there for all, where only root may make it.
        return shared / "kongming"
    base = shared if os.access(shared, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return base / "kongming"


_held: dict[int, int] = {}
"""Handles of the locks that this process holds, by CPU."""

_shared: dict[int, tuple[int, int]] = {}
"""Handles of the CPUs on which this process measures although somebody else does, each with the
time at which this process wrote to the file (nanoseconds)."""


@contextmanager
def measuring(
    command: str,
    cpus: Iterable[int] | None = None,
    *,
    anyway: bool | None = None,
    patience_s: float | None = None,
) -> Iterator[None]:
    """Hold the locks of ``cpus`` (default: all that this process may use) while measuring.

    ``command`` is what others read. Locks that this process holds already are not taken again.
    Where locks cannot be kept at all (no folder that may be written), nothing is held. ``anyway``
    is the option of that name, None for what has no such option.

    Raises:
        BusyError: another process has one of them, or measures there ``anyway``, after
            ``patience_s`` (default: PATIENCE_S), and ``anyway`` is not true.
    """
    wanted = sorted(set(os.sched_getaffinity(0) if cpus is None else cpus) - _held.keys())
    deadline = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    taken: list[int] = []
    with contextlib.ExitStack() as stack:
        # In the order of their numbers: two that want the same CPUs cannot wait for each other.
        for cpu in wanted:
            handle = _open(cpu, "lock")
            if handle is None:
                continue
            stack.callback(os.close, handle)
            locked, other = _taken(cpu, handle, deadline)
            if other is not None and not anyway:
                for held in taken:
                    del _held[held]
                raise BusyError(other, avoidable=anyway is not None)
            if locked:
                _note(handle, command)
                _held[cpu] = handle
                taken.append(cpu)
            elif cpu not in _shared:
                stack.enter_context(_measuring_anyway(cpu))
        try:
            yield
        finally:
            for cpu in taken:
                _touch(_held.pop(cpu))


def disturbed_since(moment: float, cpus: Iterable[int] | None = None) -> Holder | None:
    """Return who else has measured on these CPUs at any time since ``moment`` (Unix seconds), or
    None.

    Tells what was measured with ``anyway``, from all sides: from the one that holds the lock,
    those that measure there as well; from one of these, the holder and the others of them.
    """
    for cpu in sorted(set(os.sched_getaffinity(0) if cpus is None else cpus)):
        if cpu in _held:
            other = _active(cpu, "anyway", moment)
        elif cpu in _shared:
            other = _active(cpu, "lock", moment) or _sharing(cpu, moment)
        else:
            other = None
        if other is not None:
            return other
    return None


@contextmanager
def _measuring_anyway(cpu: int) -> Iterator[None]:
    handle = _open(cpu, "anyway")
    if handle is None:
        yield
        return
    try:
        # For programs of earlier versions, which look whether they can take it.
        fcntl.flock(handle, fcntl.LOCK_SH)
        # Several may measure there besides the holder; the lock says that there is one, and this
        # kind can be asked for without being taken.
        _of_file(handle, fcntl.F_OFD_SETLK, fcntl.F_RDLCK)
        _note(handle, "A measurement with --anyway")
        _shared[cpu] = handle, os.fstat(handle).st_mtime_ns
        try:
            yield
        finally:
            del _shared[cpu]
            _touch(handle)
    finally:
        os.close(handle)


def _sharing(cpu: int, moment: float) -> Holder | None:
    """Return who else measures there with ``anyway``, or has since ``moment``."""
    handle, written_ns = _shared[cpu]
    seen = os.fstat(handle)
    # Each of them writes to the file when it begins and when it ends.
    since = seen.st_mtime_ns != written_ns and seen.st_mtime >= moment
    if not since and _of_file(handle, fcntl.F_OFD_GETLK, fcntl.F_WRLCK) == fcntl.F_UNLCK:
        return None
    other = _holder(cpu, handle)
    return other if other.pid != os.getpid() else Holder(cpu)


def _of_file(handle: int, command: int, kind: int) -> int:
    """Set or get a lock of this open file; return its kind, F_UNLCK where that is not possible."""
    with contextlib.suppress(OSError):
        answer = fcntl.fcntl(handle, command, struct.pack("hhqqi", kind, os.SEEK_SET, 0, 0, 0))
        return int(struct.unpack_from("h", answer)[0])
    return fcntl.F_UNLCK


def _taken(cpu: int, handle: int, deadline: float) -> tuple[bool, Holder | None]:
    """Wait for the lock of a CPU; return whether it was taken, and who measures there all the
    same."""
    while True:
        # Who came with --anyway may still be there when the holder has ended. Waited for without
        # the lock: whoever has it measures.
        other = _outlasting(cpu, deadline)
        if not _locked(handle, deadline):
            return False, _holder(cpu, handle)
        # Some come while the holder is waited for.
        other = other or _active(cpu, "anyway", math.inf)
        if other is None or time.monotonic() >= deadline:
            return True, other
        fcntl.flock(handle, fcntl.LOCK_UN)


def _outlasting(cpu: int, deadline: float) -> Holder | None:
    """Return who measures there with ``anyway`` still at the deadline, None where nobody does."""
    while (other := _active(cpu, "anyway", math.inf)) is not None:
        if time.monotonic() >= deadline:
            return other
        time.sleep(_POLL_S)
    return None


def _existing(cpu: int, kind: str) -> int | None:
    """A handle of the file, None where there is none."""
    path = locks_folder() / f"cpu-{cpu}.{kind}"
    for mode in (os.O_RDWR, os.O_RDONLY):
        with contextlib.suppress(OSError):
            return os.open(path, mode | _FLAGS)
    return None


def _open(cpu: int, kind: str) -> int | None:
    """A handle of the file, made where it is missing; None where that is not possible."""
    folder = locks_folder()
    with contextlib.suppress(OSError):
        if not folder.exists():
            folder.mkdir(parents=True)
            # Of all users, and nobody can take away another's files.
            folder.chmod(0o1777)
    # Only where it is missing: the kernel refuses O_CREAT for files of others in such a folder.
    if (handle := _existing(cpu, kind)) is not None:
        return handle
    with contextlib.suppress(OSError):
        path = folder / f"cpu-{cpu}.{kind}"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666)
        # The umask would keep other users from noting who holds it.
        os.fchmod(handle, 0o666)
        return handle
    # Another process was faster.
    return _existing(cpu, kind)


def _locked(handle: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def _note(handle: int, command: str) -> None:
    note = json.dumps({"pid": os.getpid(), "command": command, "since": moments.now()})
    # Where another user's file may only be read the lock counts all the same.
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, note.encode(), 0)


def _touch(handle: int) -> None:
    with contextlib.suppress(OSError):
        os.utime(handle)


def _holder(cpu: int, handle: int) -> Holder:
    try:
        note = json.loads(os.pread(handle, _LONGEST_NOTE, 0))
        pid, command, since = note["pid"], note["command"], note["since"]
    except (OSError, ValueError, KeyError, TypeError):
        return Holder(cpu)
    # Any user of the machine can write there.
    return Holder(
        cpu, pid if isinstance(pid, int) else 0, _printable(command, 200), _printable(since, 40)
    )


def _printable(value: object, most: int) -> str:
    return "".join(each for each in str(value)[:most] if each.isprintable())


def _active(cpu: int, kind: str, moment: float) -> Holder | None:
    """Return who holds the file's lock now, or held it since ``moment``."""
    handle = _existing(cpu, kind)
    if handle is None:
        return None
    try:
        if _is_locked(handle, kind) or os.fstat(handle).st_mtime >= moment:
            return _holder(cpu, handle)
        return None
    finally:
        os.close(handle)


def _is_locked(handle: int, kind: str) -> bool:
    """Whether somebody measures by this file. Those who look at once do not see each other: the
    note in it is that of whoever measured last."""
    if kind == "anyway":
        return _of_file(handle, fcntl.F_OFD_GETLK, fcntl.F_WRLCK) != fcntl.F_UNLCK
    try:
        # Its holder has it alone; several can look.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
