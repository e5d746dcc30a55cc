"""The Profiles service over a real store, without a network."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest
from kongming_server.quality.closed_loop import ClosedLoop
from kongming_server.services.profiles import ProfilesService
from kongming_server.training.queue import Training

from kongming.learning import model_file as persist
from kongming.records.application import Application, Metric
from kongming.records.errors import InputError, UnknownNameError, UntrainedError
from kongming.records.run import Run, Signature
from kongming.rpc import record_codec as records
from kongming.rpc import value_codec
from kongming.rpc.v1 import profiles_pb2, records_pb2
from kongming.store import Store
from kongming.store.service_entries import StoredOperation
from tests.models import synthetic
from tests.server.profiles.profiled import FAST, Engine, campaign
from tests.warm_subprocess import warm_subprocesses

Body = Callable[[ProfilesService, Engine], Awaitable[Any]]


def run(store_url: str, body: Body) -> Any:
    async def inside() -> Any:
        engine = Engine()
        with Store.open(store_url) as store:
            training = Training(store_url, engine, FAST)
            loop = ClosedLoop(store, engine, None, training)
            await training.start()
            await loop.start()
            try:
                return await body(ProfilesService(store, engine, training, loop), engine)
            finally:
                await loop.close()
                await training.close()

    with warm_subprocesses():
        return asyncio.run(inside())


async def sent(entries: Iterable[Run | Signature]) -> AsyncIterator[profiles_pb2.ImportRunsRequest]:
    for entry in entries:
        if isinstance(entry, Run):
            yield profiles_pb2.ImportRunsRequest(run=records.run_to_message(entry))
        else:
            yield profiles_pb2.ImportRunsRequest(signature=records.signature_to_message(entry))


async def trained(service: ProfilesService, *apps: str) -> profiles_pb2.Operation:
    request = profiles_pb2.TrainRequest(apps=apps)
    operation = (await service.Train(request, None)).operation
    async for seen in service.WatchOperation(
        profiles_pb2.WatchOperationRequest(id=operation.id), None
    ):
        operation = seen.operation
    return operation


async def listed(service: ProfilesService, **fields: Any) -> list[profiles_pb2.Operation]:
    request = profiles_pb2.ListOperationsRequest(**fields)
    return list((await service.ListOperations(request, None)).operations)


def test_an_application_comes_back_as_it_was_registered(store_url: str) -> None:
    known = Application("prog", ("make", "all"), cpus=2, metric=Metric("(.*)", "req/s", "higher"))

    async def body(service: ProfilesService, engine: Engine) -> None:
        request = profiles_pb2.RegisterApplicationRequest(
            name="prog", identity="a" * 16, document=value_codec.struct(known.to_dict(), "document")
        )
        first = await service.RegisterApplication(request, None)
        again = await service.RegisterApplication(request, None)
        assert first == again
        response = await service.GetApplication(
            profiles_pb2.GetApplicationRequest(name="prog"), None
        )
        assert response.application == first.application
        document = value_codec.json_object(response.application.document, "document")
        assert Application.from_dict(document) == known
        assert not response.application.HasField("realised")
        with pytest.raises(UnknownNameError, match="prog"):
            await service.GetApplication(profiles_pb2.GetApplicationRequest(name="porg"), None)

    run(store_url, body)


@pytest.mark.parametrize(
    ("name", "identity", "document", "field"),
    [
        ("", "a", {}, "name"),
        ("prog", "", {}, "identity"),
        ("prog", "a", {"command": "x", "name": "other"}, "document.name"),
        ("prog", "a", {"comand": "x"}, "document"),
        ("prog", "a", {"command": "x" * 100_000}, "document"),
    ],
)
def test_what_is_no_application_is_refused(
    store_url: str, name: str, identity: str, document: dict[str, Any], field: str
) -> None:
    async def body(service: ProfilesService, engine: Engine) -> None:
        request = profiles_pb2.RegisterApplicationRequest(
            name=name, identity=identity, document=value_codec.struct(document, "document")
        )
        with pytest.raises(InputError) as raised:
            await service.RegisterApplication(request, None)
        assert raised.value.field == field

    run(store_url, body)


def test_applications_come_in_pages(store_url: str) -> None:
    async def body(service: ProfilesService, engine: Engine) -> None:
        for number in range(5):
            request = profiles_pb2.RegisterApplicationRequest(name=f"prog{number}", identity="a")
            await service.RegisterApplication(request, None)
        names: list[str] = []
        token = ""
        while True:
            page = await service.ListApplications(
                profiles_pb2.ListApplicationsRequest(page_size=2, page_token=token), None
            )
            assert len(page.applications) <= 2
            names += [application.name for application in page.applications]
            token = page.next_page_token
            if not token:
                break
        assert names == [f"prog{number}" for number in range(5)]
        with pytest.raises(InputError, match="page_size"):
            await service.ListApplications(profiles_pb2.ListApplicationsRequest(page_size=-1), None)

    run(store_url, body)


def test_imports_count_what_is_new_and_what_was_known(store_url: str) -> None:
    runs = campaign("prog")
    signature = synthetic.signature("prog", {"cache": 0.5})

    async def body(service: ProfilesService, engine: Engine) -> None:
        first = await service.ImportRuns(sent([*runs, signature, runs[0]]), None)
        assert (first.runs, first.signatures, first.duplicates) == (len(runs), 1, 1)
        assert [stored.id for stored in engine.signatures] == [signature.id]
        again = await service.ImportRuns(sent([*runs, signature]), None)
        assert (again.runs, again.signatures, again.duplicates) == (0, 0, len(runs) + 1)
        response = await service.GetApplication(
            profiles_pb2.GetApplicationRequest(name="prog"), None
        )
        assert response.application.runs == len(runs)
        assert list(response.application.trained) == []

    run(store_url, body)


def test_a_record_that_is_none_is_refused(store_url: str) -> None:
    async def nothing() -> AsyncIterator[profiles_pb2.ImportRunsRequest]:
        yield profiles_pb2.ImportRunsRequest()

    async def body(service: ProfilesService, engine: Engine) -> None:
        with pytest.raises(InputError, match="neither a run nor a signature"):
            await service.ImportRuns(nothing(), None)

    run(store_url, body)


def test_models_are_listed_read_and_deleted(store_url: str) -> None:
    async def body(service: ProfilesService, engine: Engine) -> None:
        await service.ImportRuns(sent(campaign("prog")), None)
        operation = await trained(service, "prog")
        assert operation.state == profiles_pb2.OPERATION_STATE_DONE
        assert operation.progress == 1.0
        assert operation.HasField("ended_at")
        await service.ImportRuns(sent(campaign("prog", seed=1)), None)
        second = (await trained(service)).trained[0]
        assert (second.version, second.promoted, second.error) == (2, True, "")
        listed = (await service.ListModels(profiles_pb2.ListModelsRequest(), None)).models
        assert [(model.version, model.in_service) for model in listed] == [(2, True), (1, False)]

        current = (await service.GetModel(profiles_pb2.GetModelRequest(app="prog"), None)).model
        assert (current.version, current.in_service) == (2, True)
        assert persist.read(json.loads(current.document)).app == "prog"
        assert current.chosen
        older = profiles_pb2.GetModelRequest(app="prog", version=1)
        assert not (await service.GetModel(older, None)).model.in_service
        with pytest.raises(UntrainedError, match="version 7"):
            await service.GetModel(profiles_pb2.GetModelRequest(app="prog", version=7), None)

        delete = profiles_pb2.DeleteModelRequest(app="prog", version=2)
        assert (await service.DeleteModel(delete, None)).deleted == 1
        assert engine.served == {("prog", "cross-core"): 1}
        everything = profiles_pb2.DeleteModelRequest(
            app="prog", placement=records_pb2.PLACEMENT_CROSS_CORE
        )
        assert (await service.DeleteModel(everything, None)).deleted == 1
        assert engine.served == {}
        assert (await service.DeleteModel(everything, None)).deleted == 0
        with pytest.raises(UntrainedError, match="no model"):
            await service.GetModel(profiles_pb2.GetModelRequest(app="prog"), None)

    run(store_url, body)


def test_a_damaged_version_is_not_put_into_service(store_url: str) -> None:
    from kongming.learning.training import train_application

    document = train_application(campaign("prog"), models=("LM", "CART"))
    # Its checksum is that of the unchanged document.
    documents = (document, document | {"solo": {"value": 1e6}}, document)
    with Store.open(store_url) as store:
        for each in documents:
            store.put_model("prog", document["identity"], "node-1", "cross-core", each)
        store.promote("prog", "cross-core", 2)
        store.promote("prog", "cross-core", 3)

    async def body(service: ProfilesService, engine: Engine) -> None:
        for version in (0, 2):
            request = profiles_pb2.PromoteModelRequest(app="prog", version=version)
            with pytest.raises(InputError):
                await service.PromoteModel(request, None)
        assert engine.served == {}
        request = profiles_pb2.PromoteModelRequest(app="prog", version=1)
        assert (await service.PromoteModel(request, None)).model.version == 1

    with Store.open(store_url) as store:
        assert store.in_service("prog", "cross-core") == 3
    run(store_url, body)
    with Store.open(store_url) as store:
        promoted = [entry.version for entry in store.promotions("prog", "cross-core")]
    assert promoted == [1, 3, 2]


def test_training_again_without_runs_or_models_says_so(store_url: str) -> None:
    async def body(service: ProfilesService, engine: Engine) -> None:
        with pytest.raises(UnknownNameError, match="application"):
            await service.Train(profiles_pb2.TrainRequest(apps=["prog"]), None)
        with pytest.raises(UnknownNameError, match="operation"):
            await service.GetOperation(profiles_pb2.GetOperationRequest(id="x"), None)
        with pytest.raises(InputError, match="id"):
            await service.CancelOperation(profiles_pb2.CancelOperationRequest(), None)
        for limit in (-1, 1001):
            with pytest.raises(InputError, match="limit"):
                await listed(service, limit=limit)

    run(store_url, body)


def test_operations_of_every_server_are_listed_newest_first(store_url: str) -> None:
    now = time.time()

    def elsewhere(id_: str, state: str, age_s: float, **changes: Any) -> StoredOperation:
        values = {"kind": "train", "owner": "other-machine/1/a", "created_at": now - age_s}
        return StoredOperation(id=id_, state=state, **(values | changes))

    async def body(service: ProfilesService, engine: Engine) -> None:
        assert await listed(service, ended=True) == []
        await service.ImportRuns(sent(campaign("prog")), None)
        mine = await trained(service, "prog")
        assert await listed(service) == []
        assert await listed(service, ended=True) == [mine]
        with Store.open(store_url) as store:
            for row in (
                elsewhere("failed", "failed", 30.0, message="No memory.", ended_at=now - 25.0),
                elsewhere("running", "running", 20.0, progress=0.5, document={"told_at": now}),
                elsewhere("queued", "queued", 10.0),
                # Its server has reported nothing of it for a day.
                elsewhere("abandoned", "running", 86400.0),
                # A server is asked to cancel by a row that is no training.
                elsewhere("running/cancel", "done", 0.0, kind="cancel"),
            ):
                store.put_operation(row)
        states = profiles_pb2.OperationState
        assert [
            (operation.id, operation.state, operation.progress)
            for operation in await listed(service)
        ] == [
            ("queued", states.OPERATION_STATE_QUEUED, 0.0),
            ("running", states.OPERATION_STATE_RUNNING, 0.5),
        ]
        every = await listed(service, ended=True)
        assert [operation.id for operation in every] == [
            mine.id,
            "queued",
            "running",
            "failed",
            "abandoned",
        ]
        assert [operation.state for operation in every[3:]] == [states.OPERATION_STATE_FAILED] * 2
        assert [operation.id for operation in await listed(service, limit=1)] == ["queued"]
        assert [operation.id for operation in await listed(service, ended=True, limit=2)] == [
            mine.id,
            "queued",
        ]
        # All but the abandoned one: its end is whenever it is asked for.
        for operation in every[:-1]:
            request = profiles_pb2.GetOperationRequest(id=operation.id)
            assert (await service.GetOperation(request, None)).operation == operation

    run(store_url, body)
