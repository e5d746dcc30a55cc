"""Whether an environment lies outside the training environments, tested both ways."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.learning import extrapolation, predict
from kongming.learning import model_file as persist
from kongming.learning.training import train_application
from tests.models import synthetic

IDLE = np.array([1e-9, 1e-6, 1e-3])


def far(times: np.ndarray, weights: list[float]) -> extrapolation.Distance:
    return extrapolation.distance(
        times,
        low=IDLE,
        high=IDLE * np.array([2.0, 1.2, 4.0]),
        spread=np.full(3, 0.02),
        weights=np.array(weights),
    )


@given(share=st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3))
def test_what_lies_within_the_training_ranges_is_not_flagged(share: list[float]) -> None:
    times = IDLE * np.array([2.0, 1.2, 4.0]) ** np.array(share)
    assert not far(times, [1.0, 0.5, 0.2]).outside


@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize("weights", [[1.0, 0.5, 0.2], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
def test_a_surrogate_twice_beyond_its_range_is_flagged(column: int, weights: list[float]) -> None:
    times = IDLE.copy()
    times[column] *= [4.0, 2.4, 8.0][column]
    distance = far(times, weights)
    assert distance.outside
    assert distance.columns == (column,)
    fast = IDLE.copy()
    fast[column] /= 2.0
    assert far(fast, weights).outside


def test_the_margin_is_tighter_where_the_model_looks() -> None:
    times = IDLE * np.array([1.0, 1.2 * 1.5, 1.0])
    assert far(times, [0.0, 1.0, 0.0]).outside
    assert not far(times, [1.0, 0.0, 0.0]).outside


def columns(p: int) -> st.SearchStrategy[tuple[np.ndarray, ...]]:
    """For p columns: idle, how far the range goes (logs), spread of readings, weights."""

    def floats(low: float, high: float) -> st.SearchStrategy[np.ndarray]:
        return st.lists(st.floats(low, high), min_size=p, max_size=p).map(np.array)

    return st.tuples(
        floats(-20.0, 0.0).map(np.exp), floats(0.0, 3.0), floats(0.0, 0.5), floats(0.0, 1.0)
    )


@given(
    drawn=columns(6), place=st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6), data=st.data()
)
def test_repeats_within_the_nodes_own_spread_are_not_flagged(
    drawn: tuple[np.ndarray, ...], place: list[float], data: st.DataObject
) -> None:
    low, way, spread, weights = drawn
    known = low * np.exp(way * np.array(place))
    # Three times what the idle node itself differs by, or 30 %, whichever is more.
    allowed = np.minimum(np.maximum(3.0 * spread, math.log(1.3)), math.log(1.9))
    shift = np.array(data.draw(st.lists(st.floats(-1.0, 1.0), min_size=6, max_size=6)))
    distance = extrapolation.distance(
        known * np.exp(0.999 * allowed * shift),
        low=low,
        high=low * np.exp(way),
        spread=spread,
        weights=weights,
    )
    assert not distance.outside
    assert distance.columns == ()
    assert 0.0 <= distance.value <= 1.0


@given(
    drawn=columns(6),
    place=st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6),
    column=st.integers(0, 5),
    beyond=st.floats(2.0, 1e6),
    slower=st.booleans(),
)
def test_any_surrogate_twice_beyond_its_range_is_flagged_whatever_the_model(
    drawn: tuple[np.ndarray, ...], place: list[float], column: int, beyond: float, slower: bool
) -> None:
    low, way, spread, weights = drawn
    high = low * np.exp(way)
    times = low * np.exp(way * np.array(place))
    times[column] = high[column] * beyond if slower else low[column] / beyond
    distance = extrapolation.distance(times, low=low, high=high, spread=spread, weights=weights)
    assert distance.outside
    assert distance.columns == (column,)


@given(drawn=columns(4), times=st.lists(st.floats(-22.0, 4.0), min_size=4, max_size=4))
def test_the_distance_does_not_depend_on_the_order_of_columns(
    drawn: tuple[np.ndarray, ...], times: list[float]
) -> None:
    low, way, spread, weights = drawn
    given_ = np.exp(np.array(times))
    high = low * np.exp(way)
    distance = extrapolation.distance(given_, low=low, high=high, spread=spread, weights=weights)
    turned = extrapolation.distance(
        given_[::-1],
        low=low[::-1],
        high=high[::-1],
        spread=spread[::-1],
        weights=weights[::-1],
    )
    assert turned.value == pytest.approx(distance.value)
    assert {3 - j for j in turned.columns} == set(distance.columns)
    assert distance.outside == bool(distance.columns)


@functools.cache
def trained() -> persist.ModelFile:
    return persist.read(
        train_application(
            synthetic.campaign("chaser", {"memory.random.128M": 0.6, "stream.triad": 0.2}),
            models=("NNLOG", "RIDGE", "CART"),
        )
    )


@pytest.mark.parametrize("model", ["MEAN", "NNLOG", "RIDGE", "CART"])
@pytest.mark.parametrize("variant", ["full", "quick"])
def test_the_environment_of_every_training_run_is_known(model: str, variant: str) -> None:
    for run in synthetic.campaign("chaser", {}):
        assert run.fingerprint is not None
        prediction = predict.predict_environment(
            trained(), run.fingerprint, model=model, variant=variant, strict=True
        )
        assert not prediction.extrapolating


@pytest.mark.parametrize("model", ["MEAN", "NNLOG", "RIDGE", "CART"])
def test_the_same_loads_measured_anew_are_known(model: str) -> None:
    flagged = [
        predict.predict_environment(trained(), run.fingerprint, model=model).extrapolating
        for seed in range(1, 6)
        for run in synthetic.campaign("chaser", {}, seed=seed)
        if run.fingerprint is not None
    ]
    assert len(flagged) == 140
    assert not any(flagged)


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(sorted(synthetic.IDLE)),
    model=st.sampled_from(["MEAN", "NNLOG", "RIDGE", "CART"]),
    beyond=st.floats(2.0, 50.0),
)
def test_a_trained_model_flags_any_surrogate_twice_beyond_what_it_was_trained_on(
    name: str, model: str, beyond: float
) -> None:
    full = trained().variants["full"]
    most = dict(zip(full.columns, full.high.tolist(), strict=True))[name]
    prediction = predict.predict_environment(
        trained(), {**synthetic.IDLE, name: beyond * most}, model=model
    )
    assert prediction.extrapolating
    assert any(name in warning for warning in prediction.warnings)


def test_a_neighbour_heavier_than_any_inducer_is_flagged() -> None:
    heavy = synthetic.signature("heavy", {"memory": 2.0})
    light = synthetic.signature("light", {"memory": 0.6})
    assert predict.predict_colocated(trained(), {"heavy": [heavy]}).extrapolating
    assert not predict.predict_colocated(trained(), {"light": [light]}).extrapolating
