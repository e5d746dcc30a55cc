"""The standard streams of a program: there are three, and what is on them is ours."""

from __future__ import annotations

import os
import sys


def prepare() -> None:
    """Do both at the start of a program, before it imports what opens files or gRPC."""
    occupy()
    keep_for_us()


def occupy() -> None:
    """Open the null device in place of each standard stream that is closed, as by ``>&-``.

    Without it the next file that is opened, such as the store's, would have the number of stdout,
    and be written to by whatever prints; and Python has no ``sys.stdout`` to flush.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def keep_for_us() -> None:
    """Let gRPC write nothing to stderr: it has a line for each failed handshake, which says less
    than our error does. It reads this when it is imported, so call this before."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
