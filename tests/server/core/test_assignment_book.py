"""The state machine of assignments: harmless repeats, conflicts, and time that passes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.engine.assignments import (
    BOUND,
    DEFAULT_TTL_S,
    EXPIRED,
    KEPT_ENDED_S,
    RELEASED,
    RESERVED,
    AssignmentBook,
)
from kongming.records.errors import ConflictError, InputError, UnknownNameError

NOW = 1_800_000_000.0


@pytest.fixture
def book() -> AssignmentBook:
    return AssignmentBook()


def test_a_placement_goes_from_reserved_to_bound_to_released(book: AssignmentBook) -> None:
    held = book.reserve("p", "app", "n1", NOW, ttl_s=30.0, memory_bytes=5)
    bound = book.bind("p", NOW + 10.0)
    ended = book.release("p", NOW + 20.0)

    assert (held.state, held.expires_at, held.memory_bytes) == (RESERVED, NOW + 30.0, 5)
    assert (bound.state, bound.bound_at, bound.expires_at) == (BOUND, NOW + 10.0, None)
    assert (ended.state, ended.ended_at, ended.active) == (RELEASED, NOW + 20.0, False)
    assert book.all() == []
    assert book.all(ended=True) == [ended]


actions = st.lists(st.sampled_from(("reserve", "bind", "release")), min_size=1, max_size=6)


@given(actions)
def test_repeating_a_request_changes_nothing(steps: list[str]) -> None:
    book = AssignmentBook()

    def act(step: str, now: float) -> object:
        if step == "reserve":
            return book.reserve("p", "app", "n1", now)
        if step == "bind":
            return book.bind("p", now, app="app", node_id="n1")
        return book.release("p", now)

    for n, step in enumerate(steps):
        if step == "release" and not len(book):
            continue
        first = act(step, NOW + n)
        assert act(step, NOW + n + 50.0) == first


def test_the_same_id_for_something_else_is_a_conflict(book: AssignmentBook) -> None:
    book.reserve("p", "app", "n1", NOW)

    with pytest.raises(ConflictError, match="app"):
        book.reserve("p", "other", "n1", NOW)
    with pytest.raises(ConflictError, match="node"):
        book.bind("p", NOW, node_id="n2")


def test_a_reservation_expires_and_one_that_runs_does_not(book: AssignmentBook) -> None:
    book.reserve("held", "app", "n1", NOW)
    book.reserve("runs", "app", "n1", NOW)
    book.bind("runs", NOW + 1.0)

    assert book.expire(NOW + DEFAULT_TTL_S - 1.0) == []
    (ended,) = book.expire(NOW + DEFAULT_TTL_S)

    assert (ended.assignment_id, ended.state, ended.ended_at) == (
        "held",
        EXPIRED,
        NOW + DEFAULT_TTL_S,
    )
    assert [assignment.assignment_id for assignment in book.all()] == ["runs"]
    # It runs, whatever was agreed.
    assert book.bind("held", NOW + DEFAULT_TTL_S + 1.0).state == BOUND


def test_what_ended_long_ago_is_forgotten(book: AssignmentBook) -> None:
    book.bind("p", NOW, app="app", node_id="n1")
    book.release("p", NOW + 1.0)

    book.expire(NOW + KEPT_ENDED_S + 2.0)

    with pytest.raises(UnknownNameError):
        book.get("p")


def test_times_that_lie_far_ahead_are_not_believed(book: AssignmentBook) -> None:
    bound = book.bind("p", NOW, started_at=NOW + 9999.0, app="app", node_id="n1")
    ended = book.release("p", NOW + 5.0, ended_at=NOW - 9999.0)

    assert bound.bound_at == NOW
    assert ended.ended_at == NOW


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_to_live_that_is_none_is_refused(book: AssignmentBook, ttl_s: float) -> None:
    with pytest.raises(InputError, match="ttl"):
        book.reserve("p", "app", "n1", NOW, ttl_s=ttl_s)


def test_binding_what_was_never_reserved_needs_app_and_node(book: AssignmentBook) -> None:
    with pytest.raises(UnknownNameError):
        book.bind("p", NOW)
