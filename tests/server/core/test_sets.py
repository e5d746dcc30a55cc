"""Sets of nodes for a job: the slowest counts, residents count, and thousands take no time."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import Any

import pytest

from kongming.engine.engine import Engine
from kongming.records.answers import RankedSet, Ranking
from kongming.records.errors import CannotAnswerError, InputError, UnknownNameError, UntrainedError
from kongming.records.questions import Question, RankQuestion
from kongming.records.scaling import Scaling
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.model import ScaleModel
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.terms import read_terms
from tests.scale.shapes import grid, measured
from tests.server.core import worlds
from tests.server.core.worlds import NOW, PRESSURE, bound, expected


@cache
def scale_model(**changes: Any) -> ScaleModel:
    """3 s of serial work and 60 s to share out."""
    runs = measured(lambda m, s: 3.0 + 60.0 * s / m, grid((1, 2, 4, 8), (0.5, 1.0), 2), 0.01)
    settings = Settings(read_terms("default", items=None), kind="ernest-relative", **changes)
    return fit_runs(runs, settings)


@pytest.fixture
def engine() -> Engine:
    """Five nodes, the first one quiet, the others slowed more and more."""
    engine = worlds.engine()
    engine.put_scale_model("memory", ScaleFile("memory", "", (scale_model(),)))
    for n in range(5):
        worlds.add_node(engine, f"node-{n}", {"stream.triad": 0.4 * n})
    return engine


def rank(engine: Engine, machines: int = 2, app: str = "memory", **changes: Any) -> Ranking:
    fields = {"seed": 1, "limit": 1, "scaling": Scaling(machines)} | changes
    return engine.rank(RankQuestion(app, **fields), NOW)


def names(node_set: RankedSet) -> list[str]:
    return [node.node_id for node in node_set.nodes]


def test_a_job_on_nodes_of_another_type_says_nothing_of_the_solo_runtime(engine: Engine) -> None:
    worlds.add_node(engine, "trainer", {}, cpu_model="another")
    nodes = ("node-0", "node-1", "node-2")
    single = engine.predict(Question("memory", "node-0"), NOW)

    job = engine.predict(Question("memory", scaling=Scaling(3), nodes=nodes), NOW)

    assert any("solo runtime" in warning for warning in single.warnings)
    assert not any("solo runtime" in warning for warning in job.warnings)
    assert engine.predict(Question("memory", "node-0"), NOW) == single


def test_the_least_slowed_make_the_best_set_with_its_runtime(engine: Engine) -> None:
    ranking = rank(engine, 3)
    (best,) = ranking.sets
    assert names(best) == ["node-0", "node-1", "node-2"]
    assert ranking.nodes == best.nodes
    assert ranking.basis == "model"
    slow = math.exp(expected("memory", {"stream.triad": 0.8}))
    assert best.runtime_s is not None
    assert best.runtime_s.median == pytest.approx(3.0 + 20.0 * slow, rel=0.03)
    assert best.score == pytest.approx(math.log(slow), abs=1e-5)
    assert best.scaled is not None
    assert (best.scaled.driver, best.scaled.slowest) == ("node-0", "node-2")
    question = Question("memory", scaling=Scaling(3), nodes=tuple(names(best)))
    prediction = engine.predict(question, NOW)
    assert prediction.runtime_s is not None
    assert prediction.runtime_s.median == pytest.approx(best.runtime_s.median, rel=0.01)
    assert prediction.residents == {}


def test_sets_follow_one_another_without_a_common_node(engine: Engine) -> None:
    sets = rank(engine, 2, limit=9).sets
    assert [names(node_set) for node_set in sets] == [["node-0", "node-1"], ["node-2", "node-3"]]
    assert rank(engine, 6).sets == ()


def test_residents_that_would_suffer_are_left_alone(engine: Engine) -> None:
    # The quiet node has residents whom the newcomer would hurt more than node-1 is slowed.
    for k in range(3):
        engine.put_assignment(bound(f"r{k}", "memory", NOW - 100.0, "node-0"))
    assert names(rank(engine, 1).sets[0]) == ["node-1"]
    assert names(rank(engine, 1, resident_weight=0.0).sets[0]) == ["node-0"]
    two = rank(engine, 2).sets[0]
    assert names(two) == ["node-1", "node-2"]
    assert two.score == pytest.approx(expected("memory", {"stream.triad": 0.8}), abs=1e-5)


def test_a_limit_on_residents_refuses_nodes(engine: Engine) -> None:
    engine.put_assignment(bound("r", "memory", NOW - 100.0, "node-0"))
    harmed = math.exp(expected("memory", PRESSURE["memory"]))
    ranking = rank(engine, 2, resident_slowdown_limit=0.9 * harmed, resident_weight=0.0)
    assert names(ranking.sets[0]) == ["node-1", "node-2"]
    assert ranking.refused == {"resident_slowdown_limit": 1}
    accepted = rank(engine, 2, resident_slowdown_limit=1.1 * harmed, resident_weight=0.0).sets[0]
    assert names(accepted) == ["node-0", "node-1"]
    assert accepted.nodes[0].worst_resident_slowdown == pytest.approx(harmed, rel=1e-4)
    assert accepted.nodes[0].residents == 1


def test_among_many_nodes_a_set_is_of_those_that_are_known_to_keep_a_limit() -> None:
    """However many there are of whose residents nothing is known."""
    engine = worlds.engine()
    worlds.add_occupied(engine, "stranger", 400)
    worlds.add_occupied(engine, "memory", 16)
    harmed = math.exp(expected("memory", PRESSURE["memory"]))

    ranking = rank(engine, 16, resident_slowdown_limit=1.1 * harmed)

    (chosen,) = ranking.sets
    assert all(node.node_id.startswith("memory") for node in chosen.nodes)
    assert ranking.refused == {"resident_slowdown_limit": 400}


@pytest.mark.parametrize("has_scale_model", [True, False])
def test_a_set_is_slowed_at_least_so_much_where_a_node_of_it_is(
    engine: Engine, has_scale_model: bool
) -> None:
    """Its runs under load were ended at 1.3 times its runtime alone."""
    engine.put_model(worlds.ended("memory", math.log(1.3)), 2)
    engine.put_assignment(bound("r", "memory", NOW - 100.0, "node-1"))
    if not has_scale_model:
        engine.drop_scale_model("memory")
    chosen = rank(engine, 3, nodes=("node-0", "node-1", "node-2")).sets[0]
    at_least = {node.node_id: node.slowdown.at_least for node in chosen.nodes}
    assert not at_least["node-0"]
    assert any(at_least.values())
    assert chosen.slowdown.at_least
    assert chosen.runtime_s is None or chosen.runtime_s.at_least
    worst = {node.node_id: node.worst_resident_at_least for node in chosen.nodes}
    assert worst == {"node-0": False, "node-1": True, "node-2": False}
    assert not rank(engine, 1, nodes=("node-0",)).sets[0].slowdown.at_least
    assert rank(engine, 3, slowdown_limit=50.0, nodes=("node-0", "node-1", "node-2")).sets == ()


def test_candidates_and_limits_count(engine: Engine) -> None:
    assert names(rank(engine, 2, nodes=("node-4", "node-2", "node-3")).sets[0]) == [
        "node-2",
        "node-3",
    ]
    few = rank(engine, 4, slowdown_limit=1.3)
    assert few.sets == ()
    assert few.refused == {"slowdown_limit": 3}


def test_a_node_with_two_domains_is_in_a_set_once(engine: Engine) -> None:
    two = ((0, 1), (2, 3))
    worlds.add_node(engine, "wide", {"stream.triad": 0.0}, llc_cpus=two, cpus=(0, 1, 2, 3))
    assert sorted(names(rank(engine, 2).sets[0])) == ["node-0", "wide"]


def test_near_ties_are_spread() -> None:
    engine = worlds.engine()
    engine.put_scale_model("memory", ScaleFile("memory", "", (scale_model(),)))
    for n in range(12):
        worlds.add_node(engine, f"node-{n:02}", {"stream.triad": 0.0001 * n})
    worlds.add_node(engine, "slow", {"stream.triad": 1.0})
    taken: Counter[str] = Counter()
    for seed in range(60):
        (best,) = rank(engine, 4, seed=seed).sets
        taken.update(names(best))
        assert all(node.tied_with_first for node in best.nodes)
    assert taken["slow"] == 0
    assert len(taken) == 12
    assert max(taken.values()) < 45
    assert names(rank(engine, 4, seed=5).sets[0]) == names(rank(engine, 4, seed=5).sets[0])


def test_without_a_scale_model_the_slowdown_is_given(engine: Engine) -> None:
    (best,) = rank(engine, 2, app="quiet").sets
    assert (best.runtime_s, best.scaled) == (None, None)
    assert best.warnings
    with pytest.raises(UntrainedError):
        engine.predict(Question("quiet", scaling=Scaling(2), nodes=("node-0",)), NOW)
    with pytest.raises(UnknownNameError):
        rank(engine, 2, scaling=Scaling(2, model="else"))
    named = rank(engine, 2, app="quiet", scaling=Scaling(2, model="memory"))
    assert named.sets[0].runtime_s is not None


def test_beyond_memory_nodes_are_ranked_and_no_runtime_is_given(engine: Engine) -> None:
    engine.put_scale_model("memory", ScaleFile("memory", "", (scale_model(memory_load=0.1),)))
    (best,) = rank(engine, 2).sets
    assert best.runtime_s is None
    assert any("memory" in warning for warning in best.warnings)
    with pytest.raises(CannotAnswerError, match="memory"):
        engine.predict(Question("memory", scaling=Scaling(2), nodes=("node-0",)), NOW)


def test_scale_models_are_replaced_and_forgotten(engine: Engine) -> None:
    assert engine.scale_models() == ("memory",)
    engine.drop_scale_model("memory")
    engine.drop_scale_model("memory")
    assert rank(engine, 2).sets[0].runtime_s is None


def test_what_a_job_does_to_residents_is_given_for_all_its_nodes(engine: Engine) -> None:
    for n in (0, 1):
        engine.put_assignment(bound(f"r{n}", "memory", NOW - 100.0, f"node-{n}"))
    prediction = engine.predict(
        Question("memory", scaling=Scaling(2), nodes=("node-0", "node-1")), NOW
    )
    assert set(prediction.residents) == {"r0", "r1"}
    assert all(
        i.slowdown_then.median > i.slowdown_now.median for i in prediction.residents.values()
    )


def test_a_job_is_not_explained_surrogate_by_surrogate(engine: Engine) -> None:
    with pytest.raises(InputError, match="parts"):
        engine.explain(Question("memory", scaling=Scaling(2), nodes=("node-0",)), NOW)


def profiled(engine: Engine, **sensitivities: float) -> None:
    """Profiles of the job on one machine and on eight, and its scale model."""
    for place, sensitivity in sensitivities.items():
        name = f"job.{place.removeprefix('on_')}"
        engine.put_model(worlds.model(name, {"stream.triad": sensitivity}), 1)
        engine.put_signatures([worlds.signature(name, {"stream.triad": 0.5})])
    engine.put_scale_model("job", ScaleFile("job", "", (scale_model(),)))


def slowdown_of_job(engine: Engine, machines: int, **changes: Any) -> float:
    question = Question("job", scaling=Scaling(machines), nodes=("node-4",), **changes)
    return engine.predict(question, NOW).slowdown.median


def test_profiles_at_configurations_tell_the_parts_apart(engine: Engine) -> None:
    """Of 63 s on one machine 60 are shared out; on eight that is 7.5 of 10.5."""
    profiled(engine, on_1x1=0.5, on_8x1=0.3)
    slowdowns = [slowdown_of_job(engine, machines) for machines in (1, 2, 4, 8)]
    assert slowdowns == sorted(slowdowns, reverse=True)
    assert slowdowns[0] > 1.25 * slowdowns[-1]
    forecast = engine.predict(Question("job", scaling=Scaling(2), nodes=("node-4",)), NOW)
    assert forecast.app == "job"
    assert any("1 machine at scale 1; 8 machines" in note for note in forecast.notes)


def test_a_single_profile_slows_all_configurations_alike(engine: Engine) -> None:
    profiled(engine, on_8x1=0.3)
    on_one, on_eight = (slowdown_of_job(engine, machines) for machines in (1, 8))
    assert on_one == pytest.approx(on_eight)


def test_a_version_that_is_asked_for_is_the_jobs_own(engine: Engine) -> None:
    profiled(engine, on_1x1=0.5, on_8x1=0.3)
    engine.put_model(worlds.model("job", {"stream.triad": 0.1}), 1)
    own = slowdown_of_job(engine, 2, model_version=1)
    assert own < slowdown_of_job(engine, 2)
    engine.drop_model("job.1x1", "cross-core")
    engine.drop_model("job.8x1", "cross-core")
    assert slowdown_of_job(engine, 2) == pytest.approx(own)


def test_profiles_at_another_placement_are_not_meant(engine: Engine) -> None:
    profiled(engine, on_1x1=0.5)
    engine.put_model(worlds.model("job.8x1", {"stream.triad": 0.1}, placement="same-core"), 1)
    prediction = engine.predict(Question("job", scaling=Scaling(2), nodes=("node-4",)), NOW)
    assert prediction.placement == "cross-core"
    assert not any("8 machines" in note for note in prediction.notes)


def test_a_set_that_is_ranked_by_history_is_not_refused_by_a_stale_reading() -> None:
    engine = worlds.engine()
    for node_id in ("node-0", "node-1"):
        worlds.add_node(engine, node_id, {"stream.triad": 1.2}, taken_at=NOW - 2000.0)
        engine.put_assignment(bound(f"on-{node_id}", "memory", NOW - 5.0, node_id))
        for n in range(4):
            usual = worlds.fingerprint(
                worlds.slowed({"stream.triad": 0.1}), NOW - 3000.0 - n, node_id
            )
            engine.put_fingerprint(node_id, 0, usual, now=NOW)
    engine.refresh(NOW, 10.0)
    limits = {"resident_slowdown_limit": 1.3}

    (chosen,) = rank(engine, 2, "quiet", stale_policy="history", **limits).sets

    assert sorted(names(chosen)) == ["node-0", "node-1"]
    worst = math.exp(expected("memory", {"stream.triad": 0.1}))
    for node in chosen.nodes:
        assert node.worst_resident_slowdown == pytest.approx(worst, rel=1e-5)
    assert rank(engine, 2, "quiet", **limits).sets == ()
