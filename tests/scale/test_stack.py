"""The average of all forms: better than plain Ernest where tables are as clusters make them."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.scale.generated import SHAPES, table
from kongming.scale.fit import low_end
from kongming.scale.fit.ernest import fit_ernest
from kongming.scale.fit.robust import fit_robust
from kongming.scale.fit.shrinkage import SIZE, standard_error
from kongming.scale.fit.spread import interval_factor
from kongming.scale.fit.stack import LeftOut, StackFit, fit_stack
from kongming.scale.fit.terms import read_terms
from kongming.scale.fit.validation import repeat_noise, run_noise
from kongming.scale.points import Configuration, Points, Runs
from tests.scale.shapes import fitted, grid, measured, published
from tests.variants import variants

TERMS = read_terms("default", items=None).terms


def error(predicted: np.ndarray, runs: Runs) -> float:  # type: ignore[type-arg]
    return float(np.mean(np.abs(predicted / runs.typical - 1.0)))


def largest_out(runs: Runs) -> tuple[Runs, Runs]:
    counts = np.unique(runs.points.machines)
    small = runs.points.machines < counts[-1]
    return runs.take(small), runs.take(~small)


def memory_cliff() -> Runs:
    """Two machines take eight times what four do, then all is regular."""
    points = grid((2, 4, 6, 8, 10, 12), (1.0,), repeats=5)

    def seconds(m: np.ndarray, s: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return np.asarray(np.where(m < 3, 1600.0, 40.0 + 640.0 * s / m))

    return measured(seconds, points, 0.03)


@pytest.mark.thorough
def test_the_mean_error_is_below_that_of_plain_ernest_in_every_kind_of_table() -> None:
    ours, plain, relative = [], [], []
    for i in range(10):
        training, left = largest_out(table(200 + i, SHAPES[i % len(SHAPES)]).runs)
        if training.count < 3 or len(np.unique(training.points.machines)) < 2:
            continue
        points = left.configurations
        ours.append(error(fit_stack(training, TERMS).predict(points), left))
        plain.append(error(fit_ernest(training, TERMS).predict(points), left))
        fit = fit_ernest(training, TERMS, relative=True, rounds=0)
        relative.append(error(fit.predict(points), left))
    assert len(ours) >= 8
    assert np.mean(ours) <= 0.75 * np.mean(plain)
    assert np.mean(ours) <= 1.1 * np.mean(relative)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_no_kind_of_table_is_worse_than_relative_ernest_or_the_best_form() -> None:
    """Some hundred tables of all shapes, with the largest count, the smallest, or each between left
    out: what benchmarks/scale says is reached. That a mean of 0.75 of the best form's is not, it
    says as well."""
    rows = []
    for i in range(24 * len(SHAPES)):
        runs = table(300_000 + i, SHAPES[i % len(SHAPES)]).runs
        counts = np.unique(runs.points.machines)
        errors = []
        for count in counts[[0, len(counts) // 2, -1]]:
            out = runs.points.machines == count
            training, left = runs.take(~out), runs.take(out)
            if training.count < 3 or len(np.unique(training.points.machines)) < 2:
                continue
            fit, points = fit_stack(training, TERMS), left.configurations
            forms = np.exp(fit.logs(points)).T
            errors.append([error(each, left) for each in (fit.predict(points), *forms)])
        if errors:
            rows.append(np.mean(errors, axis=0))
    assert len(rows) >= 280
    ours, *forms = np.array(rows).T + 0.005
    assert ours.mean() <= 1.05 * min(form.mean() for form in forms)
    ratio = ours / forms[fit.names.index("ernest-relative")]
    assert np.quantile(ratio, 0.95) <= 1.1
    assert np.exp(np.mean(np.log(ratio))) <= 1.0


def test_a_cliff_at_few_machines_does_not_spoil_the_rest() -> None:
    training, left = largest_out(memory_cliff())
    points = left.configurations
    assert error(fit_stack(training, TERMS).predict(points), left) < 0.1
    assert error(fit_ernest(training, TERMS).predict(points), left) > 0.3
    model = fitted(memory_cliff())
    # What was measured there is not contradicted either.
    assert model.predict(Configuration(2)).median == pytest.approx(1600.0, rel=0.1)
    assert model.predict(Configuration(6)).median == pytest.approx(147.0, rel=0.1)


@pytest.mark.parametrize(("low", "high"), [(4.0, 8.0), (2.0, 8.0)])
@pytest.mark.parametrize("deviation", [0.005, 0.03, 0.3])
def test_an_interval_over_a_step_ends_where_its_probability_does(
    low: float, high: float, deviation: float
) -> None:
    cliff = low_end.between(5.0, low, high, 1.705)
    usual = float(np.log(interval_factor(deviation, 30.0, 0.9)))
    upper = low_end.upper(deviation, 30.0, 0.9, cliff, usual)
    assert low_end.probability(deviation, 30.0, upper, cliff) == pytest.approx(0.95, abs=0.005)


def test_what_an_iteration_has_of_the_set_up_is_no_memory() -> None:
    random = np.random.default_rng(0)
    machines, turns = (
        np.repeat(each.ravel(), 3) for each in np.meshgrid([2.0, 4, 8, 16], [1.0, 10, 100])
    )
    seconds = (100.0 / turns + 5.0 + 100.0 / machines) * turns
    noisy = seconds * np.exp(0.02 * random.standard_normal(len(seconds)))
    runs = Runs(Points(machines, np.ones(len(machines)), turns), noisy)
    model = replace(fitted(runs), iterated=True)
    for count in (3, 5, 6, 12):
        reasons = model.predict(Configuration(count), iterations=1.0).reasons
        assert not any("memory" in reason for reason in reasons)


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [5, pytest.param(12, marks=pytest.mark.thorough)])
def test_memory_ends_anywhere_between_a_slow_count_and_the_next(seeds: int) -> None:
    def runs_of(counts: tuple[float, ...], end: float, random: np.random.Generator) -> Runs:
        machines = np.repeat(counts, 3)
        seconds = (5.0 + 100.0 / machines) * np.where(machines <= end, 8.0, 1.0)
        noisy = seconds * np.exp(0.05 * random.standard_normal(len(seconds)))
        return Runs(Points(machines, np.ones(len(machines)), np.ones(len(machines))), noisy)

    held = []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        end = float(np.exp(random.uniform(np.log(4.0), np.log(8.0))))
        model = fitted(runs_of((4, 8, 12, 16, 24), end, random))
        for count in (5.0, 6.0, 7.0):
            answer = model.predict(Configuration(count))
            assert "memory may end between the machines that were run" in answer.reasons
            likely = 100.0 * (1.0 - np.log(8.0 / count) / np.log(2.0))
            assert f"memory suffices, as it does to {likely:.0f} %" in answer.reasons[-1]
            taken = float(runs_of((count,), end, random).seconds[0])
            held.append(answer.lower <= taken <= answer.upper)
            assert model.probability(answer, answer.upper) == pytest.approx(0.95, abs=0.02)
        assert not any(model.predict(Configuration(count)).extrapolating for count in (4, 8, 10))
    assert np.mean(held) >= 0.85
    regular = fitted(runs_of((4, 8, 12, 16, 24), 1.0, np.random.default_rng(0)))
    assert not any(regular.predict(Configuration(count)).extrapolating for count in range(4, 25))


def test_without_evidence_the_answer_stays_near_relative_ernest() -> None:
    """Of two configurations none can be left out: another form may not decide the answer."""
    fit = fit_stack(measured(published("regression"), grid((2, 4), (1.0,)), 0.02), TERMS)
    points = grid((8, 64), (1.0,))
    assert len(fit.left) == 0
    assert (fit.weights(points)[:, fit.anchor] >= 0.8).all()
    way = fit.logs(points)[:, fit.anchor] - np.log(fit.predict(points))
    apart = fit.logs(points)[:, fit.anchor, None] - fit.logs(points)
    assert (np.abs(way) <= 0.2 * np.abs(apart).max(axis=1)).all()


def test_between_two_counts_noise_does_not_move_the_answer() -> None:
    """Of a job that Ernest's terms describe: the forms differ by less than they err."""
    for seed in range(3):
        runs = measured(published("regression"), grid((2, 4, 6, 8, 10, 12), (1.0,), 5), 0.08, seed)
        between = runs.points.machines == 6
        fit, points = fit_stack(runs.take(~between), TERMS), runs.take(between).configurations
        apart = fit.logs(points) - fit.logs(points)[:, [fit.anchor]]
        assert np.abs(apart).max() > 0.005
        assert np.abs(np.log(fit.predict(points)) - fit.logs(points)[:, fit.anchor]) < 1e-6


