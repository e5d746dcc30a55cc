"""Assignment ids that say which process holds them, so that those of a killed one can be found."""

from __future__ import annotations

import functools
import socket
import uuid
from collections.abc import Iterable
from pathlib import Path

import psutil


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
    """Which process ids are meant: containers of one host name may have their own."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"


def _process(pid: int | None = None) -> str:
    process = psutil.Process(pid)
    return f"{process.pid}.{round(process.create_time())}.{_namespace()}"


def _ended(process: str) -> bool:
    """Whether a process of this namespace is gone; of another nothing is known."""
    pid, _, rest = process.partition(".")
    if not pid.isdigit() or rest.rpartition(".")[2] != _namespace():
        return False
    try:
        return _process(int(pid)) != process
    except (psutil.NoSuchProcess, OverflowError):
        return True
    except psutil.AccessDenied:
        return False
