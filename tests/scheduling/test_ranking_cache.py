"""RankingCache of a large fleet: asked for in chunks, renewed in the background, never too old."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from kongming_extender.extender_config import Ranking as Settings
from kongming_scheduling.ranking_cache import RankingCache, RankingKey

from kongming.records.answers import RankedNode, Ranking
from kongming.records.errors import KongmingError, UnavailableError, UnknownNameError
from kongming.records.prediction import Interval
from kongming.records.questions import Question
from kongming.rpc.calls import Call

KEY = RankingKey("etl")
Scenario = Callable[["FakeClient", "Clock", RankingCache], Awaitable[None]]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeClient:
    """A server with nodes by id: what each would do to the application."""

    def __init__(self, nodes: int) -> None:
        self.slowdowns = {f"id-{n}": 1.0 + n / nodes for n in range(nodes)}
        self.requested: list[tuple[str, ...]] = []
        self.questions: list[Question] = []
        self.listed = 0
        self.paused = False
        self.failure: KongmingError | None = None

    async def ready_nodes(self, page_size: int) -> list[tuple[str, str]]:
        self.listed += 1
        await asyncio.sleep(0)
        return [(id_, id_.replace("id", "node")) for id_ in self.slowdowns]

    async def send(self, call: Call[Ranking]) -> Ranking:
        assert call.method == "RankNodes"
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        nodes = tuple(call.request.nodes)
        self.requested.append(nodes)
        for id_ in nodes:
            if id_ not in self.slowdowns:
                raise UnknownNameError("node", id_, ())
        return Ranking(
            nodes=tuple(
                RankedNode(
                    node_id=id_,
                    name=id_.replace("id", "node"),
                    domain=0,
                    score=self.slowdowns[id_] - 1.0,
                    slowdown=Interval(self.slowdowns[id_], 1.0, 3.0, 0.9),
                )
                for id_ in nodes
            ),
            candidates=len(nodes),
            refused={},
            basis="model",
        )

    async def resident_slowdowns(
        self, questions: Sequence[Question]
    ) -> list[dict[str, float] | None]:
        self.questions += questions
        return [None if question.node == "id-1" else {"uid": 1.5} for question in questions]


def play(scenario: Scenario, nodes: int = 50, **settings: Any) -> None:
    async def run() -> None:
        client, clock = FakeClient(nodes), Clock()
        values = {"chunk_nodes": 20, "fresh_s": 2.0, "oldest_s": 60.0, "share": 1.0} | settings
        rankings = RankingCache(client, Settings(**values), clock)  # type: ignore[arg-type]
        try:
            await scenario(client, clock, rankings)
        finally:
            await rankings.close()

    asyncio.run(run())


async def background() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_all_nodes_are_ranked_in_chunks() -> None:
    async def scenario(client: FakeClient, clock: Clock, rankings: RankingCache) -> None:
        first, second = await asyncio.gather(rankings.scores(KEY), rankings.scores(KEY))
        assert [len(chunk) for chunk in client.requested] == [20, 20, 10]
        assert len(first.by_name) == len(second.by_name) == 50
        clock.now += 1.9
        await rankings.scores(KEY)
        assert len(client.requested) == 3

    play(scenario)


def test_a_large_ranking_is_renewed_in_the_background_and_a_small_one_at_once() -> None:
    async def scenario(client: FakeClient, clock: Clock, rankings: RankingCache) -> None:
        await rankings.scores(KEY)
        clock.now += 3.0
        client.slowdowns["id-0"] = 9.0
        renewed = (await rankings.scores(KEY)).by_name["node-0"].slowdown
        assert renewed == (9.0 if len(client.slowdowns) <= 20 else 1.0)
        await background()
        assert (await rankings.scores(KEY)).by_name["node-0"].slowdown == 9.0

    play(scenario, nodes=50)
    play(scenario, nodes=20)


def test_nodes_with_other_assignments_are_ranked_before_the_next_lookup() -> None:
    async def scenario(client: FakeClient, clock: Clock, rankings: RankingCache) -> None:
        scores = await rankings.scores(KEY)
        await rankings.look_up_impacts(KEY, scores, ["node-7", "node-1"])
        assert scores.impacts == {"node-7": {"uid": 1.5}}
        # An error for one node is an answer, too, until its assignments change.
        await rankings.look_up_impacts(KEY, scores, ["node-7", "node-1"])
        assert [question.node for question in client.questions] == ["id-7", "id-1"]
        rankings.invalidate(["node-1"])
        await rankings.look_up_impacts(KEY, scores, ["node-7", "node-1"])
        assert [question.node for question in client.questions][2:] == ["id-1"]
        client.slowdowns["id-7"] = 4.0
        rankings.invalidate(["node-7", "node-of-another-cluster"])
        scores = await rankings.scores(KEY)
        assert sorted(client.requested[-1]) == ["id-1", "id-7"]
        assert scores.by_name["node-7"].slowdown == 4.0
        assert scores.impacts == {}
        count = len(client.requested)
        await rankings.scores(KEY)
        assert len(client.requested) == count

    play(scenario)


@pytest.mark.parametrize("before", [True, False])
def test_a_change_while_all_are_ranked_is_not_lost(before: bool) -> None:
    """Also of a node that had changed before, and that was ranked by itself meanwhile."""

    async def scenario(client: FakeClient, clock: Clock, rankings: RankingCache) -> None:
        await rankings.scores(KEY)
        if before:
            rankings.invalidate(["node-7"])
        clock.now += 3.0
        renewal = asyncio.create_task(rankings.scores(KEY))
        count = len(client.requested)
        while len(client.requested) == count:
            await asyncio.sleep(0)
        # Its first chunk is ranked, with that node as it was.
        client.slowdowns["id-7"] = 4.0
        rankings.invalidate(["node-7"])
        assert (await rankings.scores(KEY)).by_name["node-7"].slowdown == 4.0
        await renewal
        await background()
        assert (await rankings.scores(KEY)).by_name["node-7"].slowdown == 4.0

    play(scenario)


def test_changed_nodes_are_not_forgotten_where_the_server_fails() -> None:
    async def scenario(client: FakeClient, clock: Clock, rankings: RankingCache) -> None:
        await rankings.scores(KEY)
        client.slowdowns["id-7"] = 4.0
        rankings.invalidate(["node-7"])
        client.failure = UnavailableError("It is away.")
        assert (await rankings.scores(KEY)).by_name["node-7"].slowdown < 4.0
        client.failure = None
        assert (await rankings.scores(KEY)).by_name["node-7"].slowdown == 4.0

    play(scenario)


def test_a_ranking_that_is_too_old_is_not_used() -> None:
    async def scenario(client: FakeClient, clock: Clock, rankings: RankingCache) -> None:
        await rankings.scores(KEY)
        client.failure = UnavailableError("It is away.")
        clock.now += 59.0
        assert len((await rankings.scores(KEY)).by_name) == 50
        await background()
        clock.now += 2.0
        with pytest.raises(UnavailableError):
            await rankings.scores(KEY)
        client.failure, client.paused = None, True
        with pytest.raises(KongmingError, match="did not answer recently"):
            await rankings.scores(KEY)
        client.paused = False
        assert len((await rankings.scores(KEY)).by_name) == 50

    play(scenario)


def test_a_node_that_is_gone_is_no_longer_ranked() -> None:
    async def scenario(client: FakeClient, clock: Clock, rankings: RankingCache) -> None:
        await rankings.scores(KEY)
        del client.slowdowns["id-30"]
        scores = await rankings.scores(RankingKey("other"))
        assert len(scores.by_name) == 49
        assert client.listed == 2
        assert rankings.node_id("node-30") is None
        assert rankings.node_id("node-31") == "id-31"

    play(scenario)


def test_the_least_recently_used_ranking_is_dropped() -> None:
    async def scenario(client: FakeClient, clock: Clock, rankings: RankingCache) -> None:
        for app in ("a", "b", "a", "c"):
            await rankings.scores(RankingKey(app))
        count = len(client.requested)
        await rankings.scores(RankingKey("a"))
        assert len(client.requested) == count
        await rankings.scores(RankingKey("b"))
        assert len(client.requested) > count

    play(scenario, nodes=10, apps=2)
