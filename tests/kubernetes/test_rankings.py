"""Rankings of a large fleet: asked for in parts, renewed behind the scenes, and never too old."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from kongming_extender.config import Ranking as Settings
from kongming_extender.metrics import Metrics
from kongming_extender.rankings import Key, Rankings

from kongming.errors import KongmingError, UnavailableError, UnknownNameError
from kongming.prediction import Interval
from kongming.rpc.answers import RankedNode, Ranking
from kongming.rpc.questions import Question, RankQuestion

KEY = Key("etl")
Scenario = Callable[["FakeLink", "Clock", Rankings], Awaitable[None]]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeLink:
    """A server with nodes by id: what each would do to the application."""

    def __init__(self, nodes: int) -> None:
        self.slowdowns = {f"id-{n}": 1.0 + n / nodes for n in range(nodes)}
        self.asked: list[tuple[str, ...]] = []
        self.questions: list[Question] = []
        self.listed = 0
        self.away = False
        self.failure: KongmingError | None = None

    async def names(self, page: int) -> list[tuple[str, str]]:
        self.listed += 1
        await asyncio.sleep(0)
        return [(one, one.replace("id", "node")) for one in self.slowdowns]

    async def rank(self, question: RankQuestion) -> Ranking:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.asked.append(question.nodes)
        for one in question.nodes:
            if one not in self.slowdowns:
                raise UnknownNameError("node", one, ())
        return Ranking(
            nodes=tuple(
                RankedNode(
                    node_id=one,
                    name=one.replace("id", "node"),
                    domain=0,
                    score=self.slowdowns[one] - 1.0,
                    slowdown=Interval(self.slowdowns[one], 1.0, 3.0, 0.9),
                )
                for one in question.nodes
            ),
            candidates=len(question.nodes),
            refused={},
            basis="model",
        )

    async def impacts(self, questions: Sequence[Question]) -> list[dict[str, float] | None]:
        self.questions += questions
        return [None if one.node == "id-1" else {"uid": 1.5} for one in questions]


def play(scenario: Scenario, nodes: int = 50, **settings: Any) -> None:
    async def run() -> None:
        link, clock = FakeLink(nodes), Clock()
        values = {"chunk_nodes": 20, "fresh_s": 2.0, "oldest_s": 60.0, "share": 1.0} | settings
        rankings = Rankings(link, Settings(**values), Metrics(), clock)  # type: ignore[arg-type]
        try:
            await scenario(link, clock, rankings)
        finally:
            await rankings.close()

    asyncio.run(run())


async def quiet() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_all_nodes_are_asked_for_in_parts() -> None:
    async def scenario(link: FakeLink, clock: Clock, rankings: Rankings) -> None:
        first, second = await asyncio.gather(rankings.table(KEY), rankings.table(KEY))
        assert [len(part) for part in link.asked] == [20, 20, 10]
        assert len(first.rows) == len(second.rows) == 50
        clock.now += 1.9
        await rankings.table(KEY)
        assert len(link.asked) == 3

    play(scenario)


def test_a_large_ranking_is_renewed_behind_the_answer_and_a_small_one_before_it() -> None:
    async def scenario(link: FakeLink, clock: Clock, rankings: Rankings) -> None:
        await rankings.table(KEY)
        clock.now += 3.0
        link.slowdowns["id-0"] = 9.0
        renewed = (await rankings.table(KEY)).rows["node-0"].slowdown
        assert renewed == (9.0 if len(link.slowdowns) <= 20 else 1.0)
        await quiet()
        assert (await rankings.table(KEY)).rows["node-0"].slowdown == 9.0

    play(scenario, nodes=50)
    play(scenario, nodes=20)


def test_nodes_that_pods_came_to_are_asked_about_before_the_next_answer() -> None:
    async def scenario(link: FakeLink, clock: Clock, rankings: Rankings) -> None:
        table = await rankings.table(KEY)
        await rankings.impacts(KEY, table, ["node-7", "node-1"])
        assert table.impacts == {"node-7": {"uid": 1.5}}
        link.slowdowns["id-7"] = 4.0
        rankings.touched(["node-7", "node-of-another-cluster"])
        table = await rankings.table(KEY)
        assert link.asked[-1] == ("id-7",)
        assert table.rows["node-7"].slowdown == 4.0
        assert table.impacts == {}
        count = len(link.asked)
        await rankings.table(KEY)
        assert len(link.asked) == count

    play(scenario)


def test_what_changed_is_not_forgotten_where_the_server_fails() -> None:
    async def scenario(link: FakeLink, clock: Clock, rankings: Rankings) -> None:
        await rankings.table(KEY)
        link.slowdowns["id-7"] = 4.0
        rankings.touched(["node-7"])
        link.failure = UnavailableError("It is away.")
        assert (await rankings.table(KEY)).rows["node-7"].slowdown < 4.0
        link.failure = None
        assert (await rankings.table(KEY)).rows["node-7"].slowdown == 4.0

    play(scenario)


def test_a_ranking_that_is_too_old_is_not_used() -> None:
    async def scenario(link: FakeLink, clock: Clock, rankings: Rankings) -> None:
        await rankings.table(KEY)
        link.failure = UnavailableError("It is away.")
        clock.now += 59.0
        assert len((await rankings.table(KEY)).rows) == 50
        await quiet()
        clock.now += 2.0
        with pytest.raises(UnavailableError):
            await rankings.table(KEY)
        link.failure, link.away = None, True
        with pytest.raises(KongmingError, match="a moment ago"):
            await rankings.table(KEY)
        link.away = False
        assert len((await rankings.table(KEY)).rows) == 50

    play(scenario)


def test_a_node_that_has_gone_is_no_longer_asked_for() -> None:
    async def scenario(link: FakeLink, clock: Clock, rankings: Rankings) -> None:
        await rankings.table(KEY)
        del link.slowdowns["id-30"]
        table = await rankings.table(Key("other"))
        assert len(table.rows) == 49
        assert link.listed == 2
        assert rankings.id_of("node-30") is None
        assert rankings.id_of("node-31") == "id-31"

    play(scenario)


def test_rankings_that_nobody_asks_for_make_room() -> None:
    async def scenario(link: FakeLink, clock: Clock, rankings: Rankings) -> None:
        for app in ("a", "b", "a", "c"):
            await rankings.table(Key(app))
        count = len(link.asked)
        await rankings.table(Key("a"))
        assert len(link.asked) == count
        await rankings.table(Key("b"))
        assert len(link.asked) > count

    play(scenario, nodes=10, apps=2)
