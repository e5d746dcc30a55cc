"""What is fitted: known coefficients come back, and jobs that Ernest's terms miss are met."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from kongming.records.errors import CannotAnswerError, InputError
from kongming.scale.fit import model_file
from kongming.scale.fit.ernest import fit_ernest, solve, solve_each
from kongming.scale.fit.fit_file import read_ranges
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.model import warnings_of
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.terms import matrix, read_terms
from kongming.scale.fit.validation import repeat_noise
from kongming.scale.points import Configuration, Points, Runs
from tests.scale.shapes import KEYS, PUBLISHED, fitted, grid, measured, published


@given(seed=st.integers(0, 10**6), n=st.integers(1, 20), p=st.integers(1, 5))
def test_many_times_are_solved_at_once_as_each_alone(seed: int, n: int, p: int) -> None:
    random = np.random.default_rng(seed)
    machines, scale = random.integers(1, 64, n).astype(float), random.choice([0.5, 1.0], n)
    columns = (np.ones(n), scale / machines, np.log(machines), machines, np.zeros(n))
    A = np.column_stack(columns[:p]) * 10.0 ** random.integers(-6, 6)
    center = A @ random.choice([0.0, 1.0, 40.0], p) + 1.0
    ys = center * np.exp(0.3 * random.standard_normal((8, n))) - random.choice([0.0, 5.0])
    each = np.array([solve(A, y) for y in ys])
    np.testing.assert_allclose(solve_each(A, ys) @ A.T, each @ A.T, atol=1e-9 * np.abs(ys).max())


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_coefficients_are_recovered(name: str) -> None:
    # All kinds are tried for some only: what fits the coefficients is the same.
    kind = "auto" if name in ("als", "kmeans") else "ernest"
    report = fitted(measured(published(name), grid()), kind=kind).report
    assert tuple(report["terms"]) == ("intercept", "scale/machines", "log(machines)", "machines")
    for key, value in zip(KEYS, PUBLISHED[name], strict=True):
        assert report["terms"][key] == pytest.approx(value, rel=1e-6, abs=1e-6)
    assert report["loo_error_pct"] < 1e-6


@pytest.mark.parametrize(
    "key",
    ["sqrt", *(pytest.param(k, marks=pytest.mark.thorough) for k in ("nlogn", "square", "nlog2n"))],
)
def test_extensions_are_recovered_alone_and_by_auto(key: str) -> None:
    items, points = 1e5, grid()
    (term,) = [
        candidate for candidate in read_terms(key, items=items).terms if candidate.key == key
    ]
    column = matrix([term], points, items)[:, 0]
    size = 30.0 / float(column.max())
    runs = Runs(points, 2.0 + 50.0 * points.load + 0.05 * points.machines + size * column)
    for terms in (key, "auto"):
        coefficients = fitted(runs, terms, items=items, kind="ernest").report["terms"]
        assert coefficients[key] == pytest.approx(size, rel=1e-6)
        assert coefficients["intercept"] == pytest.approx(2.0, rel=1e-5)


def test_a_users_expression_is_a_term() -> None:
    runs = measured(lambda m, s: 3.0 + 100.0 * s / m + 0.2 * np.ceil(64 * s / m), grid())
    coefficients = fitted(runs, "ceil(64*scale/machines)", kind="ernest").report["terms"]
    assert coefficients["ceil(64*scale/machines)"] == pytest.approx(0.2, rel=1e-6)


def test_auto_adds_nothing_to_a_job_that_the_default_terms_describe() -> None:
    report = fitted(measured(published("kmeans"), grid(), 0.03), "auto", kind="ernest").report
    assert tuple(report["terms"]) == ("intercept", "scale/machines", "log(machines)", "machines")
    assert "none of" in report["terms_reason"]


@pytest.mark.thorough
def test_with_noise_no_worse_than_relative_ernest_at_four_times_the_machines() -> None:
    ours, plain = [], []
    question = Points(np.array([64.0]), np.array([1.0]), np.ones(1))
    for name in ("kmeans", "regression", "pca", "naive.bayes"):
        shape = published(name)
        truth = float(shape(np.array([64.0]), np.array([1.0]))[0])
        for seed in range(4):
            runs = measured(shape, grid(scales=(0.01, 0.04, 0.1)), 0.05, seed)
            ours.append(abs(float(fitted(runs).seconds(question)[0]) / truth - 1.0))
            A = matrix(read_terms("default", items=None).terms, runs.points, None)
            coef, _ = nnls(A / runs.seconds[:, None], np.ones(len(runs)))
            far = matrix(read_terms("default", items=None).terms, question, None)
            plain.append(abs(float((far @ coef)[0]) / truth - 1.0))
    # These jobs are made of the very terms that Ernest fits: an average of forms cannot be better,
    # and must not be worse by more than a tenth.
    assert np.mean(ours) <= 1.1 * np.mean(plain)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.floats(0.01, 1.0), st.floats(0.01, 1000.0)),
        min_size=4,
        max_size=12,
    )
)
def test_coefficients_are_never_negative(rows: list[tuple[int, float, float]]) -> None:
    values = np.array(rows)
    runs = Runs(Points(values[:, 0], values[:, 1], np.ones(len(rows))), values[:, 2])
    terms = read_terms("default", items=None).terms
    for relative in (False, True):
        fit = fit_ernest(runs, terms, relative=relative)
        assert (fit.coef >= 0.0).all()
        assert (fit.predict(runs.points) > 0.0).all()


def cliff(machines: np.ndarray, scale: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    load = scale / machines
    return np.asarray(2.0 + 100.0 * load + np.where(load > 0.03, 20.0 + 900.0 * (load - 0.03), 0.0))


def test_two_configurations_tell_no_error() -> None:
    """The residuals of what was fitted are no errors of what was left out."""
    report = fitted(measured(cliff, grid(machines=(2, 4), scales=(0.05,)), 0.02)).report
    assert report["loo_error_pct"] is None
    assert not report["good_fit"]
    assert any("the error is not known" in text for text in report["warnings"])


@pytest.mark.thorough
def test_a_memory_cliff_with_runs_on_both_sides_is_met() -> None:
    runs = measured(cliff, grid(), 0.02)
    model = fitted(runs)
    assert model.report["stack"][0]["form"] == "cliff"
    assert 0.02 < model.report["cliff"]["load"] < 0.04
    assert model.report["loo_error_pct"] < model.report["baselines"]["ernest"] / 3.0
    inside = model.predict(Configuration(10, 0.05)).median
    assert inside == pytest.approx(2.5, rel=0.1)


def test_a_cliff_with_one_run_behind_it_is_not_crossed() -> None:
    points = grid(machines=(2, 4, 8, 16))
    points = Points(
        np.append(points.machines, 1.0), np.append(points.scale, 0.1), np.ones(len(points) + 1)
    )
    model = fitted(measured(cliff, points.take(points.load < 0.03), 0.02))
    assert model.edge is None
    keep = (points.load < 0.03) | (points.load > 0.09)
    model = fitted(measured(cliff, points.take(keep), 0.02))
    assert model.edge is not None
    with pytest.raises(CannotAnswerError, match="as when memory is full"):
        model.predict(Configuration(1, 0.08))
    assert model.predict(Configuration(32, 0.1)).median == pytest.approx(2.3, rel=0.15)


def test_a_stated_memory_limit_is_kept() -> None:
    model = fitted(measured(published("pca"), grid()), memory_load=0.05)
    with pytest.raises(CannotAnswerError, match="fits into memory"):
        model.predict(Configuration(1, 0.06))


@pytest.mark.thorough
def test_more_machines_that_make_it_slower_are_reported() -> None:
    model = fitted(measured(lambda m, s: 1.0 + 80.0 * s / m + 0.6 * m, grid(), 0.02))
    fastest = model.report["fastest"]
    assert fastest["slower_with_more"]
    assert fastest["machines"] == 4
    far, near = (model.predict(Configuration(m, 0.1)).median for m in (32, 4))
    assert far > 3.0 * near


@pytest.mark.thorough
def test_many_runs_of_a_wavy_job_are_followed_locally() -> None:
    def waves(machines: np.ndarray, scale: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        # 10 tasks at scale 0.1: the first wave starts cold.
        rounds = np.ceil(100.0 * scale / machines)
        return np.asarray(1.0 + 4.0 + 2.0 * (rounds - 1.0))

    counts = tuple(float(m) for m in range(1, 17))
    model = fitted(measured(waves, grid(machines=counts, scales=(0.025, 0.05, 0.075, 0.1)), 0.02))
    assert model.report["loo_error_pct"] < 0.8 * model.report["baselines"]["ernest"]
    assert model.report["nested_error_pct"] < model.report["baselines"]["repeat_nearest"]


def test_first_runs_that_are_slower_are_told_and_can_be_left_out() -> None:
    runs = measured(published("kmeans"), grid(repeats=3), 0.01)
    cold = runs.seconds.copy()
    cold[::3] *= 1.4
    slow = Runs(runs.points, cold)
    warned = fitted(slow, kind="ernest")
    assert any(
        "first runs take 1.3" in text or "first runs take 1.4" in text
        for text in warned.report["warnings"]
    )
    dropped = fitted(slow, drop_first=True, kind="ernest")
    assert dropped.report["loo_error_pct"] < warned.report["loo_error_pct"]
    assert dropped.report["terms"]["scale/machines"] == pytest.approx(149.58, rel=0.03)
    assert dropped.report["noise_floor_pct"] < 2.0 < warned.report["noise_floor_pct"]
    assert dropped.report["runs"] == len(runs) * 2 // 3


def test_the_noise_floor_beside_errors_is_that_of_means_of_repeats() -> None:
    """A perfect model's error, of which the floor of single runs is twice as much."""
    shape = published("pca")
    runs = measured(shape, grid(repeats=4), 0.05)
    report = fitted(runs, kind="ernest").report
    at = runs.configurations
    perfect = 100.0 * np.mean(np.abs(shape(at.machines, at.scale) / runs.typical - 1.0))
    assert report["noise_floor_of_means_pct"] == pytest.approx(perfect, rel=0.25)
    assert report["noise_floor_of_means_pct"] == pytest.approx(report["noise_floor_pct"] / 2.0)
    once = runs.take(np.arange(0, len(runs), 4))
    assert fitted(once, kind="ernest").report["noise_floor_of_means_pct"] is None


def test_the_noise_floor_is_what_repeats_differ_by() -> None:
    repeated, once = (
        fitted(measured(published("pca"), grid(repeats=repeats), 0.05), kind="ernest").report
        for repeats in (4, 1)
    )
    assert repeated["noise_floor_pct"] == pytest.approx(4.0, rel=0.2)
    assert once["noise_floor_pct"] is None


def test_equal_repeats_are_no_noise_to_compare_with() -> None:
    """Dividing by their noise of nearly 0 made the error billions of times as large."""
    runs = measured(lambda m, s: 5.0 + 10.0 * np.sin(9.0 * m) ** 2 + 0.0 * s, grid(repeats=2))
    report = fitted(runs, kind="ernest").report
    (text,) = (text for text in report["warnings"] if "times the repeat noise" in text)
    times = round(report["loo_error_pct"])
    assert text.startswith(f"the error is {times} times the repeat noise, counted as 1 %")


def test_a_threshold_tells_a_bad_fit() -> None:
    runs = measured(lambda m, s: 5.0 + 10.0 * np.sin(9.0 * m) ** 2 + 0.0 * s, grid())
    report = fitted(runs, kind="ernest", threshold_pct=10.0).report
    assert not report["good_fit"]
    assert any("above the threshold of 10 %" in text for text in report["warnings"])


