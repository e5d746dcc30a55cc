"""Predictions on a node as it is now, and what each says of itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.engine.engine import Engine
from kongming.engine.settings import Purpose
from kongming.learning import predict as library
from kongming.learning.model_file import FrozenModel
from kongming.records.answers import Forecast
from kongming.records.errors import (
    CannotAnswerError,
    ExtrapolationError,
    IncompatibleError,
    InputError,
    StaleError,
    UnknownNameError,
    UntrainedError,
)
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from tests.server.core import worlds
from tests.server.core.worlds import IDLE, NOW, PRESSURE, bound, expected, released, reserved


def ask(engine: Engine, app: str = "memory", node: str = "node-1", **changes: Any) -> Forecast:
    return engine.predict(Question(app, node, **changes), NOW)


def log_slowdown(forecast: Forecast) -> float:
    return math.log(forecast.slowdown.median)


@pytest.fixture
def engine() -> Engine:
    return worlds.engine()


def test_a_newcomer_meets_what_the_fingerprint_reads(engine: Engine) -> None:
    worlds.add_node(engine, logs={"stream.triad": 0.4})

    forecast = ask(engine)

    assert log_slowdown(forecast) == pytest.approx(0.5 * 0.4, abs=1e-6)
    assert forecast.runtime_s is not None
    assert forecast.runtime_s.median == pytest.approx(10.0 * math.exp(0.2))
    assert forecast.basis == "model"
    assert (forecast.model, forecast.model_version) == ("LM", 1)
    assert forecast.fingerprint_age_s == pytest.approx(10.0)
    assert not forecast.stale
    assert [driver.family for driver in forecast.drivers] == ["memory"]


def test_one_who_ran_when_the_fingerprint_was_taken_is_not_counted_twice(engine: Engine) -> None:
    worlds.add_node(engine, logs=PRESSURE["memory"])
    engine.put_assignment(bound("a", "memory", NOW - 100.0))

    forecast = ask(engine)

    assert log_slowdown(forecast) == pytest.approx(expected("memory", PRESSURE["memory"]), abs=1e-6)
    assert forecast.added == forecast.removed == ()


def test_one_who_began_after_the_fingerprint_is_added_until_the_next_one(engine: Engine) -> None:
    worlds.add_node(engine, logs={})
    engine.put_assignment(bound("a", "memory", NOW - 5.0))

    before = ask(engine)
    later = worlds.fingerprint(worlds.slowed(PRESSURE["memory"]), NOW - 1.0)
    engine.put_fingerprint("node-1", 0, later, now=NOW)
    after = ask(engine)

    assert before.added == ("a",)
    assert after.added == ()
    assert log_slowdown(before) == pytest.approx(log_slowdown(after), abs=1e-6)
    assert log_slowdown(after) == pytest.approx(expected("memory", PRESSURE["memory"]), abs=1e-6)


def test_one_who_ended_after_the_fingerprint_is_taken_out(engine: Engine) -> None:
    worlds.add_node(engine, logs=PRESSURE["memory"])
    engine.put_assignment(released(bound("a", "memory", NOW - 100.0), NOW - 2.0))

    forecast = ask(engine)

    assert forecast.removed == ("a",)
    assert log_slowdown(forecast) == pytest.approx(0.0, abs=1e-6)


def test_a_resident_does_not_feel_its_own_pressure(engine: Engine) -> None:
    worlds.add_node(engine, logs=PRESSURE["memory"])
    engine.put_assignment(bound("a", "memory", NOW - 100.0))
    engine.put_assignment(bound("b", "memory", NOW - 5.0))

    first = ask(engine, resident_id="a")
    second = ask(engine, resident_id="b")

    # Each is next to the other one: what was read, or what the signature says.
    assert log_slowdown(first) == pytest.approx(expected("memory", PRESSURE["memory"]), abs=1e-6)
    assert log_slowdown(second) == pytest.approx(log_slowdown(first), abs=1e-6)
    assert (first.added, first.removed) == (("b",), ("a",))
    assert (second.added, second.removed) == ((), ())
    assert first.residents == {}


def test_what_a_newcomer_would_do_to_residents_is_predicted(engine: Engine) -> None:
    worlds.add_node(engine, logs=PRESSURE["disk"])
    engine.put_assignment(bound("d", "disk", NOW - 100.0))
    engine.put_assignment(bound("m", "memory", NOW - 5.0))

    impacts = ask(engine, "memory").residents

    assert set(impacts) == {"d", "m"}
    # A probe read the disk's pressure, which does not slow the memory program.
    assert impacts["d"].slowdown_now.median == pytest.approx(
        math.exp(expected("disk", PRESSURE["memory"])), rel=1e-6
    )
    assert math.log(impacts["m"].slowdown_now.median) == pytest.approx(
        expected("memory", PRESSURE["disk"]), abs=1e-6
    )
    assert math.log(impacts["m"].slowdown_then.median) == pytest.approx(
        expected("memory", PRESSURE["disk"], PRESSURE["memory"]), abs=1e-6
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("memory", "disk", "quiet")),
            st.integers(1, 60),
            st.none() | st.integers(0, 59),
        ),
        max_size=6,
    ),
    st.integers(0, 60),
    st.sampled_from(("memory", "disk", "quiet")),
)
@settings(max_examples=40, deadline=None)
def test_real_sets_of_residents_are_met_as_they_run_whenever_the_fingerprint_was(
    visits: list[tuple[str, int, int | None]], ago: int, app: str
) -> None:
    engine = worlds.engine()
    visits = [(a, began, None if e is None or e >= began else e) for a, began, e in visits]
    seen = [a for a, began, e in visits if began >= ago and (e is None or e < ago)]
    worlds.add_node(engine, logs=_sum(seen), taken_at=NOW - ago)
    for n, (name, began, ended) in enumerate(visits):
        resident = bound(str(n), name, NOW - began)
        engine.put_assignment(resident if ended is None else released(resident, NOW - ended))
    running = [(str(n), a) for n, (a, _, e) in enumerate(visits) if e is None]

    forecast = ask(engine, app)

    truth = expected(app, *(PRESSURE[a] for _, a in running))
    assert log_slowdown(forecast) == pytest.approx(truth, abs=1e-6)
    for place, name in running:
        others = [PRESSURE[a] for other, a in running if other != place]
        impact = forecast.residents[place]
        assert math.log(impact.slowdown_now.median) == pytest.approx(
            expected(name, *others), abs=1e-6
        )
        assert math.log(impact.slowdown_then.median) == pytest.approx(
            expected(name, *others, PRESSURE[app]), abs=1e-6
        )
        own = ask(engine, name, resident_id=place)
        assert own.slowdown.median == pytest.approx(impact.slowdown_now.median, rel=1e-6)


def _sum(apps: list[str]) -> dict[str, float]:
    return {name: sum(PRESSURE[app].get(name, 0.0) for app in apps) for name in IDLE}


def test_slowdowns_of_another_node_are_put_onto_the_idle_times_of_the_training(
    engine: Engine,
) -> None:
    slower = {name: 3.0 * seconds for name, seconds in IDLE.items()}
    worlds.add_node(engine, logs={"stream.triad": 0.4}, idle=slower)
    engine.put_node(worlds.fingerprint(IDLE, node_id="trainer").node, NOW)

    forecast = ask(engine)

    assert log_slowdown(forecast) == pytest.approx(0.2, abs=1e-6)
    assert any("another node" in note for note in forecast.notes)
    assert forecast.warnings == ()


def test_without_a_reference_those_of_like_nodes_are_taken_with_a_warning(engine: Engine) -> None:
    twice = {name: 2.0 * seconds for name, seconds in IDLE.items()}
    for number, idle in enumerate((IDLE, IDLE, twice)):
        worlds.add_node(engine, f"like-{number}", logs={}, idle=idle)
    worlds.add_node(engine, "unlike", logs={}, idle=twice, cpu_model="another")
    worlds.add_node(engine, logs={"stream.triad": 0.4}, reference=False)
    engine.heartbeat("node-1", NOW)

    forecast = ask(engine)

    assert forecast.basis == "model"
    assert log_slowdown(forecast) == pytest.approx(0.2, abs=1e-6)
    assert any("the median of 3 nodes" in warning for warning in forecast.warnings)
    assert not forecast.slowdown.calibrated
    states = {node.facts.id: node.state for node in engine.nodes(NOW)}
    assert states["node-1"] == "unreferenced"


def test_without_any_reference_it_is_the_nodes_slowdown_over_its_own_fastest_readings(
    engine: Engine,
) -> None:
    worlds.add_node(engine, logs=dict.fromkeys(IDLE, 2.0), taken_at=NOW - 30.0, reference=False)
    with pytest.raises(UntrainedError, match="no idle reference"):
        ask(engine)
    slower = worlds.fingerprint(worlds.slowed(dict.fromkeys(IDLE, 2.3)), NOW - 5.0)
    engine.put_fingerprint("node-1", 0, slower, now=NOW)

    forecast = ask(engine)

    assert forecast.basis == "node-only"
    assert log_slowdown(forecast) == pytest.approx(0.3, abs=1e-6)
    assert forecast.slowdown.at_least
    assert not forecast.slowdown.calibrated
    assert engine.rank(RankQuestion(app="memory"), NOW).nodes == ()
    parts = engine.explain(Question("memory", "node-1"), NOW).contributions
    assert sum(part.log_slowdown for part in parts) == pytest.approx(0.3, abs=1e-6)


def test_on_the_node_of_the_training_it_is_what_the_library_says(engine: Engine) -> None:
    other = {name: 1.1 * seconds for name, seconds in IDLE.items()}
    engine.put_node(worlds.fingerprint(IDLE, node_id="trainer").node, NOW)
    engine.put_reference("trainer", 0, other, worlds.SUITE)
    read = worlds.fingerprint(
        worlds.slowed({"stream.triad": 0.4, "os.switch": 0.1}), NOW, "trainer"
    )
    engine.put_fingerprint("trainer", 0, read, now=NOW)

    forecast = ask(engine, "memory", "trainer")
    theirs = library.predict_environment(worlds.model("memory", worlds.SENSITIVITY["memory"]), read)

    assert forecast.slowdown.median == pytest.approx(theirs.slowdown.median, rel=1e-9)
    assert forecast.slowdown.upper == pytest.approx(theirs.slowdown.upper, rel=1e-9)
    assert [driver.family for driver in forecast.drivers] == [
        driver.family for driver in theirs.drivers
    ]


def test_a_quick_fingerprint_is_answered_by_the_quick_columns(engine: Engine) -> None:
    worlds.add_node(engine, logs={"stream.triad": 0.4}, names=worlds.QUICK)

    forecast = ask(engine)

    assert log_slowdown(forecast) == pytest.approx(0.2, abs=1e-6)
    assert any("quick surrogates" in warning for warning in forecast.warnings)


def test_without_a_fingerprint_the_reference_answers_with_all_residents_added(
    engine: Engine,
) -> None:
    worlds.add_node(engine)
    engine.put_assignment(bound("a", "memory", NOW - 1000.0))

    forecast = ask(engine)

    assert forecast.fingerprint_age_s is None
    assert forecast.added == ("a",)
    assert log_slowdown(forecast) == pytest.approx(expected("memory", PRESSURE["memory"]), abs=1e-6)


def test_what_nobody_profiled_gets_the_nodes_general_slowdown(engine: Engine) -> None:
    worlds.add_node(engine, logs=dict.fromkeys(IDLE, 0.2) | {"os.switch": 0.9})

    forecast = ask(engine, "stranger")

    assert forecast.basis == "node-only"
    assert log_slowdown(forecast) == pytest.approx((6 * 0.2 + 0.9) / 7)
    assert forecast.slowdown.lower == pytest.approx(math.exp(0.2))
    assert forecast.slowdown.upper > forecast.slowdown.median
    assert not forecast.slowdown.calibrated
    assert forecast.runtime_s is None
    assert forecast.solo_s is None
    assert forecast.model_version == 0


def test_of_a_stranger_on_a_node_without_a_reference_nothing_is_said(engine: Engine) -> None:
    worlds.add_node(engine, logs={}, reference=False)

    with pytest.raises(UntrainedError, match="no idle reference"):
        ask(engine, "stranger")


def test_a_resident_without_a_signature_presses_as_a_typical_one_with_a_word(
    engine: Engine,
) -> None:
    worlds.add_node(engine, logs={})
    engine.put_assignment(bound("x", "stranger", NOW - 1.0))

    forecast = ask(engine, "quiet")

    assert any("stranger" in warning for warning in forecast.warnings)
    assert forecast.added == ("x",)


class TestStale:
    AGE_S = 2000.0

    @pytest.fixture
    def engine(self) -> Engine:
        engine = worlds.engine()
        worlds.add_node(engine, logs={"stream.triad": 0.4}, taken_at=NOW - self.AGE_S)
        return engine

    def test_refuse_refuses(self, engine: Engine) -> None:
        with pytest.raises(StaleError, match="2000 s old"):
            ask(engine, stale_policy="refuse")

    def test_widen_keeps_the_median_and_widens_the_interval_with_a_word(
        self, engine: Engine
    ) -> None:
        fresh = worlds.engine()
        worlds.add_node(fresh, logs={"stream.triad": 0.4})

        old, young = ask(engine), ask(fresh)

        assert old.stale
        assert not young.stale
        assert old.slowdown.median == pytest.approx(young.slowdown.median)
        assert old.slowdown.lower < young.slowdown.lower
        assert old.slowdown.upper > young.slowdown.upper
        assert old.runtime_s is not None
        assert old.runtime_s.upper == pytest.approx(10.0 * old.slowdown.upper)
        assert any("widened" in warning for warning in old.warnings)

    def test_history_uses_the_median_of_what_was_read_before(self, engine: Engine) -> None:
        for n in range(4):
            earlier = worlds.fingerprint(worlds.slowed({"stream.triad": 0.1}), NOW - 3000.0 - n)
            assert not engine.put_fingerprint("node-1", 0, earlier, now=NOW)

        forecast = ask(engine, stale_policy="history")

        assert log_slowdown(forecast) == pytest.approx(0.05, abs=1e-6)
        assert forecast.stale
        assert any("history" in warning for warning in forecast.warnings)
        assert log_slowdown(ask(engine)) == pytest.approx(0.2, abs=1e-6)

    @pytest.mark.parametrize(("policy", "triad"), [("history", 0.1), ("widen", 0.4)])
    @pytest.mark.parametrize("app", ["memory", "stranger"])
    def test_an_explanation_is_of_what_is_predicted(
        self, engine: Engine, app: str, policy: Any, triad: float
    ) -> None:
        for n in range(4):
            earlier = worlds.fingerprint(worlds.slowed({"stream.triad": 0.1}), NOW - 3000.0 - n)
            engine.put_fingerprint("node-1", 0, earlier, now=NOW)

        explained = engine.explain(Question(app, "node-1", stale_policy=policy), NOW)

        parts = explained.contributions
        assert parts[0].surrogate == "stream.triad"
        ratio = parts[0].seconds_per_op / parts[0].idle_seconds_per_op
        assert ratio == pytest.approx(math.exp(triad), rel=1e-5)
        total = math.fsum(part.log_slowdown for part in parts)
        assert total == pytest.approx(log_slowdown(explained.prediction), abs=1e-5)

    def test_older_is_wider(self, engine: Engine) -> None:
        widths = [
            math.log(f.slowdown.upper / f.slowdown.median)
            for f in (
                engine.predict(Question("memory", "node-1"), NOW - self.AGE_S + age)
                for age in (10.0, 400.0, 1000.0, 3000.0)
            )
        ]

        assert widths == sorted(widths)
        assert widths[-1] > widths[0]


def test_an_estimate_is_used_but_never_kept_as_history(engine: Engine) -> None:
    worlds.add_node(engine, logs={}, taken_at=NOW - 2000.0)
    for n in range(3):
        guess = worlds.fingerprint(worlds.slowed({"stream.triad": 0.4}), NOW - 1990.0 + n)
        assert engine.put_fingerprint("node-1", 0, guess, Purpose.ESTIMATE, NOW)

    assert log_slowdown(ask(engine)) == pytest.approx(0.2, abs=1e-6)
    history = ask(engine, stale_policy="history")
    assert log_slowdown(history) == pytest.approx(0.2, abs=1e-6)
    assert any("widened" in warning for warning in history.warnings)


def test_the_domain_with_the_least_slowdown_answers_unless_one_is_named(engine: Engine) -> None:
    domains = {"cpus": (0, 1), "llc_cpus": ((0,), (1,))}
    worlds.add_node(engine, logs={"stream.triad": 0.4}, **domains)
    quieter = worlds.fingerprint(worlds.slowed({"stream.triad": 0.1}), NOW - 5.0, **domains)
    engine.put_fingerprint("node-1", 1, quieter, now=NOW)

    assert ask(engine).domain == 1
    assert log_slowdown(ask(engine, domain=0)) == pytest.approx(0.2, abs=1e-6)
    with pytest.raises(InputError, match="domain"):
        ask(engine, domain=2)


@pytest.mark.parametrize("named", [{"model": "LM"}, {"model_version": 1}, {"model_version": 2}])
def test_a_model_that_is_named_has_the_domain_where_it_is_slowed_least(
    engine: Engine, named: dict[str, Any]
) -> None:
    """The other one has the lower general slowdown."""
    engine.put_model(worlds.model("memory", worlds.SENSITIVITY["memory"]), 2, in_service=False)
    domains = {"cpus": (0, 1), "llc_cpus": ((0,), (1,))}
    worlds.add_node(engine, logs={"iobench.read.4M": 0.5}, **domains)
    lower = worlds.fingerprint(worlds.slowed({"stream.triad": 0.3}), NOW - 5.0, **domains)
    engine.put_fingerprint("node-1", 1, lower, now=NOW)

    chosen, by_name = ask(engine), ask(engine, **named)

    assert (by_name.domain, chosen.domain) == (0, 0)
    assert by_name.slowdown == chosen.slowdown


def test_a_domain_that_was_read_with_another_suite_is_passed_over(engine: Engine) -> None:
    domains = {"cpus": (0, 1), "llc_cpus": ((0,), (1,))}
    worlds.add_node(engine, logs={"stream.triad": 0.3}, **domains)
    other = worlds.builders.fingerprint(
        worlds.slowed({}),
        node=worlds.builders.node(id="node-1", name="name-node-1", **domains),
        started_at=worlds.iso(NOW - 5.0),
        suite_version="2-89abcdef",
    )
    engine.put_reference("node-1", 0, IDLE, "2-89abcdef")
    engine.put_fingerprint("node-1", 0, other, now=NOW)

    assert ask(engine, model="LM").domain == ask(engine).domain == 1


def test_presence_is_of_neighbours_in_the_same_domain(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Next to other domains it was not measured, whatever was of the neighbour's pressure."""
    monkeypatch.setattr(FrozenModel, "presence", property(lambda _: 0.02))
    worlds.add_node(engine, logs={}, cpus=(0, 1), llc_cpus=((0,), (1,)))
    alone = log_slowdown(ask(engine, domain=0))
    engine.put_assignment(bound("q", "quiet", NOW - 100.0, domain=1))
    assert log_slowdown(ask(engine, domain=0)) == alone

    engine.put_signatures([worlds.signature("quiet", {}, placement="cross-socket")])

    assert log_slowdown(ask(engine, domain=0)) == alone
    assert log_slowdown(ask(engine, domain=1)) == pytest.approx(alone + 0.02, abs=1e-6)
    engine.put_assignment(bound("r", "memory", NOW - 100.0, domain=0))
    assert log_slowdown(ask(engine, domain=0)) == pytest.approx(alone + 0.02, abs=1e-6)
    resident = ask(engine, "memory", domain=0, resident_id="r")
    assert log_slowdown(resident) == pytest.approx(0.0, abs=1e-6)


