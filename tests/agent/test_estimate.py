from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kongming_agent.probing.estimate import LEAST_PAIRS, Estimator
from kongming_agent.probing.features import NAMES, Lately, features, step

CPU = NAMES.index("cpu_busy")


def signals(busy: float, noise: float = 0.0) -> tuple[float, ...]:
    values = [noise] * len(NAMES)
    values[CPU] = busy
    return tuple(values)


def taught(pairs: int, *, slope: float, noise: float, seed: int = 1) -> Estimator:
    """A node whose "a" costs exp(slope x busy), and whose "b" has nothing to do with it."""
    rng = random.Random(seed)
    estimator = Estimator()
    for _ in range(pairs):
        busy = rng.random()
        estimator.learn(
            signals(busy, rng.gauss(0, 0.05)),
            {
                "a": 1e-8 * math.exp(slope * busy + rng.gauss(0, noise)),
                "b": 1e-9 * math.exp(rng.gauss(0, 0.05)),
            },
        )
    return estimator


def test_it_learns_what_the_signals_tell_and_beats_repeating_there() -> None:
    estimator = taught(60, slope=2.0, noise=0.02)
    errors = estimator.errors()["a"]
    assert errors.better
    assert errors.estimate < 0.4 * errors.repeat
    estimator.learn(signals(0.5), {"a": 1e-8 * math.exp(1.0), "b": 1e-9})
    low, high = (estimator.estimate(signals(busy))["a"] for busy in (0.1, 0.9))
    assert low == pytest.approx(1e-8 * math.exp(0.2), rel=0.15)
    assert high == pytest.approx(1e-8 * math.exp(1.8), rel=0.15)


def test_it_is_not_used_where_repeating_is_as_good() -> None:
    estimator = taught(60, slope=2.0, noise=0.02)
    assert "b" not in estimator.estimate(signals(0.3))
    assert estimator.last()["b"] == pytest.approx(1e-9, rel=0.3)


def test_a_few_pairs_are_no_evidence() -> None:
    assert taught(LEAST_PAIRS, slope=2.0, noise=0.0).estimate(signals(0.5)) == {}
    assert Estimator().estimate(signals(0.5)) == {}


def test_when_the_node_changes_its_use_ends_by_itself() -> None:
    estimator = taught(60, slope=2.0, noise=0.02)
    rng = random.Random(2)
    for _ in range(80):
        estimator.learn(signals(rng.random()), {"a": 1e-8 * math.exp(rng.gauss(0, 0.02))})
    assert "a" not in estimator.estimate(signals(0.9))


def test_what_it_learned_survives_as_json() -> None:
    estimator = taught(40, slope=2.0, noise=0.02)
    again = Estimator.from_dict(json.loads(json.dumps(estimator.to_dict())))
    assert again.errors() == estimator.errors()
    assert again.estimate(signals(0.5)) == {}
    for each in (estimator, again):
        each.learn(signals(0.2), {"a": 1.5e-8})
    assert again.estimate(signals(0.6)).get("a") == pytest.approx(
        estimator.estimate(signals(0.6)).get("a"), rel=0.1
    )


def test_a_document_of_other_signals_is_not_used() -> None:
    document = taught(40, slope=2.0, noise=0.02).to_dict()
    assert Estimator.from_dict(document | {"signals": ["other"]}).errors() == {}
    assert Estimator.from_dict({}).errors() == {}


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.floats(0.0, 20.0), min_size=len(NAMES), max_size=len(NAMES)),
            st.floats(1e-12, 1e3),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_estimates_are_finite_and_positive_whatever_was_read(
    pairs: list[tuple[list[float], float]],
) -> None:
    estimator = Estimator()
    for values, seconds in pairs:
        estimator.learn(tuple(values), {"a": seconds})
        for estimated in estimator.estimate(tuple(values)).values():
            assert 0.0 < estimated < math.inf


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(allow_nan=True, allow_infinity=True)))
def test_features_are_finite_whatever_the_kernel_says(system: dict[str, float]) -> None:
    values = features(system)
    assert len(values) == len(NAMES)
    assert all(math.isfinite(value) and value >= 0.0 for value in values)


def test_a_step_names_the_signal_that_changed_most() -> None:
    assert step(signals(0.1), signals(0.2), 0.3) is None
    assert step(signals(0.1), signals(0.9), 0.3) == "cpu_busy rose by 0.80"
    assert step(signals(0.9), signals(0.1), 0.3) == "cpu_busy fell by 0.80"


def test_lately_is_the_mean_of_the_last_samples() -> None:
    lately = Lately(2)
    assert lately.values is None
    for value in (1.0, 2.0, 4.0):
        lately.add((value,))
    assert lately.values == (3.0,)
