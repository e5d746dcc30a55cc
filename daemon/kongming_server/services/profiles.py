"""The Profiles service: applications, their runs, and the training of their models."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kongming.engine.load.models import put_into_service
from kongming.learning import model_file as persist
from kongming.learning.registry import AUTO
from kongming.local_service import LocalService
from kongming.records.answers import ApplicationReport, OperationReport, Realised, TrainedModel
from kongming.records.errors import MALFORMED, InputError, UnknownNameError
from kongming.records.judgement import Judgement
from kongming.records.questions import placement_or_default
from kongming.records.run import Run, Signature
from kongming.rpc import record_codec as records
from kongming.rpc import value_codec as values
from kongming.rpc.message_codec import to_message
from kongming.rpc.v1 import profiles_pb2, profiles_pb2_grpc
from kongming.store import Store
from kongming.store.service_entries import Reported
from kongming_server.ingest.decode import plain_name
from kongming_server.operations.operation import Operation
from kongming_server.operations.tasks import Outcome
from kongming_server.quality.closed_loop import ClosedLoop
from kongming_server.security.admission import ANYBODY, current_call
from kongming_server.training.queue import Training

if TYPE_CHECKING:
    import grpc

    Context = grpc.aio.ServicerContext[object, object]

T = TypeVar("T")

log = logging.getLogger(__name__)

PAGE = 1000
"""Applications on a page, at the most and where the request does not say."""

BATCH = 200
"""Imported records in one transaction."""

DEFAULT_OPERATIONS = 100
"""Operations in a list, where the request does not say."""

MOST_OPERATIONS = 1000
"""The greatest number of operations in a list."""


class Catalog(Protocol):
    """Methods of the engine that the service needs."""

    def put_signatures(self, signatures: Any) -> object: ...
    def put_model(
        self, file: persist.ModelFile, version: int, in_service: bool = True
    ) -> object: ...
    def drop_model(self, app: str, placement: str, version: int = 0) -> object: ...


class ProfilesService(profiles_pb2_grpc.ProfilesServicer):
    """Translates; what is acknowledged is on disk."""

    def __init__(self, store: Store, engine: Catalog, training: Training, loop: ClosedLoop) -> None:
        self._store = store
        self._engine = engine
        self._training = training
        self._loop = loop
        self._records = LocalService(store)

    # -- applications --------------------------------------------------------------------------

    async def RegisterApplication(
        self, request: profiles_pb2.RegisterApplicationRequest, context: Context
    ) -> profiles_pb2.RegisterApplicationResponse:
        name, identity = plain_name(request.name, "name"), _named(request.identity, "identity")
        document = values.json_object(request.document, "document")
        known = await _stored(lambda: self._records.register_application(name, identity, document))
        application = _application(known, await self._loop.realised(name))
        return profiles_pb2.RegisterApplicationResponse(application=application)

    async def GetApplication(
        self, request: profiles_pb2.GetApplicationRequest, context: Context
    ) -> profiles_pb2.GetApplicationResponse:
        application = await self._application(_named(request.name, "name"))
        return profiles_pb2.GetApplicationResponse(application=application)

    async def ListApplications(
        self, request: profiles_pb2.ListApplicationsRequest, context: Context
    ) -> profiles_pb2.ListApplicationsResponse:
        if request.page_size < 0:
            raise InputError("is negative.", field="page_size", value=request.page_size)
        size = min(request.page_size or PAGE, PAGE)
        names, known = await _stored(self._read_page(request.page_token, size + 1))
        applications = [
            _application(known[name], self._loop.realised_lately(name)) for name in names[:size]
        ]
        return profiles_pb2.ListApplicationsResponse(
            applications=applications, next_page_token=names[size - 1] if len(names) > size else ""
        )

    async def ImportRuns(
        self, request_iterator: AsyncIterator[profiles_pb2.ImportRunsRequest], context: Context
    ) -> profiles_pb2.ImportRunsResponse:
        counted = profiles_pb2.ImportRunsResponse()
        waiting: list[Run | Signature] = []
        number = 0
        async for request in request_iterator:
            waiting.append(_record(request, number))
            number += 1
            if len(waiting) >= BATCH:
                await self._import(waiting, counted)
                waiting = []
        await self._import(waiting, counted)
        return counted

    # -- training ------------------------------------------------------------------------------

    async def Train(
        self, request: profiles_pb2.TrainRequest, context: Context
    ) -> profiles_pb2.TrainResponse:
        operation = await self._training.submit(
            list(request.apps),
            placement=values.placement_from_message(request.placement),
            model=request.model or AUTO,
            random_state=request.random_state,
            cause=f"{_caller()} asked for it",
        )
        return profiles_pb2.TrainResponse(operation=_operation(operation))

    async def GetOperation(
        self, request: profiles_pb2.GetOperationRequest, context: Context
    ) -> profiles_pb2.GetOperationResponse:
        operation = await self._training.get(_named(request.id, "id"))
        return profiles_pb2.GetOperationResponse(operation=_operation(operation))

    async def ListOperations(
        self, request: profiles_pb2.ListOperationsRequest, context: Context
    ) -> profiles_pb2.ListOperationsResponse:
        if not 0 <= request.limit <= MOST_OPERATIONS:
            raise InputError(
                "is out of range.",
                field="limit",
                value=request.limit,
                allowed=f"0 to {MOST_OPERATIONS}",
            )
        operations = await self._training.recent(
            ended=request.ended, limit=request.limit or DEFAULT_OPERATIONS
        )
        return profiles_pb2.ListOperationsResponse(
            operations=[_operation(operation) for operation in operations]
        )

    async def WatchOperation(
        self, request: profiles_pb2.WatchOperationRequest, context: Context
    ) -> AsyncIterator[profiles_pb2.WatchOperationResponse]:
        async for operation in self._training.watch(_named(request.id, "id")):
            yield profiles_pb2.WatchOperationResponse(operation=_operation(operation))

    async def CancelOperation(
        self, request: profiles_pb2.CancelOperationRequest, context: Context
    ) -> profiles_pb2.CancelOperationResponse:
        operation = await self._training.cancel(_named(request.id, "id"))
        return profiles_pb2.CancelOperationResponse(operation=_operation(operation))

    # -- models --------------------------------------------------------------------------------

    async def GetModel(
        self, request: profiles_pb2.GetModelRequest, context: Context
    ) -> profiles_pb2.GetModelResponse:
        app, version = _named(request.app, "app"), _version(request.version)
        placement = await self._placement(app, request.placement)

        model = await _stored(lambda: self._records.model(app, placement, version))
        return profiles_pb2.GetModelResponse(model=to_message(model, profiles_pb2.Model))

    async def ListModels(
        self, request: profiles_pb2.ListModelsRequest, context: Context
    ) -> profiles_pb2.ListModelsResponse:
        models = await _stored(lambda: self._records.models(request.app or None))
        return profiles_pb2.ListModelsResponse(
            models=[to_message(model, profiles_pb2.Model) for model in models]
        )

    async def DeleteModel(
        self, request: profiles_pb2.DeleteModelRequest, context: Context
    ) -> profiles_pb2.DeleteModelResponse:
        app, version = _named(request.app, "app"), _version(request.version)
        placement = await self._placement(app, request.placement)
        deleted = await _stored(lambda: self._store.delete_model(app, placement, version or None))
        self._engine.drop_model(app, placement, version)
        if version and deleted:
            # Servers agree by the store on what answers instead.
            await self._serve_what_is_left(app, placement)
        return profiles_pb2.DeleteModelResponse(deleted=deleted)

    async def PromoteModel(
        self, request: profiles_pb2.PromoteModelRequest, context: Context
    ) -> profiles_pb2.PromoteModelResponse:
        app, version = _named(request.app, "app"), _version(request.version)
        placement = await self._placement(app, request.placement)
        reason = f"{_caller()} said so"
        chosen = await _stored(
            lambda: put_into_service(self._store, app, placement, version, reason)
        )
        await self._serve_what_is_left(app, placement)
        log.warning("Version %d of %s at %s is in service: %s.", chosen, app, placement, reason)
        model = next(
            entry
            for entry in await _stored(lambda: self._records.models(app))
            if (entry.placement, entry.version) == (placement, chosen)
        )
        return profiles_pb2.PromoteModelResponse(model=to_message(model, profiles_pb2.Model))

    # -- inside --------------------------------------------------------------------------------

    async def _application(self, name: str) -> profiles_pb2.Application:
        names, known = await _stored(self._read_page("", None, name))
        if not names:
            raise UnknownNameError("application", name, known)
        return _application(known[name], await self._loop.realised(name))

    def _read_page(
        self, after: str, limit: int | None, only: str | None = None
    ) -> Callable[[], tuple[list[str], dict[str, ApplicationReport]]]:
        """Names after ``after`` and what is known of each; of all names where ``only`` is none."""

        def read() -> tuple[list[str], dict[str, ApplicationReport]]:
            identities: dict[str, str] = {}
            for entry in self._store.applications():
                identities.setdefault(entry.name, entry.identity)
            if only is None:
                names = sorted(name for name in identities if name > after)[:limit]
            else:
                names = [only] if only in identities else []
            if not names:
                return [], {
                    name: ApplicationReport(name, identities[name], {}) for name in identities
                }
            if only is not None:
                return names, {only: self._records.application(only, identities[only])}
            return names, self._records.applications_of(names, identities)

        return read

    async def _import(
        self, batch: list[Run | Signature], counted: profiles_pb2.ImportRunsResponse
    ) -> None:
        if not batch:
            return
        # Imported, not spooled by an agent: they have no sequence.
        reported = [Reported(record.node_id, 0, record) for record in batch]
        accepted = await _stored(lambda: self._store.add_reported(reported))
        new = accepted.rows
        runs = {report.row_id for report in reported if isinstance(report.record, Run)}
        counted.runs += len(new & runs)
        counted.signatures += len(new - runs)
        counted.duplicates += len(batch) - len(new) - len(accepted.refused)
        if new - runs:
            await self._use_signatures(
                {
                    report.record.app
                    for report in reported
                    if isinstance(report.record, Signature) and report.row_id in new
                }
            )
        for app in {
            record.app
            for record, report in zip(batch, reported, strict=True)
            if report.row_id in new
        }:
            self._loop.runs_imported(app)
        if accepted.refused:
            first = accepted.refused[0]
            raise InputError(first.message, field=first.field or None)

    async def _use_signatures(self, apps: set[str]) -> None:
        # All of an application's: the engine's are replaced by what it is given.
        signatures = await _stored(
            lambda: [
                signature
                for app in sorted(apps)
                for signature in self._store.signatures(app=app, requested=True)
            ]
        )
        self._engine.put_signatures(signatures)

    async def _placement(self, app: str, message: Any) -> str:
        """The one that was asked for, or the one that is meant (``placement_or_default``)."""
        placement = values.placement_from_message(message)
        trained = {entry.placement for entry in await _stored(lambda: self._store.models(app=app))}
        return placement_or_default(placement, trained)

    async def _serve_what_is_left(self, app: str, placement: str) -> None:
        def read() -> tuple[int, persist.ModelFile] | None:
            version = self._store.in_service(app, placement)
            if version is None:
                return None
            document = self._store.model(app, placement, version=version)
            return None if document is None else (version, persist.read(document))

        remaining = await _stored(read)
        if remaining is not None:
            version, file = remaining
            self._engine.put_model(file, version, in_service=True)


def _caller() -> str:
    """Whom the log and a model's history name."""
    call = current_call.get()
    # Where nobody is asked who they are, there is no name to tell.
    return "a caller" if call is None or call.caller is ANYBODY else call.caller.name