def test_the_awake_factor_across_sockets_is_of_neighbours_in_all_domains(engine: Engine) -> None:
    """There it was measured next to programs in the other domain."""
    across = {"placement": "cross-socket"}
    engine.put_model(worlds.model("waits", awake=-0.2, **across), 1)
    engine.put_model(worlds.model("waits", awake=-0.2), 1)
    worlds.add_node(engine, logs={}, cpus=(0, 1), llc_cpus=((0,), (1,)))
    engine.put_signatures([worlds.signature("quiet", {}, **across)])
    engine.put_assignment(bound("q", "quiet", NOW - 100.0, domain=1))

    faster = pytest.approx(-0.2, abs=1e-6)
    first = {"domain": 0, **across}
    assert log_slowdown(ask(engine, "waits", **first)) == faster
    assert log_slowdown(ask(engine, "waits", domain=1, **across)) == faster
    assert log_slowdown(ask(engine, "waits", domain=0, placement="cross-core")) == 0.0
    assert log_slowdown(ask(engine, "waits", domain=1, placement="cross-core")) == faster
    # By the matrix, and with a model by name.
    ranked = engine.rank(RankQuestion("waits", placement="cross-socket", nodes=("node-1",)), NOW)
    assert math.log(ranked.nodes[0].slowdown.median) == faster
    assert log_slowdown(ask(engine, "waits", model="LM", **first)) == faster
    # As a resident, and next to another that comes to its own domain.
    engine.put_assignment(bound("w", "waits", NOW - 100.0, domain=0, **across))
    assert log_slowdown(ask(engine, "waits", resident_id="w", **first)) == faster
    engine.put_assignment(released(bound("q", "quiet", NOW - 100.0, domain=1), NOW - 1.0))
    impact = ask(engine, "quiet", domain=0).residents["w"]
    assert math.log(impact.slowdown_now.median) == pytest.approx(0.0, abs=1e-6)
    assert math.log(impact.slowdown_then.median) == faster


def test_a_neighbour_in_another_domain_presses_on_what_the_domains_share(engine: Engine) -> None:
    worlds.add_node(engine, logs={}, cpus=(0, 1), llc_cpus=((0,), (1,)))
    engine.put_assignment(bound("m", "memory", NOW - 1.0, domain=0))
    engine.put_assignment(bound("d", "disk", NOW - 1.0, domain=0))

    assert log_slowdown(ask(engine, "memory", domain=1)) == pytest.approx(0.0, abs=1e-6)
    assert log_slowdown(ask(engine, "disk", domain=1)) == pytest.approx(
        expected("disk", PRESSURE["disk"]), abs=1e-6
    )


def test_versions_are_kept_and_selectable_and_promotion_swaps_at_once(engine: Engine) -> None:
    worlds.add_node(engine, logs={"stream.triad": 0.4})
    assert ask(engine).model_version == 1
    engine.put_model(worlds.model("memory", {"stream.triad": 1.0}), 2, in_service=False)

    assert ask(engine).model_version == 1
    assert log_slowdown(ask(engine, model_version=2)) == pytest.approx(0.4, abs=1e-6)

    engine.promote("memory", "cross-core", 2)
    assert log_slowdown(ask(engine)) == pytest.approx(0.4, abs=1e-6)
    assert log_slowdown(ask(engine, model_version=1)) == pytest.approx(0.2, abs=1e-6)

    engine.drop_model("memory", "cross-core", 2)
    assert ask(engine).model_version == 1
    with pytest.raises(UnknownNameError):
        ask(engine, model_version=2)
    engine.drop_model("memory", "cross-core")
    assert ask(engine).basis == "node-only"


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ({"node": "nowhere"}, UnknownNameError),
        ({"model": "NOSUCH"}, UnknownNameError),
        ({"placement": "same-core"}, UntrainedError),
        ({"resident_id": "nobody"}, UnknownNameError),
        ({"app": "stranger", "model_version": 3}, UntrainedError),
    ],
)
def test_what_cannot_be_answered_says_why(
    engine: Engine, question: dict[str, Any], error: type[Exception]
) -> None:
    worlds.add_node(engine, logs={})

    with pytest.raises(error):
        engine.predict(Question(**({"app": "memory", "node": "node-1"} | question)), NOW)


