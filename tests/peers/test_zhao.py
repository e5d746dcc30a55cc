"""Zhao et al.: which partition is chosen, and what each piece is made of."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers import Zhao
from benchmarks.peers.worlds import PIECE_STARTS, Law, Program, piecewise_world
from benchmarks.peers.zhao import BANDWIDTH, CACHE, Partition
from kongming.arrays import Floats
from kongming.records.errors import UntrainedError


def linear(by_cache: float, by_bandwidth: float) -> Law:
    return lambda p: 1.0 + by_cache * float(p[0]) + by_bandwidth * float(p[1])


@pytest.mark.thorough
def test_the_cut_is_found_where_the_dominant_factor_changes() -> None:
    peer = Zhao()
    peer.fit(piecewise_world(2).profiles(2))
    assert peer.partition.factors[0] == (CACHE,)
    assert peer.partition.factors[-1] == (BANDWIDTH,)
    assert any(abs(cut - PIECE_STARTS) < 0.2 for cut in peer.partition.cuts)


@pytest.mark.thorough
def test_where_both_factors_add_up_everywhere_the_error_is_small_too() -> None:
    random = np.random.default_rng(0)
    world = piecewise_world(0)
    programs = {
        name: Program(linear(random.uniform(0.0, 0.4), random.uniform(0.0, 0.5)), program.exerts)
        for name, program in world.programs.items()
    }
    world = dataclasses.replace(world, programs=programs)
    peer = Zhao()
    peer.fit(world.profiles(0))
    for app in programs:
        for other in programs:
            assert peer.slowdown(app, other) == pytest.approx(world.slowdown(app, other), rel=0.06)


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 1000),
    noise=st.floats(0.0, 0.2),
    cache=st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 2.0)),
)
def test_more_pressure_on_the_cache_never_makes_an_application_faster(
    seed: int, noise: float, cache: tuple[float, float]
) -> None:
    def neighbour(pressure: float) -> Program:
        return Program(linear(0.0, 0.0), np.array([pressure, 0.3]))

    low, high = sorted(cache)
    world = piecewise_world(seed, apps=2)
    programs = {**world.programs, "low": neighbour(low), "high": neighbour(high)}
    world = dataclasses.replace(world, programs=programs, noise=noise, reading_noise=0.0)
    peer = Zhao([Partition()])
    peer.fit(world.profiles(seed))
    assert 1.0 <= peer.slowdown("app0", "low") <= peer.slowdown("app0", "high") + 1e-9


def test_candidates_can_be_given() -> None:
    only = Partition((0.5,), ((CACHE,), (BANDWIDTH,)))
    peer = Zhao([only])
    peer.fit(piecewise_world(2, apps=3).profiles(2))
    assert peer.partition == only


@pytest.mark.parametrize("left_out", ["random", "stream"])
def test_it_needs_a_probe_of_each_factor(left_out: str) -> None:
    world = piecewise_world(2, apps=2)
    probes = {name: law for name, law in world.probes.items() if left_out not in name}
    with pytest.raises(UntrainedError, match="probe of the last-level cache"):
        Zhao().fit(dataclasses.replace(world, probes=probes).profiles(2))


def test_it_needs_loads_of_caches_or_memory() -> None:
    world = piecewise_world(2, apps=2)
    profiles = world.profiles(2, {app: [] for app in world.programs})
    with pytest.raises(UntrainedError, match="under a load"):
        Zhao().fit(profiles)


def test_a_pressure_lies_in_the_piece_that_starts_at_it() -> None:
    pressures: Floats = np.array([[9.0, 0.4], [0.0, 0.5], [0.0, 2.0]])
    halves = Partition((0.5,), ((CACHE,), (BANDWIDTH,)))
    assert halves.piece(pressures).tolist() == [0, 1, 1]
    assert Partition().piece(pressures).tolist() == [0, 0, 0]
