"""The headers of the call that the current task answers.

Each time a call is asked for them gRPC makes them again, which takes 25 ms of 16,000: they are read
from what the interceptor was given, and no more of a call that has too many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar

from kongming_server.security.admission import Guard

__all__ = ["MOST_HEADERS", "authorization", "check", "first", "keep"]

MOST_HEADERS = 128
"""Of one call. Callers of ours send some ten, and proxies add a few."""

_Headers = Sequence[tuple[str, str | bytes]]
_current: ContextVar[_Headers] = ContextVar("kongming_headers", default=())


def keep(given: _Headers | None) -> None:
    """Keep what a call came with, once for each."""
    _current.set(given or ())


def check(guard: Guard, peer: str, flooded: Callable[[str], None]) -> None:
    """Check that the call has no more than it may; else ``flooded`` is called with its
    connection.

    Raises:
        OverloadedError: it has too many.
    """
    if len(_current.get()) > MOST_HEADERS:
        flooded(peer)
        raise guard.full("headers", f"A call may have {MOST_HEADERS} of them.")


def first(name: str) -> str:
    """The first of this name; empty where there is none, or where it is binary."""
    shown = next((value for key, value in _current.get() if key == name), "")
    return shown if isinstance(shown, str) else ""


def authorization() -> str | None:
    """All that was shown to say who calls; None for nothing."""
    shown = [value for key, value in _current.get() if key == "authorization"]
    if not shown:
        return None
    # Two are none (RFC 9110, 5.2: they are one list), which the guard is to count.
    return ", ".join(value if isinstance(value, str) else "" for value in shown[:2])