def test_an_assignment_of_another_application_is_not_ones_own(engine: Engine) -> None:
    worlds.add_node(engine, logs={})
    engine.put_assignment(bound("d", "disk", NOW - 1.0))

    with pytest.raises(InputError, match="resident_id"):
        ask(engine, "memory", resident_id="d")


def test_extrapolation_is_flagged_and_refused_when_strict(engine: Engine) -> None:
    worlds.add_node(engine, logs={"stream.triad": 2.5})

    assert ask(engine).extrapolating
    with pytest.raises(ExtrapolationError):
        ask(engine, strict=True)


def test_a_fingerprint_of_another_suite_is_refused(engine: Engine) -> None:
    worlds.add_node(engine, logs={})
    engine.put_model(worlds.model("newer", suite_version="2-ffff"), 1)

    with pytest.raises(IncompatibleError, match="suite version"):
        ask(engine, "newer")


def test_a_node_of_which_nothing_was_read_cannot_be_asked_about(engine: Engine) -> None:
    engine.put_node(worlds.fingerprint(IDLE).node, NOW)

    with pytest.raises(CannotAnswerError, match="no fingerprint"):
        ask(engine)


def test_a_name_finds_the_node_unless_several_have_it(engine: Engine) -> None:
    worlds.add_node(engine, logs={})
    assert ask(engine, node="name-node-1").node_id == "node-1"

    engine.put_node(worlds.builders.node(id="node-2", name="name-node-1"), NOW)
    with pytest.raises(InputError, match="several nodes"):
        ask(engine, node="name-node-1")


