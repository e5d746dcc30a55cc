"""Training in real worker processes: progress, cancelling, death, and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from kongming_server.configuration.settings import Training as Settings
from kongming_server.operations.operation import Operation
from kongming_server.operations.tasks import Outcome, Task
from kongming_server.training import queue
from kongming_server.training.process import NICE, TrainingProcess, WorkerDiedError
from kongming_server.training.queue import KIND, Training

from kongming.records.errors import InputError, OverloadedError, UnknownNameError
from kongming.store import Store
from kongming.store.service_entries import StoredOperation
from tests.server.profiles.profiled import FAST, Engine, campaign, eventually, keep
from tests.warm_subprocess import STARTED, warm_subprocesses

SLOW = Settings(models="LM.GA")
"""A model that takes long enough to be interrupted."""


@pytest.fixture
def store(store_url: str) -> Store:
    return Store.open(store_url)


def run(
    store_url: str,
    body: Callable[[Training, Engine], Awaitable[Any]],
    settings: Settings = FAST,
) -> Any:
    """``body`` with training that was started and is closed at the end; nothing may be left."""

    async def inside() -> Any:
        engine = Engine()
        training = Training(store_url, engine, settings)
        await training.start()
        try:
            return await body(training, engine)
        finally:
            await training.close()
            assert not workers()

    with warm_subprocesses():
        return asyncio.run(inside())


def workers() -> list[psutil.Process]:
    processes = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE and (
                child.pid in STARTED or "kongming_server.training.process" in child.cmdline()
            ):
                processes.append(child)
        except psutil.Error:
            continue
    return processes


async def ended(training: Training, operation: Operation) -> Operation:
    async for seen in training.watch(operation.id):
        last = seen
    return last


def test_a_first_training_goes_into_service_and_is_kept(store_url: str, store: Store) -> None:
    keep(store, campaign("prog") + campaign("other", seed=1))

    async def body(training: Training, engine: Engine) -> None:
        submitted = await training.submit(["prog"])
        seen = [update async for update in training.watch(submitted.id)]
        assert [update.state for update in seen][-1] == "done"
        assert {"running"} <= {update.state for update in seen}
        progress = [update.progress for update in seen]
        assert progress == sorted(progress)
        assert progress[-1] == 1.0
        assert any("prog" in update.message for update in seen)
        (outcome,) = seen[-1].trained
        assert (outcome.app, outcome.placement, outcome.version) == ("prog", "cross-core", 1)
        assert outcome.promoted
        assert engine.served == {("prog", "cross-core"): 1}
        assert seen[-1].started_at is not None
        assert seen[-1].ended_at is not None

    run(store_url, body)
    assert store.in_service("prog", "cross-core") == 1
    (row,) = store.operations()
    assert (row.state, row.progress) == ("done", 1.0)


@pytest.mark.thorough
def test_no_application_named_means_all_with_new_runs(store_url: str, store: Store) -> None:
    keep(store, campaign("prog") + campaign("other", seed=1))

    async def body(training: Training, engine: Engine) -> None:
        first = await ended(training, await training.submit())
        assert {outcome.app for outcome in first.trained} == {"prog", "other"}
        again = await ended(training, await training.submit())
        assert again.state == "done"
        assert again.trained == ()
        assert "nothing new" in again.message
        keep(store, campaign("other", seed=2))
        third = await ended(training, await training.submit())
        assert [outcome.app for outcome in third.trained] == ["other"]
        assert third.trained[0].version == 2

    run(store_url, body)


def test_what_is_worse_or_of_runs_from_before_a_change_is_kept_but_not_in_service(
    store_url: str, store: Store
) -> None:
    began = time.time()
    keep(store, campaign("prog", began_at=began - 1000.0))

    async def body(training: Training, engine: Engine) -> None:
        await ended(training, await training.submit(["prog"]))
        training.changed = lambda app: {"cross-core": began}
        of_before = await ended(training, await training.submit(["prog"]))
        training.changed = lambda app: {}
        # Runs of the same program on a node where nothing repeats.
        keep(store, campaign("prog", seed=3, noise=0.6))
        worse = await ended(training, await training.submit(["prog"]))
        for operation, reason in ((of_before, "profile it again"), (worse, "worse")):
            (outcome,) = operation.trained
            assert not outcome.promoted
            assert reason in outcome.reason
            # It can still be asked for.
            assert ("prog", "cross-core", outcome.version) in engine.files
        assert engine.served == {("prog", "cross-core"): 1}

    run(store_url, body)
    assert store.in_service("prog", "cross-core") == 1
    assert store.model("prog", "cross-core", version=2) is not None


@pytest.mark.thorough
def test_a_model_trained_elsewhere_stays_in_service_next_to_a_worse_one(
    store_url: str, store: Store
) -> None:
    from kongming.learning.training import train_application

    runs = campaign("prog")
    keep(store, runs)
    document = train_application(runs, models=("LM", "CART"))
    store.put_model("prog", document["identity"], "node-1", "cross-core", document)
    keep(store, campaign("prog", seed=3, noise=0.6))

    async def body(training: Training, engine: Engine) -> None:
        done = await ended(training, await training.submit(["prog"]))
        assert not done.trained[0].promoted

    run(store_url, body)
    # Nobody had promoted it: it was merely the newest.
    assert store.in_service("prog", "cross-core") == 1


def test_a_version_that_was_rolled_back_while_others_were_trained_stays_out_of_service(
    store_url: str, store: Store
) -> None:
    from kongming.learning.training import train_application

    runs = campaign("prog")
    keep(store, runs)
    document = train_application(runs, models=("LM", "CART"))
    for version in (1, 2):
        store.put_model("prog", document["identity"], "node-1", "cross-core", document)
        store.promote("prog", "cross-core", version, "trained")
    outcome = Outcome("prog", "cross-core", version=2, promoted=True)

    async def body(training: Training, engine: Engine) -> None:
        await training._take_over(outcome, "")
        assert engine.served == {("prog", "cross-core"): 2}
        engine.served.clear()
        store.roll_back("prog", "cross-core")
        await training._take_over(outcome, "")
        assert engine.served == {}
        # It can still be chosen again.
        assert ("prog", "cross-core", 2) in engine.files

    run(store_url, body)


def test_what_cannot_be_trained_says_why_and_the_others_are(store_url: str, store: Store) -> None:
    keep(store, campaign("prog") + campaign("few", seed=1)[:3])
    store.put_application("never", "a" * 16, {})

    async def body(training: Training, engine: Engine) -> None:
        done = await ended(training, await training.submit(["few", "never", "prog"]))
        assert done.state == "done"
        by_app = {outcome.app: outcome for outcome in done.trained}
        assert "Only" in by_app["few"].error or "solo" in by_app["few"].error
        assert "no runs" in by_app["never"].error
        assert by_app["prog"].promoted
        assert "2 not trained" in done.message

    run(store_url, body)


@pytest.mark.thorough
def test_runs_from_before_a_change_are_not_learnt_from(store_url: str, store: Store) -> None:
    began = time.time()
    keep(store, campaign("prog", began_at=began - 10_000.0, solo_s=3.0))
    keep(store, campaign("prog", began_at=began - 1_000.0, solo_s=6.0, seed=1))
    changed = {"cross-core": began - 2_000.0}

    async def body(training: Training, engine: Engine) -> None:
        training.changed = lambda app: changed
        done = await ended(training, await training.submit(["prog"]))
        assert done.trained[0].promoted
        training.changed = lambda app: {}
        # Later trainings do not mix the old program in again.
        keep(store, campaign("prog", began_at=began - 500.0, solo_s=6.0, seed=2))
        await ended(training, await training.submit(["prog"]))
        for version in (1, 2):
            file = engine.files["prog", "cross-core", version]
            assert file.solo_metric == pytest.approx(6.0, rel=0.05)

    run(store_url, body)


def test_workers_are_of_low_priority_and_one_thread(
    store_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "2")

    async def body() -> None:
        worker = await TrainingProcess.start(store_url, None)
        try:
            process = psutil.Process(worker.pid)
            assert process.nice() == psutil.Process().nice() + NICE or process.nice() == NICE
            environment = process.environ()
            assert environment["OPENBLAS_NUM_THREADS"] == environment["OMP_NUM_THREADS"] == "1"
            assert worker.blas_threads == 1
            # It was executed, not forked: nothing of gRPC is in it.
            maps = Path(f"/proc/{worker.pid}/maps").read_text()
            assert "cygrpc" not in maps
            # The URL may hold a password.
            assert store_url not in " ".join(process.cmdline())
        finally:
            await worker.end()
        assert not psutil.pid_exists(worker.pid)

    asyncio.run(body())


def test_cancelling_ends_the_worker_and_frees_its_place(store_url: str, store: Store) -> None:
    keep(store, campaign("prog"))

    async def body(training: Training, engine: Engine) -> None:
        operation = await training.submit(["prog"])
        waiting = await training.submit(["prog"])
        await eventually(
            lambda: (
                (running := training.current(operation.id)) is not None and running.progress >= 0.05
            )
        )
        assert (await training.get(waiting.id)).state == "queued"
        assert (await training.cancel(waiting.id)).state == "cancelled"
        cancelled = await training.cancel(operation.id)
        assert cancelled.state == "cancelled"
        # The worker was ended in the midst of its work, before this returned.
        assert cancelled.progress < 1.0
        assert not workers()
        assert (await training.cancel(operation.id)) == cancelled
        # The place is free again.
        assert not training.busy

    run(store_url, body, SLOW)
    assert {row.state for row in store.operations()} == {"cancelled"}
    assert store.models() == []


def test_a_worker_that_dies_fails_its_operation_and_no_other(store_url: str, store: Store) -> None:
    keep(store, campaign("prog"))

    async def body(training: Training, engine: Engine) -> None:
        operation = await training.submit(["prog"])
        (worker,) = await eventually(workers)
        os.kill(worker.pid, signal.SIGKILL)
        failed = await ended(training, operation)
        assert failed.state == "failed"
        assert "SIGKILL" in failed.message
        assert "memory" in failed.message
        after = await ended(training, await training.submit(["prog"]))
        assert after.state == "done"

    run(store_url, body)


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    async def body() -> None:
        with pytest.raises(WorkerDiedError, match="is not a database"):
            await TrainingProcess.start(f"sqlite:///{bad}", None)

    bad = tmp_path / "bad.db"
    bad.write_bytes(b"this is no database at all, but a text" * 100)
    with warm_subprocesses():
        asyncio.run(body())


def test_closing_leaves_no_process_and_a_cancelled_operation(store_url: str, store: Store) -> None:
    keep(store, campaign("prog"))

    async def body(training: Training, engine: Engine) -> None:
        await training.submit(["prog"])
        await training.submit(["prog"])
        await eventually(workers)

    run(store_url, body, SLOW)
    assert [row.state for row in store.operations()] == ["cancelled"] * 2
    assert all("server ended" in row.message for row in store.operations())


def test_cancelling_twice_or_before_it_began_is_harmless(store_url: str, store: Store) -> None:
    keep(store, campaign("prog"))

    async def body(training: Training, engine: Engine) -> None:
        unbegun = await training.submit(["prog"])
        assert (await training.cancel(unbegun.id)).state == "cancelled"
        operation = await training.submit(["prog"])
        await eventually(workers)
        answers = await asyncio.gather(*(training.cancel(operation.id) for _ in range(3)))
        assert {answer.state for answer in answers} == {"cancelled"}
        assert not training.busy
        # One that is submitted right before the end is not forgotten either.
        await training.submit(["prog"])

    run(store_url, body, SLOW)
    assert [row.state for row in store.operations()] == ["cancelled"] * 3


@pytest.mark.thorough
def test_several_workers_share_an_operation(store_url: str, store: Store) -> None:
    keep(store, [r for n in range(4) for r in campaign(f"prog{n}", seed=n)])

    async def body(training: Training, engine: Engine) -> None:
        operation = await training.submit()
        await eventually(lambda: len(workers()) == 2)
        done = await ended(training, operation)
        assert done.state == "done"
        assert len(done.trained) == len(engine.served) == 4

    run(store_url, body, Settings(models="LM,CART", workers=2))


def test_what_is_asked_is_checked(store_url: str, store: Store) -> None:
    keep(store, campaign("prog"))

    async def body(training: Training, engine: Engine) -> None:
        with pytest.raises(UnknownNameError, match="prgo"):
            await training.submit(["prgo"])
        with pytest.raises(UnknownNameError, match="NOMODEL"):
            await training.submit(["prog"], model="NOMODEL")
        with pytest.raises(InputError, match="random_state"):
            await training.submit(["prog"], random_state=-1)
        with pytest.raises(UnknownNameError, match="operation"):
            await training.get("nothing")
        await training.submit(["prog"])
        await training.submit(["prog"])
        with pytest.raises(OverloadedError, match="wait already"):
            await training.submit(["prog"])

    run(store_url, body, Settings(models="LM.GA", queued=1))


def test_another_server_sees_it_cancels_it_and_sees_that_it_died(
    store_url: str, store: Store
) -> None:
    keep(store, campaign("prog"))

    async def body(training: Training, engine: Engine) -> None:
        other = Training(store_url, Engine(), SLOW)
        await other.start()
        try:
            operation = await training.submit(["prog"])
            await eventually(workers)
            watching = asyncio.create_task(ended(other, operation))
            assert (await other.get(operation.id)).id == operation.id
            await other.cancel(operation.id)
            seen = await asyncio.wait_for(watching, 100.0)
            assert seen.state == "cancelled"
            assert (await training.get(operation.id)).state == "cancelled"
        finally:
            await other.close()

    run(store_url, body, SLOW)


def test_another_server_cancels_one_that_waits(store_url: str, store: Store) -> None:
    keep(store, campaign("prog"))

    async def body(training: Training, engine: Engine) -> None:
        other = Training(store_url, Engine(), SLOW)
        await other.start()
        try:
            first = await training.submit(["prog"])
            waiting = [await training.submit(["prog"]) for _ in range(3)]
            await other.cancel(waiting[1].id)
            seen = await asyncio.wait_for(ended(other, waiting[1]), 100.0)
            assert (seen.state, seen.message) == ("cancelled", "It was cancelled.")
            assert await training.get(waiting[1].id) == seen
            # Those next to it go on as they were.
            states = [(await other.get(each.id)).state for each in (first, *waiting)]
            assert states == ["running", "queued", "cancelled", "queued"]
            answers = await asyncio.gather(*(training.cancel(waiting[0].id) for _ in range(3)))
            assert {answer.state for answer in answers} == {"cancelled"}
        finally:
            await other.close()

    run(store_url, body, SLOW)


def test_one_that_waits_for_long_is_not_taken_for_abandoned(
    store_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "WAITING_TOLD_EVERY_S", 0.02)
    keep(store, campaign("prog"))

    async def body(training: Training, engine: Engine) -> None:
        first = await training.submit(["prog"])
        waiting = await training.submit(["prog"])

        def heard_of() -> bool:
            row = store.operation(waiting.id)
            return row is not None and row.document["told_at"] > waiting.told_at

        await eventually(heard_of)
        seen = await training.get(waiting.id)
        assert (seen.state, seen.ended_at) == ("queued", None)
        await training.cancel(waiting.id)
        await training.cancel(first.id)

    run(store_url, body, SLOW)


def test_what_a_dead_server_was_training_has_failed(store_url: str, store: Store) -> None:
    keep(store, campaign("prog"))
    script = f"""
