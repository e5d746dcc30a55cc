"""What a node's history says of how fast its environment moves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.engine.movement import default_movement, learn
from kongming.engine.settings import Settings
from tests.server.core import worlds
from tests.server.core.worlds import NOW

DEFAULT = default_movement(0.3)


def walk(step: float, noise: float, n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A random walk of 30 columns, read once a minute with noise."""
    random = np.random.default_rng(seed)
    logs = np.cumsum(random.normal(0.0, step, (n, 30)), axis=0)
    return 60.0 * np.arange(n, dtype=np.float64), logs + random.normal(0.0, noise, (n, 30))


def test_a_walk_is_learnt_apart_from_the_noise_of_its_readings() -> None:
    learnt = learn(*walk(step=0.05, noise=0.03), DEFAULT)

    assert learnt.learnt
    assert learnt.after(600.0) == pytest.approx(0.05 * math.sqrt(10.0), rel=0.1)


def test_noise_alone_is_no_movement() -> None:
    assert learn(*walk(step=0.0, noise=0.05), DEFAULT).after(600.0) < 0.02


def test_movement_grows_with_age_up_to_what_the_history_spans() -> None:
    when, logs = walk(step=0.05, noise=0.0, n=16)
    learnt = learn(when, logs, DEFAULT)
    ages = [learnt.after(age) for age in (0.0, 60.0, 600.0, 6e4, 6e6)]

    assert ages[0] == 0.0
    assert ages == sorted(ages)
    assert ages[-1] == ages[-2] <= math.sqrt(2.0) * np.ptp(logs)


def test_a_history_says_nothing_of_times_beyond_what_it_spans() -> None:
    """Five readings of the same two minutes that differ by noise alone."""
    _, logs = walk(step=0.0, noise=0.01, n=5)
    learnt = learn(30.0 * np.arange(5, dtype=np.float64), logs, DEFAULT)

    assert learnt.learnt
    assert learnt.after(100.0) < 0.03
    assert learnt.after(2 * 86400.0) >= DEFAULT.after(2 * 86400.0)
    assert learnt.time_to(0.1) < 120.0 + DEFAULT.time_to(0.1) + 1e-6
    ages = [learnt.after(age) for age in np.linspace(0.0, 7200.0, 200).tolist()]
    assert ages == sorted(ages)


@given(
    step=st.floats(0.0, 0.3),
    noise=st.floats(0.0, 0.3),
    n=st.integers(5, 16),
    movement=st.floats(0.001, 0.29),
)
def test_the_time_to_a_movement_is_when_it_has_moved_by_so_much(
    step: float, noise: float, n: int, movement: float
) -> None:
    learnt = learn(*walk(step, noise, n), DEFAULT)

    assert learnt.after(learnt.time_to(movement)) == pytest.approx(movement, rel=1e-6)
    assert learnt.after(0.999 * learnt.time_to(movement)) < movement


def test_the_order_of_delivery_does_not_matter_and_missing_readings_do_no_harm() -> None:
    when, logs = walk(step=0.05, noise=0.01, n=40)
    logs[:, 3] = math.nan
    logs[5, 4] = math.nan
    shuffled = np.random.default_rng(1).permutation(40)

    assert learn(when, logs, DEFAULT).rate == pytest.approx(
        learn(when[shuffled], logs[shuffled], DEFAULT).rate
    )


def test_too_short_a_history_leaves_the_default() -> None:
    when, logs = walk(step=0.05, noise=0.01, n=3)

    assert learn(when, logs, DEFAULT) is DEFAULT
    assert DEFAULT.after(3600.0) == pytest.approx(0.3)


def test_a_restless_node_has_a_shorter_time_to_live_than_a_calm_one() -> None:
    engine = worlds.engine()
    random = np.random.default_rng(0)
    for node_id, step in (("calm", 0.001), ("restless", 0.3)):
        worlds.add_node(engine, node_id)
        logs = np.zeros(len(worlds.NAMES))
        for minute in range(12):
            logs = np.abs(logs + random.normal(0.0, step, len(logs)))
            times = worlds.slowed(dict(zip(worlds.NAMES, logs.tolist(), strict=True)))
            read = worlds.fingerprint(times, NOW - 60.0 * (12 - minute), node_id)
            engine.put_fingerprint(node_id, 0, read, now=NOW)

    assert engine.ttl_s("restless") < Settings().ttl_s < engine.ttl_s("calm")
