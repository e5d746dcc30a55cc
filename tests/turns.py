"""Whose turn it is, when several processes run the tests at once.

Tests that compare speeds of this machine (marked ``alone``) have it to themselves; all others share
it. Kept by two locks: whoever wants a turn passes the gate first, so that a test that waits
to be alone is not overtaken for ever.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TextIO

__all__ = ["Turn"]


class Turn:
    """This process's turn, kept by files in a folder that all processes share."""

    def __init__(self) -> None:
        self._held: TextIO | None = None

    def take(self, folder: Path, *, alone: bool) -> None:
        """Wait for a turn, shared with others or ``alone``; one that is held stays as it is."""
        if self._held is not None:
            return
        held = (folder / "turn.lock").open("a")
        with (folder / "gate.lock").open("a") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(held, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        self._held = held

    def give_back(self) -> None:
        """End the turn, if there is one."""
        if self._held is not None:
            # A child may still have the file open.
            fcntl.flock(self._held, fcntl.LOCK_UN)
            self._held.close()
            self._held = None
