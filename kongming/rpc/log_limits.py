"""A bound for what callers can make libraries, and us, write to the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

__all__ = ["LogLimits"]

LIBRARIES = ("asyncio", "aiohttp", "grpc")
"""Loggers that write of each connection and each malformed request."""

OURS = ("kongming.rpc.listener", "kongming.renewed_tls")
"""Our own that do."""


class LogLimits(logging.Filter):
    """Lets ``most`` records of a kind pass in ``period_s``, and says how many others there were.

    These are kinds of ``LIBRARIES``, ``OURS`` and ``loggers``, and what an agent brought about
    (``record.agent``, its credentials). A kind is a logger, a level and a text before its values
    are put in, of each agent for itself. What connections bring about is one line each: a
    traceback of a library says nothing of a malformed request.
    """

    def __init__(
        self,
        loggers: Iterable[str] = (),
        *,
        most: int = 10,
        period_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._ours = {*OURS, *loggers}
        self._most = most
        self._period_s = period_s
        self._clock = clock
        # When the period of a kind began, and how many came in it.
        self._seen: dict[tuple[str, int, str, str], tuple[float, int]] = {}

    def __len__(self) -> int:
        """Kinds that are remembered."""
        return len(self._seen)

    def filter(self, record: logging.LogRecord) -> bool:
        library = record.name.split(".", 1)[0] in LIBRARIES
        agent = getattr(record, "agent", "")
        if not library and not agent and record.name not in self._ours:
            return True
        kind = (record.name, record.levelno, str(record.msg)[:_LONGEST_KIND], agent)
        now = self._clock()
        since, count = self._seen.get(kind, (now, 0))
        more = 0
        if now - since >= self._period_s:
            more, since, count = max(0, count - self._most), now, 0
        if kind not in self._seen and len(self._seen) >= _KINDS:
            self._seen.clear()
        self._seen[kind] = (since, count + 1)
        if count >= self._most:
            return False
        if library:
            _shorten(record)
        if more:
            record.msg = f"{record.getMessage()} ({more} more of these in a minute were left out)"
            record.args = ()
        return True


_KINDS = 1000
_LONGEST_KIND = 200
_LONGEST_LINE = 500
_HTTP_2 = "PRI/Upgrade"
"""What aiohttp's parser says of the first bytes of a connection of HTTP/2."""


def _shorten(record: logging.LogRecord) -> None:
    error = record.exc_info[1] if record.exc_info else None
    about_connection = isinstance(error, OSError) or type(error).__module__.startswith("aiohttp")
    if error is not None and not about_connection:
        return
    text = record.getMessage().splitlines()[:1]
    if type(error).__module__ == "aiohttp.http_exceptions":
        # A caller sent what is no request: the server did not fail, and the bytes tell nobody much.
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        text.append(_malformed(getattr(error, "message", "")))
    elif error is not None:
        text.append(f"{type(error).__name__}: {error}")
    record.msg, record.args = " | ".join(text)[:_LONGEST_LINE], ()
    record.exc_info = record.exc_text = None


def _malformed(reason: str) -> str:
    if _HTTP_2 in reason:
        return "it begins as HTTP/2, as gRPC does, which has a port of its own"
    return f"not a request: {next(iter(reason.splitlines()), '').rstrip(' :')}"
