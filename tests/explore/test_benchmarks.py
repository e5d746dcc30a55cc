"""The parts of benchmarks/explore that need no other project."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.explore.fit_learners import best_error
from benchmarks.explore.functions import FUNCTIONS, world
from benchmarks.explore.linearity import linearity
from benchmarks.explore.measured_worlds import NAMES, columns, measured_worlds
from benchmarks.explore.select_points import gp_variance, sobol, with_value
from kongming.explore.tree import ObliqueModelTree

FOLDER = Path(__file__).parents[2] / "benchmarks" / "explore"


def test_points_of_a_function_are_its_columns() -> None:
    at = world("POLY", 2)
    names, X = columns(at)
    assert names == ["x0", "x1"]
    assert X.tolist() == [list(point.values()) for point in at.table.points]


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_a_measured_table_are_numbers(name: str) -> None:
    at = measured_worlds()[name]
    _, X = columns(at)
    assert X.shape == (len(at.table), len(at.table.names))
    assert X.min() == 0.0
    assert X.max() == 1.0


@pytest.mark.filterwarnings("ignore:The optimal value")  # of a kernel of so few runs
@pytest.mark.parametrize("policy", [gp_variance, sobol])
def test_a_failed_run_has_no_value_and_is_not_repeated(policy: object) -> None:
    at = measured_worlds()["lzma"]
    _, X = columns(at)
    y = at.table.values
    known = [int(place) for place in np.random.default_rng(0).choice(len(y), 12, replace=False)]
    assert len(with_value(y, known)) < len(known)
    chosen = policy(X, y, known, 6, 0)  # type: ignore[operator]
    assert len({*chosen, *known}) == 18


@pytest.mark.thorough
def test_the_settings_that_err_least_are_taken() -> None:
    at = world("EXPABS", 2)
    _, X = columns(at)
    rows = np.random.default_rng(0).choice(len(X), 60, replace=False)
    line = partial(ObliqueModelTree, min_samples_leaf=60)
    tree = partial(ObliqueModelTree, random_state=0)
    alone, both = (
        best_error(variants, X, at.table.values, rows, 0) for variants in ([line], [line, tree])
    )
    assert both < 0.1 * alone


def test_expabs_is_the_published_function() -> None:
    points = np.array([[0.25, 1.0], [0.5, 0.5], [1.0, 0.0]])
    coefficients = np.array([0.6, 1.2])
    sums = [abs((0.6 * x - 0.5) + (1.2 * y - 0.5)) for x, y in points.tolist()]
    assert FUNCTIONS["EXPABS"](coefficients, points) == pytest.approx(np.exp(sums) - 1.0)


def check_table_6(table: dict[str, Any]) -> None:
    assert table["LIN-3"]["r2"] == pytest.approx(1.0)
    assert table["EXPABS-2"]["r2"] == pytest.approx(0.71, abs=0.01)
    assert table["GAUSS-2"]["r2"] == pytest.approx(0.0, abs=1e-9)
    assert table["sort"]["r2"] == pytest.approx(0.753, abs=0.001)
    assert table["sort"]["correlations"]["kilolines"] == pytest.approx(0.76, abs=0.01)


def test_what_table_6_says() -> None:
    worlds = {"LIN-3": world("LIN", 3)}
    worlds |= {f"{name}-2": world(name, 2) for name in ("EXPABS", "GAUSS")}
    worlds |= {"sort": measured_worlds()["sort"]}
    table = {}
    for name, at in worlds.items():
        names, X = columns(at, "raw")
        table[name] = linearity(names, X, at.table.values)
    check_table_6(table)


@pytest.mark.thorough
def test_table_6() -> None:
    command = [sys.executable, str(FOLDER / "paper.py"), "table6"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=FOLDER)
    check_table_6(json.loads(done.stdout)["table6"])
