"""The lock of a state folder: agents that stay have one each."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kongming.records.errors import StoreError

_LOCK = "agent.lock"


@contextmanager
def only_agent(folder: Path) -> Iterator[None]:
    """Hold the lock of the state folder, which ends with this process however that ends. Where it
    cannot be kept at all, nothing is held.

    Raises:
        StoreError: another agent holds it.
    """
    with contextlib.ExitStack() as stack:
        # What is wrong with the folder itself is reported by the spool.
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"Another agent uses the state folder {folder}.",
                    hint="Give each agent on a machine its own files.state and node.id.",
                ) from None
        yield
