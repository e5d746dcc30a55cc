"""The extender between a real server and requests as the scheduler sends them."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kongming_extender import pod_watch, sync

from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from kongming.store import Store
from tests import builders
from tests.kubernetes import clusters
from tests.kubernetes.apiserver import ApiServer
from tests.kubernetes.extenders import Extender, config
from tests.server.core import worlds
from tests.server.process import ServerProcess
from tests.server.test_predicting import BUSY, Node, put_models, wait_for_busy_node

NODES = ["node-1", "node-2"]
Scenario = Callable[[Extender], Awaitable[None]]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With trained models, a busy node-1 and an idle node-2."""
    process = prepared(tmp_path_factory.mktemp("server"))
    yield process
    process.close()


@pytest.fixture
def server(shared: ServerProcess) -> Iterator[ServerProcess]:
    """The same for all tests, without anybody's assignments."""
    yield shared
    with RemoteService(Connection(shared.grpc)) as service:
        for assignment in service.assignments():
            service.release(assignment.assignment_id)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that a test may kill."""
    (tmp_path / "server").mkdir()
    process = prepared(tmp_path / "server")
    yield process
    process.close()


def prepared(folder: Path) -> ServerProcess:
    url = f"sqlite:///{folder / 'trained.db'}"
    put_models(url)
    with Store.open(url) as store:
        store.put_application("memory", builders.identity_of("memory"), {})
    settings = {"fleet.silent_after_s": 3600.0}
    process = ServerProcess(folder, store_url=url, settings=settings).start()
    enter(process)
    return process


def enter(server: ServerProcess) -> None:
    channel = server.channel()
    Node(channel, "node-1").enter(BUSY)
    Node(channel, "node-2").enter({})
    wait_for_busy_node(channel)


def play(server: ServerProcess | str, scenario: Scenario, **sections: Any) -> None:
    address = server if isinstance(server, str) else server.grpc

    async def run() -> None:
        async with Extender(config(address, **sections)) as extender:
            await scenario(extender)

    asyncio.run(run())


@pytest.mark.parametrize("complete", [False, True])
def test_a_limit_refuses_and_the_others_are_ranked(server: ServerProcess, complete: bool) -> None:
    expected = math.exp(worlds.expected("memory", BUSY))

    async def scenario(extender: Extender) -> None:
        strict = clusters.pod(app="memory", limit=1.0 + (expected - 1.0) / 2.0)
        passing, failed = await extender.filter(strict, [*NODES, "node-9"], complete=complete)
        # Of node-9 nothing is known: it might be slower.
        assert passing == ["node-2"]
        assert "memory would be slower" in failed["node-1"]
        assert "unknown" in failed["node-9"]
        _, text = await extender.get("/explain", params={"pod": strict["metadata"]["uid"]})
        rows = {row["node"]: row for row in json.loads(text)["nodes"]}
        assert rows["node-1"]["slowdown"] == pytest.approx(expected, rel=0.05)
        assert rows["node-9"]["slowdown"] is None
        assert [rows[name]["score"] for name in ("node-1", "node-2", "node-9")] == [None, 10, None]
        easy = clusters.pod(app="memory", limit=expected * 1.5)
        assert await extender.filter(easy, NODES, complete=complete) == (NODES, {})
        free = clusters.pod(app="memory")
        assert await extender.filter(free, NODES, complete=complete) == (NODES, {})
        for asking in (free, clusters.pod(), clusters.pod(app="never-profiled", limit=1.01)):
            priorities = await extender.priorities(asking, NODES, complete=complete)
            assert priorities["node-1"] < priorities["node-2"] == 10
            # Nothing says that an application without a model would be slower than it may.
            assert (await extender.filter(asking, NODES, complete=complete))[0] == NODES
        assert extender.sample("failed_open_total", reason="server") == 0
        assert extender.sample("nodes_refused_total", reason="limit") == 1

    # Else the best node of one pod would be held, and be worse for the next.
    play(server, scenario, assignments={"guess_ttl_s": 0.0})


def test_a_limit_may_refuse_every_node(server: ServerProcess) -> None:
    async def scenario(extender: Extender) -> None:
        asking = clusters.pod(app="memory", limit=1.0)
        passing, failed = await extender.filter(asking, ["node-1"])
        assert passing == []
        assert set(failed) == {"node-1"}

    play(server, scenario)


def test_a_server_that_is_killed_lets_all_nodes_pass(
    mortal: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(extender: Extender) -> None:
        asking = clusters.pod(app="memory", limit=1.01)
        assert (await extender.filter(asking, NODES))[0] == ["node-2"]
        await asyncio.to_thread(mortal.kill)
        # What was known a moment ago still counts.
        assert (await extender.filter(asking, NODES))[0] == ["node-2"]
        rankings = extender.app.rankings
        rankings._now = lambda: time.monotonic() + 60.0

        async def open_now() -> bool:
            return (await extender.filter(asking, NODES)) == (NODES, {})

        await extender.eventually(open_now)
        for _ in range(20):
            assert await extender.priorities(asking, NODES) == dict.fromkeys(NODES, 0)
        assert extender.sample("requests_total", verb="prioritize", outcome="open") == 20
        assert extender.sample("failed_open_total", reason="server") > 20
        assert caplog.text.count("all nodes pass") == 1
        assert (await extender.get("/readyz"))[0] == 200
        await asyncio.to_thread(mortal.start)
        await asyncio.to_thread(enter, mortal)

        async def ranked_again() -> bool:
            return (await extender.filter(asking, NODES))[0] == ["node-2"]

        await extender.eventually(ranked_again)
        assert "ranked again" in caplog.text

    with caplog.at_level("INFO"):
        play(mortal, scenario, ranking={"oldest_s": 60.0, "fresh_s": 0.0})


def test_a_server_that_was_never_there_delays_no_pod() -> None:
    async def scenario(extender: Extender) -> None:
        asking = clusters.pod(app="memory", limit=1.01)
        assert await extender.filter(asking, NODES) == (NODES, {})
        assert await extender.priorities(asking, NODES) == dict.fromkeys(NODES, 0)
        # But not one that takes no unknown nodes.
        strict = clusters.pod(app="memory", limit=1.01, unknown="refuse")
        assert (await extender.filter(strict, NODES))[0] == []
        # One that names no application is refused nowhere, whoever is away.
        assert await extender.filter(clusters.pod(), NODES, complete=True) == (NODES, {})

    play("127.0.0.1:1", scenario)


def test_unknown_nodes_have_equal_priorities(server: ServerProcess) -> None:
    async def scenario(extender: Extender) -> None:
        priorities = await extender.priorities(clusters.pod(app="memory"), ["a", "b"])
        assert set(priorities.values()) == {0}
        assert extender.sample("failed_open_total", reason="unknown") == 1
        untrained = clusters.pod(app="memory", limit=1.01)
        untrained["metadata"]["annotations"]["kongming.dev/placement"] = "same-core"
        assert await extender.filter(untrained, NODES) == (NODES, {})
        assert extender.sample("failed_open_total", reason="untrained") == 1

    play(server, scenario)


def test_a_resident_is_kept_within_its_own_limit(server: ServerProcess, tmp_path: Path) -> None:
    async def run() -> None:
        web = clusters.pod("web", app="memory", limit=1.01, node="node-2", phase="Running")
        async with cluster(server, tmp_path, web) as (_, extender):
            await until_assigned(extender, server, {web["metadata"]["uid"]: "bound"})
            for app, _, pressure in worlds.APPS:
                harms = worlds.expected("memory", pressure) > 0.02
                passing, failed = await extender.filter(clusters.pod(app=app), NODES)
                assert ("node-2" in failed) == harms, app
                assert "node-1" in passing
                if harms:
                    assert failed["node-2"] == (
                        f"kongming: {app} would, or may, slow a pod here beyond that pod's own "
                        "limit"
                    )
                    _, text = await extender.get("/explain", params={"pod": "default/job"})
                    (row,) = (r for r in json.loads(text)["nodes"] if r["node"] == "node-2")
                    assert row["resident"]["pod"] == "default/web"
                    assert row["resident"]["slowdown"] > row["resident"]["limit"] == 1.01
            assert extender.sample("nodes_refused_total", reason="resident") > 0

    asyncio.run(run())


def test_pods_become_assignments_and_their_runs_are_compared(
    server: ServerProcess, tmp_path: Path
) -> None:
    async def run() -> None:
        async with cluster(server, tmp_path) as (api, extender):
            first = clusters.pod("first", app="memory", node="node-2")
            await api.put(first)
            uid = first["metadata"]["uid"]
            await until_assigned(extender, server, {uid: "reserved"})
            started = {"started": "2026-01-01T00:00:00Z", "uid": uid, "app": "memory"}
            await api.put(clusters.pod("first", node="node-2", phase="Running", **started))
            await until_assigned(extender, server, {uid: "bound"})
            ended = started | {"finished": "2026-01-01T00:01:15Z"}
            await api.put(clusters.pod("first", node="node-2", phase="Succeeded", **ended))
            await extender.until(lambda: extender.sample("runs_total", outcome="reported"))
            await until_assigned(extender, server, {})
            second = clusters.pod("second", app="memory", node="node-1", phase="Running")
            system = clusters.pod("system", node="node-1", phase="Running")
            await api.put(system)
            await api.put(second)
            await until_assigned(extender, server, {second["metadata"]["uid"]: "bound"})
            await api.delete(second)
            await until_assigned(extender, server, {})
            assert extender.sample("pods") == 0
            with Store.open(server.store_url) as store:
                runs = store.runs(app="memory")
            (run,) = [run for run in runs if run.kind == "environment"]
            assert run.wall_s == run.metric == 75.0

    asyncio.run(run())


def test_what_ended_while_nobody_watched_is_released(mortal: ServerProcess, tmp_path: Path) -> None:
    stays, gone, foreign = clusters.uid(), clusters.uid(), "slurm-17"
    with RemoteService(Connection(mortal.grpc)) as service:
        long_ago = 1_700_000_000.0
        for assignment_id in (stays, gone, foreign):
            service.bind(assignment_id, app="memory", node="node-1", started_at=long_ago)

    async def run() -> None:
        alive = clusters.pod("a", app="memory", node="node-1", phase="Running", uid=stays)
        async with cluster(mortal, tmp_path, alive) as (_, extender):
            await until_assigned(extender, mortal, {stays: "bound", foreign: "bound"})

    asyncio.run(run())


def test_a_burst_of_pods_is_spread(server: ServerProcess, tmp_path: Path) -> None:
    """The best node is held until the pod is seen bound; then its own assignment counts."""

    async def run() -> None:
        async with cluster(server, tmp_path) as (api, extender):
            asking = [clusters.pod(f"p{n}", app="memory") for n in range(2)]
            first = await extender.priorities(asking[0], NODES)
            assert first["node-2"] == 10
            # A pod waits for what is held for those before it, but not longer than 20 ms.
            await extender.app.sync.wait_for_guesses(10.0)
            second = await extender.priorities(asking[1], NODES)
            assert second["node-1"] - first["node-1"] > 0 or second["node-2"] < 10
            # What is held for a pod itself does not count when it is asked about again.
            assert (await extender.filter(asking[0], NODES))[0] == NODES
            assert not [id_ for id_ in await held_by(server) if asking[0]["metadata"]["uid"] in id_]
            assert (await extender.priorities(asking[0], NODES))["node-2"] > 0
            await extender.app.sync.wait_for_guesses(10.0)
            held = await held_by(server)
            assert [id_ for id_ in held if id_.startswith(asking[0]["metadata"]["uid"])]
            # The scheduler chose otherwise.
            asking[0]["spec"]["nodeName"] = "node-1"
            await api.put(asking[0])
            uid = asking[0]["metadata"]["uid"]

            async def moved() -> bool:
                held = await held_by(server)
                return held.get(uid) == "reserved" and not any(
                    id_.startswith(f"{uid}/") for id_ in held
                )

            await extender.eventually(moved)
            assert extender.sample("guesses_total", outcome="wrong") == 1

    asyncio.run(run())


def test_a_restarted_server_gets_what_it_missed(mortal: ServerProcess, tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(mortal, tmp_path) as (api, extender):
            await asyncio.to_thread(mortal.stop)
            pod = clusters.pod("late", app="memory", node="node-2", phase="Running")
            await api.put(pod)
            await extender.until(lambda: extender.sample("pods") == 1)
            await asyncio.to_thread(mortal.start)
            await until_assigned(extender, mortal, {pod["metadata"]["uid"]: "bound"})

    asyncio.run(run())


def test_what_ended_on_a_node_that_has_no_other_pod_is_released(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node is known to be of this cluster since the scheduler asks about it."""
    monkeypatch.setattr(sync, "_YOUNG_S", -5.0)
    monkeypatch.setattr(pod_watch, "_RECHECK_S", 1.0)
    ended, others = clusters.uid(), clusters.uid()
    with RemoteService(Connection(server.grpc)) as service:
        service.reserve(ended, "memory", "node-2", ttl_s=600.0)
        service.reserve(others, "memory", "node-1", ttl_s=600.0)

    async def run() -> None:
        async with cluster(server, tmp_path) as (_, extender):
            await extender.filter(clusters.pod(app="memory"), ["node-2"])
            # node-1 may be of another cluster.
            await until_assigned(extender, server, {others: "reserved"})

    asyncio.run(run())


@asynccontextmanager
async def cluster(
    server: ServerProcess, folder: Path, *pods: dict[str, Any]
) -> AsyncIterator[tuple[ApiServer, Extender]]:
    """An extender that watches the pods of an API server."""
    async with ApiServer(folder) as api:
        for pod in pods:
            await api.put(pod)
        watching = {"watch": True, "api": api.url, "token_file": str(api.file), "ca": ""}
        async with Extender(config(server.grpc, pods=watching)) as extender:
            yield api, extender


async def held_by(server: ServerProcess) -> dict[str, str]:
    def ask() -> dict[str, str]:
        with RemoteService(Connection(server.grpc)) as service:
            return {held.assignment_id: held.state for held in service.assignments()}

    return await asyncio.to_thread(ask)


async def until_assigned(extender: Extender, server: ServerProcess, wanted: dict[str, str]) -> None:
    async def is_reached() -> bool:
        return await held_by(server) == wanted

    await extender.eventually(is_reached)
