"""Whose turn it is, when several processes run the tests at once.

Tests that measure this machine (marked ``real`` or ``alone``) have it to themselves; all others
share it. Kept by two locks: whoever wants a turn passes the gate first, so that a test that waits
to be alone is not overtaken for ever.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["turn"]


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Hold a turn, kept by files in ``folder``: shared with others, or ``alone``."""
    with (folder / "gate.lock").open("a") as gate, (folder / "turn.lock").open("a") as held:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(held, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield
