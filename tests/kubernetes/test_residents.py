"""Limits of residents on many nodes: each is kept, or that it could not be is seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import orjson
import pytest
from kongming_extender.extender_config import Config
from kongming_extender.handlers import Handlers
from kongming_extender.metrics import PREFIX, Metrics
from kongming_extender.pod_state import PodState
from kongming_extender.pods import Demand, Pod
from kongming_extender.protocol import ExtenderArgs
from kongming_scheduling.async_client import ResidentSlowdown
from kongming_scheduling.ranking_cache import RankingCache

from kongming.records.answers import RankedNode, Ranking
from kongming.records.errors import UnavailableError
from kongming.records.prediction import Interval
from kongming.records.questions import Question
from kongming.rpc.calls import Call
from tests.kubernetes import clusters

COUNT = 600
NODES = [f"node-{number}" for number in range(COUNT)]
CALM = "calm"
"""A node without residents."""


def uid(node: str) -> str:
    return f"00000000-0000-4000-8000-{int(node.removeprefix('node-')):012d}"


class Client:
    """A server by which the newcomer slows a resident of every node to 3.0; the nodes are the
    better the later they come. ``answered`` are the questions about residents that have an answer
    before ``fail`` says how the next one ends."""

    paused = False

    def __init__(self, answered: int, fail: Callable[[], Any]) -> None:
        self.answered, self.fail = answered, fail
        self.looked_up: list[list[str]] = []

    async def ready_nodes(self, page_size: int) -> list[tuple[str, str]]:
        return [(name, name) for name in (*NODES, CALM)]

    async def send(self, call: Call[Ranking]) -> Ranking:
        nodes = tuple(
            RankedNode(
                node_id=name,
                name=name,
                domain=0,
                score=2.0 - NODES.index(name) / COUNT if name != CALM else 3.0,
                slowdown=Interval(1.1, 1.0, 1.2, 0.9),
                worst_resident_slowdown=1.0 if name == CALM else 3.0,
            )
            for name in call.request.nodes
        )
        return Ranking(nodes=nodes, candidates=len(nodes), refused={}, basis="model")

    async def resident_slowdowns(
        self, questions: Sequence[Question]
    ) -> list[dict[str, ResidentSlowdown] | None]:
        if len(self.looked_up) == self.answered:
            await self.fail()
        self.looked_up.append([question.node for question in questions])
        return [{uid(question.node): ResidentSlowdown(3.0)} for question in questions]


class Sync:
    """No assignments are sent."""

    def nodes_named(self, names: Sequence[str]) -> None:
        pass

    async def withdraw_guess(self, uid: str) -> None:
        pass

    async def wait_for_guesses(self, longest_s: float) -> None:
        pass


async def _away() -> None:
    raise UnavailableError("The server is away.")


async def _hangs() -> None:
    await asyncio.sleep(3600.0)


def passing(
    names: list[str], *, answered: int = 1000, fail: Callable[[], Any] = _away
) -> tuple[list[str], Client, Metrics]:
    """The nodes that pass for a pod without a limit, where each of NODES has a pod with one."""
    client, metrics, pods = Client(answered, fail), Metrics(), PodState()
    for name in NODES:
        pods.put(Pod(uid(name), "default", f"web-{name}", Demand("web", 1.2), node=name))
    config = Config()
    config = replace(config, server=replace(config.server, deadline_s=2.0))
    rankings = RankingCache(client, config.ranking)  # type: ignore[arg-type]

    async def run() -> list[str]:
        handlers = Handlers(rankings, pods, Sync(), config, metrics)  # type: ignore[arg-type]
        try:
            answer = await handlers.filter(ExtenderArgs(clusters.pod(app="etl"), names))
        finally:
            await rankings.close()
        return list(orjson.loads(answer)["NodeNames"] or ())

    return asyncio.run(run()), client, metrics


def sample(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"{PREFIX}{name}", labels) or 0.0


def test_all_nodes_are_looked_up_however_many_there_are() -> None:
    names, client, metrics = passing(NODES)
    assert names == []
    assert sorted(chain.from_iterable(client.looked_up)) == sorted(NODES)
    assert max(map(len, client.looked_up)) < COUNT
    # The best come first: should the time not suffice, they are known.
    assert client.looked_up[0][0] == NODES[-1]
    assert sample(metrics, "requests_total", verb="filter", outcome="ranked") == 1
    assert sample(metrics, "failed_open_total", reason="residents") == 0


def test_nodes_that_could_not_be_looked_up_are_refused_while_another_passes() -> None:
    for fail in (_away, _hangs):
        names, _, metrics = passing([*NODES, CALM], answered=1, fail=fail)
        assert names == [CALM]
        assert sample(metrics, "nodes_refused_total", reason="resident") == COUNT
        assert sample(metrics, "requests_total", verb="filter", outcome="ranked") == 1


def test_it_is_logged_when_residents_are_known_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client, pods, config = Client(0, _away), PodState(), Config()
    for name in NODES:
        pods.put(Pod(uid(name), "default", f"web-{name}", Demand("web", 1.2), node=name))
    rankings = RankingCache(client, config.ranking)  # type: ignore[arg-type]

    async def run() -> None:
        handlers = Handlers(rankings, pods, Sync(), config, Metrics())  # type: ignore[arg-type]
        args = ExtenderArgs(clusters.pod(app="etl"), NODES)
        await handlers.filter(args)
        await handlers.prioritize(args)
        client.answered = 1000
        for _ in range(2):
            await handlers.filter(args)
        await rankings.close()

    asyncio.run(run())
    lines = [line for line in caplog.messages if "nodes would be slowed" in line or "known" in line]
    assert lines == [
        f"The server has not said how much pods on {COUNT} nodes would be slowed. "
        "No other node passes: these nodes pass.",
        "The residents of nodes are known again.",
    ]


def test_that_nodes_pass_without_a_look_at_their_residents_is_counted() -> None:
    for answered in (0, 1):
        names, client, metrics = passing(NODES, answered=answered)
        known = set(chain.from_iterable(client.looked_up))
        assert names == [name for name in NODES if name not in known]
        assert len(known) < COUNT
        assert sample(metrics, "failed_open_total", reason="residents") == 1
        assert sample(metrics, "requests_total", verb="filter", outcome="open") == 1
