"""A memory cliff is seen where the terms miss it, not where they have to extrapolate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kongming.records.errors import CannotAnswerError
from kongming.scale.fit import cliffs
from kongming.scale.fit.cliffs import find_edge
from kongming.scale.fit.ernest import ErnestFit, fit_ernest
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Configuration, Points, Runs
from tests.scale.shapes import fitted

DESIGN = ((1, 0.05), (6, 0.07), (6, 0.08), (6, 0.09), (6, 0.1), (16, 0.01), (16, 0.02), (16, 0.04))
"""What `design --machines 1..16 --scale 0.01..0.1 --experiments 8 --target 64@1.0` chooses: the
only run at few machines has the highest load."""


def runs_of(
    cells: tuple[tuple[float, float], ...],
    terms: tuple[float, float, float, float],
    noise: float,
    seed: int,
) -> Runs:
    machines, scale = np.array(cells, dtype=float).T
    fixed, work, tree, linear = terms
    seconds = fixed + work * scale / machines + tree * np.log(machines) + linear * machines
    seconds *= np.exp(noise * np.random.default_rng(seed).standard_normal(len(seconds)))
    return Runs(Points(machines, scale, np.ones(len(machines))), seconds)


@pytest.mark.parametrize("terms", [(20.0, 300.0, 3.0, 1.0), (5.0, 1000.0, 1.0, 0.2)])
@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_a_job_of_the_terms_has_no_edge_in_the_documented_design(
    terms: tuple[float, float, float, float], noise: float
) -> None:
    for seed in range(12):
        runs = runs_of(DESIGN, terms, noise, seed)
        assert find_edge(runs, read_terms("default", items=None).terms) is None
    model = fitted(runs)
    assert model.edge is None
    assert model.ranges.machines == (1.0, 16.0)
    assert model.predict(Configuration(1, 0.05)).median > 0.0


@pytest.mark.thorough
@pytest.mark.parametrize("jump", [2.0, 4.0])
def test_a_run_beyond_memory_is_seen_where_the_others_predict_it(jump: float) -> None:
    inside = tuple((m, s) for m in (1, 2, 4, 8) for s in (0.02, 0.05))
    for seed in range(5):
        runs = runs_of((*inside, (1, 0.1)), (5.0, 300.0, 1.0, 0.2), 0.03, seed)
        seconds = runs.seconds.copy()
        seconds[-1] *= jump
        model = fitted(Runs(runs.points, seconds))
        assert model.edge is not None
        assert model.edge.beyond == pytest.approx(0.1)
        with pytest.raises(CannotAnswerError, match="as when memory is full"):
            model.predict(Configuration(1, 0.1))


def test_an_edge_is_sought_with_few_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = []

    def counted(*arguments: Any, **options: Any) -> ErnestFit:
        fits.append(1)
        return fit_ernest(*arguments, **options)

    monkeypatch.setattr(cliffs, "fit_ernest", counted)
    cells = tuple((m, s) for m in range(1, 31) for s in np.linspace(0.1, 1.0, 10).tolist())
    runs = runs_of(cells, (5.0, 300.0, 1.0, 0.2), 0.03, 0)
    assert find_edge(runs, read_terms("default", items=None).terms) is None
    assert len(fits) < 150
