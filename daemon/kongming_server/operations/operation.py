"""Long-running operations: their state machine and its watchers.

    queued ──> running ──> done
       │          ├──────> failed
       └──────────┴──────> cancelled

The last three are ends: nothing changes any more. Pure, but for the events that wake watchers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kongming.store.service_entries import StoredOperation
from kongming_server.operations.tasks import Outcome

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
ENDS = (DONE, FAILED, CANCELLED)

KIND = "train"

MOST_ENDED = 1000
"""Operations that have ended and are remembered; older ones are read from the store."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A training as it is now. Times are unix seconds; ``told_at`` is when its server last told
    anything of it."""

    id: str
    owner: str
    created_at: float
    told_at: float
    apps: tuple[str, ...] = ()
    cause: str = ""
    state: str = QUEUED
    progress: float = 0.0
    message: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    trained: tuple[Outcome, ...] = ()

    @property
    def ended(self) -> bool:
        return self.state in ENDS

    def begun(self, now: float) -> Operation:
        return self if self.ended else replace(self, state=RUNNING, started_at=now, told_at=now)

    def moved(self, progress: float, message: str, now: float) -> Operation:
        """Progress never goes back, and 1 is kept for the end."""
        if self.ended:
            return self
        forward = max(self.progress, min(progress, 0.999))
        return replace(self, progress=forward, message=message, told_at=now)

    def with_outcomes(self, outcomes: tuple[Outcome, ...]) -> Operation:
        return self if self.ended else replace(self, trained=self.trained + outcomes)

    def finished(self, state: str, message: str, now: float) -> Operation:
        if self.ended:
            return self
        progress = 1.0 if state == DONE else self.progress
        return replace(
            self, state=state, message=message, progress=progress, ended_at=now, told_at=now
        )

    def to_stored(self) -> StoredOperation:
        return StoredOperation(
            id=self.id,
            kind=KIND,
            state=self.state,
            progress=self.progress,
            message=self.message,
            owner=self.owner,
            created_at=self.created_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            document={
                "told_at": self.told_at,
                "apps": list(self.apps),
                "cause": self.cause,
                "trained": [outcome.to_document() for outcome in self.trained],
            },
        )

    @classmethod
    def from_stored(cls, row: StoredOperation) -> Operation:
        document: Mapping[str, Any] = row.document
        return cls(
            id=row.id,
            owner=row.owner,
            created_at=row.created_at,
            told_at=float(document.get("told_at", row.created_at)),
            apps=tuple(document.get("apps", ())),
            cause=str(document.get("cause", "")),
            state=row.state,
            progress=row.progress,
            message=row.message,
            started_at=row.started_at,
            ended_at=row.ended_at,
            trained=tuple(map(Outcome.from_document, document.get("trained", ()))),
        )


class Operations:
    """The operations of this server, and those who watch them."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Operation] = OrderedDict()
        self._events: dict[str, set[asyncio.Event]] = {}

    def get(self, operation_id: str) -> Operation | None:
        return self._by_id.get(operation_id)

    def all(self) -> list[Operation]:
        """Oldest first."""
        return list(self._by_id.values())

    def put(self, operation: Operation) -> Operation:
        """Keep it as it is now, and wake who watches it."""
        self._by_id[operation.id] = operation
        for event in self._events.get(operation.id, ()):
            event.set()
        ended = [each.id for each in self._by_id.values() if each.ended]
        for old in ended[: max(0, len(ended) - MOST_ENDED)]:
            del self._by_id[old]
        return operation

    @contextmanager
    def watching(self, operation_id: str) -> Iterator[asyncio.Event]:
        """An event that is set at each change."""
        event = asyncio.Event()
        self._events.setdefault(operation_id, set()).add(event)
        try:
            yield event
        finally:
            self._events[operation_id].discard(event)
            if not self._events[operation_id]:
                del self._events[operation_id]
