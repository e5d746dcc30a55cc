"""What agents report, on its way into the store: many reports in one transaction.

While one transaction is being written the next reports gather, and for a moment longer: what a
transaction costs hardly depends on how many records share it. A report is answered when the
transaction that holds it is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Protocol

from kongming.records.errors import (
    InputError,
    KongmingError,
    OverloadedError,
    StoreError,
    UnavailableError,
)
from kongming.store import Accepted, Reported
from kongming_server.supervision import Working, unwatched

log = logging.getLogger(__name__)


Work = Callable[[], Coroutine[Any, Any, None]]


class ReportedStore(Protocol):
    def add_reported(self, records: Sequence[Reported]) -> Accepted: ...


@dataclass(frozen=True, slots=True)
class Report:
    """Records that one call brought. ``domain`` is the cache domain of its fingerprint, ``size``
    the bytes that the records had on their way, ``by`` who brought them: empty for nobody in
    particular."""

    records: tuple[Reported, ...]
    domain: int = 0
    size: int = 0
    by: str = ""


_AT_ONCE = 16
"""Reports that are answered before other calls have their turn."""


_WORTH_GATHERING = 16
"""Records in one transaction from which on the next one is put off for the whole time."""

_LEAST_SHARE = 0.2
"""Of that time, what passes between transactions of few records."""


_SHARE = 0.5
"""Of the queue, what the reports of one caller may take."""


@dataclass(slots=True)
class _Waiting:
    report: Report
    done: asyncio.Future[Accepted]


@dataclass(slots=True)
class _Line:
    """The reports of one caller, and what they come to."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    records: int = 0
    bytes: int = 0


