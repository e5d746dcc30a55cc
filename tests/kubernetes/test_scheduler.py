"""Pods that a scheduler places by the extender's answers: shown some of the nodes, and tried again
whenever their condition changes."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kongming.cli.main import run
from kongming.rpc.v1 import assignments_pb2, fleet_pb2, predictor_pb2
from tests.kubernetes import clusters
from tests.kubernetes.apiserver import ApiServer
from tests.kubernetes.extenders import Extender, config
from tests.kubernetes.scheduler import Scheduler, feasible_nodes_to_find
from tests.kubernetes.test_manifests import SCHEDULER
from tests.server.stand import Stand

Scenario = Callable[[ApiServer, Extender], Awaitable[None]]


class Fleet:
    """Known nodes and the slowdown of any application there. ``noise`` is added at each answer, a
    greater one each time."""

    def __init__(self, slowdowns: Mapping[str, float], noise: float = 0.0) -> None:
        self.slowdowns = dict(slowdowns)
        self._noise = (noise * n for n in itertools.count())

    async def list_nodes(self, request: Any, context: Any) -> Any:
        answer = fleet_pb2.ListNodesResponse()
        for name in self.slowdowns:
            node = answer.nodes.add(state=fleet_pb2.NODE_STATE_READY)
            node.facts.id = node.facts.name = name
        return answer

    async def rank_nodes(self, request: Any, context: Any) -> Any:
        answer = predictor_pb2.RankNodesResponse(basis=predictor_pb2.BASIS_MODEL)
        noise = next(self._noise)
        for place, name in enumerate(request.nodes):
            slowdown = self.slowdowns[name] + noise * (1.0 + place)
            node = answer.nodes.add(
                node_id=name, name=name, score=slowdown - 1.0, worst_resident_slowdown=1.0
            )
            node.slowdown.median = node.slowdown.upper = slowdown
            node.slowdown.lower, node.slowdown.level = 1.0, 0.9
        return answer


def play(folder: Path, fleet: Fleet, scenario: Scenario, **sections: Any) -> None:
    async def play_at(address: str) -> None:
        # Else a node that is held for a pod would be asked about anew.
        sections.setdefault("assignments", {"guess_ttl_s": 0.0})
        async with ApiServer(folder) as api, Extender(config(address, **sections)) as extender:
            await scenario(api, extender)

    behaviours = {"ListNodes": fleet.list_nodes, "RankNodes": fleet.rank_nodes}
    with Stand(behaviours=behaviours) as stand:
        asyncio.run(play_at(stand.grpc))


def node_of(api: ApiServer, pod: Mapping[str, Any]) -> str:
    return str(api.pods[pod["metadata"]["uid"]]["spec"].get("nodeName", ""))


def test_so_many_nodes_are_shown_as_by_kubernetes() -> None:
    counts = [feasible_nodes_to_find(0, nodes) for nodes in (20, 150, 400, 5000)]
    assert counts == [20, 100, 188, 500]
    assert feasible_nodes_to_find(100, 400) == 400


def test_a_pod_that_no_node_suits_is_tried_again_only_when_that_may_have_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """The numbers differ for each node and each time, and are had elsewhere."""
    fleet = Fleet({f"n{n}": 1.5 + n / 10 for n in range(18)}, noise=0.002)
    slots = dict.fromkeys([*fleet.slowdowns, "silent-1", "silent-2"], 1)

    async def scenario(api: ApiServer, extender: Extender) -> None:
        scheduler = Scheduler(api, extender, slots)
        pod = clusters.pod("etl-1", app="etl", limit=1.2)
        uid = pod["metadata"]["uid"]
        await api.put(pod)
        await scheduler.run(most_attempts=50)
        # A second time since it got a condition at all.
        assert scheduler.attempts[uid] == 2
        (condition,) = api.pods[uid]["status"]["conditions"]
        assert condition["message"] == (
            "0/20 nodes are available: 18 kongming: etl would be slower here than its limit 1.2 "
            "allows, 2 kongming: how much etl would be slowed here is unknown."
        )
        url = f"http://{extender.address}"
        arguments = ["explain", "--pod", "default/etl-1", "--extender", url]
        for words in ([*arguments, "--json"], arguments, [*arguments[:2], "a/b", *arguments[3:]]):
            statuses.append(await asyncio.to_thread(run, words))
        assert extender.sample("nodes_refused_total", reason="limit") == 36
        assert extender.sample("best_slowdown_over_limit_bucket", le="1.1") == 0
        assert extender.sample("best_slowdown_over_limit_count") == 2
        fleet.slowdowns["n7"] = 1.0
        scheduler.retry(uid)
        await scheduler.run()
        assert node_of(api, pod) == "n7"

    statuses: list[int] = []
    with caplog.at_level("INFO"):
        play(tmp_path, fleet, scenario)
    assert statuses == [0, 0, 1]
    printed = capsys.readouterr()
    document, end = json.JSONDecoder().raw_decode(printed.out)
    rows = document["nodes"]
    assert [row["refused"] for row in rows] == ["limit"] * 18 + ["unknown"] * 2
    slowdowns = [row["slowdown"] for row in rows[:18]]
    assert slowdowns == sorted(slowdowns)
    assert 1.5 < slowdowns[0] < slowdowns[17] < 4.0
    table = printed.out[end:]
    assert f"n0 {slowdowns[0]:.2f} limit".split() in [line.split() for line in table.splitlines()]
    assert "remembered" in printed.err
    # Once for the pod, however often it is tried.
    (line,) = (line for line in caplog.messages if "default/etl-1" in line)
    assert "20 of 20 nodes are refused: 18 too slow for it, 2 of which too little is known" in line
    assert "Slowdowns: 1.5" in line


def test_with_the_shipped_configuration_no_pod_comes_to_a_slowed_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Calm nodes have room for all pods and more, and are in one place of the scheduler's turns."""
    slowdowns = {f"n{n}": 1.0 if n < 40 else 1.8 for n in range(200)}
    shipped = yaml.safe_load(SCHEDULER.read_text())

    def slowed(folder: Path, percentage: int) -> int:
        async def scenario(api: ApiServer, extender: Extender) -> None:
            scheduler = Scheduler(api, extender, dict.fromkeys(slowdowns, 2), percentage=percentage)
            for n in range(60):
                await api.put(clusters.pod(f"p{n}", app="etl"))
            await scheduler.run()
            nodes.extend(node_of(api, pod) for pod in api.pods.values())
            shares.append(extender.sample("known_nodes_share_sum") / 60)

        nodes: list[str] = []
        folder.mkdir()
        play(folder, Fleet(slowdowns), scenario, ranking={"fresh_s": 60.0})
        assert all(nodes)
        return sum(slowdowns[node] > 1.0 for node in nodes)

    shares: list[float] = []
    assert slowed(tmp_path / "shipped", shipped.get("percentageOfNodesToScore", 0)) == 0
    assert "percentageOfNodesToScore" not in caplog.text
    assert slowed(tmp_path / "default", 0) > 10
    assert caplog.text.count("percentageOfNodesToScore: 100") == 1
    assert shares[0] > 0.75 > shares[1]