def test_outliers_among_the_repeats_count_little() -> None:
    runs = measured(published("regression"), grid(scales=(1.0,), repeats=5), 0.02)
    slow = runs.seconds.copy()
    slow[::5] *= 2.5
    slow[1::15] *= 1.8
    truth = published("regression")(np.array([32.0]), np.array([1.0]))[0]
    question = Points.of([Configuration(32)])
    predicted = fit_stack(Runs(runs.points, slow), TERMS).predict(question)
    assert float(predicted[0]) == pytest.approx(truth, rel=0.15)


@pytest.mark.parametrize("factor", variants((3.0, 10.0)))
def test_an_outlier_among_many_repeats_widens_no_interval(factor: float) -> None:
    runs = measured(published("regression"), grid(machines=(1, 2, 4, 8), repeats=3), 0.02, 2)
    seconds = runs.seconds.copy()
    seconds[5] *= factor
    usual, other = fitted(runs), fitted(Runs(runs.points, seconds))
    for at in (Configuration(8, 0.1), Configuration(3, 0.05), Configuration(16, 0.1)):
        a, b = usual.predict(at), other.predict(at)
        assert b.median == pytest.approx(a.median, rel=0.03)
        assert b.upper / b.lower < 1.1 * a.upper / a.lower


def test_noise_of_which_a_third_are_outliers_is_no_smaller_for_them() -> None:
    """Runs that differ as often as that are not set aside: the next one will differ too."""
    runs = measured(published("regression"), grid(machines=(1, 2, 4, 8), repeats=5), 0.02, 2)
    seconds = runs.seconds.copy()
    seconds[::5] *= 1.5
    seconds[2::5] *= 1.5
    assert repeat_noise(Runs(runs.points, seconds)) > 0.15
    assert repeat_noise(runs) == pytest.approx(0.02, rel=0.15)


def test_without_repeats_the_noise_is_not_taken_for_none() -> None:
    """Each run was nearly reproduced, and its interval was that of a run without noise."""
    held, errors, remembered = [], [], []
    for seed in range(4):
        random = np.random.default_rng(seed)
        runs = measured(published("regression"), grid((1, 2, 4, 8), (0.5, 1.0)), 0.2, seed)
        model = fitted(runs)
        assert any("the noise of a run is not known" in text for text in model.report["warnings"])
        truth = published("regression")(runs.points.machines, runs.points.scale)
        answers = [model.predict(at) for at in runs.points.configurations()]
        for answer, seconds in zip(answers, truth.tolist(), strict=True):
            again = seconds * np.exp(0.2 * random.standard_normal(50))
            held.append(np.mean((answer.lower <= again) & (again <= answer.upper)))
        median = np.array([answer.median for answer in answers])
        errors.append(np.mean(np.abs(median / truth - 1.0)))
        remembered.append(np.mean(np.abs(runs.seconds / truth - 1.0)))
    assert np.mean(held) >= 0.85
    assert np.mean(errors) <= 0.8 * np.mean(remembered)


def test_repeats_alone_tell_their_noise() -> None:
    runs = measured(published("regression"), grid((1, 2, 4, 8), (1.0,), 2), 0.05)
    assert run_noise(runs, np.full(4, 0.3)) == repeat_noise(runs)
    once = runs.take(np.arange(0, len(runs), 2))
    assert repeat_noise(once) == 0.0
    assert run_noise(once, np.empty(0)) == pytest.approx(0.1)
    assert run_noise(once, np.full(40, 0.2)) == pytest.approx(0.2, rel=0.1)
    warnings = fitted(runs).report["warnings"]
    assert not any("the noise of a run" in text for text in warnings)


