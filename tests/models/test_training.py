"""Training: what is left out, which model is chosen, and that the document says all of it."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import math
import random
from typing import Any

import numpy as np
import pytest

from kongming.learning import dataset, model_names
from kongming.learning import model_file as persist
from kongming.learning.predict import predict_environment
from kongming.learning.registry import KINDS
from kongming.learning.training import train_application, training_sets
from kongming.learning.usefulness import not_better_than
from kongming.learning.validation import (
    Validation,
    choose,
    cross_validate,
    make_folds,
    repeat_noise,
)
from kongming.records.errors import IncompatibleError, InputError, UnknownNameError, UntrainedError
from kongming.records.judging import judge
from tests import builders
from tests.models import synthetic
from tests.variants import variants

POWERS = {"memory.random.128M": 0.6, "stream.triad": 0.2}
WHEN = "2026-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def runs() -> list[Any]:
    return synthetic.campaign("a", POWERS)


@pytest.fixture(scope="module")
def document(runs: list[Any]) -> dict[str, Any]:
    return train_application(runs, trained_at=WHEN)


def test_a_family_is_left_out_with_all_its_levels_and_mixes(runs: list[Any]) -> None:
    mix = builders.run(
        "a",
        4.0,
        synthetic.IDLE,
        levels=(builders.level("stream.triad"), builders.level("iobench.fsync")),
    )
    data = dataset.build([*runs, mix])
    folds = {fold.name: fold for fold in make_folds(data)}
    assert set(folds) == {run for group in data.groups for run in group}
    for name, fold in folds.items():
        assert not any(name in data.groups[i] for i in fold.train)
        assert not set(fold.train) & set(fold.test)
    row = data.run_ids.index(mix.id)
    assert [name for name in folds if row in folds[name].test] == ["memory", "write"]


def test_each_solo_run_is_scored_once_and_trains_elsewhere(runs: list[Any]) -> None:
    data = dataset.build(runs)
    folds = make_folds(data)
    for i, kind in enumerate(data.kinds):
        if kind == "solo":
            assert sum(i in fold.test for fold in folds) == 1
            assert sum(i in fold.train for fold in folds) == len(folds) - 1


def test_without_inducers_blocks_of_time_are_left_out() -> None:
    solos = synthetic.campaign("a", POWERS, intensities=(), solos=20)
    folds = make_folds(dataset.build(solos))
    assert [fold.name for fold in folds] == [f"block:{k}" for k in range(5)]
    assert all(np.all(np.diff(fold.test) == 1) for fold in folds)


def test_noise_is_what_repeats_differ_by() -> None:
    solos = synthetic.campaign("a", POWERS, intensities=(), solos=200, noise=0.02)
    data = dataset.build(solos)
    # The surrogates' own noise of 2 % reaches the program through its sensitivities as well.
    assert repeat_noise(data.levels, data.y) == pytest.approx(0.6745 * 0.024, rel=0.25)


def test_the_noise_of_few_solo_runs_is_corrected_once() -> None:
    """Each one's slowdown is about the others, which are farther from it than the mean of all."""
    random = np.random.default_rng(1)
    solos = [
        builders.run("app", math.exp(log), synthetic.environment({}, random))
        for log in (-0.03, -0.01, 0.01, 0.03)
    ]
    trained = train_application(solos, model="MEAN", models=("MEAN",), quick_columns=())
    # Half the range between quartiles, over the mean of four of which each is one.
    floor = 100 * 0.015 * math.sqrt(4 / 3)
    assert trained["variants"]["full"]["noise_floor_pct"] == pytest.approx(floor, rel=0.01)


def validation(model: str, residuals: list[float]) -> Validation:
    n = len(residuals)
    missed = np.array(residuals)
    return Validation(
        model, np.arange(n), missed, np.ones(n), np.zeros(n, dtype=np.intp), -missed, 0.0 * missed
    )


def test_ties_within_the_noise_go_to_the_simpler_model() -> None:
    kinds = [KINDS["MEAN"], KINDS["NNLOG"], KINDS["GBM"]]
    near = [validation("GBM", [0.050] * 25), validation("NNLOG", [0.053] * 25)]
    far = [validation("MEAN", [0.2] * 25)]
    assert choose([*near, *far], kinds, noise=0.02) == "NNLOG"
    assert choose([*near, *far], kinds, noise=0.01) == "GBM"


