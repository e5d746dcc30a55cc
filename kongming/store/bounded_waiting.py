"""PostgreSQL connections that end where the server does not answer, however long it stays silent.

PostgreSQL's own timeouts need a PostgreSQL that runs, and those of TCP a peer that does not even
acknowledge: neither helps against a server that is frozen, as on a virtual machine that is paused
or a disk that does not answer.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event

if TYPE_CHECKING:
    import psycopg

__all__ = ["BoundedWaiting"]

GRACE_S = 10.0
"""Time that PostgreSQL has to tell of its own timeouts."""

_T = TypeVar("_T")


class BoundedWaiting:
    """Ends each wait of an engine's connections in which nothing comes for ``silent_s`` seconds.

    None, as it is at first, has no end: a migration takes as long as it takes.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.silent_s: float | None = None
        event.listen(engine, "do_connect", self._connect)

    def _connect(
        self, dialect: Any, record: Any, arguments: list[Any], options: dict[str, Any]
    ) -> psycopg.Connection[Any]:
        return _connection_class(self).connect(*arguments, **options)

    def bounded(
        self, steps: Generator[Any, Any, _T], connection: psycopg.Connection[Any]
    ) -> Generator[Any, Any, _T]:
        """Pass on what ``steps`` waits for, until nothing has come for too long.

        Raises:
            psycopg.OperationalError: it has; the connection is closed.
        """
        import psycopg

        try:
            wanted = next(steps)
            since = time.monotonic()
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    since = now
                elif self.silent_s is not None and now - since > self.silent_s:
                    # Who closes it says so: the pool opens another one.
                    connection.pgconn.finish()
                    raise psycopg.OperationalError(
                        f"the server has not answered for {now - since:.0f} s"
                    )
                wanted = steps.send(ready)
        except StopIteration as end:
            value: _T = end.value
            return value


def _connection_class(bound: BoundedWaiting) -> type[psycopg.Connection[Any]]:
    # psycopg takes a tenth of a second to load, which commands on a SQLite store need not pay.
    import psycopg

    class Bounded(psycopg.Connection[Any]):
        """Waits no longer than ``bound`` allows."""

        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            return super().wait(bound.bounded(gen, self), *arguments, **options)

    return Bounded