def test_the_warnings_of_a_fit_that_models_share_are_given_once() -> None:
    """Machine types of one model over contexts share its fit: each repeated all of its warnings.
    Two fits that say the same are two all the same."""
    model = fitted(measured(lambda m, s: 5.0 + 10.0 * s / m, grid()), kind="ernest")
    report = {"warnings": ["2 failed runs left out"]}
    shared = [replace(model, machine_type=name, report=report) for name in ("small", "large")]
    assert warnings_of(shared) == ("2 failed runs left out",)
    apart = [replace(each, report=dict(report)) for each in shared]
    assert [text.partition(": ")[2] for text in warnings_of(apart)] == report["warnings"] * 2
    assert warnings_of(apart[:1]) == warnings_of(shared)


def test_the_noise_floor_is_not_zero_where_most_repeats_are_equal() -> None:
    """A clock of seconds: 3 of 25 repeats are off by 1 s."""
    points = grid(machines=(1, 2, 4, 8, 16), scales=(1.0,), repeats=5)
    seconds = np.round(3.0 + 40.0 / points.machines)
    seconds[[10, 16, 22]] += 1.0
    plain = np.sqrt(sum(np.log1p(1.0 / t) ** 2 for t in (13.0, 8.0, 6.0)) / 20.0)
    runs = Runs(points, seconds)
    assert repeat_noise(runs) == pytest.approx(plain, rel=1e-3)
    # As many repeats off as the limit allows for count in the same way.
    seconds[[11, 17]] += 1.0
    more = Runs(points, seconds)
    assert plain < repeat_noise(more) < 2.0 * plain


