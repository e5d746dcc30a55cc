"""Bubble-Up: the dial, the curves over it and the reporter's score."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers import BubbleUp, Profile
from benchmarks.peers.observations import is_memory_probe
from benchmarks.peers.worlds import Program, World, bubble_world
from kongming.records.errors import UntrainedError


def fitted(world: World, **options: object) -> BubbleUp:
    peer = BubbleUp(**options)  # type: ignore[arg-type]
    peer.fit(world.profiles(3))
    return peer


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), noise=st.floats(0.0, 0.2))
def test_more_bubble_never_makes_an_application_faster(seed: int, noise: float) -> None:
    world = dataclasses.replace(bubble_world(seed, apps=3), noise=noise, reading_noise=noise)
    peer = fitted(world)
    for app in world.programs:
        assert np.all(np.diff(peer.curve(app)) >= -1e-12)
        assert peer.curve(app)[0] >= 1.0


def test_the_score_orders_neighbours_by_the_pressure_that_they_exert() -> None:
    world = bubble_world(5)
    peer = fitted(world)
    exerted = {app: float(program.exerts[0]) for app, program in world.programs.items()}
    distinguishable = [
        (stronger, weaker)
        for stronger in exerted
        for weaker in exerted
        if exerted[stronger] > exerted[weaker] + 0.05
    ]
    assert distinguishable
    assert all(peer.score(stronger) > peer.score(weaker) for stronger, weaker in distinguishable)


def test_a_neighbour_that_exerts_nothing_does_nothing() -> None:
    world = bubble_world(5, apps=4)
    quiet = Program(suffers=lambda p: 1.0, exerts=np.zeros(1))
    world = dataclasses.replace(world, programs={**world.programs, "quiet": quiet})
    peer = fitted(world)
    assert all(
        peer.slowdown(app, "quiet") == pytest.approx(1.0, abs=0.03) for app in ["app0", "app1"]
    )


def test_a_neighbour_beyond_the_largest_bubble_is_taken_for_the_largest() -> None:
    world = bubble_world(5, apps=4)
    heavy = Program(suffers=lambda p: 1.0, exerts=np.array([3.0]))
    world = dataclasses.replace(world, programs={**world.programs, "heavy": heavy})
    peer = fitted(world)
    assert peer.slowdown("app0", "heavy") == pytest.approx(peer.curve("app0")[-1])


def test_the_reporter_is_the_one_that_is_named_or_one_that_feels_the_bubble() -> None:
    world = bubble_world(5, apps=4)
    assert fitted(world, reporter=["stream.triad"]).reporter == ("stream.triad",)
    assert all(is_memory_probe(name) for name in fitted(world).reporter)


def test_only_loads_of_caches_and_memory_are_bubbles() -> None:
    peer = fitted(bubble_world(5, apps=2))
    assert set(peer.dial.sizes) == {
        level for level in peer.dial.sizes if not level.startswith(("iobench", "compute"))
    }
    assert len(peer.dial.sizes) == 11


def test_it_needs_two_bubbles() -> None:
    world = bubble_world(5, apps=2)
    level = next(iter(world.levels))
    profiles = world.profiles(0, {app: [level] for app in world.programs})
    with pytest.raises(UntrainedError, match="needs 2 load levels"):
        BubbleUp().fit(profiles)


def test_a_level_that_an_application_did_not_run_under_is_read_off_the_others() -> None:
    world = bubble_world(5, apps=4)
    profiles = world.profiles(0)
    full, fewer = BubbleUp(["stream.triad"]), BubbleUp(["stream.triad"])
    full.fit(profiles)
    some = profiles["app0"]
    fewer.fit(
        {**profiles, "app0": Profile("app0", some.runs[:6] + some.runs[6::2], some.signatures)}
    )
    assert len(fewer.curve("app0")) == len(full.curve("app0"))
    assert fewer.curve("app0") == pytest.approx(full.curve("app0"), rel=0.1)
