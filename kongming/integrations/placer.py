"""Place tasks by a server's ranking, reserve their places, and report when they end.

A server that is away, or knows none of the nodes, never disturbs the program: its tasks are placed
as without KONGMING, and that is logged once until it is over.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple, Self, TypeVar

from kongming.backoff import Backoff
from kongming.integrations.owner import new_id
from kongming.integrations.placing import Member, NodeOf, OwnTasks, Target, choose, targets
from kongming.integrations.reports import Reports
from kongming.records.answers import NodeReport, Ranking
from kongming.records.errors import (
    CannotAnswerError,
    InputError,
    KongmingError,
    ServiceError,
    UnavailableError,
    UnknownNameError,
)
from kongming.records.questions import RankQuestion
from kongming.rpc.channel import Connection, connection_from_settings
from kongming.rpc.client import RemoteService

_log = logging.getLogger("kongming.integrations")
_Answer = TypeVar("_Answer")

_LISTED_S = 60.0
"""Seconds after which the server's nodes are listed again."""

_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0


class Place:
    """Place to which one task goes: ``options`` are the framework's, empty for its default
    placement.

    ``node_id`` is the node at the server, None by default placement. As a context manager, its
    end is the task's. ``end`` may be called from any thread, and again.
    """

    def __init__(self, placer: Placer) -> None:
        self.id = new_id(placer.framework)
        self.options: dict[str, Any] = {}
        self.node_id: str | None = None
        self._placer = placer
        self._domain = 0
        # Due to be reserved; requested from the server; of no use any more.
        self._reserved = self._requested = self._ended = False

    def end(self) -> None:
        """Say that the task has ended, or never came."""
        self._placer._end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Placer(ABC):
    """Places tasks of the application ``app``; safe to use from several threads.

    ``server`` is HOST:PORT or a ``Connection``, None for the KONGMING_SERVER of the environment,
    whose KONGMING_CA, KONGMING_CERT, KONGMING_KEY and KONGMING_TOKEN_FILE count as for the command
    line; ``token`` is a token itself. Nodes where the predicted slowdown of the task is above
    ``limit``, or that of what runs there above ``resident_limit`` (ratios, 0 for none), are left
    out as long as others are there. ``placement`` is that of the model. ``nodes`` says the name at
    the server of what the framework has, by its id, name or host name. A reservation that a killed
    program leaves ends after ``ttl_s`` seconds, and no call takes longer than ``timeout_s``.
    ``strict`` raises where a task cannot be placed.

    Raises:
        InputError: the address, a file of the connection or a number cannot be used.
    """

    framework: str

    def __init__(
        self,
        server: str | Connection | None = None,
        *,
        app: str,
        limit: float = 0.0,
        resident_limit: float = 0.0,
        token: str | None = None,
        placement: str | None = None,
        nodes: NodeOf | None = None,
        ttl_s: float = 60.0,
        timeout_s: float = 2.0,
        strict: bool = False,
    ) -> None:
        for name, value in (("limit", limit), ("resident_limit", resident_limit)):
            if value and not 1.0 <= value < float("inf"):
                raise InputError(
                    "is out of range.", field=name, value=value, allowed="0 for none, or 1 or more"
                )
        if not 0.0 < ttl_s < float("inf"):
            raise InputError("is out of range.", field="ttl_s", value=ttl_s, allowed="above 0")
        # Refuses an empty name, and a placement that there is not.
        RankQuestion(app, placement=placement)
        self.app = app
        self._limits = {"limit": limit, "resident_limit": resident_limit}
        self._placement, self._node_of, self._strict = placement, nodes, strict
        self._ttl_s = ttl_s
        self._lock = Lock()
        self._placed: dict[str, dict[str, Place]] = defaultdict(dict)
        self._slots: dict[str, int] = {}
        self._own = OwnTasks()
        self._nodes: tuple[NodeReport, ...] = ()
        self._listed_at = -float("inf")
        self._backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        self._paused_until = -float("inf")
        self._warned = self._closed = False
        self._service: RemoteService | None = None
        self._reports: Reports | None = None
        connection = _connection(server, token, timeout_s)
        if connection is not None:
            self._service = RemoteService(connection)
            self._reports = Reports(self._service, self.framework, ttl_s=ttl_s, timeout_s=timeout_s)
        # Also after Ctrl-C.
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release all that is held; further tasks are placed by default."""
        atexit.unregister(self.close)
        with self._lock:
            closed, self._closed = self._closed, True
            held = [place for places in self._placed.values() for place in places.values()]
            self._placed.clear()
        if closed or self._reports is None or self._service is None:
            return
        for place in held:
            self._release(place)
        self._reports.close()
        self._service.close()

    def place(self) -> Place:
        """Choose and reserve a place for one task; ``Place.end`` says that the task has ended.

        Raises:
            KongmingError: under ``strict``, where the task cannot be placed.
        """
        place = Place(self)
        try:
            self._assign(place)
        except KongmingError as error:
            self._end(place)
            if self._strict:
                raise
            place.options, place.node_id = {}, None
            if not self._warned:
                self._warned = True
                _log.warning("Tasks of %s are placed as without KONGMING: %s", self.app, error)
        except BaseException:
            self._end(place)
            raise
        else:
            if self._warned:
                self._warned = False
                _log.info("Tasks of %s are placed by predictions again.", self.app)
        return place

    @abstractmethod
    def _members(self) -> Iterable[Member]:
        """Return what the framework has now."""

    @abstractmethod
    def _options(self, target: Target, placed: int) -> dict[str, Any]:
        """The framework's options for a target where so many tasks are placed already."""

    def _assign(self, place: Place) -> None:
        """Raises KongmingError."""
        members = tuple(self._members())
        try:
            ranking, candidates = self._ask(lambda service: self._rank(service, members))
        except UnknownNameError:
            # A node has left since they were listed.
            self._listed_at = -float("inf")
            ranking, candidates = self._ask(lambda service: self._rank(service, members))
        slots = {node_id: target.slots for node_id, target in candidates.items()}
        with self._lock:
            if self._closed:
                raise UnavailableError("This placer is closed.")
            counts = {node_id: len(places) for node_id, places in self._placed.items()}
            self._own.learn(ranking.nodes, counts, time.monotonic())
            node = choose(ranking.nodes, slots, counts, own=self._own.scores, **self._limits)
            if node is None:
                why = ", ".join(f"{count} {reason}" for reason, count in ranking.refused.items())
                raise CannotAnswerError(f"None of {len(candidates)} nodes can be ranked ({why}).")
            placed = counts.get(node.node_id, 0)
            place.options = self._options(candidates[node.node_id], placed)
            place.node_id, place._domain = node.node_id, node.domain
            self._placed[node.node_id][place.id] = place
            self._slots[node.node_id] = slots[node.node_id]
            # What waits for others to end is no resident yet: it is reserved when its turn comes.
            place._reserved = placed < slots[node.node_id]
        if place._reserved:
            self._ask(lambda service: self._reserve(service, place))

    def _end(self, place: Place) -> None:
        with self._lock:
            places = self._placed.get(place.node_id or "", {})
            if places.pop(place.id, None) is None:
                return
            first = islice(places.values(), self._slots[place.node_id or ""])
            due = [waiting for waiting in first if not waiting._reserved]
            for waiting in due:
                waiting._reserved = True
        service, reports = self._service, self._reports
        assert service is not None
        assert reports is not None
        self._release(place)
        for waiting in due:
            reports.send(partial(self._reserve, service, waiting))

    def _release(self, place: Place) -> None:
        place._ended = True
        if place._reserved:
            assert self._reports is not None
            self._reports.release(place.id, lambda: place._requested)

    def _reserve(self, service: RemoteService, place: Place) -> None:
        assert place.node_id is not None
        assert self._reports is not None
        if place._ended:
            # Before its turn among the reports came.
            return
        # An answer that is lost says nothing of what the server did.
        place._requested = True
        service.reserve(
            place.id,
            self.app,
            place.node_id,
            placement=self._placement,
            domain=place._domain,
            ttl_s=self._ttl_s,
        )
        self._reports.reserved(place.id)

    def _rank(
        self, service: RemoteService, members: tuple[Member, ...]
    ) -> tuple[Ranking, dict[str, Target]]:
        """Raises KongmingError."""
        if time.monotonic() - self._listed_at > _LISTED_S:
            self._nodes, self._listed_at = service.nodes(), time.monotonic()
        candidates = targets(members, self._nodes, self._node_of)
        if not candidates:
            names = sorted({member.names[0] for member in members})
            raise CannotAnswerError(
                f"The server knows none of the nodes {', '.join(names[:5])}.",
                hint="Say by nodes={...} which of its nodes they are; see docs/ray-and-dask.md.",
            )
        question = RankQuestion(
            self.app, nodes=tuple(candidates), limit=len(candidates), placement=self._placement
        )
        return service.rank(question), candidates

    def _ask(self, ask: Callable[[RemoteService], _Answer]) -> _Answer:
        """Ask the server, unless it failed a moment ago. Raises KongmingError."""
        if self._service is None:
            raise UnavailableError(
                "No server is named.", hint="Give HOST:PORT, or set KONGMING_SERVER."
            )
        if self._closed:
            raise UnavailableError("This placer is closed.")
        if time.monotonic() < self._paused_until:
            raise UnavailableError("The server did not answer a moment ago.")
        try:
            answer = ask(self._service)
        except ServiceError:
            self._paused_until = time.monotonic() + self._backoff.after_failure()
            raise
        except ValueError:
            # What gRPC says of a channel that was closed meanwhile.
            if self._closed:
                raise UnavailableError("This placer is closed.") from None
            raise
        self._backoff.after_success()
        return answer


class _Server(NamedTuple):
    """The section ``server`` of a program's settings."""

    address: str
    ca: str
    cert: str
    key: str
    token_file: str


def _connection(
    server: str | Connection | None, token: str | None, timeout_s: float
) -> Connection | None:
    """Return how to reach the server; None where none is named. Raises InputError."""
    if isinstance(server, Connection):
        return replace(server, timeout_s=timeout_s, token=token or server.token)
    target = server or os.environ.get("KONGMING_SERVER")
    if not target:
        return None
    files = {
        name: os.environ.get(f"KONGMING_{name.upper()}", "")
        for name in ("ca", "cert", "key", "token_file")
    }
    return connection_from_settings(_Server(target, **files), timeout_s, token)