def test_asked_again_the_answer_is_the_same_but_for_its_age(engine: Engine) -> None:
    worlds.add_node(engine, logs={"stream.triad": 0.4})
    first = engine.predict(Question("memory", "node-1"), NOW)
    again = engine.predict(Question("memory", "node-1"), NOW + 7.0)

    assert again.slowdown == first.slowdown
    assert again.fingerprint_age_s == pytest.approx(17.0)

    newer = worlds.fingerprint(worlds.slowed({"stream.triad": 0.1}), NOW + 5.0)
    engine.put_fingerprint("node-1", 0, newer, now=NOW + 7.0)
    moved = engine.predict(Question("memory", "node-1"), NOW + 7.0)
    assert log_slowdown(moved) == pytest.approx(0.05, abs=1e-6)


class TestExplain:
    def test_parts_are_what_the_slowdown_would_lose(self, engine: Engine) -> None:
        slower = {name: 3.0 * seconds for name, seconds in IDLE.items()}
        worlds.add_node(engine, logs={"stream.triad": 0.4, "memory.random.8M": 0.1}, idle=slower)

        explained = engine.explain(Question("memory", "node-1"), NOW)

        first, second, *rest = explained.contributions
        assert (first.surrogate, second.surrogate) == ("stream.triad", "memory.random.8M")
        assert first.log_slowdown == pytest.approx(0.2)
        assert second.log_slowdown == pytest.approx(0.03)
        assert all(abs(contribution.log_slowdown) < 1e-9 for contribution in rest)
        # In the times of the node that was asked about, not of the training's.
        assert first.idle_seconds_per_op == pytest.approx(slower["stream.triad"])
        assert first.seconds_per_op == pytest.approx(slower["stream.triad"] * math.exp(0.4))

    def test_of_a_stranger_every_surrogate_has_its_share(self, engine: Engine) -> None:
        worlds.add_node(engine, logs={"os.switch": 0.7})

        explained = engine.explain(Question("stranger", "node-1"), NOW)

        total = math.fsum(contribution.log_slowdown for contribution in explained.contributions)
        assert total == pytest.approx(math.log(explained.prediction.slowdown.median))


