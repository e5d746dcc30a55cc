"""Any neighbour slows a program by a few per cent where its loads did, whatever readings show."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.learning import model_file, predict
from kongming.learning.presence import LEAST_RUNS, MOST, SHARE, presence
from kongming.learning.training import train_application
from kongming.records.errors import InputError
from kongming.records.run import WAITING_SHARE
from tests.models import synthetic

COMPUTES, READS, PROGRAM = frozenset({"compute"}), frozenset({"read"}), frozenset({"neighbour:xz"})
SOLO: frozenset[str] = frozenset()


@given(st.lists(st.floats(-1.0, 5.0), min_size=1, max_size=30))
def test_it_is_a_few_per_cent_at_most(logs: list[float]) -> None:
    near = presence(np.array(logs), [COMPUTES] * len(logs), "cross-core")
    assert 0.0 <= near <= MOST


def test_it_is_a_share_of_the_median_under_loads_that_press_on_no_device() -> None:
    logs = np.array([0.0, 0.0, *[0.04] * 6, *[2.0] * 9])
    groups = [SOLO] * 2 + [COMPUTES, PROGRAM] * 3 + [READS] * 9
    assert presence(logs, groups, "cross-core") == pytest.approx(SHARE * 0.04)


def test_loads_that_slow_nothing_show_no_presence() -> None:
    random = np.random.default_rng(3)
    noise = random.normal(0.0, 0.05, 24)
    assert presence(noise - np.median(noise), [COMPUTES] * 24, "cross-core") == 0.0
    assert presence(noise - 0.1, [COMPUTES] * 24, "cross-core") == 0.0


def test_few_runs_and_other_placements_have_none() -> None:
    logs = np.full(LEAST_RUNS, 0.04)
    groups = [COMPUTES] * LEAST_RUNS
    assert presence(logs, groups, "cross-core") > 0.0
    for placement in ("same-core", "smt-sibling", "cross-socket"):
        assert presence(logs, groups, placement) == 0.0
    assert presence(logs[1:], groups[1:], "cross-core") == 0.0


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Of a program that each load slows by some per cent more than its resources account for."""
    runs = [
        run if run.metric is None or not run.levels else replace(run, metric=1.04 * run.metric)
        for run in synthetic.campaign("app", {"memory.random.128M": 0.2})
    ]
    return train_application(runs, models=("STACK",))


def of_quiet_neighbour(document: Any, **passive: float) -> float:
    signature = synthetic.signature("quiet", {})
    seen = replace(signature.fingerprint, passive={**signature.fingerprint.passive, **passive})
    neighbours = {"quiet": [replace(signature, fingerprint=seen)]}
    return math.log(predict.slowdown_colocated(document, neighbours).median)


def test_a_neighbour_that_presses_on_nothing_slows_by_its_presence(
    document: dict[str, Any],
) -> None:
    file = model_file.read(document)
    near = file.variants["full"].model().presence
    assert 0.01 < near <= MOST
    assert of_quiet_neighbour(file) == pytest.approx(near, abs=0.01)
    # An idle node is no neighbour.
    alone = predict.predict_environment(file, synthetic.IDLE).slowdown.median
    assert math.log(alone) == pytest.approx(0.0, abs=0.01)
    assert alone < math.exp(of_quiet_neighbour(file))


def test_it_is_added_to_what_readings_show(document: dict[str, Any]) -> None:
    file = model_file.read(document)
    near = file.variants["full"].model().presence
    for load in np.linspace(0.0, 1.0, 21).tolist():
        signature = synthetic.signature("busy", {"memory": load})
        seen = predict.predict_environment(file, signature.fingerprint).slowdown.median
        pair = predict.predict_colocated(file, {"busy": [signature]})
        assert math.log(pair.slowdown.median) == pytest.approx(
            max(math.log(seen), 0.0) + near, abs=1e-9
        )


def test_it_is_known_no_better_than_its_size(document: dict[str, Any]) -> None:
    signature = {"busy": [synthetic.signature("busy", {"memory": 0.5})]}
    earlier = deepcopy(document)
    for variant in earlier["variants"].values():
        del variant["models"]["STACK"]["frozen"]["presence"]
    without = predict.slowdown_colocated(model_file.read(sealed(earlier)), signature)
    present = predict.slowdown_colocated(model_file.read(document), signature)
    assert present.expected
    assert without.expected
    assert math.log(present.expected[1] / present.median) > 1.01 * math.log(
        without.expected[1] / without.median
    )
    assert present.upper / present.median >= without.upper / without.median


def test_it_is_said_and_drives_no_resource(document: dict[str, Any]) -> None:
    quiet = predict.predict_colocated(document, {"quiet": [synthetic.signature("quiet", {})]})
    assert any("because of a neighbour at all" in note for note in quiet.notes)
    assert quiet.drivers == ()
    busy = synthetic.signature("busy", {"memory": 1.0})
    assert predict.predict_colocated(document, {"busy": [busy]}).drivers
    idle = predict.predict_environment(document, synthetic.IDLE)
    assert not any("neighbour" in note for note in idle.notes)


def test_a_neighbour_that_waits_is_there_for_a_part_of_the_time(document: dict[str, Any]) -> None:
    never = of_quiet_neighbour(document)
    mostly = of_quiet_neighbour(document, **{WAITING_SHARE: 0.9})
    assert 0.0 <= mostly < never


def test_documents_without_it_answer_as_before(document: dict[str, Any]) -> None:
    earlier = deepcopy(document)
    for variant in earlier["variants"].values():
        del variant["models"]["STACK"]["frozen"]["presence"]
    file = model_file.read(sealed(earlier))
    assert file.variants["full"].model().presence == 0.0
    assert of_quiet_neighbour(file) < of_quiet_neighbour(document)


@pytest.mark.parametrize("damaged", [-0.1, "much", None, [0.1]])
def test_a_document_with_a_damaged_one_is_refused(document: dict[str, Any], damaged: Any) -> None:
    broken = deepcopy(document)
    broken["variants"]["full"]["models"]["STACK"]["frozen"]["presence"] = damaged
    with pytest.raises(InputError):
        model_file.read(sealed(broken))


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    return model_file.seal({k: v for k, v in document.items() if k not in ("checksum", "version")})
