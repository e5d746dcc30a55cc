"""What says the same gives the same answers: the order of rows, the units of times and scales."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.records.errors import CannotAnswerError
from kongming.scale.fit.ernest import ErnestFit
from kongming.scale.fit.model import ScaleModel
from kongming.scale.points import Configuration, Points, Runs
from tests.scale.shapes import fitted
from tests.variants import variants

QUESTIONS = ((1, 1.0), (2, 0.5), (5, 1.0), (8, 0.25), (16, 1.0), (64, 1.0), (3, 0.01))


@st.composite
def tables(draw: st.DrawFn) -> Runs:
    """Grids with some configurations, repeats, noise, and in some of them a memory cliff."""
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    scales = (1.0,) if draw(st.booleans()) else (0.1, 0.25, 0.5, 1.0)
    cells = [(m, s) for m in (1, 2, 4, 8, 16) for s in scales]
    count = draw(st.integers(4, 9))
    if len(cells) > count:
        cells = [cells[i] for i in sorted(random.choice(len(cells), count, replace=False))]
    if len({m for m, _ in cells}) < 2:
        cells += [(3, 1.0), (32, 1.0)]
    cells = [cell for cell in cells for _ in range(draw(st.sampled_from((1, 1, 2))))]
    machines, scale = (np.array(column, dtype=float) for column in zip(*cells, strict=True))
    seconds = 5.0 + 100.0 * scale / machines + 3.0 * np.log(machines) + 0.2 * machines
    if draw(st.booleans()):
        seconds = np.where(scale / machines > 0.4, 3.0 * seconds, seconds)
    seconds *= np.exp(0.05 * random.standard_normal(len(seconds)))
    return Runs(Points(machines, scale, np.ones(len(machines))), seconds)


def answers(model: ScaleModel, seconds: float = 1.0, scale: float = 1.0) -> list[float]:
    """Medians and intervals in the units of the first table, NaN where nothing is predicted."""
    values = []
    for machines, share in QUESTIONS:
        try:
            at = model.predict(Configuration(machines, share * scale))
        except CannotAnswerError:
            values += [np.nan] * 3
        else:
            values += [each / seconds for each in (at.median, at.lower, at.upper)]
    return values


def same(a: ScaleModel, b: ScaleModel, *, seconds: float = 1.0, scale: float = 1.0) -> None:
    expected, values = answers(a), answers(b, seconds, scale)
    assert values == pytest.approx(expected, rel=1e-4, nan_ok=True)


KINDS = st.sampled_from(
    ("auto", "ernest", "ernest-relative", "ernest-piecewise", "ernest-residuals", "repeat-nearest")
)


@given(runs=tables(), kind=KINDS, seed=st.integers(0, 1000))
@settings(max_examples=2 * settings.default.max_examples // 5)
def test_the_order_of_rows_changes_no_answer(runs: Runs, kind: str, seed: int) -> None:
    shuffled = runs.take(np.random.default_rng(seed).permutation(len(runs)))
    a, b = fitted(runs, kind=kind), fitted(shuffled, kind=kind)
    assert answers(b) == pytest.approx(answers(a), rel=1e-12, nan_ok=True)
    assert b.report["loo_error_pct"] == pytest.approx(a.report["loo_error_pct"], rel=1e-12)


def test_first_runs_are_those_of_the_table() -> None:
    """Sorting comes after the first run of each configuration was dropped."""
    machines = np.repeat([1.0, 2.0, 4.0, 8.0], 3)
    seconds = 100.0 / machines * np.tile([1.5, 1.0, 1.01], 4)
    runs = Runs(Points(machines, np.ones(12), np.ones(12)), seconds)
    later = runs.take(np.tile([False, True, True], 4))
    assert answers(fitted(runs, drop_first=True)) == answers(fitted(later))


UNIT_FACTORS = (1e-6, 1e3, 1e6, 3600.0, 7.0)
UNITS = st.sampled_from(UNIT_FACTORS)


@given(runs=tables(), kind=KINDS, unit=UNITS)
@settings(max_examples=2 * settings.default.max_examples // 5)
def test_the_unit_of_seconds_changes_no_answer(runs: Runs, kind: str, unit: float) -> None:
    other = Runs(runs.points, runs.seconds * unit)
    same(fitted(runs, kind=kind), fitted(other, kind=kind), seconds=unit)


@pytest.mark.thorough
@given(runs=tables(), kind=KINDS, unit=UNITS)
@settings(max_examples=2 * settings.default.max_examples // 5)
def test_the_unit_of_the_scale_changes_no_answer(runs: Runs, kind: str, unit: float) -> None:
    points = runs.points
    other = Runs(Points(points.machines, points.scale * unit, points.iterations), runs.seconds)
    same(fitted(runs, kind=kind), fitted(other, kind=kind), scale=unit)


@pytest.mark.thorough
@pytest.mark.parametrize("unit", UNIT_FACTORS)
def test_equal_gaps_between_loads_are_taken_by_their_order(unit: float) -> None:
    """Of more places of a cliff than are tried, rounding chose those between equal gaps."""
    machines = np.repeat([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0], 3)
    scale = np.tile([0.1, 0.3, 0.7], 7)
    seconds = (5.0 + 100.0 * scale / machines) * np.where(scale / machines > 0.1, 3.0, 1.0)
    seconds *= np.exp(0.05 * np.random.default_rng(0).standard_normal(21))
    first, other = (
        fitted(Runs(Points(machines, scale * u, np.ones(21)), seconds)) for u in (1.0, unit)
    )
    same(first, other, scale=unit)


@pytest.mark.thorough
@given(runs=tables(), kind=KINDS)
@settings(max_examples=2 * settings.default.max_examples // 5)
def test_no_interval_of_a_single_kind_reaches_a_hundred_times_its_median(
    runs: Runs, kind: str
) -> None:
    """A fold that few runs fit by chance has no deviation to compare its error with."""
    model = fitted(runs, kind="ernest-relative" if kind == "auto" else kind)
    for machines, share in QUESTIONS:
        at = model.predict(Configuration(machines, share))
        assert at.median / 100.0 < at.lower < at.upper < 100.0 * at.median


def test_a_cliff_with_runs_at_one_load_beyond_has_a_step_alone() -> None:
    """At one load a slope is the step in other units: seconds or hours decided between them."""
    machines = np.array([1, 2, 2, 4, 4, 8, 8, 16, 16], dtype=float)
    scale = np.array([1.0, 0.5, 1.0, 0.5, 1.0, 0.5, 1.0, 0.5, 1.0])
    seconds = 5.0 + 100.0 * scale / machines + np.where(machines == 1.0, 400.0, 0.0)
    runs = Runs(Points(machines, scale, np.ones(9)), seconds)
    for unit in (1.0, 1e6):
        model = fitted(Runs(runs.points, seconds * unit))
        cliff = model.report.get("cliff")
        assert cliff is None or cliff["slope_s"] == 0.0


@pytest.mark.parametrize("kind", ["ernest", "ernest-relative"])
@pytest.mark.parametrize("unit", variants(UNIT_FACTORS))
def test_what_rounding_leaves_of_a_term_is_no_term(kind: str, unit: float) -> None:
    """As many terms as runs would say nothing of the noise: a coefficient of 1e-12 decided."""
    machines = np.array([1.0, 2.0, 4.0, 8.0])
    runs = Runs(
        Points(machines, np.full(4, 0.1), np.ones(4)), np.array([120.0, 72.08, 49.16, 38.74])
    )
    first, other = (fitted(Runs(runs.points, runs.seconds * u), kind=kind) for u in (1.0, unit))
    same(first, other, seconds=unit)
    assert isinstance(other.fit, ErnestFit)
    assert other.fit.active == 3


@pytest.mark.parametrize("unit", variants(UNIT_FACTORS))
def test_terms_that_two_machine_counts_do_not_distinguish_are_chosen_by_their_order(
    unit: float,
) -> None:
    """At two counts the intercept, log(machines) and machines fit equally well."""
    machines = np.repeat([2.0, 16.0], 6)
    scale = np.tile(np.repeat([0.05, 0.1, 0.2], 2), 2)
    few = (263.2571, 457.3763, 474.2738, 617.2458, 1071.5128, 994.3358)
    many = (48.8802, 48.5163, 56.0442, 54.2439, 72.7782, 72.6571)
    seconds = np.array([*few, *many])
    points = Points(machines, scale, np.ones(12))
    first, other = (fitted(Runs(points, seconds * u), kind="ernest-piecewise") for u in (1.0, unit))
    same(first, other, seconds=unit)
    assert isinstance(other.fit, ErnestFit)
    intercept, _, *of_machines = other.fit.coef[:4]
    assert intercept > 0.0
    assert of_machines == [0.0, 0.0]
    # The others would predict 74 s and 326 s, which the interval holds.
    far = first.predict(Configuration(128, 0.2))
    assert far.upper > 326.0 > 74.0 > far.median
