"""A fixed time that all contexts have: seconds of starting do not grow with the input."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kongming.arrays import Floats
from kongming.files.sealed_document import checksum
from kongming.records.errors import InputError
from kongming.scale.fit import model_file
from kongming.scale.fit.contexts.context_fitting import fit_contexts
from kongming.scale.fit.contexts.context_model import ContextModel
from kongming.scale.fit.fitting import Settings
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Configuration, Points, Runs
from kongming.scale.table import ContextTable
from tests.conftest import Kongming

SIZES = (5.0, 10.0, 20.0, 40.0, 80.0)
PASSES = (1.0, 2.0)
COUNTS = (2.0, 4.0, 6.0, 8.0, 12.0)
START = 40.0
Row = tuple[float, float, float, float]


def seconds(machines: float, size: float, passes: float, start: float = START) -> float:
    """Seconds of a job that starts, and then does work in proportion to its input."""
    return start + 8.0 * size * passes / machines + 0.1 * machines


def rows(start: float = START, seed: int = 0) -> list[Row]:
    """Return (machines, size, passes, seconds) of two runs of every configuration; the largest
    input is read one time only."""
    random = np.random.default_rng(seed)
    return [
        (m, size, passes, seconds(m, size, passes, start) * float(np.exp(noise)))
        for size in SIZES
        for passes in PASSES
        for m in COUNTS
        for noise in 0.02 * random.standard_normal(2)
        if (size, passes) != (80.0, 2.0)
    ]


def fitted(of: list[Row], iterations: Floats | None = None) -> ContextModel:
    machines, size, passes, time = (np.array(column) for column in zip(*of, strict=True))
    contexts = sorted(set(zip(size.tolist(), passes.tolist(), strict=True)))
    owner = [contexts.index(each) for each in zip(size.tolist(), passes.tolist(), strict=True)]
    ones = np.ones(len(machines))
    table = ContextTable(
        Runs(Points(machines, ones, ones if iterations is None else iterations), time),
        ("size", "passes"),
        tuple(contexts),
        np.array(owner),
        iterated=iterations is not None,
    )
    return fit_contexts(table, Settings(read_terms("default", items=None)))


def without_smallest(of: list[Row], *counts: float) -> list[Row]:
    """Leave out the smallest input with one pass, but for these machine counts."""
    return [row for row in of if row[1:3] != (5.0, 1.0) or row[0] in counts]


SMALLEST = {"size": "5", "passes": "1"}


@pytest.fixture(scope="module")
def without() -> ContextModel:
    """The model of runs without the smallest input."""
    return fitted(without_smallest(rows()))


def changed(of: ContextModel, **values: object) -> dict[str, Any]:
    """Return a sealed document of which the fixed time has other values, or is absent."""
    document: dict[str, Any] = json.loads(
        json.dumps(model_file.seal(ScaleFile("job", "now", (), contexts=(of,))))
    )
    del document["checksum"]
    (context,) = document["contexts"]
    context["fixed"] |= values
    if not values:
        del context["fixed"]
    return {**document, "checksum": checksum(document)}


def error(of: ContextModel) -> float:
    """Largest relative error at the smallest input."""
    at = of.at(SMALLEST)
    answers = np.array([at.predict(Configuration(m)).median for m in COUNTS])
    return float(np.max(np.abs(answers / [seconds(m, 5.0, 1.0) for m in COUNTS] - 1.0)))


@pytest.mark.parametrize("counts", [(), (12.0,)])
def test_the_start_of_a_smaller_input_is_not_shorter(counts: tuple[float, ...]) -> None:
    of = fitted(without_smallest(rows(), *counts))
    assert error(of) < 0.04
    assert of.report["fixed_time"]["seconds"] == pytest.approx(START, rel=0.15)


@pytest.mark.parametrize("iterations", [(1.0, 3.0, 10.0), (5.0, 20.0)])
def test_a_job_starts_once_for_all_of_its_iterations(iterations: tuple[float, ...]) -> None:
    table = without_smallest(rows(start=0.0))
    # Both runs of a configuration have the same iterations.
    turns = np.array([iterations[i // 2 % len(iterations)] for i in range(len(table))])
    runs = [(*row[:3], START + k * row[3]) for row, k in zip(table, turns.tolist(), strict=True)]
    of = fitted(runs, turns)
    assert of.fixed is not None
    assert of.fixed.seconds == pytest.approx(START, rel=0.25)
    for k in iterations:
        for m in COUNTS:
            answer = of.at(SMALLEST).predict(Configuration(m), iterations=k)
            expected = START + k * seconds(m, 5.0, 1.0, start=0.0)
            assert answer.median == pytest.approx(expected, rel=0.1)


def test_what_an_input_costs_once_is_a_term_of_its_iterations() -> None:
    """Reading the input once takes longer for a large one: no fixed time of all contexts is it."""
    random = np.random.default_rng(0)
    machines, size, turns = (
        each.ravel() for each in np.meshgrid(COUNTS, (10.0, 20.0, 40.0), (1.0, 10.0))
    )
    time = 3.0 * size + turns * (1.0 + 8.0 * size / machines)
    noisy = time * np.exp(0.02 * random.standard_normal(len(time)))
    rows: list[Row] = [(m, s, 1.0, t) for m, s, t in zip(machines, size, noisy, strict=True)]
    of = fitted(rows, turns)
    assert of.report["terms"]["setup/iterations"] > 0.0
    assert of.report["loo_error_pct"] < 5.0
    for s, m, k in product((10.0, 40.0), (2.0, 7.0), (1.0, 3.0, 100.0)):
        answer = of.at({"size": f"{s:g}", "passes": "1"}).predict(Configuration(m), iterations=k)
        assert answer.median == pytest.approx(3.0 * s + k * (1.0 + 8.0 * s / m), rel=0.1)
    # One number of iterations tells nothing of what is done once.
    assert "setup/iterations" not in fitted(rows, np.ones(len(rows))).report["terms"]


def test_far_beyond_the_runs_a_fixed_time_is_not_certain() -> None:
    times = {10.0: (100, 60, 40), 20.0: (190, 103, 63), 30.0: (280, 152, 81)}
    table = [
        (m, size, 1.0, t)
        for size in times
        for m, t in zip((2.0, 4.0, 8.0), times[size], strict=True)
    ]
    of = fitted([*table, (4.0, 45.0, 1.0, 230.0)])
    assert of.fixed is not None
    for size in ("45", "60"):
        answer = of.at({"size": size, "passes": "1"}).predict(Configuration(1000))
        # All of the work is done in no time, and no run tells what so many machines cost.
        assert answer.median == pytest.approx(of.fixed.seconds, rel=0.1)
        assert answer.lower < 0.5 * answer.median
        assert answer.upper > 2.0 * answer.median


def test_two_contexts_prove_no_fixed_time() -> None:
    times = ((4.0, 888.3), (4.0, 771.0), (8.0, 421.1), (8.0, 432.9), (16.0, 244.1), (2.0, 1724.7))
    of = fitted([(2.0, 60.7, 1.0, 1043.8), *((m, 91.1, 1.0, t) for m, t in times)])
    assert of.fixed is None
    assert of.at({"size": "60.7", "passes": "1"}).predict(Configuration(16)).median < 200.0


def test_a_fixed_time_has_to_help_most_contexts() -> None:
    # Nothing is common to these: 138, 29, 155 and 54 s are fixed.
    times = {10.0: (1775.0, 975.0, 582.0, 391.0), 20.0: (1975.0, 1021.0, 550.0, 321.0)}
    table = [
        (m, size, 1.0, t)
        for size in times
        for m, t in zip((2.0, 4.0, 8.0, 16.0), times[size], strict=True)
    ]
    of = fitted([*table, (4.0, 40.0, 1.0, 1232.0), (2.0, 80.0, 1.0, 275.0)])
    assert of.fixed is None
    assert of.at({"size": "80", "passes": "1"}).predict(Configuration(16)).median < 150.0


def test_a_run_that_contradicts_the_fixed_time_is_answered_without_it() -> None:
    times = ((2.0, 2421.0), (4.0, 1263.0), (8.0, 689.0), (16.0, 409.0))
    alone = ((4.0, 20.0, 87.0), (4.0, 40.0, 520.0), (16.0, 80.0, 366.0), (4.0, 160.0, 275.0))
    table = [*((m, 10.0, t) for m, t in times), *alone]
    of = fitted([(m, size, 1.0, t) for m, size, t in table])
    assert of.fixed is not None
    for m, size, t in alone:
        at = of.at({"size": f"{size:g}", "passes": "1"})
        answer = at.predict(Configuration(m))
        assert answer.lower < t < answer.upper
    given = {"size": "20", "passes": "1"}
    at, other = of.at(given), replace(of, fixed=None).at(given)
    assert at.spread is of.known
    assert at.predict(Configuration(8)) == other.predict(Configuration(8))
    assert of.at({"size": "40", "passes": "1"}).spread is of.fixed.known


def test_times_in_proportion_have_no_fixed_part() -> None:
    of = fitted(without_smallest(rows(start=0.0)))
    assert of.fixed is None
    assert of.report["fixed_time"] is None


def test_a_context_with_a_fit_of_its_own_is_answered_without_it() -> None:
    of = fitted(rows())
    assert of.fixed is not None
    other = replace(of, fixed=None)
    for size, passes in of.contexts:
        given = {"size": f"{size:g}", "passes": f"{passes:g}"}
        for m in (1.0, 3.0, 6.0, 24.0):
            at = Configuration(m)
            assert of.at(given).predict(at) == other.at(given).predict(at)


def test_intervals_are_of_the_fit_that_answers() -> None:
    random = np.random.default_rng(9)
    of = fitted(without_smallest(rows(seed=1)))
    assert of.fixed is not None
    at = of.at(SMALLEST)
    assert at.spread is of.fixed.new
    held = []
    for m in COUNTS:
        answer = at.predict(Configuration(m))
        times = seconds(m, 5.0, 1.0) * np.exp(0.02 * random.standard_normal(40))
        held += ((times >= answer.lower) & (times <= answer.upper)).tolist()
        assert answer.upper < 1.5 * answer.lower
    assert np.mean(held) > 0.8


def test_left_out_contexts_are_reported_as_new_ones_are_answered(without: ContextModel) -> None:
    assert without.report["context_out_error_pct"] < 3.0


def test_a_saved_fixed_time_answers_the_same(tmp_path: Path) -> None:
    of = fitted(without_smallest(rows(), 12.0))
    path = tmp_path / "model.json"
    model_file.write_file(path, ScaleFile("job", "now", (), contexts=(of,)))
    (again,) = model_file.read_file(path).contexts
    for given in (SMALLEST, {"size": "7", "passes": "1"}, {"size": "10", "passes": "2"}):
        expected, answer = (each.at(given).predict(Configuration(3)) for each in (of, again))
        assert answer.median == pytest.approx(expected.median, rel=1e-9)
        assert answer.upper == pytest.approx(expected.upper, rel=1e-6)


def test_a_file_without_a_fixed_time_is_read(without: ContextModel) -> None:
    (old,) = model_file.read(changed(without)).contexts
    assert old.fixed is None
    assert error(old) > 0.08


@pytest.mark.parametrize(
    ("key", "value"), [("seconds", -1.0), ("values", [0.0]), ("sizes", [1.0]), ("trend", {})]
)
def test_a_damaged_fixed_time_is_refused(without: ContextModel, key: str, value: object) -> None:
    with pytest.raises(InputError, match="damaged"):
        model_file.read(changed(without, **{key: value}))


def test_the_order_of_rows_changes_no_fixed_time(without: ContextModel) -> None:
    table = without_smallest(rows())
    mixed = [table[i] for i in np.random.default_rng(2).permutation(len(table))]
    expected, answer = (
        each.at(SMALLEST).predict(Configuration(3)) for each in (without, fitted(mixed))
    )
    assert answer == expected


@pytest.mark.thorough
def test_the_report_has_the_fixed_seconds(kongming: Kongming, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    lines = [",".join(f"{value:.12g}" for value in row) for row in without_smallest(rows())]
    path.write_text("\n".join(("machines,size,passes,seconds", *lines)) + "\n")
    fit = ("scale", "fit", path, "--context", "size,passes")
    shown = kongming(*fit)
    assert shown.returncode == 0, shown.stderr
    report = json.loads(kongming(*fit, "--json").stdout)
    fixed = report["fixed_time"]
    assert fixed["seconds"] == pytest.approx(START, rel=0.15)
    assert list(fixed["terms"]) == list(report["terms"])
    assert f"{fixed['seconds']:.3g} s" in " ".join(shown.stdout.split())
