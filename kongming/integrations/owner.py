"""Assignment ids that say which process holds them, so that those of a killed one can be found."""

from __future__ import annotations

import functools
import os
import socket
import uuid
from collections.abc import Iterable
from pathlib import Path

import psutil

from kongming.processes.boot import boot_id


def new_id(framework: str) -> str:
    """Return ``FRAMEWORK:HOST:PROCESS:UNIQUE``; of this process, at most 128 characters."""
    return f"{_host(framework)}{_process()}:{uuid.uuid4().hex[:16]}"


def left_over(ids: Iterable[str], framework: str) -> list[str]:
    """Return those of this host whose process has ended without releasing them."""
    host = _host(framework)
    leftovers = []
    for id_ in ids:
        process = id_.removeprefix(host).rpartition(":")[0]
        if id_.startswith(host) and _ended(process):
            leftovers.append(id_)
    return leftovers


def _host(framework: str) -> str:
    return f"{framework}:{socket.gethostname()[:64]}:"


@functools.cache
def _namespace() -> str:
    """Return which process ids are meant: containers of one host name may have their own."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"


def _started(pid: int) -> str:
    """Return when a process started, in ticks since a boot: a step of the clock leaves these as
    is."""
    boot = boot_id()[:8]
    if not boot:
        return _started_by_clock(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error
    except OSError as error:
        raise psutil.AccessDenied(pid) from error
    # After the name, which may have spaces and brackets, come the third field and those after it.
    return f"{boot}-{stat.rpartition(')')[2].split()[19]}"


def _started_by_clock(pid: int) -> str:
    """Return unix seconds, as ids of earlier versions have them."""
    return str(round(psutil.Process(pid).create_time()))


def _process() -> str:
    pid = os.getpid()
    return f"{pid}.{_started(pid)}.{_namespace()}"


def _ended(process: str) -> bool:
    """Return whether a process of this namespace is gone; of another nothing is known."""
    pid, _, rest = process.partition(".")
    started, _, namespace = rest.rpartition(".")
    if not pid.isdigit() or namespace != _namespace():
        return False
    started_now = _started if "-" in started else _started_by_clock
    try:
        return started_now(int(pid)) != started
    except OverflowError:
        return True
    except psutil.NoSuchProcess:
        return not _hidden(int(pid))
    except psutil.AccessDenied:
        return False


def _hidden(pid: int) -> bool:
    """Return whether it is another user's, which /proc may hide (its option hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        pass
    return False
