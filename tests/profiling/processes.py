"""Shell lines that misbehave, and whether what they started is gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil


def stubborn_daemon(pid_file: str) -> str:
    """A shell line that leaves a daemon in a session of its own which ignores SIGTERM."""
    inner = f'trap "" TERM HUP INT; echo $$ > {pid_file}; while :; do sleep 0.05; done'
    return (
        f"setsid sh -c '{inner}' > /dev/null 2>&1 & while [ ! -s {pid_file} ]; do sleep 0.01; done"
    )


def eventually(condition: Callable[[], bool], limit_s: float = 60.0) -> bool:
    deadline = time.monotonic() + limit_s
    while True:
        began = time.process_time()
        if condition():
            return True
        if time.monotonic() > deadline:
            return False
        # Some look at every process of the machine: what is waited for needs the CPU more.
        time.sleep(max(0.01, 4.0 * (time.process_time() - began)))


def written_pid(file: Path) -> int:
    assert eventually(lambda: file.exists() and file.read_text().strip() != "")
    return int(file.read_text())


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
