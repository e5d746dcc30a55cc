"""All peers over all pairs: what is in the table, what is not, and what must not matter."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers import NAMES, Measured, Pair, Profile, predictions
from benchmarks.peers.worlds import low_rank_world, piecewise_world
from kongming.records.errors import IncompatibleError, UnknownNameError
from kongming.records.fingerprint import Reading

Profiles = dict[str, Profile]


def pairs_of(profiles: Profiles) -> list[Pair]:
    return [(a, b) for a in profiles for b in profiles if a != b]


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    return piecewise_world(1, apps=4).profiles(1)


def with_app(profiles: Profiles, app: str, **changes: object) -> Profiles:
    return {**profiles, app: dataclasses.replace(profiles[app], **changes)}  # type: ignore[arg-type]


def test_every_peer_answers_every_pair_in_the_order_asked(profiles: Profiles) -> None:
    pairs = pairs_of(profiles)[::-1]
    rows = predictions(profiles, pairs)
    assert [row[:3] for row in rows] == [(a, b, name) for a, b in pairs for name in NAMES[:3]]
    assert all(math.isfinite(slowdown) and slowdown >= 1.0 for *_, slowdown in rows)


@pytest.mark.thorough
def test_measured_pairs_add_the_peer_that_is_told_of_them(profiles: Profiles) -> None:
    measured: Measured = {pair: 1.1 for pair in pairs_of(profiles)}
    rows = predictions(profiles, [("app0", "app1")], measured)
    assert tuple(row[2] for row in rows) == NAMES
    assert rows[:3] == predictions(profiles, [("app0", "app1")])


@pytest.mark.thorough
def test_order_repetition_failures_and_coruns_do_not_matter(profiles: Profiles) -> None:
    mine = profiles["app0"]
    wild = dataclasses.replace(mine.runs[0], metric=100.0, wall_s=100.0)
    added = (
        dataclasses.replace(wild, id="a", kind="corun", neighbours=("app1",)),
        dataclasses.replace(wild, id="b", error="exit status 1"),
        mine.runs[3],
    )
    shuffled = {
        app: dataclasses.replace(profile, runs=profile.runs[::-1])
        for app, profile in reversed(profiles.items())
    }
    changed = with_app(shuffled, "app0", runs=(*added, *mine.runs[::-1]))
    expected = predictions(profiles, pairs_of(profiles))
    actual = predictions(changed, pairs_of(profiles))
    assert [row[:3] for row in actual] == [row[:3] for row in expected]
    assert [row[3] for row in actual] == pytest.approx([row[3] for row in expected], rel=1e-6)


@pytest.mark.thorough
def test_a_neighbour_without_a_signature_has_no_rows(profiles: Profiles) -> None:
    rows = predictions(with_app(profiles, "app1", signatures=()), pairs_of(profiles))
    assert {row[1] for row in rows} == {"app0", "app2", "app3"}
    assert {row[0] for row in rows} == set(profiles)


@pytest.mark.thorough
def test_an_application_without_solo_runs_has_no_rows(profiles: Profiles) -> None:
    induced = tuple(run for run in profiles["app1"].runs if run.kind == "induced")
    rows = predictions(with_app(profiles, "app1", runs=induced), pairs_of(profiles))
    assert {row[0] for row in rows} == {"app0", "app2", "app3"}
    assert {row[1] for row in rows} == set(profiles)


@pytest.mark.thorough
def test_without_loads_of_memory_only_the_peer_that_can_do_without_answers() -> None:
    world = low_rank_world(1, apps=4)
    disk = [level for level in world.levels if level[0].surrogate.startswith("iobench")]
    rows = predictions(world.profiles(1, {app: disk for app in world.programs}), [("app0", "app1")])
    assert [row[2] for row in rows] == ["PARAGON"]


def test_profiles_of_two_nodes_are_not_mixed(profiles: Profiles) -> None:
    elsewhere = tuple(dataclasses.replace(run, node_id="other") for run in profiles["app0"].runs)
    with pytest.raises(IncompatibleError, match="differ in node"):
        predictions(with_app(profiles, "app0", runs=elsewhere), [("app0", "app1")])


def test_an_unknown_application_is_named(profiles: Profiles) -> None:
    with pytest.raises(UnknownNameError, match="ap0"):
        predictions(profiles, [("app1", "ap0")])


@pytest.mark.thorough
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000), missing=st.floats(0.0, 0.5), noise=st.floats(0.0, 0.3))
def test_slowdowns_are_finite_and_1_or_more_whatever_is_missing(
    seed: int, missing: float, noise: float
) -> None:
    world = dataclasses.replace(piecewise_world(seed, apps=3), noise=noise, reading_noise=noise)
    random = np.random.default_rng(seed)
    profiles = world.profiles(seed)
    for app, profile in profiles.items():
        runs = []
        for run in profile.runs:
            assert run.fingerprint is not None
            readings = {
                name: Reading(name, reading.family, reading.op, error="it failed")
                if random.uniform() < missing
                else reading
                for name, reading in run.fingerprint.surrogates.items()
            }
            fingerprint = dataclasses.replace(run.fingerprint, surrogates=readings)
            if run.kind == "solo" or random.uniform() >= missing:
                runs.append(dataclasses.replace(run, fingerprint=fingerprint))
        profiles[app] = dataclasses.replace(profile, runs=tuple(runs))
    rows = predictions(profiles, pairs_of(profiles), {("app0", "app1"): 1.5})
    assert {row[2] for row in rows} >= {"PARAGON"}
    assert all(math.isfinite(slowdown) and slowdown >= 1.0 for *_, slowdown in rows)
