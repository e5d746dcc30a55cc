"""Ports of this machine for programs that cannot choose one themselves, or take theirs again."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

__all__ = ["free_port", "free_ports"]

_LOWEST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback interface that nobody listens on at this moment.

    None is of those that the system gives to connections and to who asks for any port, so that
    none is taken before it is used, or between two lives of a program.
    """
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(_listening()) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def _listening() -> socket.socket:
    first_given = int(_RANGE.read_text(encoding="ascii").split()[0])
    # Processes of one test run draw at the same moments, and alike where a test sets the seed.
    draw = random.SystemRandom()
    for _ in range(1000 if first_given > _LOWEST else 0):
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", draw.randrange(_LOWEST, first_given)))
    return socket.create_server(("127.0.0.1", 0))
