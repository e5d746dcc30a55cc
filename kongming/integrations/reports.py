"""Reports of what became of assignments, sent in order by a thread of their own."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Condition, Thread

from kongming.backoff import Backoff
from kongming.integrations.owner import left_over
from kongming.records.errors import KongmingError, ServiceError
from kongming.rpc.client import RemoteService

_log = logging.getLogger(__name__)

_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.5, 30.0

_SHARE_OF_TTL = 0.5
"""A reservation that has lived for this share of its time is bound, and then does not end by
itself: the program is there, and its task is taken to run. If the program is killed before, nothing
is left of it."""


class Reports:
    """``close`` waits at most ``timeout_s`` for what was not sent yet.

    The assignments of programs of the same framework that were killed on this host are released
    first.
    """

    def __init__(
        self, service: RemoteService, framework: str, *, ttl_s: float, timeout_s: float
    ) -> None:
        self._service, self._framework = service, framework
        self._bind_after_s, self._timeout_s = _SHARE_OF_TTL * ttl_s, timeout_s
        self._wake = Condition()
        self._queue: deque[Callable[[], object]] = deque([self._release_left_over])
        self._reserved_at: dict[str, float] = {}
        self._closed = self._abandoned = False
        self._thread = Thread(target=self._run, name="kongming reports", daemon=True)
        self._thread.start()

    def reserved(self, assignment_id: str) -> None:
        """Bind what was reserved just now, unless it is released in time."""
        with self._wake:
            self._reserved_at[assignment_id] = time.monotonic()
            self._wake.notify()

    def release(self, assignment_id: str, reserved: Callable[[], bool]) -> None:
        """Release it when the reports before this one are sent, if it was ``reserved`` by then."""
        self._forget(assignment_id)
        self.send(partial(self._release, assignment_id, reserved))

    def send(self, report: Callable[[], object]) -> None:
        """``report`` calls the server, again after each failure that lies with it."""
        with self._wake:
            self._queue.append(report)
            self._wake.notify()

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(self._timeout_s)
        self._abandoned = True

    def _run(self) -> None:
        backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        while not self._abandoned:
            with self._wake:
                self._queue_binds()
                if not self._queue:
                    if self._closed:
                        return
                    self._wake.wait(self._until_bind_s())
                    continue
                report = self._queue[0]
            try:
                report()
            except ServiceError as error:
                _log.debug("A report waits: %s", error)
                with self._wake:
                    self._wake.wait_for(lambda: self._closed, backoff.after_failure())
                    if self._closed:
                        return
                continue
            except KongmingError as error:
                # It has expired, or was released before.
                _log.debug("A report is not taken: %s", error)
            backoff.after_success()
            self._queue.popleft()

    def _until_bind_s(self) -> float | None:
        oldest = next(iter(self._reserved_at.values()), None)
        return None if oldest is None else max(0.0, oldest + self._bind_after_s - time.monotonic())

    def _queue_binds(self) -> None:
        while self._reserved_at and self._until_bind_s() == 0.0:
            assignment_id = next(iter(self._reserved_at))
            started_at = time.time() - (time.monotonic() - self._reserved_at.pop(assignment_id))
            self._queue.append(partial(self._service.bind, assignment_id, started_at=started_at))

    def _release(self, assignment_id: str, reserved: Callable[[], bool]) -> None:
        # Its reservation may have been a report before this one.
        self._forget(assignment_id)
        if reserved():
            self._service.release(assignment_id)

    def _forget(self, assignment_id: str) -> None:
        with self._wake:
            self._reserved_at.pop(assignment_id, None)

    def _release_left_over(self) -> None:
        ids = [assignment.assignment_id for assignment in self._service.assignments()]
        for assignment_id in left_over(ids, self._framework):
            self._service.release(assignment_id)