def test_every_model_is_there_in_both_variants_beside_its_errors(document: dict[str, Any]) -> None:
    assert set(document["variants"]) == {"full", "quick"}
    for variant in document["variants"].values():
        assert set(variant["models"]) == set(model_names())
        for model in variant["models"].values():
            assert {"median_pct", "mean_pct", "mean_abs_log", "n"} <= set(model["scores"])
    assert len(document["variants"]["full"]["columns"]) == len(synthetic.IDLE)
    assert document["variants"]["quick"]["columns"] == sorted(synthetic.QUICK)
    assert document["variants"]["full"]["noise_floor_pct"] > 0.0
    assert document["chosen"] != "MEAN"


def test_errors_are_of_runs_under_load() -> None:
    """Solo runs are all alike: what is said of loads that were left out is not about them."""

    def took(seconds: float, loads: dict[str, float], **changes: Any) -> Any:
        random = np.random.default_rng(int(100 * seconds) + len(loads))
        return builders.run("app", seconds, synthetic.environment(loads, random), **changes)

    alone = [took(1.0, {}) for _ in range(6)]
    slowed = [
        took(3.0, {builders.family_of(name): 1.0}, levels=(builders.level(name),))
        for name in ("memory.random.8M", "stream.triad", "compute.int")
    ]
    trained = train_application([*alone, *slowed], model="MEAN", models=("MEAN",), quick_columns=())
    mean = trained["variants"]["full"]["models"]["MEAN"]
    # Each fold learns from four of the first and two of the others: 10/6 instead of 3.
    assert mean["scores"]["mean_pct"] == pytest.approx(100 * (1 - 10 / 18))
    assert mean["scores"]["n"] == 3
    # Intervals rest on all of them.
    assert len(mean["residuals"]) == 9


def test_a_model_that_knows_solo_runs_alone_is_no_better_than_the_mean() -> None:
    data = dataset.build(synthetic.campaign("app", POWERS))
    rows = np.arange(len(data.y))
    solo = np.array([kind == "solo" for kind in data.kinds])

    def validated(name: str, of_solo_runs: float) -> Validation:
        residuals = np.where(solo, of_solo_runs, 0.1 + 0.01 * (rows % 2))
        return Validation(
            name, rows, residuals, np.ones(len(rows)), rows, data.y - residuals, data.y
        )

    own, mean = validated("NNLOG", 0.0), validated("MEAN", 0.4)
    assert "MEAN" not in not_better_than(own, mean)
    assert "MEAN" in not_better_than(own.under_load(data), mean.under_load(data))


def test_the_choice_beats_the_mean_in_validation(document: dict[str, Any]) -> None:
    full = document["variants"]["full"]
    errors = {name: model["scores"]["mean_abs_log"] for name, model in full["models"].items()}
    assert errors[full["chosen"]] < 0.5 * errors["MEAN"]


@pytest.mark.parametrize(
    "models", [("LM.GA", "CART", "NNLS"), pytest.param(None, marks=pytest.mark.thorough)]
)
def test_the_same_runs_and_seed_give_the_same_document_in_any_order(
    runs: list[Any], models: tuple[str, ...] | None
) -> None:
    shuffled = random.Random(5).sample(runs, len(runs))
    # The quick variant is trained alike, of other columns.
    quick = None if models is None else ()
    first, second = (
        train_application(order, models=models, quick_columns=quick, trained_at=WHEN)
        for order in (runs, shuffled)
    )
    assert first == second


def test_a_model_can_be_asked_for(runs: list[Any]) -> None:
    document = train_application(runs, model="CART", models=())
    assert document["chosen"] == document["variants"]["quick"]["chosen"] == "CART"
    with pytest.raises(UnknownNameError):
        train_application(runs, model="CARD")


def test_without_quick_columns_only_the_full_variant_is_trained(runs: list[Any]) -> None:
    bare = [dataclasses.replace(run, before=None) for run in runs]
    assert set(train_application(bare, models=())["variants"]) == {"full"}
    given = train_application(bare, models=(), quick_columns=["stream.triad", "no.such"])
    assert given["variants"]["quick"]["columns"] == ["stream.triad"]