async def _stored(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)


def _named(value: str, field: str) -> str:
    if not value:
        raise InputError("is empty.", field=field, allowed="a name")
    return value


def _version(value: int) -> int:
    if value < 0:
        raise InputError("is negative.", field="version", value=value, allowed="0 or more")
    return value


def _record(request: profiles_pb2.ImportRunsRequest, number: int) -> Run | Signature:
    kind = request.WhichOneof("record")
    if kind == "run":
        run = records.run_from_message(request.run)
        _named(run.app, "run.app")
        return run
    if kind == "signature":
        signature = records.signature_from_message(request.signature)
        _named(signature.app, "signature.app")
        return signature
    raise InputError(f"Message {number} holds neither a run nor a signature.", field="record")


def _application(known: ApplicationReport, realised: Realised | None) -> profiles_pb2.Application:
    return to_message(replace(known, realised=realised), profiles_pb2.Application)


def _operation(operation: Operation) -> profiles_pb2.Operation:
    trained = [_trained(outcome) for outcome in operation.trained]
    known = {name: getattr(operation, name) for name in OperationReport.__slots__}
    return to_message(
        OperationReport(**known | {"trained": tuple(trained)}), profiles_pb2.Operation
    )


def _trained(outcome: Outcome) -> TrainedModel:
    known = {name: getattr(outcome, name) for name in TrainedModel.__slots__}
    return TrainedModel(**known | {"profile": _judged(outcome.profile)})


def _judged(document: Mapping[str, Any] | None) -> Judgement | None:
    """The verdict as it is kept; none where a newer server or worker has one that is not known."""
    try:
        return None if document is None else Judgement.from_dict(document)
    except MALFORMED:
        return None