def test_a_node_of_which_nothing_is_known_is_no_refuge_from_a_limit(tmp_path: Path) -> None:
    fleet = Fleet({"a": 1.8, "b": 1.1})
    slots = {"a": 9, "b": 1, "silent": 9}

    async def scenario(api: ApiServer, extender: Extender) -> None:
        # The scheduler's own plugins would choose the silent one among equals.
        scheduler = Scheduler(api, extender, slots, own_scores={"silent": 300})
        pods = {
            name: clusters.pod(name, app="etl", **asks)
            for name, asks in {
                # The one node that suits it, though it scores less.
                "first": {"limit": 1.2},
                # That node is full.
                "second": {"limit": 1.2},
                "bold": {"limit": 1.2, "unknown": "allow"},
                "free": {},
                "careful": {"unknown": "last"},
                "strict": {"unknown": "refuse"},
                "wrong": {"limit": 1.2, "unknown": "perhaps"},
            }.items()
        }
        for pod in pods.values():
            await api.put(pod)
            await scheduler.run()
        assert {name: node_of(api, pod) for name, pod in pods.items()} == {
            **{"first": "b", "second": "", "bold": "silent", "free": "silent"},
            **{"careful": "a", "strict": "a", "wrong": ""},
        }
        assert extender.sample("wrong_annotations_total") > 0
        # Only the silent node has room.
        scheduler = Scheduler(api, extender, {"silent": 9})
        for name, asks in {
            "limited": {"limit": 1.2},
            "unlimited": {"unknown": "last"},
            "unyielding": {"unknown": "refuse"},
        }.items():
            pods[name] = clusters.pod(name, app="etl", **asks)
            await api.put(pods[name])
        await scheduler.run()
        placed = [node_of(api, pods[name]) for name in ("limited", "unlimited", "unyielding")]
        assert placed == ["", "silent", ""]
        assert extender.sample("requests_total", verb="filter", outcome="closed") >= 2

    play(tmp_path, fleet, scenario)


def test_a_pod_that_ends_before_its_reservation_is_answered_holds_no_place(tmp_path: Path) -> None:
    """As under a burst of pods: the server reserves later than the extender waits."""

    async def reserve(request: Any, context: Any) -> Any:
        reserved.append(request.assignment_id)
        await asyncio.sleep(1.0)
        return assignments_pb2.ReserveResponse()

    async def release(request: Any, context: Any) -> Any:
        released.append(request.assignment_id)
        return assignments_pb2.ReleaseResponse()

    async def play_at(address: str) -> None:
        async with ApiServer(tmp_path) as api:
            sections = {
                "server": {"deadline_s": 0.2},
                "pods": {"watch": True, "api": api.url, "token_file": str(api.file), "ca": ""},
            }
            async with Extender(config(address, **sections)) as extender:
                pod = clusters.pod("brief", app="etl", node="n0")
                await api.put(pod)
                await extender.until(lambda: reserved)
                await api.delete(pod)
                await extender.until(lambda: released)
                assert released == [pod["metadata"]["uid"]]

    reserved: list[str] = []
    released: list[str] = []
    fleet = Fleet({"n0": 1.0})
    behaviours = {"ListNodes": fleet.list_nodes, "Reserve": reserve, "Release": release}
    with Stand(behaviours=behaviours) as stand:
        asyncio.run(play_at(stand.grpc))
