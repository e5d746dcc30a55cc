"""A profile leaves much open in directions in which no run went, and after few runs."""

from __future__ import annotations

import json
from collections.abc import Sequence

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
from tests.models import synthetic

MEMORY, DISK = "memory.random.128M", "iobench.read.4M"
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
    known = learn(*profile)
    variance = known.variance(asked_of)
    assert np.isfinite(variance).all()
    assert (variance >= 0.0).all()
    longest = known.effect * np.einsum("ij,ij->i", asked_of, asked_of)
    assert (variance <= longest * (1.0 + 1e-9)).all()
    assert known.variance(np.zeros((1, 4)))[0] == 0.0


@given(profiles(), st.randoms(use_true_random=False))
def test_the_order_of_runs_changes_nothing(
    profile: tuple[np.ndarray, np.ndarray], random: np.random.Generator
) -> None:
    X, y = profile
    order = list(range(len(y)))
    random.shuffle(order)
    known, again = learn(X, y), learn(X[order], y[order])
    questions = np.eye(4)
    np.testing.assert_allclose(
        again.variance(questions), known.variance(questions), rtol=1e-3, atol=1e-9
    )


@given(profiles())
def test_it_is_the_same_when_it_was_kept(profile: tuple[np.ndarray, np.ndarray]) -> None:
    known = learn(*profile)
    read = thawed(json.loads(json.dumps(known.freeze())), 4)
    questions = np.eye(4)
    assert (read.variance(questions) == known.variance(questions)).all()


def by_inverses(X: np.ndarray, y: np.ndarray, asked_of: np.ndarray) -> np.ndarray:
    """Return the variances by inverses of whole matrices, and by the likelihood at many ratios."""
    n, p = X.shape

    def noise(ratio: float) -> float:
        return float(y @ np.linalg.solve(np.eye(n) + ratio * X @ X.T, y)) / n

    def likelihood(ratio: float) -> float:
        spread = np.linalg.slogdet(np.eye(n) + ratio * X @ X.T)[1]
        return -0.5 * float(n * np.log(noise(ratio)) + spread)

    ratio = max(np.logspace(-4.0, 4.0, 4001).tolist(), key=likelihood)
    inverse = np.linalg.inv(X.T @ X + np.eye(p) / ratio)
    degrees = float(np.trace(X @ inverse @ X.T))
    variance = noise(ratio) * np.einsum("ij,jk,ik->i", asked_of, inverse, asked_of)
    return np.asarray(variance * ((n / max(n - degrees, 1.0)) ** 2 - 1.0))


@pytest.mark.parametrize(("runs", "columns"), [(12, 3), (30, 8), (8, 20), (20, 20)])
def test_a_variance_is_that_by_inverses_of_matrices(runs: int, columns: int) -> None:
    random = np.random.default_rng(runs + columns)
    X = np.maximum(random.normal(0.0, 0.5, (runs, columns)), 0.0)
    y = X @ np.where(np.arange(columns) < 2, 0.8, 0.0) + 0.1 * random.standard_normal(runs)
    asked_of = random.uniform(0.0, 1.0, (5, columns))
    np.testing.assert_allclose(
        learn(X, y).variance(asked_of), by_inverses(X, y, asked_of), rtol=1e-2
    )


def test_the_likeliest_of_several_ratios_is_taken() -> None:
    """A long move that slows nothing speaks for small effects, five short ones that slow much for
    large ones: the likelihood has a maximum at either end, and the second is the higher."""
    X = np.zeros((14, 6))
    X[:6] = np.diag([1.0, 0.1, 0.1, 0.1, 0.1, 0.1])
    y = np.array([0.02, *[1.0] * 5, *[0.02] * 8])
    np.testing.assert_allclose(
        learn(X, y).variance(0.1 * np.eye(6)), by_inverses(X, y, 0.1 * np.eye(6)), rtol=1e-2
    )


def test_more_is_open_where_no_run_went() -> None:
    random = np.random.default_rng(0)
    X = np.zeros((12, 3))
    X[:, 0] = np.linspace(0.0, 2.0, 12)
    X[6:, 1] = np.linspace(0.0, 2.0, 6)
    y = 0.8 * X[:, 0] + 0.4 * X[:, 1] + 0.02 * random.standard_normal(12)
    run, mixed, other = learn(X, y).variance(np.array([X[5], X[-1], [0.0, 0.0, 1.0]]))
    assert max(run, mixed) < 0.05 * other


