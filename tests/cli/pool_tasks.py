"""What the tests have workers do: alone in a module, since each worker imports it anew."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from kongming.records.errors import UntrainedError


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def first_ends_last(task: tuple[int, str]) -> tuple[int, int]:
    """The square; that of 0 only once another process has done a task."""
    number, folder = task
    done = Path(folder) / "done"
    deadline = time.monotonic() + 100.0
    while number == 0 and not done.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    done.touch()
    return square(number)


def refused(number: int) -> int:
    if number == 3:
        raise UntrainedError("No third.", hint="Take the second.")
    return number


def ended(number: int) -> int:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def waiting(task: tuple[float, bytes]) -> int:
    time.sleep(task[0])
    return len(task[1])