def test_a_single_repeat_does_not_tell_the_noise() -> None:
    """It is near the first run by chance: the noise was that of the pair, and intervals narrow."""
    runs = measured(published("regression"), grid((1, 2, 4, 8), (0.5, 1.0)), 0.2)
    again = runs.take(np.append(np.arange(len(runs)), 0))
    near = Runs(again.points, np.append(runs.seconds, 1.005 * runs.seconds[0]))
    residuals = np.full(8, 0.2)
    assert run_noise(runs, residuals) > run_noise(near, residuals)
    assert run_noise(near, residuals) > 0.8 * run_noise(runs, residuals)
    without, model = fitted(runs), fitted(near)
    assert any("there is 1 repeat" in text for text in model.report["warnings"])
    for at in runs.points.configurations():
        widths = [
            answer.upper / answer.lower
            for answer in (each.predict(at) for each in (without, model))
        ]
        assert widths[1] > widths[0] ** 0.8


@pytest.mark.parametrize(
    ("counts", "repeats", "source"),
    [
        ((2, 4), 1, "Intervals assume 10 %, which no run tells"),
        ((2, 4), 2, ", from few repeats:"),
        ((2, 4, 8), 1, ", from the errors on left-out configurations:"),
        ((2, 4, 8), 2, ", from the errors on left-out configurations and few repeats:"),
    ],
)
def test_the_warning_of_noise_names_what_it_is_from(
    counts: tuple[int, ...], repeats: int, source: str
) -> None:
    """With two configurations none was left out, and there are no errors on any."""
    runs = measured(published("regression"), grid(counts, (1.0,), repeats), 0.05)
    (text,) = (each for each in fitted(runs).report["warnings"] if "the noise of a run" in each)
    assert source in text