def test_the_more_runs_the_less_is_open() -> None:
    """The same two effects, of three that are asked of, are learned of 5 runs and of 40."""
    random = np.random.default_rng(1)

    def left_open(runs: int) -> float:
        X = np.zeros((runs, 3))
        X[:, :2] = random.uniform(0.0, 2.0, (runs, 2))
        X[: runs // 4] = 0.0
        y = X @ [0.8, 0.4, 0.0] + 0.05 * random.standard_normal(runs)
        return float(learn(X, y).variance(np.array([[0.0, 0.0, 1.0]]))[0])

    few = np.median([left_open(5) for _ in range(20)])
    many = np.median([left_open(40) for _ in range(20)])
    assert many < few / 4.0


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.zeros((4, 2)), np.array([0.0, 0.1, 0.2, 0.1])),
        (np.ones((4, 2)), np.zeros(4)),
        (np.zeros((1, 2)), np.zeros(1)),
    ],
)
def test_of_runs_that_say_nothing_nothing_is_learned(X: np.ndarray, y: np.ndarray) -> None:
    assert learn(X, y).variance(np.ones((1, 2)))[0] == 0.0
    assert NOTHING_OPEN.variance(np.ones((3, 2))).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "document",
    [
        {"effect": -1.0, "directions": []},
        {"effect": float("nan"), "directions": []},
        {"effect": 1.0, "directions": [[1.0, 0.0, 0.0]]},
        {"effect": 1.0, "directions": [["1", 0.0]]},
        {"effect": 1.0},
        {"effect": 1.0, "directions": 3},
        {"effect": 1.0, "directions": ""},
        {"effect": 1.0, "directions": {}},
        {"effect": True, "directions": []},
        {"effect": 1.0, "directions": [[[1.0], 0.0]]},
        {"effect": 1.0, "directions": [[1.0, 0.1]]},
        {"effect": 1.0, "directions": [[1e308, -1e308]]},
        {"effect": 1.0, "directions": [[0.1, 0.0]] * 3},
    ],
)
def test_a_damaged_one_is_refused(document: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        thawed(document, 2)


def disk_and_memory(loads: int | None = None) -> list[Run]:
    """A profile of a program that memory slows and the disk does not; of loads on memory alone if
    so many are named."""
    runs = synthetic.campaign("scans", {MEMORY: 0.9}, solos=4)
    if loads is None:
        return runs
    memory = [run for run in runs if run.levels and run.levels[0].family == "memory"]
    return [run for run in runs if run.kind == "solo"] + memory[:loads]


def slowdowns(runs: Sequence[Run]) -> dict[str, float]:
    file = model_file.read(train_application(runs, models=("STACK",)))
    random = np.random.default_rng(2)
    loaded = {
        "memory": synthetic.environment({"memory": 1.0}, random),
        "disk": synthetic.environment({"read": 1.0, "memory": 0.3}, random),
    }
    return {
        name: predict_environment(file, times).slowdown.median for name, times in loaded.items()
    }


def test_a_prediction_leaves_1_less_where_no_run_went() -> None:
    few = disk_and_memory(loads=3)
    document = train_application(few, models=("STACK",))
    frozen = document["variants"]["full"]["models"]["STACK"]["frozen"]
    assert frozen["posterior"]["effect"] > 0.0
    with_it = slowdowns(few)
    assert with_it["memory"] > 1.3
    for variant in document["variants"].values():
        del variant["models"]["STACK"]["frozen"]["posterior"]
    without = model_file.read(
        model_file.seal({k: v for k, v in document.items() if k not in {"checksum", "version"}})
    )
    random = np.random.default_rng(2)
    for name, load in (("memory", {"memory": 1.0}), ("disk", {"read": 1.0, "memory": 0.3})):
        times = synthetic.environment(load, random)
        before = predict_environment(without, times).slowdown.median
        assert 1.0 < with_it[name] <= before
        shrunk = np.log(with_it[name]) / np.log(before)
        assert shrunk > 0.9 if name == "memory" else shrunk < 0.9


def test_what_is_open_is_asked_of_the_features_that_it_was_learned_from() -> None:
    runs = disk_and_memory()
    file, data = model_file.read(train_application(runs, models=("STACK",))), build(runs)
    for name, variant in file.variants.items():
        rows = data if name == "full" else data.select(variant.columns).as_quick()
        features = spaces.features(rows.times, variant.idle, "log", variant.spread)
        stack = variant.members
        assert stack is not None
        np.testing.assert_allclose(
            stack.unknown(rows.X - np.log(variant.idle)),
            learn(features, rows.y).variance(features),
            rtol=1e-6,
            atol=1e-15,
        )


def test_a_document_with_a_damaged_posterior_is_refused() -> None:
    document = train_application(disk_and_memory(), models=("STACK",))
    known = document["variants"]["full"]["models"]["STACK"]["frozen"]["posterior"]
    known["directions"] = [[0.5]]
    with pytest.raises(InputError):
        model_file.read(model_file.seal({k: v for k, v in document.items() if k != "checksum"}))
    assert isinstance(thawed({"effect": 0.0, "directions": []}, 3), Posterior)