class TestColocation:
    def test_on_one_node_it_is_what_the_library_says(self, engine: Engine) -> None:
        file = worlds.model("memory", worlds.SENSITIVITY["memory"])
        signatures = {
            app: (worlds.signature(app, PRESSURE[app]),) for app in ("disk", "quiet", "memory")
        }
        theirs = library.predict_colocated(
            file, {app: signatures[app] for app in ("disk", "quiet")}
        )

        ours = engine.predict_colocation(ColocationQuestion("memory", ("disk", "quiet")))

        assert ours.prediction.slowdown.median == pytest.approx(theirs.slowdown.median, rel=1e-6)
        assert ours.prediction.slowdown.upper == pytest.approx(theirs.slowdown.upper, rel=1e-6)
        meets = library.predict_colocated(
            worlds.model("disk", worlds.SENSITIVITY["disk"]),
            {app: signatures[app] for app in ("quiet", "memory")},
        )
        assert [impact.app for impact in ours.neighbours] == ["disk", "quiet"]
        met = ours.neighbours[0].slowdown
        assert met is not None
        assert met.median == pytest.approx(meets.slowdown.median, rel=1e-6)

    def test_one_name_several_times_presses_as_often(self, engine: Engine) -> None:
        thrice = engine.predict_colocation(ColocationQuestion("memory", ("memory",) * 3))

        loads = [PRESSURE["memory"]] * 3
        assert log_slowdown(thrice.prediction) == pytest.approx(
            expected("memory", *loads), abs=1e-6
        )
        assert all(
            math.log(impact.slowdown.median) == pytest.approx(expected("memory", *loads), abs=1e-6)
            for impact in thrice.neighbours
            if impact.slowdown is not None
        )

    def test_a_neighbour_without_a_model_has_no_slowdown_and_a_word(self, engine: Engine) -> None:
        engine.put_signatures([worlds.signature("bare", {"stream.triad": 0.4})])

        answer = engine.predict_colocation(ColocationQuestion("memory", ("bare",)))

        assert answer.neighbours[0].slowdown is None
        assert any("bare has no model" in warning for warning in answer.prediction.warnings)
        assert log_slowdown(answer.prediction) == pytest.approx(0.2, abs=1e-6)

    def test_a_neighbour_without_a_signature_is_refused(self, engine: Engine) -> None:
        with pytest.raises(UntrainedError, match="no signature"):
            engine.predict_colocation(ColocationQuestion("memory", ("stranger",)))

    def test_on_another_node_slowdowns_are_carried_with_a_note(self, engine: Engine) -> None:
        worlds.add_node(engine, idle={name: 2.0 * seconds for name, seconds in IDLE.items()})

        answer = engine.predict_colocation(ColocationQuestion("memory", ("memory",), node="node-1"))

        assert answer.prediction.node_id == "node-1"
        assert log_slowdown(answer.prediction) == pytest.approx(
            expected("memory", PRESSURE["memory"]), abs=1e-6
        )
        assert any("another node" in note for note in answer.prediction.notes)


