"""Reports of agents, on their way into the store: many reports in one transaction.

While one transaction is being written the next reports gather, and for a moment longer: what a
transaction costs hardly depends on how many records share it. A report is answered when the
transaction that holds it is on disk. A node that brings much rests between its transactions, so
that it is its own reports that wait, and not those of others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from contextlib import suppress
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
from kongming_server.running.supervision import Working, unwatched

log = logging.getLogger(__name__)


Work = Callable[[], Coroutine[Any, Any, None]]


class ReportedStore(Protocol):
    def add_reported(self, records: Sequence[Reported]) -> Accepted: ...


@dataclass(frozen=True, slots=True)
class Report:
    """Records of one node that one call brought. ``domain`` is the cache domain of its fingerprint,
    ``size`` the bytes that the records had on their way, ``by`` who brought them: empty for no
    particular caller."""

    records: tuple[Reported, ...]
    domain: int = 0
    size: int = 0
    by: str = ""


_AT_ONCE = 16
"""Reports that are answered before other calls have their turn."""


_WORTH_GATHERING = 16
"""Nodes in one transaction from which on the next one is put off for the whole time; records of one
node in it from which on that node's next ones are."""

_LEAST_SHARE = 0.2
"""Of that time, what passes between transactions of few."""

_OF_ONE_NODE = 32
"""Records of one node in one transaction, about: those of others wait until it is on disk."""


_SHARE = 0.5
"""Of the queue, what the reports of one caller may take."""


_Key = tuple[str, str]
"""Who brings reports, and of which node."""


@dataclass(slots=True)
class _Waiting:
    report: Report
    done: asyncio.Future[Accepted]


@dataclass(slots=True)
class _Line:
    """The reports that one caller brought of one node. It rests until ``ready_at``, in seconds of
    the loop's clock."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    records: int = 0
    ready_at: float = 0.0


@dataclass(slots=True)
class _Brought:
    """Waiting reports of one caller, in sum."""

    records: int = 0
    bytes: int = 0


class Ingest:
    """A bounded queue before the store, in which nodes take turns: who brings much waits for
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
        """``observe`` is called with how long each transaction took, and whether the store failed;
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
        self._lines: dict[_Key, _Line] = {}
        self._brought: dict[str, _Brought] = {}
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
        line = self._lines.setdefault((report.by, report.records[0].node_id), _Line())
        line.waiting.append(_Waiting(report, done))
        line.records += len(report.records)
        self._count(report, 1)
        if len(line.waiting) == 1:
            # With more of a node that rests the writer would only look, and wait again.
            self._filled.set()
        return done

    async def add(self, report: Report) -> Accepted:
        """Queue a report and wait until it is on disk."""
        return await (await self.enqueue(report))

    def _count(self, report: Report, sign: int) -> None:
        """A report has come (1), or is taken (-1)."""
        records, size = sign * len(report.records), sign * report.size
        self._queued += records
        self._bytes += size
        brought = self._brought.setdefault(report.by, _Brought())
        brought.records += records
        brought.bytes += size
        if not brought.records:
            del self._brought[report.by]

    def _has_room(self, report: Report) -> bool:
        size, brought = len(report.records), self._brought.get(report.by)
        if report.by and brought is not None:
            within = (
                brought.records + size <= _SHARE * self._queue_records
                and brought.bytes + report.size <= _SHARE * self._queue_bytes
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
        while self._queued or not self._closing:
            self._filled.clear()
            if not self._ready():
                await self._wait_for_a_line()
                continue
            early_s = earliest - _now()
            if early_s > 0.0 and not self._closing and not self._fills_a_batch():
                await asyncio.sleep(early_s)
            group = self._take()
            earliest = _now() + self._distance_s(_nodes(group))
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

    def _ready(self) -> list[_Key]:
        """Return whose reports can be written now, in turn: all of them once the server is about to
        end."""
        now = _now()
        return [
            key
            for key, line in self._lines.items()
            if line.waiting and (self._closing or line.ready_at <= now)
        ]

    def _fills_a_batch(self) -> bool:
        ready = (min(_OF_ONE_NODE, self._lines[key].records) for key in self._ready())
        return sum(ready) >= self._batch_records

    async def _wait_for_a_line(self) -> None:
        """Wait until a report came, or one that waits has rested."""
        resting = [line.ready_at for line in self._lines.values() if line.waiting]
        until = min(resting) - _now() if resting else None
        with suppress(TimeoutError):
            async with asyncio.timeout(until):
                await self._filled.wait()

    def _distance_s(self, count: int) -> float:
        """Return how long the next transaction is put off: the longer, the more nodes it is worth
        it for; and how long the next records of a node are, the longer, the more it brought. Who
        reports alone, one record after another, waits little."""
        return self._gather_s * min(1.0, max(_LEAST_SHARE, count / _WORTH_GATHERING))

    def _take(self) -> list[_Waiting]:
        """The next reports, one of each node in turn."""
        group: list[_Waiting] = []
        taken: dict[_Key, int] = defaultdict(int)
        total = 0
        turns = deque(self._ready())
        while turns:
            key = turns.popleft()
            line = self._lines[key]
            size = len(line.waiting[0].report.records)
            if group and total + size > self._batch_records:
                break
            waiting = line.waiting.popleft()
            line.records -= size
            total += size
            taken[key] += size
            self._count(waiting.report, -1)
            group.append(waiting)
            # Its next one comes after those of all others.
            self._lines[key] = self._lines.pop(key)
            if line.waiting and taken[key] < _OF_ONE_NODE:
                turns.append(key)
        now = _now()
        for key, count in taken.items():
            self._lines[key].ready_at = now + self._distance_s(count)
        rested = [k for k, line in self._lines.items() if not line.waiting and line.ready_at <= now]
        for key in rested:
            del self._lines[key]
        return group

    def _commit(self, reports: Sequence[Report]) -> list[Accepted | Exception]:
        """Commit in a thread. What cannot be kept fails alone, without its neighbours."""
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


def _now() -> float:
    """Return the time of the loop, by which it sleeps as well."""
    return asyncio.get_running_loop().time()


def _nodes(group: Sequence[_Waiting]) -> int:
    """Return how many nodes the records of these reports are of."""
    return len({waiting.report.records[0].node_id for waiting in group})


def _shares(accepted: Accepted, reports: Sequence[Report]) -> list[Accepted | Exception]:
    """Return what of the transaction's result is each report's. A record that came twice is
    one's."""
    new = set(accepted.rows)
    refused = {(refusal.node_id, refusal.id): refusal for refusal in accepted.refused}
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