def test_failed_runs_and_coruns_are_not_trained_on(runs: list[Any]) -> None:
    corun = builders.run("a", 99.0, synthetic.IDLE, kind="corun", neighbours=("b",))
    failed = builders.run("a", None, synthetic.IDLE)
    few = ("NNLS",)
    again = train_application([*runs, corun, failed], models=few)
    assert again["variants"] == train_application(runs, models=few)["variants"]
    assert again["runs"]["dropped"] == [{"name": failed.id, "reason": "failed: exit status 1"}]


def test_a_model_that_was_not_validated_is_not_called_better_than_anything() -> None:
    runs = synthetic.campaign("chaser", {"memory.random.128M": 0.6})
    few = [run for kind in ("solo", "induced") for run in runs if run.kind == kind]
    few = [*few[:2], *few[-2:]]
    document = train_application(few, models=("RIDGE",))
    for name, model in document["variants"]["full"]["models"].items():
        assert model["scores"] == {}, name
        assert model["not_better_than"] == ["MEAN", "1"], name
    prediction = predict_environment(document, synthetic.IDLE)
    assert prediction.not_better_than == ("MEAN", "1")
    assert any("is not clearly better than" in text for text in prediction.warnings)


def test_too_few_runs_are_refused(runs: list[Any]) -> None:
    solo = [run for run in runs if run.kind == "solo"]
    with pytest.raises(UntrainedError, match="Only 3 runs"):
        train_application(solo[:3])
    assert train_application(solo[:4], models=("NNLS", "CART"))["chosen"] == "MEAN"


def test_placements_are_never_mixed(runs: list[Any]) -> None:
    other = [dataclasses.replace(run, placement="same-core", id=run.id + "x") for run in runs]
    with pytest.raises(IncompatibleError, match="placement"):
        train_application([*runs, *other])
    document = train_application([*runs, *other], placement="same-core", models=())
    assert document["placement"] == "same-core"


def test_sets_keep_the_newest_identity_and_suite_of_each_node_and_placement(
    runs: list[Any],
) -> None:
    older = [
        dataclasses.replace(run, identity="old", id=f"{run.id}o", started_at="2020-01-01T00:00:00Z")
        for run in runs[:5]
    ]
    sets, notes = training_sets([*older, *runs])
    assert list(sets) == [("node-1", "cross-core")]
    assert {run.identity for run in sets["node-1", "cross-core"]} == {runs[0].identity}
    assert "5 runs of an earlier identity" in notes[0]


def test_the_set_of_the_node_that_was_measured_last_is_the_last(runs: list[Any]) -> None:
    older = [
        dataclasses.replace(
            run, node_id=node_id, id=f"{run.id}-{node_id}", started_at="2020-01-01T00:00:00Z"
        )
        for run in runs
        for node_id in ("aa", "zz")
    ]
    for given in ([*older, *runs], [*runs, *older]):
        sets, _ = training_sets(given)
        assert [node_id for node_id, _ in sets] == ["aa", "zz", "node-1"]


def test_a_model_keeps_the_verdict_on_its_own_runs(runs: list[Any]) -> None:
    """With how many of them the negative control left out: those that are missing."""
    solo = next(run for run in runs if run.kind == "solo")
    slow = {name: 3.0 * seconds for name, seconds in solo.before.times().items()}
    disturbed = dataclasses.replace(solo, before=builders.fingerprint(slow, suite="quick"))
    measured = [disturbed if run is solo else run for run in runs]
    document = train_application(measured, models=("MEAN",))
    assert document["profile"] == judge(measured).to_dict()
    (dropped,) = document["runs"]["dropped"]
    assert dropped["name"] == solo.id
    assert document["profile"]["left_out_runs"] == 1
    assert "1 run is left out of training" in str(persist.read(document).profile)


def test_sets_leave_out_a_spoiled_campaign_that_was_measured_again(runs: list[Any]) -> None:
    spoiled = [
        dataclasses.replace(run, campaign="spoiled", metric=run.metric * factor, id=f"{run.id}s")
        for run, factor in zip(runs, itertools.cycle((1.0, 9.0)), strict=False)
    ]
    assert judge(runs).verdict != judge(spoiled).verdict == "spoiled"
    sets, notes = training_sets([*spoiled, *runs])
    assert {run.campaign for run in sets["node-1", "cross-core"]} == {runs[0].campaign}
    assert f"{len(spoiled)} runs of spoiled profiles" in notes[0]