def test_few_configurations_stay_near_relative_ernest() -> None:
    """A superlinear speed-up, which the terms do not have: it has to be learned from the runs."""

    def superlinear(m: np.ndarray, s: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return np.asarray(3.0 + 900.0 * s / m**1.8)

    shares = []
    for counts in ((4, 8), (1, 2, 3, 4, 6, 8, 12, 16)):
        fit = fit_stack(measured(superlinear, grid(counts, (1.0,), 3), 0.02), TERMS)
        (weights,) = fit.weights(Points.of([Configuration(10)]))
        assert weights.sum() == pytest.approx(1.0)
        assert (weights >= 0.0).all()
        shares.append(float(weights[fit.names.index("ernest-relative")]))
    assert shares[1] < 0.3 < 0.5 < shares[0]


def test_the_error_at_the_largest_count_is_that_of_a_model_of_the_smaller_ones() -> None:
    """It was predicted by the forms that had predicted that very count best."""

    def superlinear(m: np.ndarray, s: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return np.asarray(3.0 + 900.0 * s / m**1.8)

    runs = measured(superlinear, grid((2, 4, 6, 8, 12), (1.0,)), 0.02)
    training, left = largest_out(runs)
    expected = 100.0 * error(fitted(training).seconds(left.configurations), left)
    assert fitted(runs).report["largest_out_error_pct"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", ["auto", "ernest-relative"])
def test_terms_that_only_the_largest_count_tells_do_not_predict_it(kind: str) -> None:
    """They were chosen from all runs."""

    def late(m: np.ndarray, s: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return np.asarray(3.0 + 300.0 * s / m + 0.005 * m**2)

    runs = measured(late, grid((1, 2, 4, 8, 16, 32), (1.0,)), 0.01)
    training, left = largest_out(runs)
    models = [fitted(each, "auto,machines**2", kind=kind) for each in (runs, training)]
    assert models[0].report["terms"].keys() != models[1].report["terms"].keys()
    expected = 100.0 * error(models[1].seconds(left.configurations), left)
    assert models[0].report["largest_out_error_pct"] == pytest.approx(expected, rel=1e-6)


def test_the_coverage_counts_each_run_once() -> None:
    """An interval is of a run, and the mean of several is nearer to its middle."""
    runs = measured(published("regression"), grid((1, 2, 4, 8, 16), (1.0,), 3), 0.02)
    seconds = runs.seconds.copy()
    seconds[[4, 7]] *= 10.0
    coverage = fitted(Runs(runs.points, seconds)).report["coverage"]
    assert coverage["runs"] == len(runs)
    assert coverage["measured"] == pytest.approx(1.0 - 2.0 / len(runs))


def test_the_weights_are_reported_and_add_up() -> None:
    report = fitted(memory_cliff()).report
    assert report["model"] == "stack"
    for key in ("weight", "weight_beyond"):
        assert sum(entry[key] for entry in report["stack"]) == pytest.approx(1.0)
    forms = {entry["form"]: entry for entry in report["stack"]}
    assert {"ernest", "ernest-relative", "cliff", "power-law", "nearest"} <= set(forms)
    assert set(forms["ernest"]["terms"]) == set(report["terms"])
    assert {"ernest", "ernest_relative", "amdahl", "repeat_nearest"} == set(report["baselines"])


@pytest.mark.thorough
def test_intervals_beyond_the_largest_run_hold() -> None:
    held = []
    for i in range(10):
        training, left = largest_out(table(500 + i).runs)
        if training.count < 3 or len(np.unique(training.points.machines)) < 2:
            continue
        model = fitted(training)
        for at, seconds in zip(left.points.configurations(), left.seconds.tolist(), strict=True):
            if model.edge is not None and at.scale / at.machines > model.edge.inside:
                continue
            answer = model.predict(at)
            held.append(answer.lower <= seconds <= answer.upper)
    assert np.mean(held) >= 0.75


def test_an_interval_grows_with_the_distance() -> None:
    model = fitted(measured(published("regression"), grid(scales=(1.0,), repeats=3), 0.04))
    widths = [
        answer.upper / answer.median
        for answer in (model.predict(Configuration(m)) for m in (8, 32, 128, 512))
    ]
    assert widths == sorted(widths)


def test_a_robust_fit_ignores_what_the_others_contradict() -> None:
    runs = measured(published("pca"), grid(scales=(1.0,)))
    wrong = runs.seconds.copy()
    wrong[2] *= 6.0
    points = runs.points.take(np.arange(len(runs)) != 2)
    fit = fit_robust(Runs(runs.points, wrong), TERMS)
    assert fit.predict(points) == pytest.approx(np.delete(runs.seconds, 2), rel=0.05)


def test_a_question_takes_no_square_of_what_was_left_out() -> None:
    """With a thousand configurations it took forty times as long as all else."""
    model = fitted(measured(published("regression"), grid(machines=(1, 2, 4, 8)), 0.05))
    fit = model.fit
    assert isinstance(fit, StackFit)
    count, times = len(fit.left), 60
    left = LeftOut(
        places=np.tile(fit.left.places, (times, 1)) + np.repeat(np.arange(times), count)[:, None],
        errors=np.tile(fit.left.errors, (times, 1)),
        averaged=np.tile(fit.left.averaged, times),
        residuals=np.tile(fit.left.residuals, times),
        alone=fit.left.alone,
    )
    assert len(np.unique(left.configurations)) == times * len(np.unique(fit.left.configurations))
    many = replace(model, fit=replace(fit, left=left))
    tracemalloc.start()
    try:
        many.predict(Configuration(3, 0.05))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(left) ** 2


def test_what_is_left_out_of_a_cluster_errs_alike() -> None:
    random = np.random.default_rng(0)
    near, (way, needed) = random.random((3, 12)), 0.1 * random.standard_normal((2, 12))
    share = np.full(3, 0.4)
    clusters = np.arange(12) % 5
    error = standard_error(near, way, needed, share, clusters)
    single = near * way * (needed - 0.4 * way)
    sums = np.stack([single[:, clusters == i].sum(axis=1) for i in range(5)])
    expected = np.sqrt(np.sum(sums**2, axis=0)) / (near @ way**2 + SIZE)
    assert error == pytest.approx(expected, rel=1e-12)
