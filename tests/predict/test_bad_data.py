"""What is implausible, or does not belong together, is refused in a prediction, with the reason."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.learning import model_file as persist
from kongming.learning import predict
from kongming.learning.scorer import scorer_of
from kongming.learning.training import train_application
from kongming.records.errors import (
    IncompatibleError,
    InputError,
    KongmingError,
    UnknownNameError,
    UntrainedError,
)
from kongming.records.fingerprint import Reading
from tests import builders
from tests.models import synthetic

WRONG = [math.inf, -math.inf, math.nan, 0.0, -1e-9]
COLUMN = "stream.triad"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    runs = synthetic.campaign("chaser", {"memory.random.128M": 0.6, "stream.triad": 0.2})
    return train_application(runs, models=("NNLOG", "RIDGE", "CART"))


@pytest.fixture(scope="module")
def file(document: dict[str, Any]) -> persist.ModelFile:
    return persist.read(document)


@pytest.mark.parametrize("seconds", WRONG)
@pytest.mark.parametrize("model", ["MEAN", "NNLOG", "RIDGE", "CART"])
def test_a_time_that_cannot_be_true_is_refused(
    seconds: float, model: str, file: persist.ModelFile
) -> None:
    with pytest.raises(InputError, match=COLUMN) as caught:
        predict.predict_environment(file, {**synthetic.IDLE, COLUMN: seconds}, model=model)
    assert "a finite time above 0 s" in str(caught.value)


def test_a_reading_that_failed_is_missing_and_not_zero(file: persist.ModelFile) -> None:
    complete = builders.fingerprint(synthetic.IDLE)
    failed = Reading(COLUMN, "memory", error="no memory")
    partial = dataclasses.replace(complete, surrogates={**complete.surrogates, COLUMN: failed})
    prediction = predict.predict_environment(file, partial, variant="full")
    assert prediction.slowdown.median == pytest.approx(1.0, abs=0.05)
    assert any(COLUMN in warning for warning in prediction.warnings)


@settings(max_examples=60, deadline=None)
@given(present=st.sets(st.sampled_from(sorted(synthetic.IDLE))))
def test_whatever_is_missing_is_answered_or_refused_by_name(
    present: set[str], file: persist.ModelFile
) -> None:
    times = {name: synthetic.IDLE[name] for name in present}
    missing = [name for name in synthetic.IDLE if name not in present]
    if len(missing) > 0.2 * len(synthetic.IDLE):
        with pytest.raises(InputError, match=f"no reading of {len(missing)} of") as caught:
            predict.predict_environment(file, times)
        assert any(name in str(caught.value) for name in missing)
        assert caught.value.hint
        return
    unread = {builders.family_of(name) for name in missing} - set(map(builders.family_of, times))
    quick = set(file.variants["quick"].columns)
    quick_is_complete = times.keys() >= quick
    scorer = scorer_of(file.variants["full"])
    columns = scorer.variant.columns
    used = {name for name, moves in zip(columns, scorer.used, strict=True) if moves}
    needed = [
        name for name in sorted(missing) if name in used and builders.family_of(name) in unread
    ]
    alien = {builders.family_of(n) for n in needed} - set(map(builders.family_of, quick))
    if needed and not (quick_is_complete and (not alien or times.keys() <= quick)):
        with pytest.raises(InputError, match=f"no reading of {', '.join(needed)}, on which") as no:
            predict.predict_environment(file, times)
        assert no.value.hint
        return
    prediction = predict.predict_environment(file, times)
    assert prediction.slowdown.median == pytest.approx(1.0, abs=0.06)
    assert math.isfinite(prediction.runtime_s.upper)
    filled = [
        warning for warning in prediction.warnings if "quick" in warning or "No reading" in warning
    ]
    assert bool(filled) == bool(missing)


def test_an_environment_without_any_reading_is_refused(file: persist.ModelFile) -> None:
    with pytest.raises(InputError, match="no reading of 15 of"):
        predict.predict_environment(file, {})
    with pytest.raises(InputError, match="no reading of 15 of"):
        predict.predict_environment(file, {"another.surrogate": 1e-9})


def test_another_suite_is_refused_wherever_it_comes_in(file: persist.ModelFile) -> None:
    other = builders.fingerprint(synthetic.IDLE, suite_version="2-other")
    signature = dataclasses.replace(synthetic.signature("neighbour", {}), fingerprint=other)
    fine = synthetic.signature("neighbour", {})
    for call in (
        lambda: predict.predict_environment(file, other),
        lambda: predict.predict_colocated(file, {"neighbour": [signature]}),
        lambda: predict.predict_colocated(file, {"neighbour": [fine, signature]}),
        lambda: predict.slowdown_colocated(file, {"neighbour": [signature]}),
    ):
        with pytest.raises(IncompatibleError, match="2-other") as caught:
            call()
        assert "profile and train again" in str(caught.value)


def test_signatures_of_one_name_and_two_identities_are_not_averaged(
    file: persist.ModelFile,
) -> None:
    original = synthetic.signature("program", {})
    changed = dataclasses.replace(synthetic.signature("program", {}), identity="changed")
    with pytest.raises(IncompatibleError, match="identity"):
        predict.predict_colocated(file, {"program": [original, changed]})


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan])
def test_a_level_that_is_none_is_refused(level: float, file: persist.ModelFile) -> None:
    with pytest.raises(InputError, match="level"):
        predict.predict_environment(file, synthetic.IDLE, level=level)


def test_what_was_not_trained_is_refused(file: persist.ModelFile) -> None:
    with pytest.raises(UnknownNameError, match="SVM"):
        predict.predict_environment(file, synthetic.IDLE, model="SVM")
    bare = dataclasses.replace(file, variants={"full": file.variants["full"]})
    with pytest.raises(UntrainedError, match="quick"):
        predict.predict_environment(bare, synthetic.IDLE, variant="quick")


@pytest.mark.parametrize("value", [math.inf, math.nan, None, "1", [], -1.0])
@pytest.mark.parametrize("key", ["residuals", "severities", "bounds"])
def test_a_model_with_intervals_of_nonsense_is_refused(
    key: str, value: Any, document: dict[str, Any]
) -> None:
    changed = copy.deepcopy(document)
    changed["variants"]["full"]["models"]["NNLOG"][key] = [value]
    for name in ("format", "version", "checksum"):
        changed.pop(name)
    with pytest.raises((ValueError, KongmingError)):
        predict.predict_environment(persist.seal(changed), synthetic.IDLE)


def test_a_program_that_runs_faster_under_load_is_not_said_to_gain_by_a_neighbour() -> None:
    runs = synthetic.campaign("odd", {"memory.random.128M": -0.4})
    file = persist.read(train_application(runs, models=("RIDGE",), model="RIDGE"))
    company = {"stream": [synthetic.signature("stream", {"memory": 0.6})]}
    seen = company["stream"][0].fingerprint
    alone = predict.predict_environment(file, seen)
    colocated = predict.predict_colocated(file, company)
    assert alone.slowdown.median < 0.9
    assert colocated.slowdown.median == 1.0
    assert colocated.runtime_s.median == colocated.solo_s
    assert alone.slowdown.lower <= colocated.slowdown.lower < 1.0 < colocated.slowdown.upper
    slowest = min(run.metric for run in runs if run.metric is not None) / colocated.solo_s
    noise = file.variants["full"].noise
    assert colocated.slowdown.lower >= slowest * math.exp(-3.0 * noise)
    assert predict.slowdown_colocated(file, company) == colocated.slowdown
