"""A server as a ``Service``: synchronous gRPC, one deadline a call, errors as the server raised."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import grpc

from kongming.records.answers import (
    ApplicationReport,
    Assignment,
    Colocation,
    Explanation,
    Forecast,
    Imported,
    ModelReport,
    NodeReport,
    OperationReport,
    Ranking,
)
from kongming.records.errors import KongmingError, UnavailableError
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from kongming.records.run import Run, Signature
from kongming.rpc import calls, fleet_codec, predictor_codec
from kongming.rpc import value_codec as values
from kongming.rpc.calls import Call, Result, Stubs, request_id
from kongming.rpc.channel import Connection
from kongming.rpc.errors import from_rpc_error
from kongming.rpc.message_codec import from_message
from kongming.rpc.record_codec import run_to_message, signature_to_message
from kongming.rpc.v1 import fleet_pb2, predictor_pb2, profiles_pb2

_Response = TypeVar("_Response")

_BATCH = 500
"""Questions in one request: an answer of a kilobyte each stays far below gRPC's limits."""

AGED_S = 600.0
"""Seconds after which a stream that ends is opened again."""

_CLOSE_S = 2.0
"""Seconds after which the end of a connection is waited for no longer."""

_IMPORT_TIMEOUT_S = 600.0
"""Seconds that an import may take: it is as long as what it sends."""


