"""Operations: what may follow what."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_server.operations.operation import ENDS, Operation
from kongming_server.operations.tasks import Outcome
from kongming_server.services.profiles import _operation

from kongming.cli.main import run
from kongming.store import Store


def queued() -> Operation:
    return Operation(id="op-1", owner="here/1/a", created_at=10.0, told_at=10.0, apps=("prog",))


STEPS = st.lists(
    st.one_of(
        st.just(("begun", ())),
        st.tuples(st.just("moved"), st.tuples(st.floats(-1.0, 2.0), st.just("x"))),
        st.tuples(
            st.just("finished"), st.tuples(st.sampled_from(("done", "failed")), st.just("end"))
        ),
    ),
    max_size=12,
)


@given(STEPS)
def test_progress_never_goes_back_and_nothing_follows_an_end(
    steps: list[tuple[str, tuple[object, ...]]],
) -> None:
    operation = queued()
    for number, (name, arguments) in enumerate(steps):
        before = operation
        operation = getattr(operation, name)(*arguments, 11.0 + number)
        assert operation.progress >= before.progress
        assert 0.0 <= operation.progress <= 1.0
        assert (operation.progress == 1.0) == (operation.state == "done")
        if before.state in ENDS:
            assert operation == before


def test_it_is_stored_completely() -> None:
    outcome = Outcome("prog", "cross-core", 2, True, "it is better")
    running = queued().begun(11.0).with_outcomes((outcome,)).moved(0.5, "half", 12.0)
    assert Operation.from_stored(running.to_stored()) == running


def test_a_verdict_of_a_newer_server_keeps_no_operation_from_being_listed() -> None:
    judged = {"code": "few-solo-runs", "verdict": "usable", "figures": {"runs": 2.0}, "loads": []}
    profile = {"verdict": "usable", "reasons": [judged], "left_out_runs": 0, "metric_unit": "s"}
    newer = profile | {"reasons": [judged | {"code": "moon"}]}
    outcomes = tuple(
        Outcome("prog", "cross-core", 2, True, profile=stored_profile)
        for stored_profile in (profile, newer, profile | {"reasons": [1]}, None)
    )
    stored = queued().begun(11.0).with_outcomes(outcomes).to_stored()
    message = _operation(Operation.from_stored(stored))
    assert [model.HasField("profile") for model in message.trained] == [True, False, False, False]


def test_one_that_nobody_reports_has_failed() -> None:
    running = queued().begun(11.0)
    stored = running.to_stored()
    assert stored.or_abandoned(70.0) == stored
    seen = Operation.from_stored(stored.or_abandoned(72.0))
    assert (seen.state, seen.ended_at) == ("failed", 72.0)
    assert "ended" in seen.message
    done = running.finished("done", "", 12.0).to_stored()
    assert done.or_abandoned(1e6) == done


def test_the_store_lists_what_was_abandoned_as_failed(
    store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time()
    with Store.open(store_url) as store:
        for id_, told_at in (("told", now), ("silent", now - 100.0)):
            operation = Operation(id_, "elsewhere/1/a", now - 200.0, told_at).begun(told_at)
            store.put_operation(operation.to_stored())

    def listed(*options: str) -> list[tuple[str, str]]:
        arguments = ["operations", "--store", store_url, "--json", *options]
        assert run(arguments) == 0
        operations = json.loads(capsys.readouterr().out)["operations"]
        return sorted((operation["id"], operation["state"]) for operation in operations)

    assert listed("--limit", "1") == [("told", "running")]
    assert listed("--ended") == [("silent", "failed"), ("told", "running")]
