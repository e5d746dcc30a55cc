"""The KONGMING server, asked over asyncio: rankings, impacts, placements and finished runs."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from kongming.errors import (
    AccessError,
    KongmingError,
    OverloadedError,
    StoreError,
    UnavailableError,
)
from kongming.rpc import asking, reporting, values
from kongming.rpc.answers import ApplicationReport, Ranking, Reservation
from kongming.rpc.channel import Connection, read_token
from kongming.rpc.errors import from_rpc_error
from kongming.rpc.questions import Question, RankQuestion
from kongming.rpc.records import run_to_message
from kongming.rpc.v1 import (
    fleet_pb2,
    fleet_pb2_grpc,
    placements_pb2,
    placements_pb2_grpc,
    predictor_pb2,
    predictor_pb2_grpc,
    profiles_pb2,
    profiles_pb2_grpc,
)
from kongming.run import Run
from kongming_extender.config import Server
from kongming_extender.metrics import Metrics

log = logging.getLogger(__name__)

AWAY = (UnavailableError, OverloadedError, StoreError, TimeoutError)
"""What may go well a moment later."""

_T = TypeVar("_T")
_ANEW_S = 5.0
"""Where access was refused, token and certificates are read anew, not more often than this."""


class Link:
    """Every method raises KongmingError, or TimeoutError by the caller's own deadline."""

    def __init__(self, settings: Server, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._channel: grpc.aio.Channel | None = None
        self._opened_at = 0.0
        self._away_until = 0.0

    @property
    def away(self) -> bool:
        """Whether it did not answer a moment ago: it is not worth asking again yet."""
        return time.monotonic() < self._away_until

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    # -- what is asked -------------------------------------------------------------------------

    async def names(self, page: int) -> list[tuple[str, str]]:
        """Id and name of every node that is ready."""
        found: list[tuple[str, str]] = []
        request = fleet_pb2.ListNodesRequest(page_size=page)
        while True:
            answer = await self._call("ListNodes", lambda c: _fleet(c).ListNodes, request)
            found += [
                (node.facts.id, node.facts.name)
                for node in answer.nodes
                if node.state == fleet_pb2.NODE_STATE_READY
            ]
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    async def rank(self, question: RankQuestion) -> Ranking:
        request = asking.rank_to_message(question, _request_id())
        return asking.ranking_from_message(
            await self._call("RankNodes", lambda c: _predictor(c).RankNodes, request)
        )

    async def impacts(self, questions: Sequence[Question]) -> list[dict[str, float] | None]:
        """For each question, the slowdown that each resident would have by placement id; None
        where it has no answer."""
        request = predictor_pb2.PredictRequest(
            request_id=_request_id(),
            questions=[asking.question_to_message(question) for question in questions],
        )
        answer = await self._call("Predict", lambda c: _predictor(c).Predict, request)
        return [
            None
            if one.WhichOneof("answer") == "failure"
            else {
                placement_id: impact.slowdown_then.median
                for placement_id, impact in one.prediction.residents.items()
            }
            for one in answer.answers
        ]

    async def application(self, name: str) -> ApplicationReport:
        request = profiles_pb2.GetApplicationRequest(name=name)
        answer = await self._call("GetApplication", lambda c: _profiles(c).GetApplication, request)
        return reporting.application_from_message(answer.application)

    # -- what is told --------------------------------------------------------------------------

    async def reserve(
        self, placement_id: str, app: str, node: str, placement: str | None, ttl_s: float
    ) -> Reservation:
        request = placements_pb2.ReserveRequest(
            placement_id=placement_id,
            app=app,
            node=node,
            placement=values.placement_to_message(placement),
            ttl=values.duration(ttl_s),
        )
        answer = await self._call("Reserve", lambda c: _placements(c).Reserve, request)
        return reporting.reservation_from_message(answer.reservation)

    async def bind(
        self, placement_id: str, app: str, node: str, started_at: float | None
    ) -> Reservation:
        request = placements_pb2.BindRequest(
            placement_id=placement_id,
            started_at=None if started_at is None else values.timestamp(started_at),
            app=app,
            node=node,
        )
        answer = await self._call("Bind", lambda c: _placements(c).Bind, request)
        return reporting.reservation_from_message(answer.reservation)

    async def release(self, placement_id: str, ended_at: float | None = None) -> Reservation:
        request = placements_pb2.ReleaseRequest(
            placement_id=placement_id,
            ended_at=None if ended_at is None else values.timestamp(ended_at),
        )
        answer = await self._call("Release", lambda c: _placements(c).Release, request)
        return reporting.reservation_from_message(answer.reservation)

    async def placements(self) -> list[Reservation]:
        """Those that are reserved or bound."""
        request = placements_pb2.ListPlacementsRequest()
        answer = await self._call(
            "ListPlacements", lambda c: _placements(c).ListPlacements, request
        )
        return [reporting.reservation_from_message(one) for one in answer.placements]

    async def report_run(self, run: Run, placement_id: str) -> str:
        """Empty where it was taken, else why it was not."""
        request = fleet_pb2.ReportRunsRequest(
            node_id=run.node_id,
            runs=[fleet_pb2.ReportedRun(run=run_to_message(run), placement_id=placement_id)],
        )
        answer = await self._call("ReportRuns", lambda c: _fleet(c).ReportRuns, request)
        return answer.rejected[0].message if answer.rejected else ""

    # -- calls ---------------------------------------------------------------------------------

    async def _call(
        self,
        name: str,
        method: Callable[[grpc.aio.Channel], Callable[..., Awaitable[Any]]],
        request: Any,
    ) -> Any:
        begun = time.perf_counter()
        try:
            answer = await method(self._open())(request, timeout=self._settings.deadline_s)
        except grpc.aio.AioRpcError as error:
            raised = from_rpc_error(error, self._settings.address)
            self._failed(name, raised)
            raise raised from error
        except asyncio.CancelledError:
            # The caller's deadline was the shorter one.
            if time.perf_counter() - begun >= 0.9 * self._settings.deadline_s:
                self._failed(name, UnavailableError("It did not answer in time."))
            raise
        self._away_until = 0.0
        self._metrics.server_seconds.labels(name).observe(time.perf_counter() - begun)
        return answer

    def _failed(self, name: str, error: KongmingError) -> None:
        self._metrics.server_errors.labels(name).inc()
        if isinstance(error, AWAY):
            self._away_until = time.monotonic() + self._settings.pause_s
        elif isinstance(error, AccessError):
            self._away_until = time.monotonic() + self._settings.pause_s
            if time.monotonic() - self._opened_at > _ANEW_S and self._channel is not None:
                old, self._channel = self._channel, None
                task = asyncio.get_running_loop().create_task(old.close(1.0))
                _closing.add(task)
                task.add_done_callback(_closing.discard)

    def _open(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = connection(self._settings).open_aio()
            self._opened_at = time.monotonic()
        return self._channel


_closing: set[asyncio.Task[None]] = set()


def connection(settings: Server) -> Connection:
    """Raises InputError where a setting or a file is of no use."""

    def path(text: str) -> Path | None:
        return Path(text) if text else None

    token = read_token(Path(settings.token_file)) if settings.token_file else None
    return Connection(
        settings.address,
        ca=path(settings.ca),
        cert=path(settings.cert),
        key=path(settings.key),
        token=token,
        timeout_s=settings.deadline_s,
    )


def _predictor(channel: grpc.aio.Channel) -> Any:
    return predictor_pb2_grpc.PredictorStub(channel)


def _fleet(channel: grpc.aio.Channel) -> Any:
    return fleet_pb2_grpc.FleetStub(channel)


def _placements(channel: grpc.aio.Channel) -> Any:
    return placements_pb2_grpc.PlacementsStub(channel)


def _profiles(channel: grpc.aio.Channel) -> Any:
    return profiles_pb2_grpc.ProfilesStub(channel)


def _request_id() -> str:
    return uuid.uuid4().hex
