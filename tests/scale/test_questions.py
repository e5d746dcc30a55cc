"""Questions have the limits of tables; an answer is a time that a run can take."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from kongming.records.errors import CannotAnswerError, InputError
from kongming.scale.fit.contexts.context_fitting import fit_contexts
from kongming.scale.fit.fitting import Settings
from kongming.scale.fit.model import ScaleModel
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Configuration
from kongming.scale.table import Columns, read_context_table
from tests.conftest import Kongming
from tests.scale.shapes import fitted, grid, measured, published


@functools.cache
def model() -> ScaleModel:
    return fitted(measured(published("regression"), grid(machines=(1, 2, 4, 8)), 0.02))


@pytest.mark.parametrize(
    ("machines", "scale", "message"),
    [
        (1e21, 1.0, r"machines: is out of range.*1e\+21.*1 to 1e\+09"),
        (0.5, 1.0, r"machines: is out of range.*0\.5"),
        (float("nan"), 1.0, r"machines: is out of range.*nan"),
        (4, 1e300, r"scale: is out of range.*1e\+300.*1e-15 to 1e\+18"),
        (4, 1e-300, r"scale: is out of range.*1e-300"),
        (4, -1.0, r"scale: is out of range"),
        (4, float("inf"), r"scale: is out of range.*inf"),
    ],
)
def test_questions_beyond_the_limits_of_tables_are_refused(
    machines: float, scale: float, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        model().predict(Configuration(machines, scale))


def test_a_time_that_no_run_takes_is_no_answer() -> None:
    with pytest.raises(CannotAnswerError, match=r"1 machine at scale 1e\+18 would take .* no run"):
        model().predict(Configuration(1, 1e18))


def table(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    rows = [f"{m},{size},{5 + 20 * size / m}" for m in (1, 2, 4, 8) for size in (3, 10, 30)]
    path.write_text("machines,size,seconds\n" + "\n".join(rows) + "\n")
    return path


def test_numbers_of_contexts_have_limits(tmp_path: Path) -> None:
    (runs,) = read_context_table(table(tmp_path), Columns(), ["size"])
    model = fit_contexts(runs, Settings(read_terms("default", items=None)))
    for text in ("1e300", "1e19", "1e-20", "0", "-3", "nan"):
        with pytest.raises(InputError, match=r"--context size: .*Found"):
            model.at({"size": text})
    assert np.isfinite(model.at({"size": "1e3"}).predict(Configuration(4)).median)


def test_numbers_of_contexts_have_limits_in_tables_too(tmp_path: Path) -> None:
    path = table(tmp_path)
    path.write_text(path.read_text().replace("\n4,30,", "\n4,1e300,"))
    with pytest.raises(InputError, match=r"row 9 .*column 'size': is out of range.*'1e300'"):
        read_context_table(path, Columns(), ["size"])


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--machines", "4", "--scale", "1e300"), 2, "is out of range"),
        (("--machines", "4", "--scale", "1e-300"), 2, "is out of range"),
        (("--machines", "9" * 21), 2, "is out of range"),
        (("--machines", "1", "--scale", "1e18"), 3, "no run does"),
    ],
)
def test_the_command_says_what_is_wrong_with_a_question(
    kongming: Kongming, tmp_path: Path, options: tuple[str, ...], status: int, message: str
) -> None:
    model = tmp_path / "model.json"
    assert kongming("scale", "fit", table(tmp_path), "--save", model).returncode == 0
    done = kongming("scale", "predict", model, *options)
    assert done.returncode == status
    assert message in done.stderr