@pytest.mark.thorough
def test_iterations_are_sampled_and_scaled() -> None:
    points = grid()
    turns = np.where(np.arange(len(points)) % 2 == 0, 5.0, 20.0)
    points = Points(points.machines, points.scale, turns)
    seconds = turns * (0.4 + 30.0 * points.load + 0.01 * points.machines) + 7.0
    terms = read_terms("default", items=None)
    model = fit_runs(Runs(points, seconds), Settings(terms), iterated=True)
    assert model.report["terms"]["setup/iterations"] == pytest.approx(7.0, rel=1e-5)
    predicted = model.predict(Configuration(16, 1.0), iterations=500)
    assert predicted.median == pytest.approx(500 * (0.4 + 30 / 16 + 0.16) + 7.0, rel=1e-5)
    with pytest.raises(InputError, match="--iterations"):
        model.predict(Configuration(16, 1.0))


def test_own_runs_correct_answers_at_their_own_iterations() -> None:
    """Slow runs of one iteration say nothing of ten on the same machines."""
    machines = np.tile(np.repeat([2.0, 4.0, 6.0, 8.0, 12.0], 2), 2)
    turns = np.repeat([1.0, 10.0], 10)
    seconds = 50.0 + turns * (2.0 + 40.0 / machines)
    seconds *= np.exp(0.01 * np.random.default_rng(0).standard_normal(20))
    seconds[(machines == 4.0) & (turns == 1.0)] *= 1.6
    runs = Runs(Points(machines, np.ones(20), turns), seconds)
    model = fit_runs(runs, Settings(read_terms("default", items=None)), iterated=True)
    for iterations, expected in ((1, 1.6 * 62.0), (10, 170.0)):
        predicted = model.predict(Configuration(4), iterations=iterations)
        assert predicted.median == pytest.approx(expected, rel=0.05)
    document = json.loads(json.dumps(model_file.seal(ScaleFile(None, "now", (model,)))))
    read = model_file.read(document).single()
    assert read.predict(Configuration(4), iterations=10) == predicted


