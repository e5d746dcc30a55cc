"""What a fingerprint means next to residents: against a world whose truth is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.engine import environment
from kongming.engine.environment import Phase, phase
from tests.server.core import worlds
from tests.server.core.worlds import NOW, bound, released, reserved

COLUMNS = 4
IDLE = np.log(np.array([1e-9, 1e-6, 1e-3, 1e-2]))


@dataclass(frozen=True)
class Stay:
    """A program that begins, and may end, before now; times are whole seconds before it."""

    began: int
    ended: int | None
    pressure: tuple[float, ...]


stays = st.builds(
    lambda began, length, pressure: Stay(
        began, None if length is None or began <= length else began - length, pressure
    ),
    st.integers(1, 100),
    st.none() | st.integers(1, 99),
    # Six at once stay below what is bounded.
    st.tuples(*[st.floats(0.0, 1.0)] * COLUMNS),
)


def truth(stays: list[Stay], ago: float, without: Stay | None = None) -> np.ndarray:
    """What a probe read so many seconds ago: idle times plus the pressure of all that ran then."""
    logs = IDLE.copy()
    for stay in stays:
        if stay is not without and stay.began >= ago and (stay.ended is None or stay.ended < ago):
            logs = logs + np.array(stay.pressure)
    return logs


def met(
    stays: list[Stay], fingerprint: np.ndarray, ago: float, spread: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    residents = []
    for n, stay in enumerate(stays):
        resident = bound(str(n), "app", NOW - stay.began)
        residents.append(resident if stay.ended is None else released(resident, NOW - stay.ended))
    meet = environment.met(
        fingerprint,
        IDLE,
        [phase(resident, NOW - ago) for resident in residents],
        np.array([stay.pressure for stay in stays]).reshape(len(stays), COLUMNS),
        np.full((len(stays), COLUMNS), spread),
    )
    return meet.newcomer, meet.each


@given(st.lists(stays, max_size=6), st.integers(0, 110))
def test_whenever_the_fingerprint_was_taken_a_newcomer_meets_those_who_run_now(
    stays: list[Stay], ago: int
) -> None:
    newcomer, _ = met(stays, truth(stays, ago), ago)

    np.testing.assert_allclose(newcomer, truth(stays, 0), atol=1e-9)


@given(st.lists(stays, min_size=1, max_size=6), st.integers(0, 110))
def test_a_resident_meets_all_who_run_now_but_itself(stays: list[Stay], ago: int) -> None:
    _, each = met(stays, truth(stays, ago), ago)

    for stay, logs in zip(stays, each, strict=True):
        if stay.ended is None:
            np.testing.assert_allclose(logs, truth(stays, 0, without=stay), atol=1e-9)


@given(
    st.lists(stays, min_size=1, max_size=6),
    st.integers(0, 110),
    st.tuples(*[st.floats(-1.0, 1.0)] * COLUMNS),
)
def test_taking_out_never_leaves_a_surrogate_faster_than_idle_or_than_it_was_read(
    stays: list[Stay], ago: int, noise: tuple[float, ...]
) -> None:
    fingerprint = IDLE + np.array(noise)

    newcomer, each = met(stays, fingerprint, ago)

    least = np.minimum(fingerprint, IDLE) - 1e-9
    assert (newcomer >= least).all()
    assert all((each[n] >= least).all() for n, stay in enumerate(stays) if stay.ended is None)


@given(st.lists(stays, max_size=6), st.integers(0, 110), st.randoms(use_true_random=False))
def test_the_order_of_the_placements_does_not_matter(
    stays: list[Stay], ago: int, random: object
) -> None:
    shuffled = sorted(stays, key=lambda _: random.random())  # type: ignore[attr-defined]
    fingerprint = truth(stays, ago)

    np.testing.assert_allclose(
        met(stays, fingerprint, ago)[0], met(shuffled, fingerprint, ago)[0], atol=1e-9
    )


def test_a_reservation_counts_though_no_fingerprint_can_have_seen_it() -> None:
    held = reserved("r", "app", NOW - 100.0)

    assert phase(held, NOW) is Phase.ADDED
    assert phase(released(held, NOW - 50.0), NOW - 70.0) is Phase.ABSENT


def test_of_an_idle_reference_all_who_are_active_are_added_and_none_taken_out() -> None:
    resident = bound("a", "app", NOW - 100.0)

    assert phase(resident, None) is Phase.ADDED
    assert phase(released(resident, NOW), None) is Phase.ABSENT


def test_a_column_that_an_added_signature_lacks_is_unknown_to_all_but_itself() -> None:
    pressures = np.array([[0.5, np.nan, 0.0, 0.0], [0.1, 0.1, 0.1, 0.1]])

    phases = [Phase.ADDED, Phase.WITHIN]
    meet = environment.met(IDLE, IDLE, phases, pressures, np.full_like(pressures, 0.2))

    newcomer, each = meet.newcomer, meet.each
    assert np.isnan(newcomer).tolist() == [False, True, False, False]
    assert not np.isnan(each[0]).any()
    assert np.isnan(each[1]).tolist() == [False, True, False, False]


def test_without_a_reference_nothing_bounds_what_is_taken_out() -> None:
    unknown = np.full(COLUMNS, np.nan)

    pressures = np.full((1, COLUMNS), 0.3)
    meet = environment.met(IDLE, unknown, [Phase.REMOVED], pressures, np.zeros_like(pressures))

    np.testing.assert_allclose(meet.newcomer, IDLE - 0.3)


# Below what is bounded, as above.
pressures_of_columns = st.lists(st.tuples(*[st.floats(0.0, 1.0)] * COLUMNS), max_size=6)


def meeting(pressures: list[tuple[float, ...]], spread: float) -> environment.Environments:
    """What those meet who came to the idle node."""
    stacked = np.array(pressures).reshape(len(pressures), COLUMNS)
    phases = [Phase.ADDED] * len(pressures)
    return environment.met(IDLE, IDLE, phases, stacked, np.full_like(stacked, spread))


@given(pressures_of_columns, st.floats(0.0, 0.5))
def test_of_what_may_be_noise_only_the_greatest_part_counts(
    pressures: list[tuple[float, ...]], spread: float
) -> None:
    newcomer = meeting(pressures, spread).newcomer - IDLE

    beyond = sum(np.maximum(np.array(own) - spread, 0.0) for own in pressures)
    most = np.array(pressures).reshape(-1, COLUMNS).max(axis=0, initial=0.0)
    np.testing.assert_allclose(newcomer, beyond + np.minimum(most, spread), atol=1e-12)
    np.testing.assert_allclose(meeting(pressures[::-1], spread).newcomer - IDLE, newcomer)
    if len(pressures) == 1:
        np.testing.assert_array_equal(newcomer, IDLE + pressures[0] - IDLE)


@given(pressures_of_columns, st.tuples(*[st.floats(0.0, 1.0)] * COLUMNS), st.floats(0.0, 0.5))
def test_each_meets_what_a_newcomer_would_without_it_and_what_joins_adds_as_if_it_were_there(
    pressures: list[tuple[float, ...]], joins: tuple[float, ...], spread: float
) -> None:
    meet, joined = meeting(pressures, spread), meeting([*pressures, joins], spread)

    for n in range(len(pressures)):
        others = meeting([*pressures[:n], *pressures[n + 1 :]], spread)
        np.testing.assert_allclose(meet.each[n], others.newcomer, atol=1e-12)
        np.testing.assert_allclose(meet.each_noise[n], others.noise)
        more = environment.added(np.array(joins), np.full(COLUMNS, spread), meet.each_noise[n])
        np.testing.assert_allclose(meet.each[n] + more, joined.each[n], atol=1e-12)
    more = environment.added_up(np.array([joins]), np.full((1, COLUMNS), spread), meet.noise)
    np.testing.assert_allclose(meet.newcomer + more, joined.newcomer, atol=1e-12)


def test_of_programs_that_went_noise_is_taken_out_once() -> None:
    pressures = np.full((4, COLUMNS), 0.1)
    phases = [Phase.REMOVED, Phase.REMOVED, Phase.REMOVED, Phase.WITHIN]
    meet = environment.met(IDLE + 1.0, IDLE, phases, pressures, np.full_like(pressures, 0.1))

    np.testing.assert_allclose(meet.newcomer, IDLE + 0.9)
    np.testing.assert_allclose(meet.each[3], IDLE + 0.9)


def test_worlds_here_are_as_the_engine_reads_them() -> None:
    engine = worlds.engine()
    worlds.add_node(engine, logs={"stream.triad": 0.2})

    assert engine.node("node-1", NOW).last_fingerprint_at == pytest.approx(NOW - 10.0)