def test_a_document_survives_json_and_reads_back(document: dict[str, Any]) -> None:
    again = json.loads(json.dumps(document, allow_nan=False))
    original, restored = persist.read(document), persist.read(again)
    times = np.array([list(synthetic.IDLE.values())]) * np.linspace(0.5, 3.0, 20)[:, None]
    for name in model_names():
        a, b = (
            file.variants["full"].model(name).log_slowdown(times) for file in (original, restored)
        )
        np.testing.assert_array_equal(a, b)
        assert np.isfinite(a).all()


def test_a_tampered_document_is_refused(document: dict[str, Any]) -> None:
    changed = copy.deepcopy(document)
    changed["solo"]["median"] *= 2
    with pytest.raises(InputError, match="checksum"):
        persist.read(changed)


@pytest.mark.parametrize(
    "path",
    [
        ("variants", "full", "idle", "stream.triad"),
        ("variants", "full", "noise"),
        ("variants", "full", "chosen"),
        ("variants", "full", "models", "LM", "frozen", "coef"),
        ("variants", "full", "models", "SVM", "space"),
        ("variants", "quick", "columns"),
        ("variants", "full"),
        ("solo", "median"),
        ("better",),
    ],
)
@pytest.mark.parametrize("value", [None, -1.0, "x", []])
def test_a_document_with_a_wrong_value_is_refused_even_when_sealed(
    document: dict[str, Any], path: tuple[str, ...], value: Any
) -> None:
    changed = copy.deepcopy(document)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    for key in ("format", "version", "checksum"):
        changed.pop(key)
    with pytest.raises(InputError, match="damaged"):
        persist.read(persist.seal(changed))


def test_newer_and_foreign_documents_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(IncompatibleError, match=f"version {document['version'] + 1}"):
        persist.read({**document, "version": document["version"] + 1})
    with pytest.raises(InputError, match="no valid version"):
        persist.read({**document, "version": True})
    foreigners: list[object] = [None, [], {}, {"format": "pickle"}]
    for foreign in foreigners:
        with pytest.raises(InputError, match="not a model document"):
            persist.read(foreign)


def test_genetic_models_tell_what_they_selected(runs: list[Any], document: dict[str, Any]) -> None:
    read = persist.read(document).variants["full"]
    for name in ("LM.GA", "CART.GA"):
        entry = document["variants"]["full"]["models"][name]
        selection = read.model(name).selection
        assert selection is not None
        assert set(selection.surrogates) <= set(read.columns)
        assert selection.observations == entry["selection"]["observations"]
        assert set(selection.observations) == {"solo", *synthetic.INDUCERS}
        assert sum(selection.observations.values()) <= document["runs"]["total"]
        assert entry["evaluations"] > 0
        assert entry["validation_evaluations"] > entry["evaluations"]
        # What was not selected can move no prediction.
        for column, weight in entry["weights"].items():
            assert weight == 0.0 or column in selection.surrogates
    assert read.model("LM").selection is None


def test_a_selection_that_cannot_be_is_refused(document: dict[str, Any]) -> None:
    for key, value in (
        ("surrogates", ["no.such"]),
        ("surrogates", None),
        ("observations", {"solo": -1}),
        ("observations", {"solo": 1.5}),
        ("observations", []),
    ):
        changed = copy.deepcopy(document)
        changed["variants"]["full"]["models"]["LM.GA"]["selection"][key] = value
        for sealed in ("format", "version", "checksum"):
            changed.pop(sealed)
        with pytest.raises(InputError, match="damaged"):
            persist.read(persist.seal(changed))


@pytest.mark.parametrize("name", ["CART", pytest.param("SVM.GA", marks=pytest.mark.thorough)])
def test_a_model_that_is_asked_for_is_trained_beside_the_others_and_chosen(name: str) -> None:
    few = synthetic.campaign("a", POWERS, intensities=(1.0,), solos=3)
    bare = [dataclasses.replace(run, before=None) for run in few]
    full = train_application(bare, model=name, models=["LM"])["variants"]["full"]
    assert list(full["models"]) == ["MEAN", "LM", name]
    assert full["chosen"] == name
    with pytest.raises(UnknownNameError):
        train_application(bare, models=["LM", "LM.AG"])


