"""The negative control: who was disturbed by somebody else, and who by the neighbour alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.learning.dataset import build, in_environments
from kongming.records import control
from kongming.records.fingerprint import Fingerprint
from kongming.records.judging import judge
from kongming.records.run import LoadLevel, Run, Signature
from tests.builders import fingerprint as fingerprint_of

QUIET = {"compute.int": 2e-9, "memory.random.8M": 3e-8}
LOAD = (LoadLevel("stream.triad", "memory"),)


def printed(slower: float = 1.0, others: float = 1.0) -> Fingerprint:
    return fingerprint_of(
        {"compute.int": 2e-9 * slower, "memory.random.8M": 3e-8 * others}, suite="quick"
    )


def run(before: float, after: float, placement: str = "cross-core", **fields: object) -> Run:
    induced = Run(
        app="a", identity="i", node_id="n", placement=placement, kind="induced",
        started_at="2026-01-01T00:00:00Z", wall_s=1.0, metric=1.0, levels=LOAD,
        before=printed(before), after=printed(after), campaign="c",
    )  # fmt: skip
    return replace(induced, **fields)


def signature(slower: float, placement: str = "cross-core") -> Signature:
    return Signature("a", "i", "n", placement, printed(slower), 3)


def test_a_run_while_arithmetic_was_slow_is_found() -> None:
    runs = [run(1.0, 1.0), run(1.0, 1.05), run(1.4, 1.5)]
    assert control.disturbed(runs) == {runs[2].id}


def test_a_machine_that_was_never_quiet_leaves_nothing_out() -> None:
    few = [run(1.0, 1.0), run(1.0, 1.0), run(1.0, 1.0), run(1.4, 1.5)]
    assert control.left_out(few) == {few[3].id}
    most = [run(1.0, 1.0), run(1.5, 1.4), run(1.4, 1.5)]
    assert len(control.disturbed(most)) == 2
    assert control.left_out(most) == frozenset()
    judgement = judge([run(1.0, 1.0, levels=(), kind="solo"), *most])
    assert judgement.verdict == "spoiled"
    assert "somebody else slowed the processor during 2 of 4 runs" in str(judgement)


def test_a_neighbour_that_slows_memory_disturbs_nobody() -> None:
    heavy = replace(run(1.0, 1.0), before=printed(1.0, others=5.0), after=printed(1.0, others=9.0))
    assert control.disturbed([run(1.0, 1.0), heavy]) == frozenset()


def test_there_is_no_control_on_a_shared_core() -> None:
    runs = [run(1.0, 1.0, "same-core"), run(2.0, 2.0, "same-core")]
    assert control.disturbed(runs) == frozenset()
    signatures = [signature(1.0, "same-core"), signature(2.0, "same-core")]
    assert control.undisturbed(signatures) == signatures


def test_runs_are_compared_with_those_under_the_same_load_of_their_campaign() -> None:
    # Where the processor has hidden siblings, a load may slow arithmetic each time.
    other = replace(LOAD[0], surrogate="compute.int")
    alone = run(1.0, 1.0, levels=())
    slowed = [run(1.4, 1.4, levels=(other,)), run(1.45, 1.4, levels=(other,))]
    elsewhere = run(1.5, 1.5, campaign="another")
    assert control.disturbed([alone, *slowed, elsewhere]) == frozenset()


def test_an_environment_that_slows_the_processor_is_learned_from() -> None:
    """Half of a CPU slows arithmetic, and one of two readings may lie between two throttlings."""

    def measured(slower: float, environment: str) -> Run:
        config = {"environment": environment}
        settings = {"kind": "environment", "levels": (), "config": config}
        return run(slower, slower, fingerprint=printed(slower), **settings)

    runs = [measured(1.0 + 0.01 * n, "idle") for n in range(6)]
    runs += [measured(2.0, "quota-0.5"), measured(2.6, "quota-0.5")]
    learned = in_environments(runs, "idle")
    assert control.left_out(learned) == frozenset()
    assert build(learned).run_ids == tuple(sorted(each.id for each in runs))


def test_disturbed_signatures_are_left_out_but_never_all() -> None:
    good, bad = signature(1.0), signature(1.4)
    assert control.undisturbed([good, bad]) == [good]
    assert control.undisturbed([bad]) == [bad]


def test_fingerprints_without_a_control_say_nothing() -> None:
    blind = fingerprint_of({"memory.random.8M": 3e-8}, suite="quick")
    assert control.excesses([blind, printed(1.5)]) == [0.0, 0.0]
    watch = control.Watch("cross-core")
    assert watch.excess("load", (None, blind)) == 0.0


def test_the_watch_tells_of_the_newest_and_keeps_the_least_disturbed() -> None:
    watch = control.Watch("cross-core")
    assert watch.excess("load", (printed(1.0), printed(1.02))) < control.LIMIT
    assert watch.excess("load", (printed(1.3), printed(1.3))) > control.LIMIT
    # Another load has nothing to be compared with yet.
    assert watch.excess("other", (printed(1.3),)) == 0.0
    assert control.Watch("same-core").excess("load", (printed(9.0),)) == 0.0
    assert control.least_disturbed([(0.3, "first"), (0.2, "second"), (0.2, "third")]) == "third"


@given(st.lists(st.floats(0.5, 4.0), min_size=1, max_size=8))
def test_somebody_is_always_undisturbed(factors: list[float]) -> None:
    remaining = control.undisturbed([signature(factor) for factor in factors])
    assert remaining
    quiet = sorted(factors)[(len(factors) - 1) // 5]
    times = [each.fingerprint.times()["compute.int"] / 2e-9 for each in remaining]
    assert all(time <= quiet * 1.1619 for time in times)
    assert min(times) == pytest.approx(min(factors))


@pytest.mark.parametrize("placement", ["cross-core", "cross-socket"])
def test_it_applies_to_cores_of_their_own(placement: str) -> None:
    assert control.applies(placement)
    assert not control.applies("smt-sibling")
