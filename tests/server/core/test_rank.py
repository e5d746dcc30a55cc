"""The order of nodes: from memory, as a prediction of each would say, without herding."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.engine.engine import Engine
from kongming.records.answers import Ranking
from kongming.records.errors import UnknownNameError
from kongming.records.questions import Question, RankQuestion
from tests.server.core import worlds
from tests.server.core.worlds import NOW, PRESSURE, bound, expected


def rank(engine: Engine, app: str = "memory", **changes: Any) -> Ranking:
    return engine.rank(RankQuestion(app, **({"seed": 1} | changes)), NOW)


def ids(ranking: Ranking) -> list[str]:
    return [node.node_id for node in ranking.nodes]


@pytest.fixture
def engine() -> Engine:
    """Three nodes, the first one quiet, the others slowed more and more."""
    engine = worlds.engine()
    for n, log in enumerate((0.0, 0.5, 1.0)):
        worlds.add_node(engine, f"node-{n}", {"stream.triad": log})
    return engine


def test_the_least_slowed_comes_first_with_what_a_prediction_says(engine: Engine) -> None:
    ranking = rank(engine)

    assert ids(ranking) == ["node-0", "node-1", "node-2"]
    assert ranking.basis == "model"
    assert (ranking.candidates, ranking.refused) == (3, {})
    for node in ranking.nodes:
        forecast = engine.predict(Question("memory", node.node_id), NOW)
        assert node.slowdown.median == pytest.approx(forecast.slowdown.median, rel=1e-5)
        assert node.slowdown.lower == pytest.approx(forecast.slowdown.lower, rel=1e-4)
        assert node.slowdown.upper == pytest.approx(forecast.slowdown.upper, rel=1e-4)
        assert node.extrapolating == forecast.extrapolating
        assert node.fingerprint_age_s == pytest.approx(10.0)
    assert [node.score for node in ranking.nodes] == pytest.approx([0.0, 0.25, 0.5], abs=1e-6)


logs = st.dictionaries(st.sampled_from(worlds.NAMES), st.floats(0.0, 1.2), max_size=4)
apps = st.sampled_from(("memory", "disk", "quiet"))


@given(
    st.lists(
        st.tuples(logs, st.lists(apps, max_size=3), st.lists(apps, max_size=2)),
        min_size=1,
        max_size=5,
    ),
    apps,
)
@settings(max_examples=40, deadline=None)
def test_the_matrix_and_the_predictions_agree_however_it_was_refreshed(
    nodes: list[tuple[dict[str, float], list[str], list[str]]], app: str
) -> None:
    engine = worlds.engine()
    for n, (load, before, after) in enumerate(nodes):
        worlds.add_node(engine, f"node-{n}", load)
        for k, name in enumerate(before):
            engine.put_assignment(bound(f"{n}-b{k}", name, NOW - 100.0, f"node-{n}"))
        engine.refresh(NOW, 1e-9)
        for k, name in enumerate(after):
            engine.put_assignment(bound(f"{n}-a{k}", name, NOW - 1.0, f"node-{n}"))

    ranking = rank(engine, app)

    assert len(ranking.nodes) == len(nodes)
    for node in ranking.nodes:
        forecast = engine.predict(Question(app, node.node_id), NOW)
        assert node.slowdown.median == pytest.approx(forecast.slowdown.median, rel=1e-5)
        impacts = forecast.residents.values()
        harm = sum(math.log(i.slowdown_then.median / i.slowdown_now.median) for i in impacts)
        assert node.score == pytest.approx(math.log(forecast.slowdown.median) + harm, abs=1e-5)
        worst = max((i.slowdown_then.median for i in impacts), default=1.0)
        assert node.worst_resident_slowdown == pytest.approx(worst, rel=1e-5)
        assert node.residents == len(impacts)
    best = min(node.score for node in ranking.nodes)
    assert ranking.nodes[0].tied_with_first
    assert ranking.nodes[0].score <= best + 0.1


def test_harm_to_residents_counts_by_its_weight(engine: Engine) -> None:
    engine.put_assignment(bound("a", "memory", NOW - 100.0, "node-0"))

    with_harm = rank(engine)
    without = rank(engine, resident_weight=0.0)

    assert ids(with_harm)[0] == "node-1"
    assert ids(without)[0] == "node-0"
    first = next(node for node in with_harm.nodes if node.node_id == "node-0")
    assert first.score == pytest.approx(expected("memory", PRESSURE["memory"]), abs=1e-5)


def test_limits_refuse_and_are_counted(engine: Engine) -> None:
    engine.put_assignment(bound("a", "memory", NOW - 100.0, "node-0"))

    newcomer = rank(engine, slowdown_limit=1.3)
    residents = rank(engine, resident_slowdown_limit=1.2)

    assert ids(newcomer) == ["node-1", "node-0"]
    assert newcomer.refused == {"slowdown_limit": 1}
    assert ids(residents) == ["node-1", "node-2"]
    assert residents.refused == {"resident_slowdown_limit": 1}


@pytest.mark.parametrize(
    ("limit", "ranked"),
    [(0.0, True), (1.2, False), (2.0, False), (50.0, False)],
    ids=["no limit", "beyond", "perhaps beyond", "not known to be within"],
)
def test_a_resident_that_is_slowed_at_least_so_much_does_not_keep_a_limit(
    engine: Engine, limit: float, ranked: bool
) -> None:
    """Its runs under load were ended at 1.5 times its runtime alone."""
    engine.put_model(worlds.ended("memory", math.log(1.5)), 2)
    engine.put_assignment(bound("a", "memory", NOW - 100.0, "node-0"))
    impact = engine.predict(Question("memory", "node-0"), NOW).residents["a"].slowdown_then
    assert impact.at_least
    assert 1.2 < impact.median < 2.0

    ranking = rank(engine, resident_slowdown_limit=limit)

    assert ("node-0" in ids(ranking)) == ranked
    assert ranking.refused == ({} if ranked else {"resident_slowdown_limit": 1})
    assert all(math.isfinite(node.worst_resident_slowdown) for node in ranking.nodes)
    # A resident whose slowdown is fully known keeps its limit, or does not.
    assert "node-0" in ids(rank(engine, "quiet", resident_slowdown_limit=1.2))


@pytest.mark.parametrize("policy", ["widen", "history"])
def test_a_newcomer_that_is_slowed_at_least_so_much_does_not_keep_a_limit(policy: str) -> None:
    """Its runs under load were ended at 1.5 times its runtime alone."""
    engine = worlds.engine()
    age = 4000.0 if policy == "history" else 10.0
    for n, log in enumerate((0.0, 0.7)):
        worlds.add_node(engine, f"node-{n}", {"stream.triad": log}, taken_at=NOW - age)
    engine.put_model(worlds.ended("memory", math.log(1.5)), 2)
    free = rank(engine, stale_policy=policy)
    assert [node.slowdown.at_least for node in free.nodes] == [False, True]
    assert free.nodes[1].slowdown.median < 2.0

    limited = rank(engine, stale_policy=policy, slowdown_limit=50.0)

    assert ids(limited) == ["node-0"]
    assert limited.refused == {"slowdown_limit": 1}


@pytest.mark.parametrize("limit", [0.0, 50.0])
def test_a_ranking_says_where_the_worst_resident_is_slowed_at_least_so_much(
    engine: Engine, limit: float
) -> None:
    engine.put_model(worlds.ended("memory", math.log(1.5)), 2)
    engine.put_assignment(bound("a", "memory", NOW - 100.0, "node-0"))
    engine.put_assignment(bound("b", "quiet", NOW - 100.0, "node-0"))
    engine.put_assignment(bound("c", "quiet", NOW - 100.0, "node-1"))

    nodes = {node.node_id: node for node in rank(engine, resident_slowdown_limit=limit).nodes}

    worst = {key: node.worst_resident_at_least for key, node in nodes.items()}
    assert worst == {"node-1": False, "node-2": False} | ({} if limit else {"node-0": True})
    for node_id, node in nodes.items():
        impacts = engine.predict(Question("memory", node_id), NOW).residents.values()
        greatest = max((i.slowdown_then.median for i in impacts), default=1.0)
        assert node.worst_resident_slowdown == pytest.approx(greatest, rel=1e-5)
        assert node.worst_resident_at_least == any(i.slowdown_then.at_least for i in impacts)


def test_a_resident_of_which_nothing_is_known_keeps_no_limit(engine: Engine) -> None:
    engine.put_assignment(bound("a", "stranger", NOW - 100.0, "node-0"))
    engine.put_assignment(bound("b", "quiet", NOW - 100.0, "node-1"))

    free = {node.node_id: node for node in rank(engine).nodes}
    limited = rank(engine, resident_slowdown_limit=1.5)

    unknown = free["node-0"]
    assert unknown.worst_resident_at_least
    added = sum(PRESSURE["memory"].values()) / len(worlds.NAMES)
    assert math.log(unknown.worst_resident_slowdown) == pytest.approx(added, abs=1e-5)
    assert unknown.score == pytest.approx(math.log(unknown.slowdown.median) + added, abs=1e-5)
    assert not free["node-1"].worst_resident_at_least
    assert set(ids(limited)) == {"node-1", "node-2"}
    assert limited.refused == {"resident_slowdown_limit": 1}


def test_among_many_nodes_those_that_are_known_to_keep_a_limit_are_ranked() -> None:
    """Residents without a model count as slowed less than the profiled one is."""
    engine = worlds.engine()
    worlds.add_occupied(engine, "stranger", 390)
    worlds.add_occupied(engine, "memory", 10)
    harmed = math.exp(expected("memory", PRESSURE["memory"]))

    ranking = rank(engine, limit=5, resident_slowdown_limit=1.1 * harmed)

    assert len(ids(ranking)) == 5
    assert all(node_id.startswith("memory") for node_id in ids(ranking))
    assert ranking.refused == {"resident_slowdown_limit": 390}
    assert rank(engine, limit=5).refused == {}


def test_memory_that_is_promised_is_not_there(engine: Engine) -> None:
    engine.put_assignment(bound("a", "quiet", NOW - 100.0, "node-0", memory_bytes=6 << 30))

    ranking = rank(engine, memory_bytes=4 << 30)

    assert ids(ranking) == ["node-1", "node-2"]
    assert ranking.refused == {"memory": 1}


def test_silent_suspect_and_unread_nodes_are_refused(engine: Engine) -> None:
    engine.mark_suspect("node-0", "It read -1 s.")
    engine.put_node(worlds.builders.node(id="new", name="new"), NOW)
    worlds.add_node(engine, "gone", {})

    later = NOW + 1000.0
    for node_id in ("node-0", "node-1", "node-2", "new"):
        engine.heartbeat(node_id, later)
    ranking = engine.rank(RankQuestion("memory", seed=1), later)

    assert ids(ranking) == ["node-1", "node-2"]
    assert ranking.candidates == 5
    assert ranking.refused == {"suspect": 1, "silent": 1, "no_fingerprint": 1}
    engine.clear_suspect("node-0")
    assert "node-0" in ids(rank(engine))


def test_only_candidates_are_ranked_by_id_or_name(engine: Engine) -> None:
    ranking = rank(engine, nodes=("node-2", "name-node-1"))

    assert ids(ranking) == ["node-1", "node-2"]
    assert ranking.candidates == 2
    with pytest.raises(UnknownNameError):
        rank(engine, nodes=("nowhere",))


def test_a_node_that_is_named_twice_is_a_single_candidate(engine: Engine) -> None:
    ranking = rank(engine, nodes=("node-2", "name-node-2", "node-2"))

    assert ids(ranking) == ["node-2"]
    assert (ranking.candidates, ranking.refused) == (1, {})


def test_strangers_are_ranked_by_the_general_slowdown(engine: Engine) -> None:
    ranking = rank(engine, "stranger")

    assert ranking.basis == "node-only"
    assert set(ids(ranking)) == {"node-0", "node-1", "node-2"}
    for node in ranking.nodes:
        forecast = engine.predict(Question("stranger", node.node_id), NOW)
        assert node.slowdown.median == pytest.approx(forecast.slowdown.median)


def test_strangers_that_were_just_placed_keep_the_next_one_away() -> None:
    engine = worlds.engine()
    for n in range(2):
        worlds.add_node(engine, f"node-{n}", {})
    engine.refresh(NOW, 10.0)
    for n in range(3):
        engine.put_assignment(bound(f"s{n}", "stranger", NOW - 1.0, "node-0"))

    assert ids(rank(engine, "stranger"))[0] == "node-1"
    assert ids(rank(engine, "memory"))[0] == "node-1"


def test_a_burst_of_placements_does_not_herd() -> None:
    engine = worlds.engine()
    for n in range(10):
        worlds.add_node(engine, f"node-{n}", {})
    engine.refresh(NOW, 10.0)

    for n in range(20):
        chosen = ids(rank(engine, seed=n, limit=1))[0]
        engine.put_assignment(bound(f"p{n}", "memory", NOW, chosen))

    status = {node.facts.id: len(node.assignments) for node in engine.nodes(NOW)}
    assert set(status.values()) == {2}


def test_ties_are_spread_by_the_seed_and_repeat_with_it() -> None:
    engine = worlds.engine()
    for n in range(40):
        worlds.add_node(engine, f"node-{n}", {})
    worlds.add_node(engine, "busy", {"stream.triad": 1.0})
    engine.refresh(NOW, 10.0)

    firsts = Counter(ids(rank(engine, seed=seed, limit=3))[0] for seed in range(200))

    assert len(firsts) > 20
    assert "busy" not in firsts
    assert ids(rank(engine, seed=5)) == ids(rank(engine, seed=5))
    complete = rank(engine, limit=41)
    assert [node.tied_with_first for node in complete.nodes] == [True] * 40 + [False]
    unseeded = {ids(engine.rank(RankQuestion("memory", limit=1), NOW))[0] for _ in range(30)}
    assert len(unseeded) > 5


def test_a_node_comes_once_by_its_best_domain() -> None:
    engine = worlds.engine()
    domains = {"cpus": (0, 1), "llc_cpus": ((0,), (1,))}
    for n in range(3):
        worlds.add_node(engine, f"node-{n}", {"stream.triad": 0.8}, **domains)
    quieter = worlds.fingerprint(worlds.slowed({}), NOW - 5.0, "node-1", **domains)
    engine.put_fingerprint("node-1", 1, quieter, now=NOW)

    ranking = rank(engine)

    assert sorted(ids(ranking)) == ["node-0", "node-1", "node-2"]
    assert (ranking.nodes[0].node_id, ranking.nodes[0].domain) == ("node-1", 1)


class TestStale:
    @pytest.fixture
    def engine(self) -> Engine:
        engine = worlds.engine()
        worlds.add_node(engine, "old", {}, taken_at=NOW - 2000.0)
        worlds.add_node(engine, "young", {"stream.triad": 0.8})
        return engine

    def test_widen_says_so_and_widens(self, engine: Engine) -> None:
        first = rank(engine).nodes[0]

        forecast = engine.predict(Question("memory", "old"), NOW)
        assert (first.node_id, first.stale) == ("old", True)
        assert first.slowdown.upper == pytest.approx(forecast.slowdown.upper, rel=1e-4)

    def test_refuse_refuses(self, engine: Engine) -> None:
        ranking = rank(engine, stale_policy="refuse")

        assert ids(ranking) == ["young"]
        assert ranking.refused == {"stale": 1}

    def test_history_ranks_by_what_was_usual(self, engine: Engine) -> None:
        for n in range(4):
            usual = worlds.fingerprint(
                worlds.slowed({"stream.triad": 1.5}), NOW - 3000.0 - n, "old"
            )
            engine.put_fingerprint("old", 0, usual, now=NOW)

        assert ids(rank(engine)) == ["old", "young"]
        assert ids(rank(engine, stale_policy="history")) == ["young", "old"]

    @pytest.mark.parametrize("policy", ["widen", "history"])
    def test_residents_are_judged_by_the_environment_of_the_newcomer(
        self, engine: Engine, policy: str
    ) -> None:
        for n in range(4):
            usual = worlds.fingerprint(
                worlds.slowed({"stream.triad": 0.7}), NOW - 3000.0 - n, "old"
            )
            engine.put_fingerprint("old", 0, usual, now=NOW)
        for n, app in enumerate(("memory", "quiet", "memory")):
            engine.put_assignment(bound(f"a{n}", app, NOW - 5.0, "old"))
        engine.put_assignment(bound("b", "memory", NOW - 5.0, "young"))

        nodes = {node.node_id: node for node in rank(engine, "disk", stale_policy=policy).nodes}

        assert set(nodes) == {"old", "young"}
        for node_id, node in nodes.items():
            question = Question("disk", node_id, stale_policy=policy)
            impacts = engine.predict(question, NOW).residents.values()
            worst = max(impact.slowdown_then.median for impact in impacts)
            assert node.worst_resident_slowdown == pytest.approx(worst, rel=1e-5)
            harm = sum(math.log(i.slowdown_then.median / i.slowdown_now.median) for i in impacts)
            assert node.score == pytest.approx(math.log(node.slowdown.median) + harm, abs=1e-5)

    @pytest.mark.parametrize("policy", ["widen", "history"])
    def test_readings_of_another_suite_are_unpredictable(self, policy: str) -> None:
        engine = worlds.engine()
        worlds.add_node(engine, "old", reference=False)
        engine.put_reference("old", 0, worlds.IDLE, "2-89abcdef")
        for ago in (2400.0, 2200.0, 2000.0):
            read = worlds.builders.fingerprint(
                worlds.slowed({"stream.triad": 0.4}),
                node=worlds.builders.node(id="old", name="name-old"),
                started_at=worlds.iso(NOW - ago),
                suite_version="2-89abcdef",
            )
            engine.put_fingerprint("old", 0, read, now=NOW)

        ranking = rank(engine, stale_policy=policy)

        assert ids(ranking) == []
        assert ranking.refused == {"unpredictable": 1}


class TestFreshness:
    def test_a_fingerprint_waits_for_the_next_refresh_and_that_is_stated(
        self, engine: Engine
    ) -> None:
        assert engine.refresh(NOW, 10.0) == 0.0
        worse = worlds.fingerprint(worlds.slowed({"stream.triad": 1.2}), NOW, "node-0")
        engine.put_fingerprint("node-0", 0, worse, now=NOW)

        lagging = engine.rank(RankQuestion("memory", seed=1), NOW + 2.0)
        engine.refresh(NOW + 2.0, 10.0)
        fresh = engine.rank(RankQuestion("memory", seed=1), NOW + 2.0)

        assert lagging.staleness_s == pytest.approx(2.0)
        assert ids(lagging)[0] == "node-0"
        assert fresh.staleness_s == 0.0
        assert ids(fresh)[0] == "node-1"

    def test_slices_come_to_an_end(self, engine: Engine) -> None:
        slices = 1
        while engine.refresh(NOW + 1.0, 1e-9) > 0.0 or engine.lagging:
            slices += 1
            assert slices < 100

        assert slices > 1
        assert not engine.lagging
        assert engine.refresh(NOW + 2.0, 10.0) == 0.0

    def test_a_new_model_is_ranked_by_at_once(self, engine: Engine) -> None:
        engine.refresh(NOW, 10.0)
        engine.put_model(worlds.model("memory", {"os.switch": 1.0}), 2)

        assert all(node.slowdown.median == pytest.approx(1.0) for node in rank(engine).nodes)

    def test_a_dropped_node_leaves_no_trace(self, engine: Engine) -> None:
        engine.put_assignment(bound("a", "memory", NOW - 1.0, "node-0"))
        engine.refresh(NOW, 10.0)
        engine.drop_node("node-0")
        worlds.add_node(engine, "another", {"stream.triad": 0.1})

        ranking = rank(engine)

        assert sorted(ids(ranking)) == ["another", "node-1", "node-2"]
        assert all(node.residents == 0 for node in ranking.nodes)
