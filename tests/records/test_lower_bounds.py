"""Runs that were cut off, among those that came to their end."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.evaluate.predicted_pairs import Scale, training_mean
from kongming.records.lower_bounds import completed, completed_costs
from kongming.records.run import CUT_OFF, Run
from tests import builders


def loaded(cost: float, *, cut: bool = False) -> Run:
    passive = {CUT_OFF: 1.0} if cut else {}
    return builders.run("any", cost, levels=(builders.level(),), passive=passive)


def test_a_cost_that_was_cut_off_is_the_mean_of_those_above_it() -> None:
    runs = [loaded(2.0), loaded(5.0, cut=True), loaded(8.0), loaded(18.0), loaded(20.0, cut=True)]
    assert completed_costs(runs[:-1]) == pytest.approx([2.0, 12.0, 8.0, 18.0])
    # Of another it is known that it took 20 s or more.
    above = (8.0 * 18.0 * 20.0) ** (1.0 / 3.0)
    assert completed_costs(runs) == pytest.approx([2.0, above, 8.0, 18.0, 20.0])
    _, bounds = completed([math.log(run.cost) for run in runs], [run.cut_off for run in runs])
    assert bounds == [False, False, False, False, True]


@given(st.lists(st.tuples(st.floats(0.1, 1e3), st.booleans()), max_size=12))
def test_no_lower_bound_is_passed_and_no_measured_cost_changes(
    given_runs: list[tuple[float, bool]],
) -> None:
    runs = [loaded(cost, cut=cut) for cost, cut in given_runs]
    for run, cost in zip(runs, completed_costs(runs), strict=True):
        assert cost >= run.cost * (1.0 - 1e-12) if run.cut_off else cost == run.cost


def test_the_mean_of_training_takes_no_lower_bound_for_a_runtime() -> None:
    """Slowed 14 times by any load: two of six runs were let go on."""
    file: Any = SimpleNamespace(app="any", solo=SimpleNamespace(median=1.0))
    runs = [builders.run("any", 1.0), *[loaded(14.0)] * 6]
    ended = [run if place < 3 else loaded(5.0, cut=True) for place, run in enumerate(runs)]
    scale = Scale("bracketed", {"any": 1.0})
    assert training_mean(ended, file, scale) == pytest.approx(training_mean(runs, file, scale))
    failed = replace(loaded(5.0, cut=True), error="the load ended during the run")
    assert training_mean([*ended, failed], file, scale) == training_mean(ended, file, scale)
