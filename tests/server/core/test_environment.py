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


def met(stays: list[Stay], fingerprint: np.ndarray, ago: float) -> tuple[np.ndarray, np.ndarray]:
    residents = []
    for n, stay in enumerate(stays):
        resident = bound(str(n), "app", NOW - stay.began)
        residents.append(resident if stay.ended is None else released(resident, NOW - stay.ended))
    return environment.met(
        fingerprint,
        IDLE,
        [phase(resident, NOW - ago) for resident in residents],
        np.array([stay.pressure for stay in stays]).reshape(len(stays), COLUMNS),
    )


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

    newcomer, each = environment.met(IDLE, IDLE, [Phase.ADDED, Phase.WITHIN], pressures)

    assert np.isnan(newcomer).tolist() == [False, True, False, False]
    assert not np.isnan(each[0]).any()
    assert np.isnan(each[1]).tolist() == [False, True, False, False]


def test_without_a_reference_nothing_bounds_what_is_taken_out() -> None:
    unknown = np.full(COLUMNS, np.nan)

    newcomer, _ = environment.met(IDLE, unknown, [Phase.REMOVED], np.full((1, COLUMNS), 0.3))

    np.testing.assert_allclose(newcomer, IDLE - 0.3)


def test_worlds_here_are_as_the_engine_reads_them() -> None:
    engine = worlds.engine()
    worlds.add_node(engine, logs={"stream.triad": 0.2})

    assert engine.node("node-1", NOW).last_fingerprint_at == pytest.approx(NOW - 10.0)
