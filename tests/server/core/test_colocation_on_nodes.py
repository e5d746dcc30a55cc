"""Neighbours that come to the newest reading of a node, or to the idle node."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming import Signature
from kongming.engine.engine import Engine
from kongming.learning import colocation
from kongming.records.errors import UntrainedError
from kongming.records.questions import ColocationQuestion, Question
from tests.server.core import worlds
from tests.server.core.worlds import IDLE, NOW, PRESSURE, SUITE, bound, expected

TWICE = {name: 2.0 * seconds for name, seconds in IDLE.items()}
"""The idle times of a node that is half as fast as that of the training."""

QUESTION = ColocationQuestion("memory", ("disk",), node="node-1")


@pytest.fixture
def engine() -> Engine:
    return worlds.engine()


@given(
    drift=st.floats(-0.4, 0.4),
    near=st.floats(0.0, 1.0),
    far=st.floats(0.0, 1.0),
    kinds=st.lists(st.sampled_from(("near", "far")), min_size=2, max_size=4),
)
def test_another_neighbour_never_makes_a_program_faster(
    drift: float, near: float, far: float, kinds: list[str]
) -> None:
    """Whatever the host drifted by from one program's training to another's."""
    engine = worlds.engine()
    engine.put_node(worlds.fingerprint(IDLE, node_id="elsewhere").node, NOW)
    engine.put_reference("elsewhere", 0, IDLE, SUITE)
    engine.put_model(worlds.trained_on_slower("near", math.exp(drift)), 1)
    seen = worlds.fingerprint(worlds.slowed({"stream.triad": far}), node_id="elsewhere")
    engine.put_signatures(
        [
            worlds.signature("near", {"stream.triad": near}),
            worlds.signature("far", {}, node_id="elsewhere", fingerprint=seen),
        ]
    )

    def log_slowdown(names: list[str]) -> float:
        question = ColocationQuestion("memory", tuple(names))
        return math.log(engine.predict_colocation(question).prediction.slowdown.median)

    for count in range(1, len(kinds)):
        more, fewer = log_slowdown(kinds[: count + 1]), log_slowdown(kinds[:count])
        assert more >= fewer - 1e-9
    loads = [{"stream.triad": near if kind == "near" else far} for kind in kinds]
    assert log_slowdown(kinds) == pytest.approx(expected("memory", *loads), abs=1e-6)


@pytest.mark.parametrize("reference", [True, False])
def test_next_to_a_program_that_was_measured_here_a_newer_signature_from_elsewhere_changes_nothing(
    engine: Engine, reference: bool
) -> None:
    here = worlds.signature("other", {"stream.triad": 0.3})
    engine.put_signatures([here])
    before = engine.predict_colocation(ColocationQuestion("memory", ("other",)))

    engine.put_node(worlds.fingerprint(IDLE, node_id="elsewhere").node, NOW)
    if reference:
        engine.put_reference("elsewhere", 0, IDLE, SUITE)
    seen = worlds.fingerprint(worlds.slowed({"stream.triad": 0.9}), NOW, node_id="elsewhere")
    there = worlds.signature("other", {}, node_id="elsewhere", fingerprint=seen)
    engine.put_signatures([there])

    after = engine.predict_colocation(ColocationQuestion("memory", ("other",)))
    assert after.prediction == before.prediction
    # Where it runs already, the newest counts whose idle node is known.
    worlds.add_node(engine, logs={})
    engine.put_assignment(bound("a", "other", NOW - 5.0))
    forecast = engine.predict(Question("memory", "node-1"), NOW)
    triad = 0.9 if reference else 0.3
    assert math.log(forecast.slowdown.median) == pytest.approx(0.5 * triad, abs=1e-6)
    assert not any("typical" in text for text in forecast.warnings)


def test_times_of_a_node_without_a_reference_are_not_put_into_a_model_of_another(
    engine: Engine,
) -> None:
    worlds.add_node(engine, logs={}, idle=TWICE, reference=False)

    with pytest.raises(UntrainedError, match="no idle reference"):
        engine.predict_colocation(QUESTION, 0)


def test_over_the_reference_of_a_like_node_nothing_is_calibrated_and_a_word_says_so(
    engine: Engine,
) -> None:
    worlds.add_node(engine, "like", logs={}, idle=TWICE)
    worlds.add_node(engine, logs={"stream.triad": 0.4}, idle=TWICE, reference=False)

    answer = engine.predict_colocation(QUESTION, 0)

    slowdown = answer.prediction.slowdown
    loads = ({"stream.triad": 0.4}, PRESSURE["disk"])
    assert math.log(slowdown.median) == pytest.approx(expected("memory", *loads), abs=1e-6)
    assert not slowdown.calibrated
    assert answer.prediction.runtime_s is not None
    assert not answer.prediction.runtime_s.calibrated
    (neighbour,) = answer.neighbours
    assert neighbour.slowdown is not None
    assert not neighbour.slowdown.calibrated
    warnings = answer.prediction.warnings
    assert any("that of one node of the same CPU model" in text for text in warnings)
    assert not any("as the node of the training" in text for text in warnings)


def test_over_a_reference_of_its_own_it_is_calibrated(engine: Engine) -> None:
    engine.put_node(worlds.fingerprint(IDLE, node_id="trainer").node, NOW)
    worlds.add_node(engine, logs={}, idle=TWICE)

    answer = engine.predict_colocation(QUESTION, 0)

    assert answer.prediction.slowdown.calibrated
    assert answer.prediction.warnings == ()


def test_an_idle_node_without_a_reference_is_taken_to_be_as_that_of_the_training(
    engine: Engine,
) -> None:
    worlds.add_node(engine, logs={}, idle=TWICE, reference=False)

    answer = engine.predict_colocation(QUESTION)

    assert any("as the node of the training" in text for text in answer.prediction.warnings)


@pytest.mark.parametrize("where", ["training", "both", "live"])
def test_signatures_are_averaged_once_however_many_copies_there_are(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "both":
        engine.put_node(worlds.fingerprint(IDLE, node_id="elsewhere").node, NOW)
        engine.put_reference("elsewhere", 0, IDLE, SUITE)
        seen = worlds.fingerprint(worlds.slowed(PRESSURE["quiet"]), node_id="elsewhere")
        engine.put_signatures([worlds.signature("away", {}, node_id="elsewhere", fingerprint=seen)])
        engine.put_model(worlds.model("away", {"compute.int": 0.4}), 1)
    else:
        engine.put_signatures([worlds.signature("away", PRESSURE["quiet"])])
        engine.put_model(worlds.model("away", {"compute.int": 0.4}), 1)
    worlds.add_node(engine, logs={})
    averaged = []
    average = colocation.mean_signature

    def counted(signatures: Sequence[Signature]) -> dict[str, float]:
        averaged.append(signatures[0].app)
        return average(signatures)

    monkeypatch.setattr(colocation, "mean_signature", counted)
    names = ("disk",) * 30 + ("away",) * 20
    question = ColocationQuestion("memory", names, node="node-1" if where == "live" else None)

    answer = engine.predict_colocation(question, 0 if where == "live" else None)

    # Two next to the program, and all three next to each of them.
    assert len(averaged) <= 8
    assert tuple(neighbour.app for neighbour in answer.neighbours) == names
    by_name = {neighbour.app: neighbour for neighbour in answer.neighbours}
    assert all(neighbour == by_name[neighbour.app] for neighbour in answer.neighbours)
    loads = [PRESSURE["disk"]] * 29 + [PRESSURE["quiet"]] * 20 + [PRESSURE["memory"]]
    met = by_name["disk"].slowdown
    assert met is not None
    assert math.log(met.median) == pytest.approx(expected("disk", *loads), abs=1e-6)


def test_what_is_not_known_of_a_neighbour_is_stated_once(engine: Engine) -> None:
    engine.put_signatures([worlds.signature("bare", {"stream.triad": 0.4})])

    answer = engine.predict_colocation(ColocationQuestion("memory", ("bare",) * 5))

    (warning,) = (text for text in answer.prediction.warnings if "bare" in text)
    assert "has no model" in warning
    assert len(answer.neighbours) == 5


@pytest.mark.parametrize("identity", ["another program", None])
def test_a_signature_of_another_program_than_the_newest_counts_with_a_word(
    engine: Engine, identity: str | None
) -> None:
    engine.put_signatures([worlds.signature("other", {"stream.triad": 0.3})])
    seen = worlds.fingerprint(worlds.slowed({"stream.triad": 0.9}), NOW, node_id="elsewhere")
    changes = {} if identity is None else {"identity": identity}
    engine.put_signatures(
        [worlds.signature("other", {}, node_id="elsewhere", fingerprint=seen, **changes)]
    )

    answer = engine.predict_colocation(ColocationQuestion("memory", ("other", "disk", "other")))

    words = [text for text in answer.prediction.warnings if "was profiled again since" in text]
    assert len(words) == (0 if identity is None else 1)
    assert all(text.startswith("other ") for text in words)
    met = ({"stream.triad": 0.3}, PRESSURE["disk"], {"stream.triad": 0.3})
    slowdown = math.log(answer.prediction.slowdown.median)
    assert slowdown == pytest.approx(expected("memory", *met), abs=1e-6)
