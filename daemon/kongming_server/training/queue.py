"""Training as operations: queued, run by worker processes, watched, cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import psutil

from kongming.learning import model_file as persist
from kongming.learning.registry import AUTO, model_kind
from kongming.records.errors import (
    InputError,
    KongmingError,
    OverloadedError,
    StoreError,
    UnknownNameError,
)
from kongming.store import Store
from kongming.store.connection import NOT_READABLE
from kongming.store.service_entries import SILENT_AFTER_S, StoredOperation
from kongming_server.configuration.settings import Training as Settings
from kongming_server.operations.operation import (
    CANCELLED,
    DONE,
    FAILED,
    KIND,
    QUEUED,
    RUNNING,
    Operation,
    Operations,
)
from kongming_server.operations.tasks import Outcome, Task
from kongming_server.training.dask_cluster import cluster_of
from kongming_server.training.model_names import model_names
from kongming_server.training.process import Event, TrainingProcess
from kongming_server.training.task_progress import TaskProgress

if TYPE_CHECKING:
    from kongming_server.monitoring.metrics import Metrics

TOLD_EVERY_S = 0.5
"""How often the store is given how far an operation is, and asked whether it shall be cancelled."""

WAITING_TOLD_EVERY_S = SILENT_AFTER_S / 4.0
"""How often the store is given that a training still waits for its turn."""

_CANCEL = "cancel"
"""The kind of a row that asks the server that works on an operation to cancel it."""


log = logging.getLogger(__name__)


class Serving(Protocol):
    """Methods of the engine that training needs: new versions are swapped in at once, old ones
    kept."""

    def put_model(
        self, file: persist.ModelFile, version: int, in_service: bool = True
    ) -> object: ...


class Training:
    """All of a server's training. Every method is for the event loop's thread.

    ``changed`` tells by placement since when (unix seconds) an application is another program;
    ``trained`` is called with each outcome, after a new version is in service.
    """

    def __init__(
        self,
        store_url: str | None,
        engine: Serving,
        settings: Settings | None = None,
        *,
        metrics: Metrics | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store_url = store_url
        self._engine = engine
        self._settings = settings or Settings()
        self._models = model_names(self._settings.models)
        self._metrics = metrics
        self._now = now
        self._operations = Operations()
        self._waiting: deque[tuple[str, list[Task]]] = deque()
        self._free = self._settings.workers
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._store_: Store | None = None
        self._telling: asyncio.Task[None] | None = None
        self._writing = threading.Lock()
        self._ends: dict[str, Operation] = {}
        self._stopping: dict[str, str] = {}
        self.owner = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self.changed: Callable[[str], Mapping[str, float]] = lambda app: {}
        self.trained: Callable[[Outcome], None] = lambda outcome: None

    async def start(self) -> None:
        """Open the store; what a server that has died was training has failed."""
        self._store_ = await asyncio.to_thread(Store.open, self._store_url)
        for row in await asyncio.to_thread(
            lambda: self._store.operations(states=(QUEUED, RUNNING))
        ):
            if row.kind == KIND and self._is_dead(row.owner):
                try:
                    operation = Operation.from_stored(row)
                except NOT_READABLE as error:
                    log.error("Operation %s cannot be read, and is left out: %r", row.id, error)
                    continue
                reason = "The server that worked on it has ended."
                ended = operation.finished(FAILED, reason, self._now())
                await asyncio.to_thread(self._store.put_operation, ended.to_stored())
        self._telling = asyncio.create_task(self._tell_of_waiting())

    async def close(self) -> None:
        """End every worker; what they did is cancelled."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        waiting, self._waiting = self._waiting, deque()
        for operation_id, _ in waiting:
            await self._end(operation_id, CANCELLED, "The server ended.")
        for operation_id in list(self._at_work):
            self._stop(operation_id, "The server ended.")
        await asyncio.gather(*self._at_work.values(), return_exceptions=True)
        if self._store_ is not None:
            self._store_.close()

    # -- what is asked of it -------------------------------------------------------------------

    async def submit(
        self,
        apps: Sequence[str] = (),
        *,
        placement: str | None = None,
        model: str = AUTO,
        random_state: int = 0,
        cause: str = "it was asked for",
        by_operator: bool = True,
    ) -> Operation:
        """Train these applications, or all that have new runs; at one placement or at all.

        Raises:
            UnknownNameError: no such model or application.
            InputError: a seed that is none.
            OverloadedError: too many wait already.
        """
        if model != AUTO:
            model_kind(model)
        if not 0 <= random_state < 2**32:
            raise InputError(
                "is not a seed.", field="random_state", value=random_state, allowed="0 to 2^32 - 1"
            )
        if len(self._waiting) >= self._settings.queued:
            raise OverloadedError(
                f"{len(self._waiting)} trainings wait already.", hint="Try again later."
            )
        known = {entry.name for entry in await asyncio.to_thread(self._store.applications)}
        for app in apps:
            if app not in known:
                raise UnknownNameError("application", app, known)
        tasks = [
            Task(
                app=app,
                placement=placement,
                model=model,
                models=self._models,
                random_state=random_state,
                only_new=not apps,
                since=dict(self.changed(app)),
                by_operator=by_operator,
            )
            for app in (dict.fromkeys(apps) if apps else await self._profiled())
        ]
        now = self._now()
        operation = Operation(
            id=uuid.uuid4().hex,
            owner=self.owner,
            created_at=now,
            told_at=now,
            apps=tuple(task.app for task in tasks),
            cause=cause,
            message="Waiting for its turn",
        )
        await asyncio.to_thread(self._store.put_operation, operation.to_stored())
        self._operations.put(operation)
        self._waiting.append((operation.id, tasks))
        self._begin_next()
        return self._operations.get(operation.id) or operation

    async def get(self, operation_id: str) -> Operation:
        """Get an operation, whichever server it is of. Raises UnknownNameError."""
        operation = self._operations.get(operation_id)
        if operation is not None:
            return operation
        row = await asyncio.to_thread(self._store.operation, operation_id)
        if row is None or row.kind != KIND:
            raise UnknownNameError(
                "operation", operation_id, None, hint="List them: kongming operations --ended"
            )
        return self._seen(row)

    async def recent(self, *, ended: bool, limit: int) -> Sequence[Operation]:
        """List the operations of all servers, newest first; ended ones only with ``ended``."""
        # What has been abandoned is known only once it was read: none of it shall count.
        rows = await asyncio.to_thread(
            lambda: (
                self._store.operations(kind=KIND, limit=limit)
                if ended
                else self._store.operations(kind=KIND, states=(QUEUED, RUNNING))
            )
        )
        operations = [self._operations.get(row.id) or self._seen(row) for row in rows]
        return [operation for operation in operations if ended or not operation.ended][:limit]

    async def watch(self, operation_id: str) -> AsyncIterator[Operation]:
        """Yield it as it is now and after each change, until it has ended. Raises
        UnknownNameError."""
        shown = None
        with self._operations.watching(operation_id) as event:
            while True:
                event.clear()
                operation = await self.get(operation_id)
                if operation != shown:
                    yield operation
                    shown = operation
                if operation.ended:
                    return
                if self._operations.get(operation_id) is not None:
                    await event.wait()
                else:
                    await asyncio.sleep(TOLD_EVERY_S)

    async def cancel(self, operation_id: str) -> Operation:
        """Its workers are gone when this returns, if they are this server's; another server's go
        within a second. One that has ended stays as it is. Raises UnknownNameError."""
        operation = await self.get(operation_id)
        if operation.ended:
            return operation
        if self._operations.get(operation_id) is None:
            request = StoredOperation(
                id=f"{operation_id}/{_CANCEL}", kind=_CANCEL, state=DONE, created_at=self._now()
            )
            await asyncio.to_thread(self._store.put_operation, request)
            return operation
        task = self._at_work.get(operation_id)
        if task is None:
            await self._cancel_waiting(operation_id)
            # Another request may be ending it.
            async for operation in self.watch(operation_id):
                if operation.ended:
                    return operation
        else:
            self._stop(operation_id, "It was cancelled.")
            await asyncio.wait([task])
        return await self.get(operation_id)

    def current(self, operation_id: str) -> Operation | None:
        """One of this server's, as it is now."""
        return self._operations.get(operation_id)

    @property
    def busy(self) -> bool:
        return bool(self._at_work or self._waiting)

    # -- how it is done ------------------------------------------------------------------------

    @property
    def _store(self) -> Store:
        if self._store_ is None:
            raise RuntimeError("Training was not started")
        return self._store_

    def _seen(self, row: StoredOperation) -> Operation:
        """Return what the store says of another server's, or of one of long ago."""
        return Operation.from_stored(row.or_abandoned(self._now()))

    def _begin_next(self) -> None:
        while self._waiting and self._free > 0:
            operation_id, tasks = self._waiting.popleft()
            processes = 1 if self._settings.dask else max(1, min(len(tasks), self._free))
            self._free -= processes
            task = asyncio.create_task(self._operate(operation_id, tasks, processes))
            self._at_work[operation_id] = task
        self._count()

    async def _operate(self, operation_id: str, tasks: list[Task], processes: int) -> None:
        state, message = DONE, ""
        telling = asyncio.create_task(self._tell_store(operation_id))
        work = TaskProgress(tasks)
        jobs: list[asyncio.Task[None]] = []
        try:
            if operation_id in self._stopping:
                raise asyncio.CancelledError
            self._change(operation_id, lambda operation: operation.begun(self._now()))
            jobs += [asyncio.create_task(self._work(operation_id, work)) for _ in range(processes)]
            await asyncio.gather(*jobs)
            message = _summary(self._operations.get(operation_id))
        except asyncio.CancelledError:
            state, message = CANCELLED, self._stopping.get(operation_id, "It was cancelled.")
        except KongmingError as error:
            state, message = FAILED, str(error)
        except Exception as error:
            state, message = FAILED, f"Unexpected error: {error!r}"
        finally:
            for task in (*jobs, telling):
                task.cancel()
            await asyncio.gather(*jobs, telling, return_exceptions=True)
            await self._end(operation_id, state, message)
            self._free += processes
            self._at_work.pop(operation_id, None)
            self._stopping.pop(operation_id, None)
            self._begin_next()

    async def _work(self, operation_id: str, work: TaskProgress) -> None:
        """One worker process, for as long as there are tasks."""
        # Read again each time: certificates are renewed.
        cluster = await asyncio.to_thread(cluster_of, self._settings)
        worker = await TrainingProcess.start(self._store_url, cluster)
        try:
            while True:
                while len(work.of(worker)) < worker.slots and work.waiting:
                    await worker.ask(*work.begin(worker))
                if not work.of(worker):
                    return
                await self._heard(operation_id, work, await worker.receive())
        finally:
            await worker.end()

    async def _heard(self, operation_id: str, work: TaskProgress, event: Event) -> None:
        number = int(event["task"])
        if event["event"] == "progress":
            work.fraction[number] = float(event["fraction"])
            self._change(
                operation_id,
                lambda operation: operation.moved(
                    work.progress, str(event["message"]), self._now()
                ),
            )
            return
        task, seconds = work.end(number)
        if event["event"] == "failed":
            outcomes: tuple[Outcome, ...] = (
                Outcome(task.app, task.placement or "", error=str(event["error"])),
            )
        else:
            outcomes = tuple(Outcome(**outcome) for outcome in event["trained"])
        operation = self._operations.get(operation_id)
        for outcome in outcomes:
            await self._take_over(outcome, operation.cause if operation else "")
        if self._metrics is not None:
            self._metrics.training_seconds.observe(seconds)
        self._change(
            operation_id,
            lambda operation: operation.with_outcomes(outcomes).moved(
                work.progress, f"{work.ended} of {work.total} applications", self._now()
            ),
        )

    async def _profiled(self) -> list[str]:
        """Names of the applications with runs that may be learnt from."""
        return sorted(
            await asyncio.to_thread(lambda: self._store.count_runs_by_app(requested=True))
        )

    async def _take_over(self, outcome: Outcome, cause: str) -> None:
        """Put what was trained into the engine: at once, and old versions stay selectable."""
        if self._metrics is not None:
            of = "failed" if outcome.error else "promoted" if outcome.promoted else "kept"
            self._metrics.trained.labels(of).inc()
        if outcome.error:
            return
        file, in_service = await asyncio.to_thread(self._read, outcome)
        if file is not None:
            self._engine.put_model(file, outcome.version, in_service=in_service)
        log.info(
            "Version %d of %s at %s %s: %s. It is trained on %d runs of the node %s because %s.",
            outcome.version,
            outcome.app,
            outcome.placement,
            "is in service"
            if in_service
            else "was in service and is kept"
            if outcome.promoted
            else "is kept",
            outcome.reason,
            outcome.runs,
            outcome.node_id,
            cause,
        )
        self.trained(outcome)

    def _read(self, outcome: Outcome) -> tuple[persist.ModelFile | None, bool]:
        """Return what was trained, None where it was deleted in the meantime, and whether it is in
        service: an operator may have chosen another version since it was promoted."""
        key = (outcome.app, outcome.placement)
        document = self._store.model(*key, version=outcome.version)
        if document is None:
            return None, False
        in_service = outcome.promoted and self._store.in_service(*key) == outcome.version
        return persist.read(document), in_service

    async def _tell_store(self, operation_id: str) -> None:
        """Keep on telling how far it is, and hear whether another server was asked to cancel."""
        while True:
            self._change(operation_id, lambda operation: replace(operation, told_at=self._now()))
            with contextlib.suppress(StoreError):
                if await asyncio.to_thread(self._cancel_requested, operation_id):
                    self._stop(operation_id, "It was cancelled.")
            await asyncio.sleep(TOLD_EVERY_S)

    async def _tell_of_waiting(self) -> None:
        """Keep on telling that those that wait have not been abandoned, for a training before them
        may take hours, and hear whether another server was asked to cancel them."""
        told_at = time.monotonic()
        while True:
            await asyncio.sleep(TOLD_EVERY_S)
            with contextlib.suppress(StoreError):
                for operation_id in await self._waiting_to_cancel():
                    await self._cancel_waiting(operation_id)
            if time.monotonic() - told_at < WAITING_TOLD_EVERY_S:
                continue
            told_at = time.monotonic()
            for operation_id in [waiting for waiting, _ in self._waiting]:
                operation = self._operations.get(operation_id)
                if operation is not None and operation.state == QUEUED:
                    self._operations.put(replace(operation, told_at=self._now()))
                    with contextlib.suppress(StoreError):
                        await asyncio.to_thread(self._write, operation_id)

    async def _waiting_to_cancel(self) -> list[str]:
        """Those that wait and that another server was asked to cancel."""
        requests = {f"{waiting}/{_CANCEL}": waiting for waiting, _ in self._waiting}
        if not requests:
            return []
        rows = await asyncio.to_thread(lambda: self._store.operations(ids=requests.keys()))
        return [requests[row.id] for row in rows]

    async def _cancel_waiting(self, operation_id: str) -> None:
        """End one that waits for its turn; nothing if it waits no more."""
        others = deque(entry for entry in self._waiting if entry[0] != operation_id)
        if len(others) < len(self._waiting):
            self._waiting = others
            await self._end(operation_id, CANCELLED, "It was cancelled.")

    def _cancel_requested(self, operation_id: str) -> bool:
        """Return whether another server was asked to cancel it."""
        self._write(operation_id)
        return self._store.operation(f"{operation_id}/{_CANCEL}") is not None

    def _write(self, operation_id: str) -> None:
        # As it is once it is this thread's turn: a thread that was slow, and that nothing can
        # cancel, must not write over the end.
        with self._writing:
            operation = self._ends.get(operation_id) or self._operations.get(operation_id)
            if operation is not None:
                self._store.put_operation(operation.to_stored())

    async def _end(self, operation_id: str, state: str, message: str) -> None:
        """An end is on disk before anybody hears of it."""
        operation = self._operations.get(operation_id)
        if operation is None:
            return
        self._ends[operation_id] = operation.finished(state, message, self._now())
        try:
            # What cannot be told to the store is seen to be over by its age.
            with contextlib.suppress(StoreError):
                await asyncio.to_thread(self._write, operation_id)
        finally:
            # Also where the server ends meanwhile: whoever watches it waits for this.
            self._operations.put(self._ends.pop(operation_id))
            self._count()

    def _stop(self, operation_id: str, why: str) -> None:
        """Cancel the work on an operation: once, for its cleaning up must not be disturbed, and
        not if it is over but for its being kept."""
        task, operation = self._at_work.get(operation_id), self._operations.get(operation_id)
        if task is None or operation is None:
            return
        if operation_id in self._ends or operation_id in self._stopping:
            return
        self._stopping[operation_id] = why
        # One that has not begun will see it when it does.
        if operation.state == RUNNING:
            task.cancel()

    def _change(self, operation_id: str, how: Callable[[Operation], Operation]) -> Operation:
        operation = self._operations.get(operation_id)
        if operation is None:
            raise UnknownNameError(
                "operation", operation_id, None, hint="List them: kongming operations --ended"
            )
        changed = how(operation)
        return operation if changed == operation else self._operations.put(changed)

    def _count(self) -> None:
        if self._metrics is not None:
            self._metrics.training.labels("queued").set(len(self._waiting))
            self._metrics.training.labels("running").set(len(self._at_work))

    def _is_dead(self, owner: str) -> bool:
        """Return whether a server that worked on something was on this machine and is there no
        more."""
        host, _, rest = owner.partition("/")
        pid, _, _ = rest.partition("/")
        if host != socket.gethostname() or not pid.isdigit() or owner == self.owner:
            return False
        return int(pid) == os.getpid() or not psutil.pid_exists(int(pid))


def _summary(operation: Operation | None) -> str:
    trained = () if operation is None else operation.trained
    promoted = sum(outcome.promoted for outcome in trained)
    failed = sum(bool(outcome.error) for outcome in trained)
    parts = [f"{promoted} new in service"]
    if len(trained) - promoted - failed:
        parts.append(f"{len(trained) - promoted - failed} kept, but not in service")
    if failed:
        parts.append(f"{failed} not trained")
    return ", ".join(parts) if trained else "There was nothing new to learn from"