def test_signatures_taken_before_the_reference_came_are_known_once_it_does() -> None:
    engine = Engine()
    engine.put_model(worlds.model("memory", worlds.SENSITIVITY["memory"], node_id="elsewhere"), 1)
    engine.put_node(worlds.fingerprint(IDLE, node_id="elsewhere").node, NOW)
    engine.put_signatures([worlds.signature("memory", PRESSURE["memory"])])
    worlds.add_node(engine, logs={})
    engine.put_assignment(bound("a", "memory", NOW - 1.0))
    assert ask(engine).warnings

    engine.put_node(worlds.fingerprint(IDLE, node_id="trainer").node, NOW)
    engine.put_reference("trainer", 0, IDLE, worlds.SUITE)

    forecast = ask(engine)
    assert forecast.warnings == ()
    assert log_slowdown(forecast) == pytest.approx(expected("memory", PRESSURE["memory"]), abs=1e-6)


def test_a_reservation_counts_and_is_forgotten_when_it_ends(engine: Engine) -> None:
    worlds.add_node(engine, logs={})
    held = reserved("r", "memory", NOW - 100.0)
    engine.put_assignment(held)
    assert log_slowdown(ask(engine)) > 0.3

    engine.put_assignment(released(held, NOW))
    assert log_slowdown(ask(engine)) == pytest.approx(0.0, abs=1e-6)


def test_columns_that_come_later_are_made_room_for(engine: Engine) -> None:
    worlds.add_node(engine, logs={"stream.triad": 0.4})
    many = {f"new.{n:03}": 1e-6 for n in range(100)}
    worlds.add_node(engine, "node-2", reference=False)
    engine.put_fingerprint("node-2", 0, worlds.fingerprint(IDLE | many, NOW, "node-2"), now=NOW)

    assert log_slowdown(ask(engine)) == pytest.approx(0.2, abs=1e-6)
    assert np.isfinite(ask(engine, node="node-2").slowdown.median)
