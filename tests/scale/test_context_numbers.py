"""Columns of numbers in contexts: what lies between and beyond the numbers that were run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kongming.records.errors import InputError
from kongming.scale.context_columns import Column, Context
from kongming.scale.fit.contexts.context_file import context_document
from kongming.scale.fit.contexts.context_fitting import fit_contexts
from kongming.scale.fit.contexts.context_model import ContextModel
from kongming.scale.fit.fitting import Settings
from kongming.scale.fit.model_file import read, seal
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Configuration, Points, Runs
from kongming.scale.table import ContextTable


def fitted(numbers: tuple[float, ...]) -> ContextModel:
    """A model of a job whose time grows in proportion to a number, from what it is without."""
    random = np.random.default_rng(1)
    machines = np.tile((2.0, 4.0, 8.0, 12.0), len(numbers))
    owner = np.repeat(np.arange(len(numbers)), 4)
    seconds = (30.0 + 80.0 / machines) * (1.0 + 0.1 * np.array(numbers)[owner])
    seconds *= np.exp(0.02 * random.standard_normal(len(seconds)))
    ones = np.ones(len(seconds))
    contexts: tuple[Context, ...] = tuple((number,) for number in numbers)
    table = ContextTable(Runs(Points(machines, ones, ones), seconds), ("g",), contexts, owner)
    return fit_contexts(table, Settings(read_terms("default", items=None)))


def test_a_number_that_may_be_0_is_no_exponential_beyond_the_runs() -> None:
    model = fitted((0.0, 1.0, 5.0, 10.0))
    answer = model.at({"g": "40"}).predict(Configuration(4))
    true = 50.0 * (1.0 + 0.1 * 40.0)
    assert true / 2.0 < answer.median < 2.0 * true
    assert "g 40 is above the trained 0 to 10" in answer.reasons


def test_a_column_with_0_is_kept_and_refuses_what_is_below() -> None:
    model = fitted((0.0, 1.0, 5.0, 10.0))
    (column,) = json.loads(json.dumps(context_document(model)))["columns"]
    assert (column["shift"], column["log"]) == (1.0, False)
    with pytest.raises(InputError, match="from 0 on"):
        model.at({"g": "-1"})


@pytest.mark.parametrize(
    ("numbers", "unit"), [((0.0, 2.0, 8.0), 1000.0), ((1.0, 3.0), 0.01), ((-1.0, 0.0, 4.0), 7.0)]
)
def test_the_unit_of_a_number_changes_nothing(numbers: tuple[float, ...], unit: float) -> None:
    column = Column.of("g", numbers)
    other = Column.of("g", tuple(unit * number for number in numbers))
    between = np.array([0.5, 2.0, 30.0])
    assert other.encode(list(unit * between)) == pytest.approx(column.encode(list(between)))


def test_a_file_with_a_shift_is_refused_by_who_knows_none() -> None:
    """Who reads no newer version would take its numbers for plain ones."""
    for numbers, version in (((0.0, 1.0, 5.0), 3), ((1.0, 3.0, 5.0), 2), ((-1.0, 0.0, 5.0), 2)):
        document = seal(ScaleFile(name=None, created_at="", models=(), contexts=(fitted(numbers),)))
        assert document["version"] == version
        assert read(document).contexts[0].columns[0].shift == (1.0 if version == 3 else 0.0)
