"""A profile leaves much open in directions in which no run went, and after few runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kongming.learning import model_file, spaces
from kongming.learning.dataset import build
from kongming.learning.posterior import NOTHING_OPEN, Posterior, learn, thawed
from kongming.learning.predict import predict_environment
from kongming.learning.training import train_application
from kongming.records.errors import InputError
from kongming.records.run import Run
from tests import builders
from tests.models import synthetic

MEMORY = "memory.random.128M"
values = st.floats(0.0, 3.0, allow_subnormal=False)


def profiles(columns: int = 4) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    return st.integers(2, 8).flatmap(
        lambda n: st.tuples(
            arrays.arrays(np.float64, (n, columns), elements=values),
            arrays.arrays(np.float64, n, elements=st.floats(-1.0, 3.0, allow_subnormal=False)),
        )
    )


@given(profiles(), arrays.arrays(np.float64, (5, 4), elements=values))
def test_a_variance_is_finite_and_never_negative(
    profile: tuple[np.ndarray, np.ndarray], asked_of: np.ndarray
) -> None:
    known = learn(*profile, loads=len(profile[1]))
    variance = known.variance(asked_of)
    assert np.isfinite(variance).all()
    assert (variance >= 0.0).all()
    within = np.minimum(asked_of, profile[0].max(axis=0))
    longest = known.effect * np.einsum("ij,ij->i", within, within)
    assert (variance <= longest * (1.0 + 1e-9)).all()
    assert known.variance(np.zeros((1, 4)))[0] == 0.0


@given(profiles(), st.randoms(use_true_random=False))
def test_the_order_of_runs_changes_nothing(
    profile: tuple[np.ndarray, np.ndarray], random: np.random.Generator
) -> None:
    X, y = profile
    order = list(range(len(y)))
    random.shuffle(order)
    loads = len(y)
    known, again = learn(X, y, loads=loads), learn(X[order], y[order], loads=loads)
    questions = np.eye(4)
    np.testing.assert_allclose(
        again.variance(questions), known.variance(questions), rtol=1e-3, atol=1e-9
    )


@given(profiles())
def test_it_is_the_same_when_it_was_kept(profile: tuple[np.ndarray, np.ndarray]) -> None:
    known = learn(*profile, loads=len(profile[1]))
    read = thawed(json.loads(json.dumps(known.freeze())), 4)
    questions = np.eye(4)
    assert (read.variance(questions) == known.variance(questions)).all()


def by_inverses(X: np.ndarray, y: np.ndarray, questions: np.ndarray, loads: int) -> np.ndarray:
    """Return the variances by inverses of whole matrices, and by the likelihood at many ratios."""
    n, p = X.shape
    asked_of = np.minimum(questions, X.max(axis=0))

    def noise(ratio: float) -> float:
        return float(y @ np.linalg.solve(np.eye(n) + ratio * X @ X.T, y)) / n

    def likelihood(ratio: float) -> float:
        spread = np.linalg.slogdet(np.eye(n) + ratio * X @ X.T)[1]
        return -0.5 * float(n * np.log(noise(ratio)) + spread)

    ratio = max(np.logspace(-4.0, 4.0, 4001).tolist(), key=likelihood)
    inverse = np.linalg.inv(X.T @ X + np.eye(p) / ratio)
    degrees = float(np.trace(X @ inverse @ X.T))
    variance = noise(ratio) * np.einsum("ij,jk,ik->i", asked_of, inverse, asked_of)
    return np.asarray(variance * ((loads / max(loads - degrees, 1.0)) ** 2 - 1.0))


@pytest.mark.parametrize(("runs", "columns"), [(12, 3), (30, 8), (8, 20), (20, 20)])
def test_a_variance_is_that_by_inverses_of_matrices(runs: int, columns: int) -> None:
    random = np.random.default_rng(runs + columns)
    X = np.maximum(random.normal(0.0, 0.5, (runs, columns)), 0.0)
    y = X @ np.where(np.arange(columns) < 2, 0.8, 0.0) + 0.1 * random.standard_normal(runs)
    asked_of = random.uniform(0.0, 1.0, (5, columns))
    np.testing.assert_allclose(
        learn(X, y, loads=runs).variance(asked_of), by_inverses(X, y, asked_of, runs), rtol=1e-2
    )


def test_the_likeliest_of_several_ratios_is_taken() -> None:
    """A long move that slows nothing speaks for small effects, five short ones that slow much for
    large ones: the likelihood has a maximum at either end, and the second is the higher."""
    X = np.zeros((14, 6))
    X[:6] = np.diag([1.0, 0.1, 0.1, 0.1, 0.1, 0.1])
    y = np.array([0.02, *[1.0] * 5, *[0.02] * 8])
    questions = 0.1 * np.eye(6)
    np.testing.assert_allclose(
        learn(X, y, loads=8).variance(questions), by_inverses(X, y, questions, 8), rtol=1e-2
    )


def test_more_is_open_of_one_of_two_that_went_together() -> None:
    random = np.random.default_rng(0)
    X = np.zeros((12, 3))
    X[:, 0] = np.linspace(0.0, 2.0, 12)
    X[4:, 1] = X[4:, 2] = np.linspace(0.0, 2.0, 8)
    y = 0.8 * X[:, 0] + 0.4 * X[:, 1] + 0.02 * random.standard_normal(12)
    asked_of = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    alone, both, either = learn(X, y, loads=12).variance(asked_of)
    assert max(alone, both) < 0.05 * either


def test_how_far_beyond_the_runs_a_column_moves_opens_nothing() -> None:
    X = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.0]])
    known = learn(X, np.array([0.4, 0.3, 0.0]), loads=2)
    asked_of = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 3.0], [4.0, 0.0, 0.0]])
    variance = known.variance(asked_of)
    assert variance[0] > 0.0
    assert (variance == variance[0]).all()


def test_the_more_loads_the_less_is_open_and_solo_runs_are_none() -> None:
    """Two effects of columns that move together are learned of 4 loads and of 40."""
    random = np.random.default_rng(1)

    def left_open(loads: int, solos: int = 2) -> float:
        X = np.zeros((solos + loads, 2))
        X[solos:] = random.uniform(0.0, 2.0, (loads, 1)) + 0.1 * random.uniform(size=(loads, 2))
        y = X @ [0.8, 0.4] + 0.05 * random.standard_normal(solos + loads)
        return float(learn(X, y, loads=loads).variance(np.array([[1.0, 0.0]]))[0])

    few, more, many = (
        np.median([left_open(loads, solos) for _ in range(40)])
        for loads, solos in ((4, 2), (4, 24), (40, 2))
    )
    assert many < few / 4.0
    # They tell how large the noise is.
    assert few / 2.0 < more < 2.0 * few


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.zeros((4, 2)), np.array([0.0, 0.1, 0.2, 0.1])),
        (np.ones((4, 2)), np.zeros(4)),
        (np.zeros((1, 2)), np.zeros(1)),
    ],
)
def test_of_runs_that_say_nothing_nothing_is_learned(X: np.ndarray, y: np.ndarray) -> None:
    assert learn(X, y, loads=len(y)).variance(np.ones((1, 2)))[0] == 0.0
    assert NOTHING_OPEN.variance(np.ones((3, 2))).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "document",
    [
        {"effect": -1.0, "directions": [], "most": [1.0, 1.0]},
        {"effect": float("nan"), "directions": [], "most": [1.0, 1.0]},
        {"effect": 1.0, "directions": [[1.0, 0.0, 0.0]], "most": [1.0, 1.0]},
        {"effect": 1.0, "directions": [["1", 0.0]], "most": [1.0, 1.0]},
        {"effect": 1.0, "most": [1.0, 1.0]},
        {"effect": 1.0, "directions": []},
        {"effect": 1.0, "directions": [], "most": [1.0]},
        {"effect": 1.0, "directions": [], "most": [1.0, float("inf")]},
        {"effect": 1.0, "directions": 3, "most": [1.0, 1.0]},
        {"effect": 1.0, "directions": "", "most": [1.0, 1.0]},
        {"effect": 1.0, "directions": {}, "most": [1.0, 1.0]},
        {"effect": True, "directions": [], "most": [1.0, 1.0]},
        {"effect": 1.0, "directions": [[[1.0], 0.0]], "most": [1.0, 1.0]},
        {"effect": 1.0, "directions": [[1.0, 0.1]], "most": [1.0, 1.0]},
        {"effect": 1.0, "directions": [[1e308, -1e308]], "most": [1.0, 1.0]},
        {"effect": 1.0, "directions": [[0.1, 0.0]] * 3, "most": [1.0, 1.0]},
    ],
)
def test_a_damaged_one_is_refused(document: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        thawed(document, 2)


def together(loads: int) -> list[Run]:
    """A profile of a program that memory slows and the disk does not, under loads of both."""
    random = np.random.default_rng(2)
    runs = [builders.run("scans", 3.0, synthetic.environment({}, random)) for _ in range(4)]
    for number in range(loads):
        amount = 0.4 + 0.1 * number
        times = synthetic.environment({"memory": amount, "read": amount}, random)
        cost = 3.0 * synthetic.slowdown({MEMORY: 0.9}, times)
        levels = (builders.level("stream.triad", intensity=(number + 1) / 20.0),)
        runs.append(builders.run("scans", cost, times, levels=levels))
    return runs


def test_a_prediction_leaves_1_less_where_loads_went_together_only() -> None:
    document = train_application(together(6), models=("STACK",))
    file = model_file.read(document)
    for variant in document["variants"].values():
        del variant["models"]["STACK"]["frozen"]["posterior"]
    without = model_file.read(
        model_file.seal({k: v for k, v in document.items() if k not in {"checksum", "version"}})
    )
    random = np.random.default_rng(3)
    shrunk = {}
    for name, load in (("both", {"memory": 0.8, "read": 0.8}), ("disk", {"read": 0.8})):
        times = synthetic.environment(load, random)
        own, former = (predict_environment(each, times).slowdown.median for each in (file, without))
        assert 1.0 < own <= former
        shrunk[name] = np.log(own) / np.log(former)
    assert shrunk["both"] > 0.95
    assert shrunk["disk"] < 0.8


def test_another_load_that_no_run_was_under_does_not_make_a_prediction_smaller() -> None:
    runs = synthetic.campaign("scans", {MEMORY: 0.9}, solos=4)
    memory = [run for run in runs if run.levels and run.levels[0].family in ("memory", "cache")]
    few = [run for run in runs if run.kind == "solo"] + memory[:5]
    file = model_file.read(train_application(few, models=("STACK",)))
    others = ("read", "write", "fsync", "metadata", "net", "os", "compute")
    predicted = []
    for extra in range(len(others) + 1):
        random = np.random.default_rng(4)
        times = synthetic.environment({"memory": 1.0, **dict.fromkeys(others[:extra], 1.0)}, random)
        predicted.append(predict_environment(file, times).slowdown.median)
    assert predicted[0] > 1.5
    assert min(predicted) > 0.97 * predicted[0]


@pytest.mark.thorough
def test_what_is_open_is_asked_of_the_features_that_it_was_learned_from() -> None:
    runs = synthetic.campaign("scans", {MEMORY: 0.9}, solos=4)
    loads = sum(run.kind != "solo" for run in runs)
    file, data = model_file.read(train_application(runs, models=("STACK",))), build(runs)
    for name, variant in file.variants.items():
        rows = data if name == "full" else data.select(variant.columns).as_quick()
        features = spaces.features(rows.times, variant.idle, "log", variant.spread)
        stack = variant.members
        assert stack is not None
        np.testing.assert_allclose(
            stack.unknown(rows.X - np.log(variant.idle)),
            learn(features, rows.y, loads=loads).variance(features),
            rtol=1e-6,
            atol=1e-15,
        )


def test_a_document_with_a_damaged_posterior_is_refused() -> None:
    document = train_application(together(6), models=("STACK",))
    known = document["variants"]["full"]["models"]["STACK"]["frozen"]["posterior"]
    known["directions"] = [[0.5]]
    with pytest.raises(InputError):
        model_file.read(model_file.seal({k: v for k, v in document.items() if k != "checksum"}))
    assert isinstance(thawed({"effect": 0.0, "directions": [], "most": [0.0] * 3}, 3), Posterior)
