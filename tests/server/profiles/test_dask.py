"""Training on a Dask cluster: the same function, in processes of another."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator

import pytest
from kongming_server.settings import Training as Settings
from kongming_server.training.process import TrainingProcess, WorkerDiedError
from kongming_server.training.queue import Training

from kongming.learning import model_file as persist
from kongming.learning.training import train_application
from kongming.store import Store
from tests.server.profiles.profiled import Engine, campaign, keep

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a scheduler with two worker processes."""
    with warnings.catch_warnings():
        # Of its own making: sockets and processes that it closes late.
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            host="127.0.0.1",
        ) as cluster:
            yield cluster.scheduler_address


def test_a_cluster_trains_what_one_process_does(address: str, store_url: str) -> None:
    apps = {f"prog{n}": campaign(f"prog{n}", seed=n) for n in range(3)}

    async def inside() -> Engine:
        engine = Engine()
        training = Training(store_url, engine, Settings(dask=address, models="LM,CART"))
        await training.start()
        try:
            operation = await training.submit()
            async for seen in training.watch(operation.id):
                last = seen
            assert last.state == "done", last.message
            assert {one.app for one in last.trained} == set(apps)
        finally:
            await training.close()
        return engine

    with Store.open(store_url) as store:
        keep(store, [run for runs in apps.values() for run in runs])
        engine = asyncio.run(inside())
        for app, runs in apps.items():
            assert engine.served[app, "cross-core"] == 1
            found = store.model(app, "cross-core")
            assert found is not None
            here = train_application(runs, models=("LM", "CART"), trained_at=found["trained_at"])
            assert persist.read(found).solo == persist.read(here).solo
            assert found["variants"] == here["variants"]


def test_both_workers_are_used_at_a_time(address: str, store_url: str) -> None:
    async def inside() -> int:
        worker = await TrainingProcess.start(store_url, address)
        try:
            return worker.slots
        finally:
            await worker.end()

    with Store.open(store_url):
        assert asyncio.run(inside()) == 2


def test_a_cluster_that_is_not_there_is_named(store_url: str) -> None:
    async def inside() -> None:
        with pytest.raises(WorkerDiedError, match=r"tcp://127\.0\.0\.1:9 does not answer"):
            await TrainingProcess.start(store_url, "tcp://127.0.0.1:9")

    with Store.open(store_url):
        asyncio.run(inside())