class RemoteService:
    """``with RemoteService(Connection("127.0.0.1:7400")) as service: service.nodes()``.

    Safe to use from several threads. ``channel`` is closed with it.
    """

    def __init__(self, connection: Connection, channel: grpc.Channel | None = None) -> None:
        self._target = connection.target
        self._timeout_s = connection.timeout_s
        self._channel = connection.open() if channel is None else channel
        self._stubs = Stubs(self._channel)

    def __enter__(self) -> RemoteService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what is under way, and the connection."""
        # A call that Ctrl-C cut short just as it began is one that gRPC waits for without end.
        closing = threading.Thread(target=self._channel.close, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)

    # -- predictor -----------------------------------------------------------------------------

    def predict(self, questions: Sequence[Question]) -> tuple[Forecast | KongmingError, ...]:
        answers: list[Forecast | KongmingError] = []
        for start in range(0, len(questions), _BATCH):
            answers += self._send(calls.predict(questions[start:][:_BATCH]))
        return tuple(answers)

    def predict_colocation(self, question: ColocationQuestion) -> Colocation:
        request = predictor_codec.colocation_to_message(question, request_id())
        response = self._call(self._stubs.predictor.PredictColocation, request)
        return from_message(Colocation, response)

    def rank(self, question: RankQuestion) -> Ranking:
        return self._send(calls.rank_nodes(question))

    def explain(self, question: Question) -> Explanation:
        request = predictor_pb2.ExplainRequest(
            request_id=request_id(), question=predictor_codec.question_to_message(question)
        )
        return from_message(Explanation, self._call(self._stubs.predictor.Explain, request))

    # -- fleet ---------------------------------------------------------------------------------

    def nodes(self) -> tuple[NodeReport, ...]:
        messages: list[fleet_pb2.Node] = []
        page_token = ""
        while True:
            page = self._send(calls.list_nodes(page_token))
            messages += page.nodes
            page_token = page.next_page_token
            if not page_token:
                break
        reports = map(fleet_codec.node_report_from_message, messages)
        return tuple(sorted(reports, key=lambda node: (node.facts.name, node.facts.id)))

    def watch_node(self, node: str, *, for_s: float | None = None) -> Iterator[NodeReport]:
        request = fleet_pb2.WatchNodeRequest(node=node)
        for response in self._stream(self._stubs.fleet.WatchNode, request, for_s):
            yield fleet_codec.node_report_from_message(response.node)

    def request_profile(self, node: str, apps: Sequence[str]) -> None:
        request = fleet_pb2.RequestProfileRequest(node=node, apps=apps)
        self._call(self._stubs.fleet.RequestProfile, request)

    # -- profiles ------------------------------------------------------------------------------

    def register_application(
        self, name: str, identity: str, document: Mapping[str, Any]
    ) -> ApplicationReport:
        request = profiles_pb2.RegisterApplicationRequest(
            name=name, identity=identity, document=values.struct(document, "document")
        )
        response = self._call(self._stubs.profiles.RegisterApplication, request)
        return fleet_codec.application_from_message(response.application)

    def application(self, name: str) -> ApplicationReport:
        return self._send(calls.get_application(name))

    def applications(self) -> tuple[ApplicationReport, ...]:
        request = profiles_pb2.ListApplicationsRequest()
        applications: list[ApplicationReport] = []
        while True:
            response = self._call(self._stubs.profiles.ListApplications, request)
            applications += map(fleet_codec.application_from_message, response.applications)
            if not response.next_page_token:
                return tuple(applications)
            request.page_token = response.next_page_token

    def import_runs(self, records: Iterable[Run | Signature]) -> Imported:
        """Also raises what ``records`` raises while it is read."""
        failed: list[BaseException] = []

        def messages() -> Iterator[profiles_pb2.ImportRunsRequest]:
            # gRPC reads in a thread of its own, and would only say that the call was cancelled.
            try:
                for record in records:
                    if isinstance(record, Run):
                        yield profiles_pb2.ImportRunsRequest(run=run_to_message(record))
                    else:
                        yield profiles_pb2.ImportRunsRequest(signature=signature_to_message(record))
            except BaseException as error:
                failed.append(error)
                raise

        try:
            response = self._stubs.profiles.ImportRuns(messages(), timeout=_IMPORT_TIMEOUT_S)
        except grpc.RpcError as error:
            if failed:
                raise failed[0] from None
            raise from_rpc_error(error, self._target) from error
        return Imported(response.runs, response.signatures, response.duplicates)

    def train(
        self,
        apps: Sequence[str] = (),
        *,
        placement: str | None = None,
        model: str | None = None,
        random_state: int = 0,
    ) -> OperationReport:
        request = profiles_pb2.TrainRequest(
            apps=apps,
            placement=values.placement_to_message(placement),
            model=model or "",
            random_state=random_state,
        )
        response = self._call(self._stubs.profiles.Train, request)
        return fleet_codec.operation_from_message(response.operation)

    def operation(self, operation_id: str) -> OperationReport:
        request = profiles_pb2.GetOperationRequest(id=operation_id)
        response = self._call(self._stubs.profiles.GetOperation, request)
        return fleet_codec.operation_from_message(response.operation)

    def operations(
        self, *, ended: bool = False, limit: int | None = None
    ) -> tuple[OperationReport, ...]:
        request = profiles_pb2.ListOperationsRequest(ended=ended, limit=limit or 0)
        response = self._call(self._stubs.profiles.ListOperations, request)
        return tuple(map(fleet_codec.operation_from_message, response.operations))

    def watch_operation(self, operation_id: str) -> Iterator[OperationReport]:
        request = profiles_pb2.WatchOperationRequest(id=operation_id)
        for response in self._stream(self._stubs.profiles.WatchOperation, request):
            yield fleet_codec.operation_from_message(response.operation)

    def cancel_operation(self, operation_id: str) -> OperationReport:
        request = profiles_pb2.CancelOperationRequest(id=operation_id)
        response = self._call(self._stubs.profiles.CancelOperation, request)
        return fleet_codec.operation_from_message(response.operation)

    def model(self, app: str, placement: str | None = None, version: int = 0) -> ModelReport:
        request = profiles_pb2.GetModelRequest(
            app=app, placement=values.placement_to_message(placement), version=version
        )
        return fleet_codec.model_from_message(
            self._call(self._stubs.profiles.GetModel, request).model
        )

    def models(self, app: str | None = None) -> tuple[ModelReport, ...]:
        request = profiles_pb2.ListModelsRequest(app=app or "")
        response = self._call(self._stubs.profiles.ListModels, request)
        return tuple(map(fleet_codec.model_from_message, response.models))

    def delete_model(self, app: str, placement: str, version: int = 0) -> int:
        request = profiles_pb2.DeleteModelRequest(
            app=app, placement=values.placement_to_message(placement), version=version
        )
        return self._call(self._stubs.profiles.DeleteModel, request).deleted

    def promote_model(
        self, app: str, placement: str | None = None, version: int = 0
    ) -> ModelReport:
        request = profiles_pb2.PromoteModelRequest(
            app=app, placement=values.placement_to_message(placement), version=version
        )
        response = self._call(self._stubs.profiles.PromoteModel, request)
        return fleet_codec.model_from_message(response.model)

    # -- assignments ----------------------------------------------------------------------------

    def reserve(
        self,
        assignment_id: str,
        app: str,
        node: str,
        *,
        placement: str | None = None,
        domain: int = 0,
        ttl_s: float | None = None,
        memory_bytes: int = 0,
    ) -> Assignment:
        return self._send(
            calls.reserve(
                assignment_id,
                app,
                node,
                placement=placement,
                domain=domain,
                ttl_s=ttl_s,
                memory_bytes=memory_bytes,
            )
        )

    def bind(
        self,
        assignment_id: str,
        *,
        app: str = "",
        node: str = "",
        started_at: float | None = None,
    ) -> Assignment:
        return self._send(calls.bind(assignment_id, app=app, node=node, started_at=started_at))

    def release(self, assignment_id: str, *, ended_at: float | None = None) -> Assignment:
        return self._send(calls.release(assignment_id, ended_at=ended_at))

    def assignments(
        self, node: str | None = None, *, ended: bool = False
    ) -> tuple[Assignment, ...]:
        return self._send(calls.list_assignments(node or "", ended=ended))

    # -- calls ---------------------------------------------------------------------------------

    def _send(self, call: Call[Result]) -> Result:
        return call.decode(self._call(self._stubs.method(call), call.request))

    def _call(self, method: Callable[..., _Response], request: object) -> _Response:
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._target) from error

    def _stream(
        self,
        method: Callable[..., Iterator[_Response]],
        request: object,
        for_s: float | None = None,
    ) -> Iterator[_Response]:
        """Answers until the server ends the stream, or for ``for_s``; None is no deadline."""
        began = opened = time.monotonic()
        while True:
            left_s = None if for_s is None else max(0.0, for_s - (opened - began))
            stream = method(request, timeout=left_s)
            try:
                yield from stream
                return
            except grpc.RpcError as error:
                now = time.monotonic()
                if for_s is not None and now - began >= for_s:
                    return
                failure = from_rpc_error(error, self._target)
                # Servers end connections of some age: the next one goes on.
                if not isinstance(failure, UnavailableError) or now - opened < AGED_S:
                    raise failure from error
                opened = now
            finally:
                cancel = getattr(stream, "cancel", None)
                if cancel is not None:
                    cancel()
