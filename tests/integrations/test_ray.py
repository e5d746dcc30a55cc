"""Tasks on real raylets under different CPU quotas, placed by what was measured inside of these."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kongming.records.errors import InputError
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from tests.conftest import Kongming
from tests.integrations.quotas import QuotaNodes, different_nodes
from tests.server.process import eventually

pytest.importorskip("ray")

import ray

from kongming.integrations.ray import RayPlacer
from tests.integrations.examples import EXPECTED, run_example
from tests.integrations.ray_cluster import RayCluster, ray_cluster

pytestmark = [pytest.mark.thorough, pytest.mark.alone]

QUOTAS = {"calm": None, "throttled": 0.1}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuotaNodes]:
    with different_nodes(tmp_path_factory.mktemp("nodes"), QUOTAS, "throttled", 1.5) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def cluster(nodes: QuotaNodes) -> Iterator[RayCluster]:
    with ray_cluster(*QUOTAS) as cluster:
        for name in QUOTAS:
            nodes.enter(name, cluster.pid(name))
        yield cluster


def task(function: Callable[..., Any], **options: Any) -> Any:
    return ray.remote(**({"num_cpus": 1, "max_retries": 0} | options))(function)


def until(path: str, end: str = "return") -> str:
    while not os.path.exists(path):  # noqa: PTH110  # in a worker, which gets plain values
        time.sleep(0.01)
    if end == "raise":
        raise RuntimeError("as asked")
    if end == "die":
        os._exit(1)
    return str(ray.get_runtime_context().get_node_id())


def test_tasks_go_to_the_unloaded_raylet_and_hold_their_place_however_they_end(
    nodes: QuotaNodes, cluster: RayCluster, kongming: Kongming, tmp_path: Path
) -> None:
    server = nodes.server.grpc
    waits = task(until)
    with (
        RemoteService(Connection(server)) as service,
        RayPlacer(server, app="sort", strict=True) as placer,
    ):
        for end in ("return", "raise", "die"):
            file = tmp_path / end
            ref = placer.remote(waits, str(file), end)
            shown = json.loads(kongming("assignments", "--json", "--server", server).stdout)
            (held,) = shown["assignments"]
            assert (held["app"], held["node_id"], held["state"]) == ("sort", "calm", "reserved")
            file.touch()
            if end == "return":
                assert cluster.name(ray.get(ref, timeout=100)) == "calm"
            else:
                with pytest.raises(ray.exceptions.RayError):
                    ray.get(ref, timeout=100)
            eventually(lambda: not service.assignments())

        cancelled = placer.remote(waits, str(tmp_path / "never"))
        eventually(service.assignments)
        ray.cancel(cancelled, force=True)
        eventually(lambda: not service.assignments())

        # An actor holds its place as long as the block lasts.
        actor = ray.remote(num_cpus=1)(Actor)
        with pytest.raises(InputError, match="is no remote function"):
            placer.remote(actor)
        with placer.place() as place:
            handle = actor.options(**place.options).remote()
            assert cluster.name(ray.get(handle.node.remote(), timeout=100)) == "calm"
            assert [each.assignment_id for each in service.assignments()] == [place.id]
            ray.kill(handle)
        eventually(lambda: not service.assignments())

        # Behind so many others a task would end later than on the slow node, which takes one.
        (tmp_path / "many").touch()
        slowdowns = nodes.slowdowns()
        behind = math.ceil(slowdowns["throttled"] / slowdowns["calm"]) + 2
        many = [placer.remote(waits, str(tmp_path / "many")) for _ in range(behind)]
        ran_on = {cluster.name(node_id) for node_id in ray.get(many, timeout=100)}
        assert ran_on == {"calm", "throttled"}
        eventually(lambda: not service.assignments())


def test_the_example_of_the_page_runs(
    nodes: QuotaNodes, cluster: RayCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    run_example("ray", {'"127.0.0.1:7400"': repr(nodes.server.grpc), "ray.init()": ""})
    assert capsys.readouterr().out == f"{EXPECTED}\n"


class Actor:
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


@pytest.mark.parametrize(("cpus", "slots"), [(0.1, 40), (0.2, 20), (0.3, 13), (1.0, 4), (8.0, 0)])
def test_a_node_runs_as_many_tasks_as_its_cpus_hold(cpus: float, slots: int) -> None:
    placer = object.__new__(RayPlacer)
    placer._cpus = cpus
    node = {"NodeID": "n", "NodeManagerHostname": "h", "Resources": {"CPU": 4.0}}
    assert placer._member(node).slots == slots
