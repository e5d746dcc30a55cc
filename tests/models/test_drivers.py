"""Drivers: the resource that a program is known to use comes first."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from kongming.learning import model_file as persist
from kongming.learning import predict
from kongming.learning.drivers import drivers
from kongming.learning.training import train_application
from tests import builders
from tests.models import synthetic

IDLE = np.array([1e-9, 1e-6, 1e-3])
FAMILIES = ("cache", "cache", "write")
USES = {
    "cache": "memory.random.LLChalf",
    "memory": "stream.triad",
    "compute": "compute.int",
    "os": "os.switch",
    "read": "iobench.read.4M",
    "write": "iobench.fsync",
    "metadata": "metadata.create",
    "network": "net.loopback",
}
"""A surrogate of each family; a program of its family needs what that needs, and no other."""

MODELS = ("NNLS", "NNLOG", "RIDGE")
LAWS = {"powers": synthetic.slowdown, "parts": synthetic.sum_of_parts}


def test_drivers_are_shares_of_the_log_slowdown() -> None:
    coef = np.array([0.3, 0.1, 0.2])
    ranked = drivers(
        lambda rows: np.log(rows / IDLE) @ coef, IDLE * np.array([2.0, 4.0, 8.0]), IDLE, FAMILIES
    )
    assert [(d.family, pytest.approx(d.share)) for d in ranked] == [
        ("write", 0.6 / 1.1),
        ("cache", 0.5 / 1.1),
    ]


def test_an_interaction_is_shared_and_a_gain_is_left_out() -> None:
    both = drivers(
        lambda rows: np.log(rows[:, 0] / IDLE[0]) * np.log(rows[:, 2] / IDLE[2]),
        IDLE * 2.0,
        IDLE,
        FAMILIES,
    )
    assert [(d.family, pytest.approx(d.share)) for d in both] == [("cache", 0.5), ("write", 0.5)]
    gain = drivers(
        lambda rows: np.log(rows / IDLE) @ np.array([0.3, 0.0, -0.1]),
        IDLE * 2.0,
        IDLE,
        FAMILIES,
    )
    assert [(d.family, d.share) for d in gain] == [("cache", 1.0)]


def test_nothing_drives_on_the_idle_node_or_a_model_that_is_blind() -> None:
    assert drivers(lambda rows: np.log(rows / IDLE).sum(axis=1), IDLE, IDLE, FAMILIES) == ()
    assert drivers(lambda rows: np.full(len(rows), 0.3), IDLE * 3, IDLE, FAMILIES) == ()


@functools.cache
def trained(family: str, law: str) -> persist.ModelFile:
    """A program that needs what this family stands for."""
    runs = synthetic.campaign(family, {USES[family]: 0.6}, law=LAWS[law])
    return persist.read(train_application(runs, models=MODELS, quick_columns=()))


@pytest.mark.parametrize("law", ["powers", pytest.param("parts", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("family", USES)
def test_the_one_resource_that_a_program_uses_comes_first(family: str, law: str) -> None:
    file = trained(family, law)
    for seed in range(5):
        everything = dict.fromkeys(USES, 0.35)
        times = synthetic.environment(everything, np.random.default_rng(seed))
        prediction = predict.predict_environment(file, times)
        assert prediction.drivers[0].family == family
        assert prediction.drivers[0].share > 0.5
        assert sum(driver.share for driver in prediction.drivers) == pytest.approx(1.0)


@pytest.mark.parametrize("family", USES)
def test_under_the_load_of_its_own_resource_too(family: str) -> None:
    times = synthetic.environment({family: 0.7}, np.random.default_rng(9))
    for model in ("auto", *MODELS):
        prediction = predict.predict_environment(trained(family, "powers"), times, model=model)
        assert prediction.drivers[0].family == family
        assert prediction.slowdown.median > 1.0


@pytest.mark.parametrize("family", USES)
def test_a_neighbour_is_blamed_for_what_it_takes(family: str) -> None:
    """Two neighbours, of which one takes what the program needs."""
    other = "compute" if family != "compute" else "network"
    company = {
        "thief": [synthetic.signature("thief", {family: 0.6})],
        "bystander": [synthetic.signature("bystander", {other: 0.6}, seed=1)],
    }
    file = trained(family, "powers")
    prediction = predict.predict_colocated(file, company)
    assert prediction.drivers[0].family == family
    assert predict.predict_colocated(file, {"b": company["bystander"]}).slowdown.median < 1.1
    assert builders.family_of(USES[family]) == family
