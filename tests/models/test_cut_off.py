"""Runs that were ended before their program was are lower bounds, and are learned as such."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.learning import dataset, model_file, predict
from kongming.learning.registry import KINDS
from kongming.learning.training import train_application
from kongming.learning.validation import cross_validate, make_folds
from kongming.records.run import CUT_OFF, Run
from tests import builders
from tests.models import synthetic

SLOWED = 14.0
"""How many times longer the program takes under any load."""

ENDED_AT = 5.0

TENTHS = st.integers(10, 400).map(lambda number: number / 10.0)
"""Slowdowns that differ by more than rounding, or not at all."""


def waits_its_turn(sensitivity: Mapping[str, float], times: Mapping[str, float]) -> float:
    """As slow under one load as under another: so is a program that commits to a disk again and
    again, and waits for its processor each time, on a core that is shared."""
    slowest = max(times[name] / synthetic.IDLE[name] for name in times)
    return SLOWED if slowest > 1.3 else 1.0


def campaign(complete: int) -> list[Run]:
    """The first ``complete`` runs under a load come to their end, the others are cut off."""
    runs = synthetic.campaign("commits", {}, law=waits_its_turn)
    alone = 3.0
    loaded = [run.id for run in runs if run.kind == "induced"]
    return [
        replace(run, metric=ENDED_AT * alone, wall_s=ENDED_AT * alone, passive={CUT_OFF: 1.0})
        if run.id in loaded[complete:]
        else run
        for run in runs
    ]


def under_load(data: dataset.Dataset) -> dict[str, float]:
    """The environment of a training run under a load at its full intensity."""
    rows = [i for i, names in enumerate(data.inducers) if names == ("memory.random.128M",)]
    row = max(rows, key=lambda i: float(data.known[i].sum()))
    return dict(zip(data.columns, np.exp(data.known[row]).tolist(), strict=True))


def trained(runs: Sequence[Run]) -> model_file.ModelFile:
    """The full variant alone: it answers here, and the quick one is trained alike."""
    return model_file.read(train_application(runs, models=("STACK",), quick_columns=()))


def test_what_was_cut_off_is_as_slow_as_what_came_to_its_end() -> None:
    data = dataset.build(campaign(complete=6))
    assert data.known_up_to == math.inf
    targets = data.y[[kind == "induced" for kind in data.kinds]]
    assert targets == pytest.approx(math.log(SLOWED), abs=0.1)
    file = trained(campaign(complete=6))
    answer = predict.predict_environment(file, under_load(data))
    assert answer.slowdown.median == pytest.approx(SLOWED, rel=0.15)


def test_where_nothing_came_to_its_end_a_prediction_is_at_least_what_is_known() -> None:
    data = dataset.build(campaign(complete=0))
    assert data.known_up_to == pytest.approx(math.log(ENDED_AT), abs=0.1)
    file = trained(campaign(complete=0))
    answer = predict.predict_environment(file, under_load(data))
    assert answer.slowdown.at_least
    assert answer.slowdown.median == pytest.approx(ENDED_AT, rel=0.1)
    assert any(
        "were ended" in warning and "may be larger" in warning for warning in answer.warnings
    )
    assert not any("hardly smaller" in warning for warning in answer.warnings)
    alone = predict.predict_environment(file, synthetic.IDLE)
    assert not alone.slowdown.at_least


def of_one_family(slowed: float, others: Sequence[float] = ()) -> list[Run]:
    """A campaign in which the runs under loads of memory take so many times as long, and those of
    other families ``others``; all further ones were cut off."""
    alone, left, runs = 3.0, list(others), []
    for run in synthetic.campaign("commits", {}, law=waits_its_turn):
        families = {builders.family_of(level.surrogate) for level in run.levels}
        if run.kind == "solo":
            runs.append(run)
        elif "memory" in families:
            runs.append(replace(run, metric=slowed * alone, wall_s=slowed * alone))
        elif left:
            slow = left.pop() * alone
            runs.append(replace(run, metric=slow, wall_s=slow))
        else:
            ended = ENDED_AT * alone
            runs.append(replace(run, metric=ended, wall_s=ended, passive={CUT_OFF: 1.0}))
    return runs


@pytest.mark.parametrize("others", [(), (10.0, 12.0)])
@pytest.mark.parametrize("name", ["NNLOG", "MEAN", "NNLS"])
def test_a_family_that_is_left_out_has_no_part_in_what_others_count_as(
    name: str, others: Sequence[float]
) -> None:
    validations = []
    for slowed in (14.0, 28.0):
        data = dataset.build(of_one_family(slowed, others))
        assert data.completed
        fold = next(fold for fold in make_folds(data) if fold.name == "memory")
        validations.append(cross_validate(KINDS[name], data, [fold], noise=0.01))
    np.testing.assert_array_equal(validations[0].predictions, validations[1].predictions)
    loaded = validations[0].measured > 0.5
    assert loaded.any()
    if others:
        assert validations[1].measured[loaded] == pytest.approx(math.log(28.0), abs=0.1)
        return
    # Without the family nothing is known beyond five times: its runs count as no more, and one that
    # is predicted to take at least so long is right.
    for validation in validations:
        assert validation.measured[loaded] == pytest.approx(math.log(ENDED_AT), abs=0.1)


def test_what_the_heaviest_loads_take_at_least_is_not_said_of_lighter_ones() -> None:
    """Heavy loads slow a program forty times here and came first, until its patience was used up at
    thirty, thirty and fifteen times; the others slow it six times and were ended at five."""
    alone, patient = 3.0, [30.0, 30.0, 15.0]

    def weight(run: Run) -> float:
        return sum(level.intensity for level in run.levels)

    heavy = 40.0 * alone
    taken = {}
    runs = synthetic.campaign("waits", {}, law=waits_its_turn)
    loaded = sorted((run for run in runs if run.kind == "induced"), key=weight, reverse=True)
    for run, ended in zip(loaded, patient + [ENDED_AT] * len(loaded), strict=False):
        taken[run.id] = ended * alone
    assert max(taken.values()) < heavy
    data = dataset.build(
        replace(run, metric=taken[run.id], wall_s=taken[run.id], passive={CUT_OFF: 1.0})
        if run.id in taken
        else run
        for run in runs
    )
    assert data.known_up_to == pytest.approx(math.log(ENDED_AT), abs=0.1)
    targets = data.y[[kind == "induced" for kind in data.kinds]]
    assert float(targets.max()) < math.log(6.0)


@pytest.mark.thorough
def test_wherever_it_may_be_beyond_what_is_known_a_prediction_says_at_least() -> None:
    """The heaviest loads slow a program by more than 5 times here, and were ended at that."""
    runs = synthetic.campaign("climbs", dict.fromkeys(synthetic.IDLE, 0.9), solos=12, noise=0.1)
    solo = 3.0
    ended = [
        replace(run, metric=ENDED_AT * solo, wall_s=ENDED_AT * solo, passive={CUT_OFF: 1.0})
        if run.kind == "induced" and run.cost > ENDED_AT * solo
        else run
        for run in runs
    ]
    cut = {run.id for run in ended if run.cut_off}
    assert 3 <= len(cut) < len(runs) / 2
    data = dataset.build(ended)
    file = trained(ended)
    for row, (run_id, kind) in enumerate(zip(data.run_ids, data.kinds, strict=True)):
        times = dict(zip(data.columns, np.exp(data.known[row]).tolist(), strict=True))
        answer = predict.predict_environment(file, times).slowdown
        if run_id in cut:
            assert answer.at_least
        elif kind == "solo":
            assert not answer.at_least


def test_what_was_cut_off_says_nothing_of_the_repeat_noise() -> None:
    runs = campaign(complete=0)
    repeated = [replace(run, levels=(builders.level("compute.int"),)) for run in runs]
    data = dataset.build(
        [run if run.kind == "solo" else again for run, again in zip(runs, repeated, strict=True)]
    )
    keys = [key for key, kind in zip(data.levels, data.kinds, strict=True) if kind == "induced"]
    assert len(keys) == len(set(keys)) > 2


@given(
    st.lists(st.tuples(TENTHS, st.booleans()), min_size=1, max_size=12),
)
def test_a_lower_bound_is_never_learned_as_less(under_load: Sequence[tuple[float, bool]]) -> None:
    random = np.random.default_rng(1)
    loads = [
        builders.run(
            "any",
            3.0 * slowdown,
            synthetic.environment({"memory": 0.1 * (number + 1)}, random),
            levels=(builders.level("stream.triad", intensity=(number + 1) / 20.0),),
            passive={CUT_OFF: 1.0} if cut else {},
        )
        for number, (slowdown, cut) in enumerate(under_load)
    ]
    solo = builders.run("any", 3.0, synthetic.environment({}, random))
    data = dataset.build([solo, *loads])
    by_id = dict(zip(data.run_ids, data.y.tolist(), strict=True))
    ended = [math.log(slowdown) for slowdown, cut in under_load if not cut]
    bounds = [
        math.log(slowdown)
        for slowdown, cut in under_load
        if cut and not any(other > math.log(slowdown) for other in ended)
    ]
    assert data.known_up_to == pytest.approx(min(bounds, default=math.inf))
    for run, (slowdown, cut) in zip(loads, under_load, strict=True):
        learned, measured = by_id[run.id], math.log(slowdown)
        if not cut:
            assert learned == pytest.approx(measured)
        elif any(other > measured for other in ended):
            above = [other for other in (*ended, *bounds) if other > measured]
            assert learned == pytest.approx(sum(above) / len(above))
            assert learned > measured
        else:
            assert learned == pytest.approx(data.known_up_to)


@pytest.mark.thorough
def test_what_was_completed_has_no_part_in_the_width_of_intervals() -> None:
    """Loads slow this program by 6 to 33 times, each by its own factor: a run that is learned as
    slow as the mean of six others says nothing of how far loads differ."""
    random = np.random.default_rng(3)
    uncut = [
        replace(run, metric=run.cost * factor, wall_s=run.cost * factor)
        if run.kind == "induced" and (factor := math.exp(0.5 * random.standard_normal()))
        else run
        for run in synthetic.campaign("differs", {}, law=waits_its_turn, solos=8)
    ]
    loaded = [run.id for run in uncut if run.kind == "induced"]
    ended = [
        replace(run, metric=ENDED_AT * 3.0, wall_s=ENDED_AT * 3.0, passive={CUT_OFF: 1.0})
        if run.id in loaded[6:]
        else run
        for run in uncut
    ]
    data = dataset.build(ended)
    file = trained(ended)
    assert len(data.completed) == len(loaded) - 6
    frozen = file.variants["full"].model()
    assert len(frozen.residuals) == len(uncut) - len(data.completed)
    # Only these families had a run that came to its end.
    families = {run.levels[0].family for run in ended if run.levels and not run.cut_off}
    assert frozen.groups == len(families)
    inside = 0
    for run, row in zip(uncut, data.known, strict=True):
        if run.kind == "induced":
            times = dict(zip(data.columns, np.exp(row).tolist(), strict=True))
            interval = predict.predict_environment(file, times).slowdown
            inside += interval.lower <= run.cost / 3.0 <= interval.upper
    assert inside >= 0.8 * len(loaded)
