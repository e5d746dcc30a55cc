"""Paragon-like filtering: completing a matrix, and what it knows of the pair it predicts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers import Paragon, ParagonPairs
from benchmarks.peers.factorisation import complete
from benchmarks.peers.observations import level_name
from benchmarks.peers.worlds import low_rank_world


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 2))
def test_a_matrix_of_low_rank_is_completed(seed: int, rank: int) -> None:
    random = np.random.default_rng(seed)
    rows, columns = random.uniform(0.2, 1.0, (12, rank)), random.uniform(0.2, 1.0, (10, rank))
    truth = rows @ columns.T
    holes = truth.copy()
    holes[:3, :3] = np.nan
    completed = complete(holes, rank=rank, penalty=1e-5)
    assert completed == pytest.approx(truth, rel=0.02)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), penalty=st.sampled_from([0.003, 0.1, 1.0]))
def test_what_is_completed_is_finite_and_the_same_again(seed: int, penalty: float) -> None:
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((7, 9))
    matrix[random.uniform(size=matrix.shape) < 0.5] = np.nan
    groups = random.integers(0, 2, 7)
    completed = complete(matrix, rank=3, penalty=penalty, groups=groups)
    again = complete(matrix, rank=3, penalty=penalty, groups=groups)
    assert np.all(np.isfinite(completed))
    assert np.array_equal(completed, again)


def test_a_row_of_which_nothing_is_known_is_like_the_others_of_its_group() -> None:
    columns = np.linspace(0.1, 1.0, 8)
    matrix = np.array([[1.0], [1.2], [0.8], [9.0], [9.5], [np.nan]]) * columns
    completed = complete(matrix, rank=1, penalty=1e-4, groups=np.array([0, 0, 0, 1, 1, 0]))
    assert completed[5] == pytest.approx(columns, rel=0.05)


def test_a_matrix_of_zeros_stays_one() -> None:
    matrix = np.zeros((3, 4))
    matrix[1, 1] = np.nan
    assert np.array_equal(complete(matrix, rank=2, penalty=0.1), np.zeros((3, 4)))


@pytest.mark.thorough
def test_the_pair_that_is_asked_for_is_left_out_both_ways_round() -> None:
    world = low_rank_world(4, apps=6)
    profiles = world.profiles(4)
    names = list(profiles)
    truth = {(a, b): world.slowdown(a, b) for a in names for b in names if a != b}

    def predicted(measured: dict[tuple[str, str], float]) -> float:
        peer = ParagonPairs()
        peer.fit(profiles, measured)
        return peer.slowdown("app0", "app1")

    honest = predicted(truth)
    assert predicted({**truth, ("app0", "app1"): 50.0}) == honest
    assert predicted({**truth, ("app1", "app0"): 50.0}) == honest
    assert predicted({**truth, ("app2", "app1"): 5.0}) != honest


@pytest.mark.thorough
def test_without_pairs_it_is_the_same_as_within_the_budget() -> None:
    profiles = low_rank_world(4, apps=4).profiles(4)
    plain, pairs = Paragon(), ParagonPairs()
    plain.fit(profiles, {("app0", "app1"): 50.0})
    pairs.fit(profiles)
    assert plain.slowdown("app0", "app2") == pairs.slowdown("app0", "app2")


def test_an_applications_row_is_near_what_was_measured_of_it() -> None:
    world = low_rank_world(4, apps=10)
    peer = Paragon()
    peer.fit(world.profiles(4))
    for level in world.levels:
        tolerated = peer.tolerated("app3")[level_name(level)]
        assert tolerated == pytest.approx(world.slowdown_at("app3", level), rel=0.05)


def test_an_application_alone_is_answered_too() -> None:
    world = low_rank_world(4, apps=1)
    peer = Paragon()
    peer.fit(world.profiles(4))
    assert peer.slowdown("app0", "app0") == pytest.approx(world.slowdown("app0", "app0"), rel=0.1)
