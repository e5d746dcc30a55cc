"""A program that waits may be faster next to a CPU that never sleeps: by its own runs, no more."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.learning import model_file, predict
from kongming.learning.awake import (
    awake_factor,
    awake_share,
    keeping_awake,
    together,
    with_awake_factor,
)
from kongming.learning.training import train_application
from kongming.records.run import WAITING_SHARE, Run, Signature, Usage
from tests.models import synthetic

FACTOR = math.log(0.9)

shares = st.floats(0.0, 1.0)
logs = st.floats(-3.0, 3.0)


@given(logs, st.floats(-2.0, 0.0), shares, shares)
def test_the_floor_is_the_factor_and_falls_with_the_share(
    predicted: float, factor: float, share: float, other_share: float
) -> None:
    less, more = sorted((share, other_share))
    low, high = (
        with_awake_factor(np.array([predicted]), factor, np.array([s]))[0] for s in (more, less)
    )
    assert factor <= low <= high <= max(predicted, 0.0)
    assert high >= less * factor
    assert with_awake_factor(np.array([predicted]), 0.0, np.array([share]))[0] == max(
        predicted, 0.0
    )
    assert with_awake_factor(np.array([predicted]), factor, np.array([math.nan]))[0] == predicted


@given(st.lists(shares, max_size=5), shares)
def test_another_neighbour_never_lets_a_cpu_sleep_more(several: list[float], last: float) -> None:
    combined = together([*several, last])
    assert -1e-12 <= together(several) <= combined + 1e-12 <= 1.0 + 2e-12
    assert combined == pytest.approx(together([last, *reversed(several)]))
    np.testing.assert_array_equal(
        together((np.array(several), np.array(last))), [together([s, last]) for s in several]
    )


@given(st.lists(logs, max_size=12), st.one_of(st.none(), shares))
def test_only_runs_that_agree_give_a_factor(
    log_slowdowns: list[float], waiting: float | None
) -> None:
    factor = awake_factor(np.array(log_slowdowns), waiting)
    assert min([0.0, float(np.median(log_slowdowns))] if log_slowdowns else [0.0]) <= factor <= 0.0
    if waiting is None or waiting < 0.2 or len(log_slowdowns) < 3:
        assert factor == 0.0


def waiting_program(cpu_share: float = 0.4) -> list[Run]:
    """A campaign of a program that runs 10 % faster while the load keeps a CPU awake."""
    runs = synthetic.campaign("reader", {"iobench.read.4M": 0.5})
    awake = set(keeping_awake(runs).tolist())
    assert 3 <= len(awake) < len(runs) / 2
    return [
        dataclasses.replace(
            run,
            metric=run.metric and run.metric * math.exp(FACTOR if i in awake else 0.0),
            usage=Usage(cpu_s=cpu_share * run.wall_s),
        )
        for i, run in enumerate(runs)
    ]


def company(waits: float | None = None) -> dict[str, list[Signature]]:
    signature = synthetic.signature("number", {"compute": 0.5})
    if waits is not None:
        passive = {WAITING_SHARE: waits}
        fingerprint = dataclasses.replace(signature.fingerprint, passive=passive)
        signature = dataclasses.replace(signature, fingerprint=fingerprint)
    return {"number": [signature]}


@pytest.mark.thorough
def test_a_reader_is_predicted_faster_next_to_a_busy_neighbour_only() -> None:
    document = train_application(waiting_program(), models=("STACK",), quick_columns=())
    assert document["awake"] == pytest.approx(FACTOR, abs=0.02)
    file = model_file.read(document)
    predicted = [
        math.log(predict.predict_colocated(file, company(waits)).slowdown.median)
        for waits in (None, 0.0, 0.5, 1.0)
    ]
    assert predicted[0] == predicted[1] == pytest.approx(FACTOR, abs=0.03)
    assert predicted[2] == pytest.approx(FACTOR / 2, abs=0.03)
    assert predicted[3] == pytest.approx(0.0, abs=0.02)
    pressing = synthetic.signature("writer", {"read": 0.6})
    slowed = predict.predict_colocated(file, {"writer": [pressing]}).slowdown.median
    assert math.log(slowed) == pytest.approx(0.3 + FACTOR, abs=0.06)


def test_a_program_that_does_not_wait_never_gains() -> None:
    file = model_file.read(
        train_application(waiting_program(0.95), models=("RIDGE",), model="RIDGE")
    )
    assert file.variants["full"].awake == 0.0
    assert predict.predict_colocated(file, company()).slowdown.median >= 1.0


def test_a_document_without_the_factor_is_read_and_one_that_slows_is_damaged() -> None:
    document = train_application(waiting_program(), models=("RIDGE",), model="RIDGE")
    payload = {key: value for key, value in document.items() if key != "checksum"}
    del payload["awake"]
    assert model_file.read(model_file.seal(payload)).variants["full"].awake == 0.0
    with pytest.raises(Exception, match="damaged"):
        model_file.read(model_file.seal(payload | {"awake": 0.1}))


def test_signatures_of_old_count_as_never_waiting() -> None:
    (old,), (new,) = company()["number"], company(0.5)["number"]
    assert awake_share([old]) == 1.0
    assert awake_share([new, new]) == pytest.approx(0.5)


@pytest.mark.parametrize(("waiting", "share"), [(-5.0, 1.0), (0.25, 0.75), (7.0, 0.0)])
def test_nobody_is_awake_for_more_than_all_of_the_time(waiting: float, share: float) -> None:
    signature = synthetic.signature("number", {"compute": 0.5})
    passive = {WAITING_SHARE: waiting}
    fingerprint = dataclasses.replace(signature.fingerprint, passive=passive)
    assert awake_share([dataclasses.replace(signature, fingerprint=fingerprint)]) == share
