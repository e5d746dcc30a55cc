"""A context with one configuration: the share of what that moves its predictions by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kongming.arrays import Floats
from kongming.scale.fit import model_file
from kongming.scale.fit.contexts.context_fitting import fit_contexts
from kongming.scale.fit.contexts.context_model import ContextFit, ContextModel
from kongming.scale.fit.contexts.context_single import SingleRun
from kongming.scale.fit.fitting import Settings
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Points, Runs
from kongming.scale.table import ContextTable

COUNTS = np.array([2.0, 4.0, 6.0, 8.0, 12.0])
SIZES = (10.0, 14.0, 20.0, 28.0, 40.0, 56.0, 80.0, 113.0)
SINGLE = 3


def model(*, levels: float, first: float, own: int = 1) -> ContextModel:
    """Fit a job over inputs: contexts differ by ``levels``, and at the fewest machines alone by
    ``first`` (deviations of logs). The context ``SINGLE`` has its first ``own`` configurations,
    and takes 1.5 times as long at the first one."""
    random = np.random.default_rng(3)
    rows: list[tuple[float, int, float]] = []
    for owner, size in enumerate(SIZES):
        level = levels * random.standard_normal() + np.log(size / 20.0)
        at_first = first * random.standard_normal()
        for i, machines in enumerate(COUNTS):
            if owner == SINGLE and i >= own:
                continue
            apart = (np.log(1.5) if owner == SINGLE else at_first) if i == 0 else 0.0
            noise = 0.02 * random.standard_normal()
            time = (30.0 + 900.0 / machines) * np.exp(level + apart + noise)
            rows.append((machines, owner, time))
    machines, owners, seconds = (np.array(each) for each in zip(*rows, strict=True))
    runs = Runs(Points(machines, np.ones(len(rows)), np.ones(len(rows))), seconds)
    contexts = tuple((size,) for size in SIZES)
    table = ContextTable(runs, ("size_gb",), contexts, owners.astype(np.intp))
    return fit_contexts(table, Settings(read_terms("default", items=None)))


def fit_of(of: ContextModel) -> ContextFit:
    return of.fit_at(of.complete({"size_gb": f"{SIZES[SINGLE]:g}"}))


def at(machines: Floats) -> Points:
    return Points(machines, np.ones(len(machines)), np.ones(len(machines)))


def share(of: ContextModel, machines: float) -> float:
    fit = fit_of(of)
    assert fit.single is not None
    return float(fit.single.share(fit.inputs(at(np.array([machines]))))[0])


def test_what_carries_to_other_counts_is_taken() -> None:
    assert share(model(levels=0.4, first=0.0), 8.0) > 0.8


def test_what_tells_of_one_count_alone_is_not() -> None:
    of = model(levels=0.0, first=0.5)
    assert share(of, 8.0) < 0.8
    fit, points = fit_of(of), at(np.array([8.0]))
    expected = (30.0 + 900.0 / 8.0) * SIZES[SINGLE] / 20.0
    answers = [each.predict(points)[0] for each in (fit, replace(fit, single=None))]
    error, without_share = np.abs(np.log(np.array(answers) / expected))
    assert error < without_share


def test_a_run_moves_what_the_process_without_it_says() -> None:
    fit = fit_of(model(levels=0.2, first=0.1))
    assert fit.single is not None
    inputs, process = fit.inputs(at(COUNTS)), fit.process
    rest = process.take(process.inputs.owner != fit.owner)
    moved, variance = process.moved_by(inputs, fit.single.point)
    mean, known = process.mean_and_variance(inputs)
    before, unknown = rest.mean_and_variance(inputs)
    assert moved == pytest.approx(mean - before, rel=1e-5, abs=1e-6)
    assert variance == pytest.approx(unknown - known, rel=1e-4, abs=1e-6)
    untaken, unsure = fit.single.untaken(inputs)
    assert (np.abs(untaken) <= np.abs(moved) + 1e-12).all()
    assert (unsure >= 0.0).all()


def test_only_contexts_with_one_configuration_have_a_share() -> None:
    of = model(levels=0.2, first=0.1, own=2)
    assert fit_of(of).single is None
    assert of.fit_at(of.complete({"size_gb": "33"})).single is None
    assert SingleRun.of(of.process, SINGLE) is None


def test_a_saved_model_has_the_same_share() -> None:
    of = model(levels=0.2, first=0.3)
    document = model_file.seal(ScaleFile("job", "now", (), contexts=(of,)))
    (read,) = model_file.read(document).contexts
    points = at(np.array([3.0, 8.0, 16.0]))
    expected, answer = fit_of(of).answer(points), fit_of(read).answer(points)
    assert answer.seconds == pytest.approx(expected.seconds, rel=1e-9)
    assert answer.variance == pytest.approx(expected.variance, rel=1e-6)