import asyncio, os, sys
from kongming_server.training.queue import KIND, Training
from tests.server.profiles.profiled import Engine
from tests.server.profiles.test_training import SLOW, workers
async def main():
    training = Training({store_url!r}, Engine(), SLOW)
    await training.start()
    operation = await training.submit(["prog"])
    while not workers():
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)
    print(operation.id, workers()[0].pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    root = Path(__file__).resolve().parents[3]
    path = os.pathsep.join([str(root), str(root / "daemon")])
    server = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert server.stdout is not None
    operation_id, pid = server.stdout.readline().split()
    worker = psutil.Process(int(pid))
    server.kill()
    server.wait()
    server.stdout.close()
    # It was sent no signal: its input ended.
    worker.wait(100)

    async def body(training: Training, engine: Engine) -> None:
        operation = await training.get(operation_id)
        assert operation.state == "failed"
        assert "has ended" in operation.message

    run(store_url, body)


def test_an_operation_that_cannot_be_read_keeps_no_server_from_starting(
    store_url: str, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    dead = f"{socket.gethostname()}/{2**22}/x"
    documents: dict[str, Any] = {"damaged": [], "whole-one": {"apps": ["prog"]}}
    for name, document in documents.items():
        store.put_operation(StoredOperation(name, KIND, "queued", owner=dead, document=document))

    async def body(training: Training, engine: Engine) -> None:
        assert (await training.get("whole-one")).state == "failed"

    run(store_url, body)
    assert "Operation damaged cannot be read" in caplog.text


def test_tasks_go_through_json() -> None:
    task = Task("prog", "cross-core", models=("LM",), since={"cross-core": 5.0}, only_new=True)
    assert Task.from_dict(json.loads(json.dumps(task.to_dict()))) == task
