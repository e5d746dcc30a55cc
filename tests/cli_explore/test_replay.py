"""``kongming explore replay``: its document, any table, and bad input."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kongming.cli.explore import options
from kongming.explore import Space
from kongming.explore.errors import ExploreError
from kongming.explore.learners import LEARNERS
from kongming.explore.measured_table import read_measured
from kongming.explore.policies import POLICIES
from kongming.explore.runs_table import PointRun, RunsTable
from tests.conftest import Kongming

Cells = Sequence[object]


def write(path: Path, header: Cells, rows: Sequence[Cells]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def grid(failed: Callable[[int, int], bool] = lambda nodes, mem: False) -> list[Cells]:
    """Eighty points of three parameters, one of them of names."""
    return [
        (n, m, codec, "" if failed(n, m) else 60.0 * (1 + (codec == "xz")) / n + m)
        for n, m, codec in itertools.product((1, 2, 4, 8, 16), range(1, 9), ("gz", "xz"))
    ]


HEADER = ("nodes", "mem", "codec", "seconds")


def replay(kongming: Kongming, *args: str | Path, status: int = 0) -> dict[str, Any]:
    done = kongming("explore", "replay", *args, "--json")
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_the_document(kongming: Kongming, tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", HEADER, grid(lambda n, m: n == 16 and m < 3))
    arguments = (table, "--target", "seconds", "--budget", "16", "--batch", "8", "--repeats", "3")
    arguments += ("--policy", "uni", "--policy", "auto", "--model", "lines", "--cost", "nodes * 2")
    document = replay(kongming, *arguments)
    assert (document["rows"], document["budget"]) == (80, 16)
    assert set(document) == {"rows", "budget", "policies"}
    assert list(document["policies"]) == ["uni", "auto"]
    for seen in document["policies"].values():
        assert set(seen) == {
            *("all", "unseen", "coverage", "width_pct", "cost", "failed_runs", "models", "seconds")
        }
        for part in (seen["all"], seen["unseen"]):
            assert set(part) == {"mse", "mae", "mre_pct"}
            for figure in part.values():
                lower, upper = figure["iqr"]
                assert 0.0 <= lower <= figure["median"] <= upper
        assert 0.0 <= seen["coverage"] <= 1.0
        assert 16 * 2 <= seen["cost"] <= 16 * 32
        assert sum(seen["models"].values()) == 3
        assert set(seen["seconds"]) == {"suggest_p50", "suggest_max", "fit"}
    again = replay(kongming, *arguments)
    for policy, seen in again["policies"].items():
        assert seen["all"] == document["policies"][policy]["all"]


def test_the_noise_floor_of_rows_that_repeat_a_point(kongming: Kongming, tmp_path: Path) -> None:
    rows = [
        (n, m, 100.0 * n + m + off) for n in range(1, 6) for m in range(6) for off in (-3.0, 3.0)
    ]
    table = write(tmp_path / "t.csv", ("n", "m", "seconds"), [*rows, (9, 9, 1000.0), (9, 9, "")])
    arguments = (table, "--target", "seconds", "--budget", "12", "--repeats", "1")
    arguments += ("--policy", "uni", "--model", "lines")
    floor = replay(kongming, *arguments)["noise_floor"]
    # Two values stand 3 from their mean, which follows them: from the true one sqrt(2) as far.
    assert floor["mse"] == pytest.approx(18.0)
    assert floor["mae"] == pytest.approx(18.0**0.5)
    assert 1.0 < floor["mre_pct"] < 5.0
    shown = kongming("explore", "replay", *arguments)
    assert "noise floor" in shown.stdout
    assert "18" in shown.stdout


def test_failed_rows_are_no_part_of_the_noise_floor(kongming: Kongming, tmp_path: Path) -> None:
    """Errors are of measured rows alone."""
    path = tmp_path / "runs.csv"
    measured = "".join(f"{n},{value}\n" for n in range(8) for value in (100 + n, 104 + n))
    path.write_text("n,seconds\n" + measured + "".join(f"{n},\n" for n in range(8, 12)) * 9)
    arguments = (str(path), "--target", "seconds", "--budget", "10", "--policy", "uni")
    floor = replay(kongming, *arguments, "--repeats", "1")["noise_floor"]
    assert floor["mse"] == pytest.approx(8.0)


def test_the_errors_are_those_of_the_table(kongming: Kongming, tmp_path: Path) -> None:
    """A line is learned exactly, so all errors vanish; and nothing is unseen once all was run."""
    rows = [(a, b, 10 + 2 * a - b) for a in range(8) for b in range(8)]
    table = write(tmp_path / "t.csv", ("a", "b", "y"), rows)
    arguments = (table, "--target", "y", "--policy", "uni", "--model", "lines", "--repeats", "2")
    part = replay(kongming, *arguments, "--rate", "25%")
    assert part["budget"] == 16
    assert part["policies"]["uni"]["all"]["mae"]["median"] < 1e-3
    every = replay(kongming, *arguments, "--budget", "64")["policies"]["uni"]
    assert every["unseen"]["mse"] == {"median": None, "iqr": [None, None]}


def columns_of(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 6, n), rng.random(n)
    return {"a": a, "b": b, "y": 10 + a + 5 * b**2 * (a > 2)}


@pytest.mark.parametrize(
    "more",
    [
        {"constant": lambda t: np.full(len(t["a"]), 7)},
        pytest.param(
            {"twice": lambda t: 2 * t["a"], "copy": lambda t: t["b"]}, marks=pytest.mark.thorough
        ),
        pytest.param(
            {f"is_{k}": lambda t, k=k: (t["a"] == k).astype(int) for k in range(6)},
            marks=pytest.mark.thorough,
        ),
        {f"x{k}": lambda t, k=k: np.random.default_rng(k).random(len(t["a"])) for k in range(38)},
    ],
    ids=["constant", "redundant", "one-hot", "40 columns"],
)
def test_any_table_works(
    kongming: Kongming, tmp_path: Path, more: Mapping[str, Callable[[Any], Any]]
) -> None:
    table = columns_of(120)
    table |= {name: make(table) for name, make in more.items()}
    path = write(tmp_path / "t.csv", tuple(table), [*zip(*table.values(), strict=True)])
    arguments = ("--target", "y", "--budget", "12", "--batch", "6", "--repeats", "1")
    document = replay(kongming, path, *arguments, "--policy", "auto")
    for seen in document["policies"].values():
        assert np.isfinite(seen["all"]["mse"]["median"])


@pytest.mark.thorough
def test_twenty_thousand_rows_and_points_measured_twice(kongming: Kongming, tmp_path: Path) -> None:
    table = columns_of(10_000)
    path = tmp_path / "t.csv"
    rows = [*zip(*table.values(), strict=True)]
    write(path, tuple(table), [*rows, *((a, b, y + 0.1) for a, b, y in rows)])
    arguments = (path, "--target", "y", "--budget", "20", "--repeats", "1", "--policy", "uni")
    assert replay(kongming, *arguments)["rows"] == 20_000


@pytest.mark.parametrize(
    ("cells", "args", "message"),
    [
        ({(3, "seconds"): "fast"}, (), "row 3 (line 4), column 'seconds': is not a finite number"),
        ({(3, "seconds"): "nan"}, (), "row 3 (line 4), column 'seconds'"),
        ({(2, "mem"): "inf"}, (), "row 2 (line 3), column 'mem': is not a finite number"),
        ({(2, "mem"): "much"}, (), "--choices mem"),
        ({(2, "mem"): "10000000000000000003"}, (), "row 2 (line 3), column 'mem': has more digits"),
        ({(2, "mem"): ""}, (), "row 2 (line 3), column 'mem': is empty"),
        ({(0, "mem"): "nodes"}, (), "column 'nodes': is there twice"),
        ({}, ("--target", "time"), "column 'time': is missing"),
        ({}, ("--choices", "color"), "column 'color': is missing"),
        ({}, ("--budget", "500"), "Allowed: 2 to 80"),
        ({}, ("--budget", "1"), "'--budget': 1 is out of range. Allowed: 2 or more"),
        ({}, ("--budget", "9", "--rate", "10%"), "one of --budget N and --rate R"),
        ({}, ("--cost", "nodes - 4"), "row 1: is no cost there. Found -3.0"),
        ({}, ("--cost", "prices"), "--cost"),
        ({(3, "seconds"): "1e200"}, (), "row 3 (line 4), column 'seconds': is out of range"),
        ({}, ("--choices", "seconds"), "--choices: is the target"),
        ({}, ("--rate", "1%"), "--rate: is 1 of 80 rows"),
        (
            {(k, "seconds"): "" for k in range(2, 81)},
            (),
            "Rows without a value: 79 of 80",
        ),
        ({}, ("--model", "guess"), "'guess' is not one of 'auto'"),
        ({(k, "seconds"): "5" for k in range(1, 81)}, (), "column 'seconds': is constant"),
    ],
)
def test_bad_input(
    kongming: Kongming,
    tmp_path: Path,
    cells: dict[tuple[int, str], str],
    args: tuple[str, ...],
    message: str,
) -> None:
    rows: list[list[object]] = [list(HEADER), *(list(row) for row in grid())]
    for (row, column), text in cells.items():
        rows[row][HEADER.index(column)] = text
    table = write(tmp_path / "t.csv", rows[0], rows[1:])
    first = () if "--target" in args else ("--target", "seconds")
    document = replay(kongming, table, *first, "--repeats", "1", *args, status=2)
    assert message in document["error"]["message"]


def test_a_column_that_lost_its_name(kongming: Kongming, tmp_path: Path) -> None:
    """Rows of different points would be repeats of each other. Empty columns are no loss."""
    table = write(tmp_path / "t.csv", ("nodes", "", "codec", "seconds"), grid())
    error = replay(kongming, table, "--target", "seconds", status=2)["error"]
    assert "header (row 0), column 2: has cells, but no name. Found ''" in error["message"]
    assert "--ignore NAME" in error["hint"]
    with pytest.raises(ExploreError, match="column 2: has cells, but no name"):
        Space.from_table(table)
    assert Space.from_table(table, ["nodes", "codec"]).size == 10
    empty = write(tmp_path / "e.csv", ("a", "", "y"), [(a, " ", a * a) for a in range(9)])
    assert [dict(point) for point in read_measured(empty, "y").points[:2]] == [{"a": 0}, {"a": 1}]
    assert Space.from_table(empty).names == ("a", "y")


def test_parameters_that_do_not_exist_at_some_points(kongming: Kongming, tmp_path: Path) -> None:
    """Of a table of ``explore run``; in another one a cell may be empty by mistake."""
    space = Space.from_dict(
        {
            "n": list(range(1, 9)),
            "codec": {"choices": ["gz", "xz", "zst"]},
            "level": {"from": 1, "to": 4, "when": "codec == 'xz' and n > 2"},
        }
    )
    path = tmp_path / "runs.csv"
    with closing(RunsTable(path, space, "seconds", identity="a program")) as table:
        for point in space.decode(space.pool(np.random.default_rng(0))[0]):
            table.add(PointRun(point, 10.0 * point["n"] + 50.0 * point.get("level", 3), 1.0))
    arguments = ("--target", "seconds", "--budget", "20", "--repeats", "1", "--model", "lines")
    policies = [argument for policy in POLICIES for argument in ("--policy", policy)]
    document = replay(kongming, path, *arguments, *policies)
    assert document["rows"] == space.size == 42
    assert "noise_floor" not in document
    for seen in document["policies"].values():
        assert seen["all"]["mre_pct"]["median"] < 10.0
    error = replay(kongming, path, *arguments, "--cost", "level * 2", status=2)["error"]
    assert "is no cost there. Found nan" in error["message"]
    path.write_text(path.read_text().replace("identity", "hash", 1))
    error = replay(kongming, path, *arguments, "--ignore", "hash", status=2)["error"]
    assert "column 'level': is empty" in error["message"]
    assert "rows that differ in it alone are repeats" in error["hint"]


def test_the_way_out_of_numbers_with_commas(kongming: Kongming, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a;y\n1;0,5\n2;0,7\n3;0,9\n")
    error = replay(kongming, table, "--target", "y", "--budget", "2", status=2)["error"]
    assert "row 1 (line 2), column 'y'" in error["message"]
    assert "Write 0.5" in error["hint"]


def test_a_table_of_one_row_is_too_small_for_any_budget(kongming: Kongming, tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", ("a", "y"), [(1, 2)])
    error = replay(kongming, table, "--target", "y", status=2)["error"]
    assert "is too small for any model. Found '1 row'" in error["message"]


def test_parameters_that_never_vary_are_refused(kongming: Kongming, tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", ("a", "b", "y"), [(1, "x", y) for y in (3, 4, 5, 6)])
    document = replay(kongming, table, "--target", "y", "--budget", "3", status=2)
    assert "rows 1 to 4: has no parameter that varies" in document["error"]["message"]


def test_the_models_that_are_offered_are_those_that_exist() -> None:
    assert set(options.MODELS) == {"auto", "paper", *LEARNERS}
    assert set(options.POLICIES) == set(POLICIES)


def test_a_short_row_is_no_failed_run(kongming: Kongming, tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", ("a", "b", "y"), [(1, 2, 3), (2, 3), (3, 4, 5)])
    document = replay(kongming, table, "--target", "y", status=2)
    assert "row 2 (line 3), column 3: has 2 cells" in document["error"]["message"]


def test_widths_relative_to_targets_of_zero(kongming: Kongming, tmp_path: Path) -> None:
    rows = [(a, b, max(a - 4, 0) * b) for a in range(8) for b in range(8)]
    table = write(tmp_path / "t.csv", ("a", "b", "y"), rows)
    arguments = (table, "--target", "y", "--budget", "20", "--repeats", "1", "--policy", "uni")
    document = replay(kongming, *arguments, "--model", "lines")
    assert document["policies"]["uni"]["width_pct"] < 1e5


def test_all_runs_failed(kongming: Kongming, tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", HEADER, grid(lambda n, m: True))
    document = replay(kongming, table, "--target", "seconds", "--repeats", "1", status=3)
    assert "All 8 runs failed" in document["error"]["message"]


@pytest.mark.thorough
def test_runs_that_were_ended_are_bounds(kongming: Kongming, tmp_path: Path) -> None:
    """In a table of ``explore run``, which says so; in another they have failed."""
    header = ("n", "seconds", "cost", "status", "error", "identity", "space", "at_least")
    rows = [
        (
            n,
            n if n < 30 else "",
            1.0,
            *(("ok", "") if n < 30 else ("timeout", "ended")),
            "i",
            "s",
            30,
        )
        for n in range(1, 41)
    ]
    table = write(tmp_path / "t.csv", header, rows)
    options = ("--target", "seconds", "--policy", "uni", "--budget", "20", "--repeats", "2")
    seen = replay(kongming, table, *options)["policies"]["uni"]
    assert seen["failed_runs"] == 0
    others = write(tmp_path / "o.csv", ("n", "seconds"), [row[:2] for row in rows])
    assert replay(kongming, others, *options)["policies"]["uni"]["failed_runs"] > 0


@pytest.mark.thorough
def test_profiles_without_a_model_are_counted(kongming: Kongming, tmp_path: Path) -> None:
    """They end nothing while others of the policy have a model."""
    rows = [(n, n if n < 12 else "") for n in range(40)]
    table = write(tmp_path / "t.csv", ("n", "y"), rows)
    options = ("--target", "y", "--policy", "uni", "--repeats", "9", "--budget", "4")
    seen = replay(kongming, table, *options)["policies"]["uni"]
    assert 0 < seen["without_model"] < 9
    assert sum(seen["models"].values()) == 9 - seen["without_model"]
    shown = kongming("explore", "replay", table, *options)
    assert f"{seen['without_model']} of 9 profiles ended without a model" in shown.stderr


def test_a_profile_of_which_one_run_succeeded_is_named(kongming: Kongming, tmp_path: Path) -> None:
    """Of a policy without any model the first profile is named, and what would help."""
    rows = [(n, n if n in (3, 4) else "") for n in range(40)]
    table = write(tmp_path / "t.csv", ("n", "y"), rows)
    options = ("--policy", "uni", "--repeats", "9", "--budget", "4")
    error = replay(kongming, table, "--target", "y", *options, status=3)["error"]
    assert "(policy uni, seed 0): 3 of 4 runs failed" in error["message"]
    assert "--budget" in error["hint"]
    error = replay(kongming, table, "--target", "y", *options, "--seed", "1", status=3)["error"]
    assert "All 4 runs failed (policy uni, seed 1)" in error["message"]
    assert "--budget" in error["hint"]


def test_dta_counts_costs_where_they_are_given(kongming: Kongming, tmp_path: Path) -> None:
    rows = [(n, level, 10.0 / n + level**2) for n in range(1, 7) for level in range(1, 7)]
    table = write(
        tmp_path / "t.csv",
        ("n", "level", "seconds", "euros"),
        [(*row, 10.0 ** (row[1] / 2.0)) for row in rows],
    )
    common = (table, "--target", "seconds", "--budget", "18", "--policy", "dta", "--policy", "uni")
    common += ("--model", "lines", "--repeats", "3")
    counted = replay(kongming, *common, "--cost", "euros")["policies"]
    blind = replay(kongming, *common, "--ignore", "euros")["policies"]
    assert counted["uni"]["all"] == blind["uni"]["all"]
    assert counted["dta"]["all"] != blind["dta"]["all"]


def test_columns_that_can_be_no_parameter(kongming: Kongming, tmp_path: Path) -> None:
    rows = [(n, f"run-{n}", "" if n == 3 else 1, n * n) for n in range(6000)]
    table = write(tmp_path / "t.csv", ("n", "id", "level", "seconds"), rows)
    options = ("--target", "seconds", "--repeats", "1", "--policy", "uni")
    empty = replay(kongming, table, *options, status=2)["error"]
    assert "row 4 (line 5), column 'level': is empty" in empty["message"]
    assert "--ignore level" in empty["hint"]
    names = replay(kongming, table, *options, "--ignore", "level", status=2)["error"]
    assert "column 'id': has too many different names" in names["message"]
    assert "--ignore id" in names["hint"]


def test_a_table_of_runs_that_were_all_ended(kongming: Kongming, tmp_path: Path) -> None:
    header = ("n", "seconds", "cost", "status", "error", "identity", "space", "at_least")
    rows = [(n, "", 1.0, "timeout", "ended", "i", "s", 30) for n in range(20)]
    table = write(tmp_path / "t.csv", header, rows)
    options = ("--target", "seconds", "--repeats", "1", "--policy", "uni")
    assert "No row of" in replay(kongming, table, *options, status=3)["error"]["message"]