@pytest.mark.thorough
def test_iterations_that_were_not_run_are_extrapolated() -> None:
    points = grid(machines=(1, 2, 4, 8))
    points = Points(points.machines, points.scale, np.full(len(points), 10.0))
    seconds = 10.0 * published("regression")(points.machines, points.scale)
    terms = read_terms("default", items=None)
    model = fit_runs(Runs(points, seconds), Settings(terms), iterated=True)
    at = Configuration(4, 0.1)
    near = model.predict(at, iterations=10)
    assert not near.extrapolating
    previous = near.upper / near.lower
    for iterations in (20, 1000, 1_000_000):
        far = model.predict(at, iterations=iterations)
        assert any(
            "iterations" in reason and "above the trained" in reason for reason in far.reasons
        )
        assert far.median == pytest.approx(near.median * iterations / 10, rel=1e-9)
        assert far.upper / far.lower > 1.05 * previous
        previous = far.upper / far.lower
    # One iteration has what a run costs once all the same.
    single = model.predict(at, iterations=1)
    assert single.upper > 2.0 * single.median
    most = 1.0 + 0.3 * (10 - 1)
    # The runs have no noise, so the interval is as wide as what is spent once, and the drift.
    few, many = (model.predict(at, iterations=k) for k in (1, 100))
    drift = np.exp(0.3 * np.log(10))
    assert most < few.upper / few.median < drift * most
    assert few.median / few.lower < drift
    assert 1.0 - 0.3 * 0.9 > many.lower / many.median > (1.0 - 0.3 * 0.9) / drift
    assert many.upper / many.median < drift
    for prediction in (few, many):
        assert model.probability(prediction, prediction.upper) == pytest.approx(0.95, abs=1e-6)
        assert model.probability(prediction, prediction.lower) == pytest.approx(0.05, abs=1e-6)
    saved = read_ranges(model.ranges.document())
    assert saved == model.ranges
    old = {key: value for key, value in model.ranges.document().items() if key != "iterations"}
    assert read_ranges(old).beyond(at, 1e6) == ()


@pytest.mark.thorough
@pytest.mark.parametrize("noise", [0.03, 0.1])
def test_intervals_hold_as_often_as_they_say(noise: float) -> None:
    held, total = 0, 0
    for seed in range(12):
        shape = published("regression")
        model = fitted(measured(shape, grid(), noise, seed), kind="ernest-relative")
        for machines, scale in ((3, 0.05), (10, 0.09), (16, 0.1), (24, 0.2), (48, 0.5), (64, 1.0)):
            new = measured(
                shape,
                Points(np.full(8, float(machines)), np.full(8, scale), np.ones(8)),
                noise,
                1000 + seed,
            )
            answer = model.predict(Configuration(machines, scale))
            held += int(((new.seconds >= answer.lower) & (new.seconds <= answer.upper)).sum())
            total += len(new)
    assert 0.82 <= held / total <= 0.985


def test_outside_is_extrapolating_and_wider() -> None:
    model = fitted(measured(published("regression"), grid(), 0.05), kind="ernest-relative")
    inside = model.predict(Configuration(8, 0.06))
    outside = model.predict(Configuration(200, 1.0))
    assert not inside.extrapolating
    assert outside.extrapolating
    assert any("machines 200 is above the trained 1 to 16" in text for text in outside.reasons)
    assert outside.upper / outside.median > inside.upper / inside.median


def test_probability_agrees_with_the_interval() -> None:
    model = fitted(measured(published("regression"), grid(), 0.05), kind="ernest-relative")
    answer = model.predict(Configuration(8, 0.06), level=0.8)
    assert model.probability(answer, answer.upper) == pytest.approx(0.9, abs=1e-6)
    assert model.probability(answer, answer.lower) == pytest.approx(0.1, abs=1e-6)
    assert model.probability(answer, answer.median) == pytest.approx(0.5, abs=1e-6)
