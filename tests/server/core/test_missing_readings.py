"""What is said of a node whose probes failed in part: nothing of what depends on them alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from kongming.engine.engine import Engine
from kongming.records.errors import InputError
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from tests.server.core import worlds
from tests.server.core.worlds import NAMES, NOW, bound

LOADS = {"memory.random.8M": 0.6, "memory.random.128M": 0.4, "stream.triad": 0.4}


def lacking(surrogate: str) -> Any:
    return tuple(name for name in NAMES if name != surrogate)


def engine_with(surrogate: str, logs: Mapping[str, float] = LOADS, **changes: Any) -> Engine:
    """Node-1 has no reading of the surrogate, and "complete" has all."""
    engine = worlds.engine()
    worlds.add_node(engine, logs=logs, names=lacking(surrogate), **changes)
    worlds.add_node(engine, "complete", logs=logs, **changes)
    return engine


def test_without_a_reading_of_what_it_depends_on_nothing_is_predicted_or_ranked() -> None:
    engine = engine_with("memory.random.8M")

    with pytest.raises(InputError, match=r"no reading of memory\.random\.8M, on which") as caught:
        engine.predict(Question("memory", "node-1"), NOW)

    assert "--suite full" in str(caught.value.hint)
    for limit in (0.0, 10.0):
        ranking = engine.rank(RankQuestion("memory", slowdown_limit=limit), NOW)
        assert [node.node_id for node in ranking.nodes] == ["complete"]
        assert ranking.refused == {"unpredictable": 1}


def test_of_a_resident_that_depends_on_it_nothing_is_said() -> None:
    engine = engine_with("memory.random.8M")
    engine.put_assignment(bound("a", "memory", NOW - 5.0))

    forecast = engine.predict(Question("disk", "node-1"), NOW)

    assert forecast.residents == {}
    ranking = engine.rank(RankQuestion("disk", resident_slowdown_limit=5.0), NOW)
    assert [node.node_id for node in ranking.nodes] == ["complete"]


def test_what_the_quick_columns_know_nothing_of_they_do_not_answer_for() -> None:
    engine = engine_with("iobench.read.4M", {"iobench.read.4M": 0.6})

    with pytest.raises(InputError, match=r"no reading of iobench\.read\.4M, on which"):
        engine.predict(Question("disk", "node-1"), NOW)

    ranking = engine.rank(RankQuestion("disk"), NOW)
    assert [node.node_id for node in ranking.nodes] == ["complete"]
    assert ranking.refused == {"unpredictable": 1}
    engine.put_assignment(bound("a", "disk", NOW - 5.0))
    assert engine.predict(Question("memory", "node-1"), NOW).residents == {}
    assert any(
        "quick surrogates" in text
        for text in engine.predict(Question("memory", "node-1"), NOW).warnings
    )


def test_a_quick_fingerprint_is_answered_by_the_columns_that_were_validated_on_it() -> None:
    engine = worlds.engine()
    worlds.add_node(engine, logs={}, names=worlds.QUICK)

    assert engine.predict(Question("disk", "node-1"), NOW).slowdown.calibrated
    assert len(engine.rank(RankQuestion("disk"), NOW).nodes) == 1


def test_what_does_not_depend_on_it_is_predicted_with_a_word() -> None:
    engine = engine_with("memory.random.8M")

    forecast = engine.predict(Question("disk", "node-1"), NOW)

    (warning,) = (text for text in forecast.warnings if "No reading" in text)
    assert warning.startswith("No reading of memory.random.8M: taken to be as on the idle node")
    assert forecast.slowdown.calibrated
    ranking = engine.rank(RankQuestion("disk"), NOW)
    assert all(node.slowdown.calibrated for node in ranking.nodes)
    assert len(ranking.nodes) == 2


@pytest.mark.parametrize("age_s", [10.0, 2000.0])
@pytest.mark.parametrize("policy", ["widen", "history"])
def test_what_is_filled_in_is_not_calibrated(age_s: float, policy: Any) -> None:
    engine = engine_with("stream.triad", taken_at=NOW - age_s)
    engine.put_assignment(bound("a", "memory", NOW - 3000.0))

    forecast = engine.predict(Question("memory", "node-1", stale_policy=policy), NOW)

    assert math.log(forecast.slowdown.median) == pytest.approx(0.3 * 0.6 + 0.5 * 0.4, abs=1e-6)
    assert not forecast.slowdown.calibrated
    assert forecast.runtime_s is not None
    assert not forecast.runtime_s.calibrated
    assert any("as the rest of the family" in text for text in forecast.warnings)
    assert any("readings that were filled in" in text for text in forecast.warnings)
    impact = forecast.residents["a"]
    assert not impact.slowdown_now.calibrated
    assert not impact.slowdown_then.calibrated
    question = RankQuestion("memory", limit=2, stale_policy=policy)
    calibrated = {n.node_id: n.slowdown.calibrated for n in engine.rank(question, NOW).nodes}
    assert calibrated == {"node-1": False, "complete": age_s < 100.0}


def test_a_signature_without_it_says_nothing_of_a_neighbour_that_depends_on_it() -> None:
    engine = worlds.engine()
    seen = worlds.fingerprint(
        worlds.slowed(LOADS, names=lacking("memory.random.8M")), node_id="trainer"
    )
    engine.put_signatures([worlds.signature("short", {}, fingerprint=seen)])

    with pytest.raises(InputError, match=r"no reading of memory\.random\.8M, on which"):
        engine.predict_colocation(ColocationQuestion("memory", ("short",)))
    answer = engine.predict_colocation(ColocationQuestion("disk", ("short",)))
    assert answer.prediction.slowdown.calibrated
