"""What a real server does when it is killed, its disk is full, or the system's clock jumps."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from kongming_server.app import App
from kongming_server.commands import server_config as config
from kongming_server.running.clock import SteadyClock

from kongming.rpc import value_codec as values
from kongming.rpc.v1 import assignments_pb2, fleet_pb2
from kongming.store import Store
from tests import builders
from tests.server.conftest import StartServer
from tests.server.fleet import IDLE, FakeAgent, moment
from tests.server.process import ServerProcess, eventually

AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)


class Reporter(threading.Thread):
    """Reports without a pause, keeps what was not acknowledged, and notes what was."""

    def __init__(self, agent: FakeAgent) -> None:
        super().__init__(daemon=True)
        self.agent = agent
        self.acknowledged: list[str] = []
        self.refusals: list[grpc.StatusCode] = []
        self.failure: BaseException | None = None
        self._stop_asked = threading.Event()

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self._deliver()
        except BaseException as failure:
            self.failure = failure

    def finish(self) -> None:
        self._stop_asked.set()
        self.join(60)
        assert self.failure is None, self.failure

    def _deliver(self) -> None:
        """Three fingerprints and a run, again and again until they are acknowledged."""
        prints = [self.agent.request(self.agent.fingerprint()) for _ in range(3)]
        node_id = self.agent.facts.id
        run = builders.run("sort", 2.0, started_at=moment(), node_id=node_id)
        wanted = {reported.fingerprint.id for reported in prints} | {run.id}
        while wanted:
            try:
                accepted = [*self.agent.send(prints).accepted]
                accepted += self.agent.report_runs([run]).accepted
            except grpc.RpcError as error:
                self.refusals.append(error.code())
                time.sleep(0.02)
                continue
            assert wanted <= set(accepted)
            self.acknowledged += accepted
            wanted.clear()


def kept_ids(server: ServerProcess) -> list[str]:
    with Store.open(server.store_url) as store:
        prints = [fingerprint.id for fingerprint in store.fingerprints(purpose="live")]
        return prints + [run.id for run in store.runs(fingerprints=False)]


def test_a_kill_at_any_moment_loses_nothing_acknowledged(server: ServerProcess) -> None:
    pause = random.Random(7)
    reporters = []
    for number in range(3):
        agent = FakeAgent(server.channel(), f"node-{number}")
        agent.register()
        reporters.append(Reporter(agent))
    for reporter in reporters:
        reporter.start()
    kills = 0
    # However slow the machine is: until enough was acknowledged for a loss to show.
    while kills < 5 or (
        sum(len(reporter.acknowledged) for reporter in reporters) <= 30 and kills < 40
    ):
        time.sleep(pause.uniform(0.05, 0.5))
        server.kill()
        kills += 1
        server.start()
    time.sleep(0.3)
    for reporter in reporters:
        reporter.finish()
    acknowledged = {record_id for reporter in reporters for record_id in reporter.acknowledged}
    stored = kept_ids(server)
    assert len(acknowledged) > 20
    assert acknowledged <= set(stored)
    assert len(stored) == len(set(stored))
    assert all(code in AWAY for reporter in reporters for code in reporter.refusals)


def test_an_orderly_end_under_load_answers_what_it_took(server: ServerProcess) -> None:
    agent = FakeAgent(server.channel())
    agent.register()
    reporter = Reporter(agent)
    reporter.start()
    for _ in range(2):
        before = len(reporter.acknowledged)
        eventually(lambda before=before: len(reporter.acknowledged) > before)
        assert server.stop() == 0
        server.start()
    reporter.finish()
    assert set(reporter.acknowledged) <= set(kept_ids(server))
    assert set(reporter.refusals) <= {*AWAY, grpc.StatusCode.CANCELLED}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_and_recovers(start_server: StartServer, small_disk: Path) -> None:
    server = start_server(store_url=f"sqlite:///{small_disk / 'server.db'}")
    agent = FakeAgent(server.channel())
    agent.register(references=[agent.idle()])
    before = agent.fingerprint()
    assert list(agent.report(before).accepted) == [before.id]
    filler = small_disk / "filler"
    _fill(filler)
    refused: set[grpc.StatusCode] = set()
    waiting = [agent.request(agent.fingerprint()) for _ in range(50)]

    def full() -> bool:
        try:
            agent.send(waiting)
        except grpc.RpcError as error:
            refused.add(error.code())
        return bool(refused)

    eventually(full)
    assert refused <= set(AWAY)
    refusals = 4
    for _ in range(refusals):
        with pytest.raises(grpc.RpcError):
            agent.send(waiting)
    # It is logged once, and not for each of them.
    assert 1 <= server.log.read_text().count("The store takes nothing") < refusals
    ready = server.get("/readyz")
    assert (ready["ready"], ready["degraded"]) == (True, True)
    # What needs no store is answered all the same.
    assert agent.node().state == fleet_pb2.NODE_STATE_READY
    with pytest.raises(grpc.RpcError) as error:
        agent.assignments.Reserve(
            assignments_pb2.ReserveRequest(assignment_id="job-1", app="sort", node="node-1")
        )
    assert error.value.code() in AWAY
    filler.unlink()
    answer = agent.send(waiting)
    assert set(answer.accepted) == {reported.fingerprint.id for reported in waiting}
    assert "The store takes records again" in server.log.read_text()
    assert server.get("/readyz") == {"ready": True}
    reserved = agent.assignments.Reserve(
        assignments_pb2.ReserveRequest(assignment_id="job-1", app="sort", node="node-1")
    )
    assert reserved.assignment.node_id == "node-1"
    server.kill()
    assert {before.id, *answer.accepted} <= set(kept_ids(server))


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def test_a_damaged_model_does_not_keep_the_server_from_starting(
    tmp_path: Path, start_server: StartServer
) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    with Store.open(url) as store:
        store.put_node(builders.node())
        store.put_model("sort", "id", "node-1", "cross-core", {"format": "kongming-model"})
    server = start_server(store_url=url)
    assert "sort" in server.log.read_text()
    assert FakeAgent(server.channel()).node().facts.id == "node-1"


class Wall:
    """The system's clock, which can be set."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


