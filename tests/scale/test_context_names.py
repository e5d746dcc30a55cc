"""Names of columns and of their values say nothing: another name gives the same answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from kongming.scale.context_columns import Context
from kongming.scale.fit.contexts.context_fitting import fit_contexts
from kongming.scale.fit.contexts.context_process import FOR_SIZES
from kongming.scale.fit.fitting import Settings
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Configuration, Points, Runs
from kongming.scale.table import ContextTable
from tests.conftest import Kongming

TYPES = {"a": 1.0, "b": 2.0, "c": 1.5}
COUNTS = (2, 4, 8, 12)


def answers(columns: tuple[str, str, str], types: dict[str, str]) -> list[float]:
    """Medians and intervals of a job with more configurations than estimate the sizes."""
    random = np.random.default_rng(1)
    contexts: list[Context] = []
    rows = []
    for kind, speed in TYPES.items():
        for size in (5.0, 10.0, 20.0, 40.0, 80.0):
            for k in (1.0, 3.0, 5.0):
                for machines in COUNTS:
                    cliff = 4.0 if size / machines > 6.0 else 1.0
                    seconds = 15.0 + size * 20.0 * k / (machines * speed) * cliff
                    noise = np.exp(0.04 * random.standard_normal())
                    rows.append((len(contexts), machines, seconds * noise))
                contexts.append((size, k, types[kind]))
    assert len(rows) > FOR_SIZES
    owner, machines, seconds = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    ones = np.ones(len(rows))
    table = ContextTable(
        Runs(Points(machines, ones, ones), seconds), columns, tuple(contexts), owner.astype(np.intp)
    )
    model = fit_contexts(table, Settings(read_terms("default", items=None)))
    values = []
    for size in ("5", "30", "200"):
        at = model.at(dict(zip(columns, (size, "1", types["a"]), strict=True)))
        for count in (1, 6, 24):
            answer = at.predict(Configuration(count))
            values += [answer.lower, answer.median, answer.upper]
    return values


@pytest.mark.thorough
def test_names_of_columns_and_of_values_change_no_answer() -> None:
    """Contexts were sorted by them, and which configurations are drawn follows the order: answers
    moved by up to 14 %."""
    expected = answers(("size", "k", "type"), {"a": "a", "b": "b", "c": "c"})
    for columns, types in (
        (("size", "k", "type"), {"a": "zz", "b": "b", "c": "aa"}),
        (("z", "k", "A"), {"a": "a", "b": "b", "c": "c"}),
    ):
        assert answers(columns, types) == pytest.approx(expected, rel=1e-4)


def test_each_context_is_shown_with_its_own_errors(kongming: Kongming, tmp_path: Path) -> None:
    """The model has its contexts by their runs, and the report by their names: the table had shown
    the errors of another context. That the contexts have nothing in common is a warning."""
    random = np.random.default_rng(3)
    lines = ["machines,size,seconds"]
    for size in (5, 10, 20, 40, 80, 160):
        fixed, shared, power = random.uniform((2, 10, -0.3), (300, 1000, 1.0))
        lines += [
            f"{machines},{size},{fixed + shared / machines**power:.3f}" for machines in COUNTS
        ]
    table = tmp_path / "runs.csv"
    table.write_text("\n".join(lines) + "\n")
    call = ("scale", "fit", table, "--context", "size")
    report = json.loads(kongming(*call, "--json").stdout)
    shown = kongming(*call).stdout
    assert "the others say little of a context without runs" in shown
    assert len(report["contexts"]) == 6
    for row in report["contexts"]:
        cells = re.search(rf"size={row['context']['size']:g} +\d+ (.*)%", shown)
        assert cells is not None
        figures = [float(cell) for cell in re.findall(r"[\d.]+", cells[1])]
        assert figures == pytest.approx(
            [row["loo_error_pct"], row["context_out_error_pct"], row["alone_error_pct"]], abs=0.06
        )