class Ingest:
    """A bounded queue before the store, in which callers take turns: who brings much waits for
    itself, and not the others. ``committed`` is called in the order of the commits."""

    def __init__(
        self,
        store: ReportedStore,
        executor: Executor,
        committed: Callable[[Report, Accepted], None],
        *,
        batch_records: int,
        queue_records: int,
        queue_wait_s: float,
        queue_bytes: int = 1 << 40,
        gather_s: float = 0.0,
        observe: Callable[[float, Exception | None], None] = lambda seconds, failed: None,
        working: Working = unwatched,
    ) -> None:
        """``observe`` is told how long each transaction took, and whether the store failed;
        ``working`` is around each."""
        self._store = store
        self._executor = executor
        self._committed = committed
        self._batch_records = batch_records
        self._queue_records = queue_records
        self._queue_wait_s = queue_wait_s
        self._queue_bytes = queue_bytes
        self._observe = observe
        self._working = working
        self._gather_s = gather_s
        self._lines: dict[str, _Line] = {}
        self._queued = 0
        self._bytes = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Condition()
        self._closing = False
        self._writer: asyncio.Task[None] | None = None
        self.transactions = 0
        self.records = 0

    @property
    def queued(self) -> int:
        """Records that wait for the store."""
        return self._queued

    def start(self, keep: Callable[[Work], asyncio.Task[None]] | None = None) -> None:
        """``keep`` begins the work of the queue, and again where it fails."""
        begin = keep or (lambda work: asyncio.ensure_future(work()))
        self._writer = begin(self._write)

    async def close(self) -> None:
        """Write what is queued, and take no more."""
        self._closing = True
        self._filled.set()
        if self._writer is not None:
            await self._writer

    async def enqueue(self, report: Report) -> asyncio.Future[Accepted]:
        """Queue a report; the future is done when it is on disk, or raises StoreError.

        Raises:
            OverloadedError: no room came free in time.
            UnavailableError: the server is about to end.
        """
        if not self._has_room(report):
            await self._wait_for_room(report)
        if self._closing:
            raise UnavailableError("The server is about to end.", hint="Try again later.")
        done: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(report.by, _Line())
        line.waiting.append(_Waiting(report, done))
        line.records += len(report.records)
        line.bytes += report.size
        self._queued += len(report.records)
        self._bytes += report.size
        self._filled.set()
        return done

    async def add(self, report: Report) -> Accepted:
        """Queue a report and wait until it is on disk."""
        return await (await self.enqueue(report))

    def _has_room(self, report: Report) -> bool:
        size, line = len(report.records), self._lines.get(report.by)
        if report.by and line is not None:
            within = (
                line.records + size <= _SHARE * self._queue_records
                and line.bytes + report.size <= _SHARE * self._queue_bytes
            )
            if not within:
                return False
        return not self._queued or (
            self._queued + size <= self._queue_records
            and self._bytes + report.size <= self._queue_bytes
        )

    async def _wait_for_room(self, report: Report) -> None:
        try:
            async with asyncio.timeout(self._queue_wait_s), self._room:
                await self._room.wait_for(lambda: self._closing or self._has_room(report))
        except TimeoutError:
            raise OverloadedError(
                f"{self._queued} records wait for the store.", hint="Report again later."
            ) from None

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        earliest = 0.0
        while True:
            if not self._lines:
                if self._closing:
                    return
                self._filled.clear()
                await self._filled.wait()
                continue
            early_s = earliest - time.monotonic()
            if early_s > 0.0 and self._queued < self._batch_records and not self._closing:
                await asyncio.sleep(early_s)
            group = self._take()
            earliest = time.monotonic() + self._distance_s(group)
            reports = [waiting.report for waiting in group]
            results: Sequence[Accepted | Exception]
            begun = time.perf_counter()
            failed: Exception | None = None
            try:
                with self._working("Writing reports"):
                    results = await loop.run_in_executor(self._executor, self._commit, reports)
            except Exception as error:
                if not isinstance(error, KongmingError):
                    log.exception("Reports could not be written.")
                results, failed = [error] * len(group), error
            self._observe(time.perf_counter() - begun, failed)
            for number, (waiting, result) in enumerate(zip(group, results, strict=True)):
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
                self._answer(waiting, result)
            async with self._room:
                self._room.notify_all()

    def _distance_s(self, group: Sequence[_Waiting]) -> float:
        """How long the next transaction is put off: the longer, the more records it is worth it
        for. Who reports alone, one record after another, waits little."""
        size = sum(len(waiting.report.records) for waiting in group)
        return self._gather_s * min(1.0, max(_LEAST_SHARE, size / _WORTH_GATHERING))

    def _take(self) -> list[_Waiting]:
        """The next reports, one of each caller in turn."""
        group: list[_Waiting] = []
        taken = 0
        while self._lines:
            by, line = next(iter(self._lines.items()))
            size = len(line.waiting[0].report.records)
            if group and taken + size > self._batch_records:
                break
            waiting = line.waiting.popleft()
            taken += size
            line.records -= size
            line.bytes -= waiting.report.size
            self._bytes -= waiting.report.size
            group.append(waiting)
            # Its next one comes after those of all others.
            del self._lines[by]
            if line.waiting:
                self._lines[by] = line
        self._queued -= taken
        return group

    def _commit(self, reports: Sequence[Report]) -> list[Accepted | Exception]:
        """In a thread. What cannot be kept fails alone, and not what came beside it."""
        records = [record for report in reports for record in report.records]
        try:
            self.transactions += 1
            accepted = self._store.add_reported(records)
        except (InputError, StoreError) as error:
            if isinstance(error, StoreError) and error.away:
                raise
            if len(reports) == 1:
                return [error]
            # By halves: what is wrong with one of many is found in few transactions.
            half = len(reports) // 2
            return self._commit(reports[:half]) + self._commit(reports[half:])
        self.records += len(records)
        return _shares(accepted, reports)

    def _answer(self, waiting: _Waiting, result: Accepted | Exception) -> None:
        if isinstance(result, Exception):
            if not waiting.done.cancelled():
                waiting.done.set_exception(result)
                # Whoever waited may have gone: an exception that nobody reads is no news.
                waiting.done.exception()
            return
        try:
            self._committed(waiting.report, result)
        except Exception:
            # It is on disk: that is what is answered, even if the matrix does not know it yet.
            log.exception("A report was kept but could not be used.")
        if not waiting.done.cancelled():
            waiting.done.set_result(result)


def _shares(accepted: Accepted, reports: Sequence[Report]) -> list[Accepted | Exception]:
    """What of the transaction's result is each report's. A record that came twice is one's."""
    new = set(accepted.rows)
    refused = {(one.node_id, one.id): one for one in accepted.refused}
    shares: list[Accepted | Exception] = []
    for report in reports:
        mine, known, bad = [], [], []
        for reported in report.records:
            key, id_ = reported.row_id, reported.record.id
            if key in new:
                new.discard(key)
                mine.append(id_)
            elif (reported.node_id, id_) in refused:
                bad.append(refused[reported.node_id, id_])
            elif id_ not in mine:
                known.append(id_)
        shares.append(Accepted(tuple(mine), tuple(known), tuple(bad)))
    return shares