@pytest.mark.parametrize("jump_s", [86400.0, -86400.0])
def test_a_clock_that_jumps_ends_no_reservation_and_silences_no_node(
    tmp_path: Path, jump_s: float
) -> None:
    wall = Wall()
    settings = config.load(
        options={
            "server.listen": "127.0.0.1:0",
            "server.http": "",
            "server.store": f"sqlite:///{tmp_path / 'server.db'}",
        }
    )

    async def serve() -> None:
        app = App(settings, SteadyClock(wall))
        addresses = await app.start()
        try:
            await asyncio.to_thread(jump, addresses.grpc)
        finally:
            await app.stop()

    def jump(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            agent = FakeAgent(channel)
            agent.register(references=[agent.idle()])
            agent.assignments.Reserve(
                assignments_pb2.ReserveRequest(
                    assignment_id="job-1",
                    app="sort",
                    node="node-1",
                    ttl=values.duration(60.0),
                )
            )
            wall.ahead_s = jump_s
            # Longer than the period of everything that looks at the time.
            time.sleep(2.5)
            node = agent.node()
            assert node.state == fleet_pb2.NODE_STATE_READY
            assert [assignment.assignment_id for assignment in node.assignments] == ["job-1"]
            assert list(agent.report(agent.fingerprint()).accepted)

    asyncio.run(serve())


def test_nodes_whose_clocks_differ_are_all_served(server: ServerProcess) -> None:
    channel = server.channel()
    for number, age_s in enumerate((-86400.0, -30.0, 0.0, 30.0, 86400.0)):
        agent = FakeAgent(channel, f"node-{number}")
        agent.register(references=[agent.idle()])
        taken = agent.fingerprint(age_s=age_s)
        assert list(agent.report(taken).accepted) == [taken.id]
        assert agent.node().state == fleet_pb2.NODE_STATE_READY


def test_the_idle_reference_is_restored(server: ServerProcess) -> None:
    agent = FakeAgent(server.channel())
    agent.register(references=[agent.idle()])
    server.kill()
    server.start()
    # Only against a reference is this too fast to be true.
    fast = agent.request(agent.fingerprint(), readings={"compute.int": IDLE["compute.int"] / 200})
    assert [rejection.id for rejection in agent.send([fast]).rejected] == [fast.fingerprint.id]
