"""Runs from Python are checked as those of a table: the field, what it has and what it may have."""

from __future__ import annotations

import numpy as np
import pytest

from kongming.records.errors import InputError
from kongming.scale.fit.contexts.context_fitting import fit_contexts
from kongming.scale.fit.fitting import Settings
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Points, Runs
from kongming.scale.table import ContextTable
from tests.scale.shapes import fitted


def runs_of(seconds: list[float], machines: list[float], scale: list[float] | None = None) -> Runs:
    count = np.array(machines, dtype=float)
    share = np.ones(len(count)) if scale is None else np.array(scale)
    return Runs(Points(count, share, np.ones(len(count))), np.array(seconds, dtype=float))


WRONG = [
    (runs_of([10, np.nan, 3], [1, 2, 4]), r"runs\.seconds\[1\].*Found nan.*1e-09 to 1e\+12"),
    (runs_of([10, 5, 0], [1, 2, 4]), r"runs\.seconds\[2\].*Found 0\.0"),
    (runs_of([-1, 5, 3], [1, 2, 4]), r"runs\.seconds\[0\].*Found -1\.0"),
    (runs_of([10, np.inf, 3], [1, 2, 4]), r"runs\.seconds\[1\].*Found inf"),
    (runs_of([10, 5, 3], [1, 0, 4]), r"runs\.machines\[1\].*Found 0\.0.*1 to 1e\+09"),
    (runs_of([10, 5, 3], [1, 2, 4], [1, 0, 1]), r"runs\.scale\[1\].*Found 0\.0"),
    (runs_of([], []), r"runs: have too few machine counts.*Found 0.*two machine counts or more"),
    (runs_of([10], [1]), r"runs: have too few machine counts.*Found 1"),
    (runs_of([10, 11], [2, 2]), r"runs: have too few machine counts.*Found 1"),
    (runs_of([10, 5], [1, 2, 4]), r"runs\.machines: has another shape.*\(3,\).*\(2,\)"),
    (runs_of([10, 5, 3], [1, 2, 4], [1.0]), r"runs\.scale: has another shape.*\(1,\).*\(3,\)"),
]


@pytest.mark.parametrize(("runs", "message"), WRONG)
def test_runs_that_no_model_can_use_are_refused(runs: Runs, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted(runs)
    table = ContextTable(runs, ("size",), ((1.0,), (2.0,)), np.arange(len(runs)) % 2)
    with pytest.raises(InputError, match=message):
        fit_contexts(table, Settings(read_terms("default", items=None)))


@pytest.mark.parametrize("owner", [[0, 1], [0, 1, 2, 0], [0, -1, 0, 1]])
def test_contexts_of_runs_have_to_be_there(owner: list[int]) -> None:
    runs = runs_of([10, 5, 3, 6], [1, 2, 4, 2])
    table = ContextTable(runs, ("size",), ((1.0,), (2.0,)), np.array(owner))
    with pytest.raises(InputError, match=r"table\.owner"):
        fit_contexts(table, Settings(read_terms("default", items=None)))
