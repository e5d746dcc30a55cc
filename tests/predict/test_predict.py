"""From runs to predictions of environments that were not trained on."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.engine import scoring
from kongming.engine.columns import Columns
from kongming.learning import model_file as persist
from kongming.learning import model_names, predict
from kongming.learning.presence import MOST
from kongming.learning.readings import VariantName
from kongming.learning.training import train_application
from kongming.records.errors import (
    ExtrapolationError,
    IncompatibleError,
    InputError,
    UnknownNameError,
    UntrainedError,
)
from tests import builders
from tests.models import synthetic

PROGRAMS: dict[str, tuple[dict[str, float], Any]] = {
    "chaser": ({"memory.random.128M": 0.6, "stream.triad": 0.2}, synthetic.slowdown),
    "writer": ({"iobench.write.4M": 0.5, "metadata.create": 0.2}, synthetic.slowdown),
    "parts": ({"memory.random.LLChalf": 0.4, "iobench.read.4M": 0.3}, synthetic.sum_of_parts),
    "number": ({"compute.int": 0.9}, synthetic.slowdown),
}
FAMILY = {"chaser": "memory", "writer": "write", "parts": "cache", "number": "compute"}


@pytest.fixture(scope="module")
def documents() -> dict[str, dict[str, Any]]:
    return {
        # All models of one are enough.
        name: train_application(
            synthetic.campaign(name, powers, law=law),
            models=None if name == "chaser" else ("NNLS", "NNLOG", "RIDGE"),
        )
        for name, (powers, law) in PROGRAMS.items()
    }


@pytest.fixture(scope="module")
def chaser(documents: dict[str, dict[str, Any]]) -> persist.ModelFile:
    return persist.read(documents["chaser"])


def mixes(seed: int, n: int = 25) -> list[dict[str, float]]:
    """Unseen environments: two families loaded at once, up to 65 %."""
    random = np.random.default_rng(seed)
    families = sorted({builders.family_of(name) for name in synthetic.IDLE})
    return [
        synthetic.environment(
            {str(f): random.uniform(0.0, 0.5) for f in random.choice(families, 2, replace=False)},
            random,
        )
        for _ in range(n)
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("name", PROGRAMS)
def test_unseen_mixes_are_predicted_far_better_than_by_the_mean(
    name: str, documents: dict[str, dict[str, Any]]
) -> None:
    powers, law = PROGRAMS[name]
    file = persist.read(documents[name])
    errors: dict[str, list[float]] = {"auto": [], "MEAN": []}
    inside = 0
    for times in mixes(11):
        truth = 3.0 * law(powers, times)
        for model, relative_errors in errors.items():
            prediction = predict.predict_environment(file, times, model=model)
            relative_errors.append(abs(prediction.runtime_s.median / truth - 1.0))
            if model == "auto":
                inside += prediction.runtime_s.lower <= truth <= prediction.runtime_s.upper
    assert np.mean(errors["auto"]) < 0.3 * np.mean(errors["MEAN"])
    assert inside >= 21


@pytest.mark.parametrize("variant", ["full", "quick"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_known_resource_drives(
    name: str, variant: VariantName, documents: dict[str, dict[str, Any]]
) -> None:
    loads = dict.fromkeys(FAMILY.values(), 0.4)
    times = synthetic.environment(loads, np.random.default_rng(4), noise=0.005)
    prediction = predict.predict_environment(documents[name], times, variant=variant, model="NNLOG")
    assert prediction.drivers[0].family == FAMILY[name]
    assert sum(driver.share for driver in prediction.drivers) == pytest.approx(1.0)
    assert all(driver.share > 0.0 for driver in prediction.drivers)


@settings(max_examples=40, deadline=None)
@given(
    logs=st.lists(
        st.floats(-12.0, 12.0), min_size=len(synthetic.IDLE), max_size=len(synthetic.IDLE)
    ),
    model=st.sampled_from(model_names()),
    variant=st.sampled_from(["full", "quick"]),
)
def test_predictions_are_finite_and_positive_anywhere(
    logs: list[float],
    model: str,
    variant: VariantName,
    chaser: persist.ModelFile,
) -> None:
    times = {
        n: t * float(np.exp(x)) for (n, t), x in zip(synthetic.IDLE.items(), logs, strict=True)
    }
    prediction = predict.predict_environment(chaser, times, model=model, variant=variant)
    for interval in (prediction.runtime_s, prediction.slowdown):
        assert 0.0 < interval.lower <= interval.median <= interval.upper < float("inf")
    total = sum(driver.share for driver in prediction.drivers)
    assert total == pytest.approx(1.0) or not prediction.drivers


def test_the_order_of_columns_changes_nothing(chaser: persist.ModelFile) -> None:
    for times in mixes(2, 5):
        turned = dict(reversed(list(times.items())))
        first, second = (predict.predict_environment(chaser, t) for t in (times, turned))
        assert first == second


def test_idle_is_no_slowdown_and_no_extrapolation(chaser: persist.ModelFile) -> None:
    prediction = predict.predict_environment(chaser, synthetic.IDLE)
    assert prediction.slowdown.median == pytest.approx(1.0, abs=0.03)
    assert prediction.runtime_s.median == pytest.approx(
        prediction.solo_s * prediction.slowdown.median
    )
    assert not prediction.extrapolating


def test_training_environments_are_not_extrapolation(chaser: persist.ModelFile) -> None:
    for run in synthetic.campaign("chaser", PROGRAMS["chaser"][0]):
        assert run.fingerprint is not None
        for model in model_names():
            prediction = predict.predict_environment(
                chaser, run.fingerprint, model=model, strict=True
            )
            assert not prediction.extrapolating


@pytest.mark.parametrize("name", synthetic.IDLE)
def test_any_surrogate_twice_beyond_its_range_is_extrapolation(
    name: str, chaser: persist.ModelFile
) -> None:
    full = chaser.variants["full"]
    high = dict(zip(full.columns, full.high.tolist(), strict=True))
    times = {**synthetic.IDLE, name: 2.0 * high[name]}
    prediction = predict.predict_environment(chaser, times)
    assert prediction.extrapolating
    assert any(name in warning for warning in prediction.warnings)
    with pytest.raises(ExtrapolationError, match=name):
        predict.predict_environment(chaser, times, strict=True)


def test_a_fingerprint_of_another_suite_is_refused(chaser: persist.ModelFile) -> None:
    other = builders.fingerprint(synthetic.IDLE, suite_version="1-other")
    with pytest.raises(IncompatibleError, match="1-other"):
        predict.predict_environment(chaser, other)


def test_another_node_is_warned_of(chaser: persist.ModelFile) -> None:
    other = builders.fingerprint(synthetic.IDLE, node=builders.node(id="node-2"))
    assert "another node" in predict.predict_environment(chaser, other).warnings[0]


def test_a_quick_fingerprint_is_answered_by_the_quick_models(chaser: persist.ModelFile) -> None:
    quick = builders.fingerprint({n: synthetic.IDLE[n] for n in synthetic.QUICK}, suite="quick")
    prediction = predict.predict_environment(chaser, quick)
    assert prediction.slowdown.median == pytest.approx(1.0, abs=0.05)
    assert any("quick surrogates" in warning for warning in prediction.warnings)


def test_quick_fingerprints_of_before_a_surrogate_joined_are_answered_as_if_it_read_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(synthetic.IDLE, "os.wakeup", 9e-5)
    monkeypatch.setattr(synthetic, "QUICK", (*synthetic.QUICK, "os.wakeup"))
    runs = synthetic.campaign("late", {"os.wakeup": 0.5, "stream.triad": 0.5})
    file = persist.read(train_application(runs, models=["RIDGE"], model="RIDGE"))
    quick = file.variants["quick"]
    idle = dict(zip(quick.columns, quick.idle.tolist(), strict=True))
    times = idle | {"stream.triad": 2.0 * idle["stream.triad"]}
    late = times | {"os.wakeup": 2.0 * idle["os.wakeup"]}
    before = {name: seconds for name, seconds in times.items() if name != "os.wakeup"}
    columns = Columns()
    model = scoring.served(0, file, 1, 0, columns)
    answers = []
    for environment in (times, before, late):
        prediction = predict.predict_environment(file, environment)
        logs = columns.logs(environment, dict(zip(quick.columns, quick.families, strict=True)))
        row = np.full((1, model.width()), np.nan)
        row[0, : len(logs)] = logs[: model.width()]
        not_carried, alone = np.array([False]), np.array([np.nan])
        scores = scoring.score(model, row, row, not_carried, alone)
        assert scores.variant.tolist() == [scoring.QUICK]
        assert math.exp(scores.log_slowdown[0]) == pytest.approx(prediction.slowdown.median)
        answers.append(prediction.slowdown.median)
    assert answers[0] == answers[1] < answers[2]
    # What else is missing is missing.
    del before["os.switch"]
    with pytest.raises(InputError, match="no reading"):
        predict.predict_environment(file, before)


def test_few_missing_readings_are_filled_in_and_many_are_refused(
    chaser: persist.ModelFile,
) -> None:
    times = synthetic.environment({"memory": 0.5}, np.random.default_rng(0), noise=0.005)
    complete = predict.predict_environment(chaser, times, variant="full")
    del times["stream.triad"]
    patched = predict.predict_environment(chaser, times, variant="full")
    assert patched.slowdown.median == pytest.approx(complete.slowdown.median, rel=0.05)
    assert any("stream.triad" in warning for warning in patched.warnings)
    with pytest.raises(InputError, match="no reading of 14 of"):
        predict.predict_environment(chaser, {"os.switch": 2e-6}, variant="full")


def test_a_model_can_be_named(chaser: persist.ModelFile) -> None:
    assert predict.predict_environment(chaser, synthetic.IDLE, model="CART").model == "CART"
    auto = predict.predict_environment(chaser, synthetic.IDLE, model="auto").model
    assert auto == chaser.variants["full"].chosen
    with pytest.raises(UnknownNameError, match="Did you mean CART"):
        predict.predict_environment(chaser, synthetic.IDLE, model="CARD")


def test_where_higher_is_better_slowdown_lowers_the_metric() -> None:
    runs = [
        dataclasses.replace(run, metric=1000.0 / run.cost, metric_unit="ops/s", better="higher")
        for run in synthetic.campaign("server", {"memory.random.128M": 0.8})
    ]
    times = synthetic.environment({"memory": 0.6}, np.random.default_rng(0))
    document = train_application(runs, models=("NNLOG",))
    prediction = predict.predict_environment(document, times)
    assert prediction.slowdown.median > 1.3
    assert prediction.solo_s == pytest.approx(1000.0 / 3.0, rel=0.05)
    assert prediction.metric_unit == "ops/s"
    assert prediction.runtime_s.median == pytest.approx(
        prediction.solo_s / prediction.slowdown.median
    )
    assert prediction.runtime_s.lower < prediction.runtime_s.median < prediction.runtime_s.upper


def neighbours(loads: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    return {name: [synthetic.signature(name, load)] for name, load in loads.items()}


def test_one_neighbour_is_its_signature(chaser: persist.ModelFile) -> None:
    company = neighbours({"stream": {"memory": 0.5}})
    times = company["stream"][0].fingerprint.times()
    for model in ("NNLOG", "RIDGE", "CART"):
        prediction = predict.predict_colocated(chaser, company, model=model)
        seen = predict.predict_environment(chaser, times, model=model)
        assert prediction.runtime_s == seen.runtime_s
    # A neighbour is there, whatever its readings show; in an environment nobody needs to be.
    prediction = predict.predict_colocated(chaser, company)
    seen = predict.predict_environment(chaser, times)
    assert 1.0 <= prediction.runtime_s.median / seen.runtime_s.median <= math.exp(MOST)


def test_more_neighbours_slow_more(chaser: persist.ModelFile) -> None:
    single = neighbours({"stream": {"memory": 0.3}})
    double = single | neighbours({"other": {"memory": 0.3}})
    alone, both = (
        predict.predict_colocated(chaser, company, model="NNLOG").slowdown.median
        for company in (single, double)
    )
    assert both > 1.1 * alone


def test_signatures_that_do_not_fit_the_model_are_refused(chaser: persist.ModelFile) -> None:
    with pytest.raises(UntrainedError, match="no signature"):
        predict.predict_colocated(chaser, {"stream": []})
    for changes, word in (
        ({"placement": "same-core"}, "placement"),
        ({"node_id": "node-2"}, "node"),
    ):
        other = synthetic.signature("stream", {}, **changes)
        with pytest.raises(IncompatibleError, match=word):
            predict.predict_colocated(chaser, {"stream": [other]})


def test_a_pair_is_predicted_both_ways(documents: dict[str, dict[str, Any]]) -> None:
    first = predict.predict_colocated(
        documents["chaser"], {"writer": [synthetic.signature("writer", {"write": 0.5})]}
    )
    second = predict.predict_colocated(
        documents["writer"], {"chaser": [synthetic.signature("chaser", {"memory": 0.5})]}
    )
    assert (first.app, second.app) == ("chaser", "writer")
    assert first.slowdown.median == pytest.approx(1.0, abs=0.06)


def test_the_quick_columns_serve_live_predictions(documents: dict[str, dict[str, Any]]) -> None:
    bare = {**documents["chaser"]}
    variant = predict.live_variant(bare)
    columns = predict.columns_needed(bare, variant)
    assert set(columns) <= set(synthetic.IDLE)
    assert predict.columns_needed(bare, "quick") == tuple(sorted(synthetic.QUICK))
    assert predict.live_variant(bare, "MEAN") == "quick"


@pytest.mark.parametrize(("under_load", "expected"), [(0.9, "full"), (0.0, "quick")])
def test_runs_under_load_choose_the_suite_of_live_predictions(
    chaser: persist.ModelFile, under_load: float, expected: str
) -> None:
    """Solo runs are in neither score."""
    quick = chaser.variants["quick"]
    own = quick.model()
    erring = dataclasses.replace(own, scores={**own.scores, "mean_abs_log": under_load})
    quick = dataclasses.replace(quick, models={**quick.models, own.name: erring})
    changed = dataclasses.replace(chaser, variants={**chaser.variants, "quick": quick})
    assert predict.live_variant(changed) == expected
    powers, law = PROGRAMS["chaser"]
    kinds = [run.kind for run in synthetic.campaign("chaser", powers, law=law)]
    assert "solo" in kinds
    for variant in chaser.variants.values():
        assert variant.model().scores["n"] == sum(kind != "solo" for kind in kinds)


def test_predicting_imports_no_learning_library() -> None:
    code = (
        "import sys, kongming.learning.predict;"
        "import kongming.learning.model_file, kongming.learning.colocation;"
        "print(sorted({'sklearn', 'lightgbm', 'scipy', 'deap'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