def test_slow_models_are_trained_only_when_asked_for() -> None:
    assert "SVM.GA" not in model_names()
    assert "SVM.GA" in model_names(optional=True)


@pytest.mark.parametrize("name", ["LM.GA", "CART.GA", "RIDGE", "NNLS"])
def test_nothing_is_selected_by_what_it_is_scored_on(name: str, runs: list[Any]) -> None:
    data = dataset.build(runs)
    fold = make_folds(data)[2]
    spoiled = data.y.copy()
    spoiled[fold.test] += np.linspace(-1.0, 3.0, len(fold.test))
    plain = cross_validate(KINDS[name], data, [fold], noise=0.01)
    other = cross_validate(KINDS[name], dataclasses.replace(data, y=spoiled), [fold], noise=0.01)
    np.testing.assert_array_equal(plain.predictions, other.predictions)
    np.testing.assert_allclose(other.residuals - plain.residuals, (spoiled - data.y)[fold.test])


def test_scores_are_from_what_was_known_before_the_run(runs: list[Any]) -> None:
    data = dataset.build(runs)
    folds = make_folds(data)[::3]
    induced = np.array([kind == "induced" for kind in data.kinds])
    later = dataclasses.replace(data, known=data.known + 0.5 * induced[:, None])
    for name in ("NNLOG", "LM.GA"):
        plain, moved = (
            cross_validate(KINDS[name], candidate, folds, noise=0.01) for candidate in (data, later)
        )
        # The same models, since they learn from X; other environments to predict in.
        assert plain.evaluations == moved.evaluations
        assert plain.predictions.mean() < moved.predictions.mean()


def test_each_row_has_its_out_of_fold_prediction(runs: list[Any]) -> None:
    data = dataset.build(runs)
    folds = make_folds(data)
    validation = cross_validate(KINDS["LM"], data, folds, noise=0.01)
    assert set(validation.rows.tolist()) == set(range(len(data.y)))
    np.testing.assert_allclose(
        data.y[validation.rows] - validation.predictions, validation.residuals
    )
    some = cross_validate(KINDS["LM"], data, folds[:1], noise=0.01)
    assert some.rows.tolist() == folds[0].test.tolist()
    # Each fold is fitted by itself: what is left out of the others makes no difference.
    np.testing.assert_array_equal(some.predictions, validation.predictions[validation.folds == 0])


@pytest.mark.thorough
def test_surrogates_that_repeat_each_other_or_say_nothing_are_trained_around() -> None:
    few = synthetic.campaign("a", POWERS, intensities=(1.0,), solos=4)
    runs = [
        dataclasses.replace(
            run,
            fingerprint=builders.fingerprint(
                {**run.fingerprint.times(), "compute.copy": 1e-9 * number, "compute.still": 3e-9}
                | {f"stream.copy{k}": run.fingerprint.times()["stream.triad"] for k in range(3)}
            ),
        )
        for number, run in enumerate(few, start=1)
    ]
    document = train_application(runs, models=["LM", "LM.GA", "CART.GA"], quick_columns=())
    assert {d["name"] for d in document["dropped_columns"]} == {"compute.still"}
    read = persist.read(document).variants["full"]
    times = np.exp(np.random.default_rng(0).normal(-15.0, 4.0, (50, len(read.columns))))
    for model in read.models.values():
        slowdowns = np.exp(model.log_slowdown(times))
        assert np.isfinite(slowdowns).all()
        assert (slowdowns > 0.0).all()


@pytest.mark.parametrize("total", variants((4, 5, 9), 2))
def test_few_runs_make_genetic_models_too(total: int) -> None:
    runs = synthetic.campaign("a", POWERS, solos=2)
    solo = [run for run in runs if run.kind == "solo"]
    few = [*solo, *[run for run in runs if run.kind != "solo"][: total - 2]]
    document = train_application(few, models=["LM.GA", "CART.GA"], quick_columns=())
    assert set(document["variants"]["full"]["models"]) == {"MEAN", "LM.GA", "CART.GA"}
    persist.read(document)
