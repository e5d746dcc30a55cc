"""``kongming explore next``, ``fit``, ``predict``, ``show`` and ``plot``, and what they refuse."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kongming.cli.explore import options
from kongming.cli.explore.predict import parse_point
from kongming.cli.explore.report import MODEL_WORDS
from kongming.explore import Space
from kongming.explore.figures import error_curve
from kongming.explore.fitting import fit_runs
from kongming.explore.learners import LEARNERS
from kongming.explore.model_file import KIND
from kongming.explore.runs_table import PointRun
from kongming.records.errors import InputError, UnknownNameError
from tests.conftest import Kongming

SPACE = """
forbid = ["nodes * mem > 100", "codec == 'xz' and level < 0"]
nodes = [2, 4, 8, 16]
mem = { from = 1, to = 16 }
codec = { choices = ["gz", "xz", "zst"] }
level = { from = 1, to = 9, when = "codec != 'zst'" }
fast = "boolean"
"""


def seconds(nodes: int, mem: int, codec: str, fast: bool, level: int = 0) -> float:
    """A cliff where the memory ends, and a share of the work that the codec decides."""
    work = {"gz": 30.0, "xz": 90.0, "zst": 20.0}[codec] * (1 + 0.05 * level)
    return (3.0 if mem < 3 else 1.0) * work / nodes - 2.0 * fast + 5.0


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Forty points, one of them failed, as somebody else may write them."""
    (tmp_path / "space.toml").write_text(SPACE)
    space = Space.from_toml(tmp_path / "space.toml")
    points = space.decode(space.draw(40, np.random.default_rng(3)))
    path = tmp_path / "runs.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("nodes", "mem", "codec", "level", "fast", "seconds", "note"))
        for place, at in enumerate(points):
            took = "" if place == 7 else f"{seconds(**at):.6f}"
            cells = (at.get(name, "") for name in space.names)
            writer.writerow((*(str(cell).lower() for cell in cells), took, "by hand"))
    return path


def answer(kongming: Kongming, *args: str | Path, status: int = 0) -> dict[str, Any]:
    done = kongming("explore", *args, "--json")
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_every_name_has_its_words() -> None:
    assert {*MODEL_WORDS} == {*LEARNERS} == {*options.MODELS} - {"auto", "paper"}


AT = "nodes=4,mem=8,codec=gz,level=3,fast=true"


def test_fit_predict_show_plot(kongming: Kongming, runs: Path, tmp_path: Path) -> None:
    fitted = answer(kongming, "fit", "space.toml", runs, "--out", "m.json", "--model", "lines")
    assert fitted["runs"] == 40
    assert not {"policy", "budget", "spent"} & {*fitted}
    other = "nodes=2,mem=1,codec=zst,fast=0"
    both = answer(kongming, "predict", "m.json", "--at", AT, "--at", other)
    first, second = both["predictions"]
    assert first["at"] == {"nodes": 4, "mem": 8, "codec": "gz", "level": 3, "fast": True}
    assert second["at"]["fast"] is False
    for predicted in both["predictions"]:
        assert predicted["lower"] <= predicted["median"] <= predicted["upper"]
        assert 0.0 <= predicted["failure_probability"] <= 1.0
    again = answer(kongming, "predict", "m.json", "--at", AT)
    for name, value in again["predictions"][0].items():
        assert value == (first[name] if name == "at" else pytest.approx(first[name]))
    output = " ".join(kongming("explore", "show", "m.json").stdout.split())
    assert "40 runs of seconds; model: least squares" in output
    assert "budget" not in output
    assert " failed 1 run " in output
    assert "_" not in output
    shown = answer(kongming, "show", "m.json")
    assert not {"policy", "budget", "spent"} & {*shown}
    shares = shown["importances"]
    assert set(shares) == {"nodes", "mem", "codec", "level", "fast"}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["nodes"] > shares["fast"]
    leaves = [region for region in shown["tree"] if region["cut"] is None]
    assert sum(leaf["runs"] for leaf in leaves) == 39
    drawn = answer(kongming, "plot", "m.json", "--out", "figures", "--over", "nodes,codec")
    assert {Path(path).name for path in drawn["written"]} == {
        f"{name}-{theme}.{kind}"
        for name in ("tree", "surface", "error")
        for theme in ("light", "dark")
        for kind in ("svg", "png")
    }
    assert all((tmp_path / path).stat().st_size > 1000 for path in drawn["written"])


def test_why_a_figure_is_not_drawn(kongming: Kongming, tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("n = [1, 2, 3]\n")
    (tmp_path / "runs.csv").write_text("n,seconds\n1,10\n2,21\n3,32\n")
    answer(kongming, "fit", "space.toml", "runs.csv", "--out", "m.json", "--model", "lines")
    drawn = answer(kongming, "plot", "m.json", "--out", "figures")
    assert {Path(path).stem for path in drawn["written"]} == {"tree-light", "tree-dark"}
    assert [reason.split(":")[0] for reason in drawn["left_out"]] == [
        "No surface",
        "No error against runs",
    ]
    shown = kongming("explore", "plot", "m.json", "--out", "figures")
    assert "note: No surface: it has two parameters, the space has 1." in shown.stderr


@pytest.mark.thorough
def test_repeats_next_to_each_other_are_drawn(kongming: Kongming, tmp_path: Path) -> None:
    """The first four runs are of one point, of which no model is made."""
    (tmp_path / "space.toml").write_text("n = [1, 2, 3]\nm = [1, 2]\n")
    rows = [f"{n},{n % 2 + 1},{10 * n + repeat}" for n in (1, 2, 3) for repeat in range(5)]
    table = "\n".join(["n,m,seconds", *rows])
    (tmp_path / "runs.csv").write_text(f"{table}\n")
    answer(kongming, "fit", "space.toml", "runs.csv", "--out", "m.json", "--model", "lines")
    drawn = answer(kongming, "plot", "m.json", "--out", "figures")
    assert "error-light.svg" in {Path(path).name for path in drawn["written"]}


def test_the_error_curve_begins_with_two_points_and_knows_limits() -> None:
    space = Space.from_dict({"n": {"from": 1, "to": 9}})
    runs = [PointRun({"n": n}, 10.0 * n + repeat) for n in (1, 2, 3) for repeat in range(5)]
    runs += [PointRun({"n": n}, None, error="too long", limit=35.0) for n in (7, 8)]
    model = fit_runs(space, runs, "seconds", "runs.csv", model="lines")
    assert error_curve(model)[0][0] == 6
    assert np.isfinite(model.runs()[2]).sum() == 2


def test_regions_in_which_all_runs_were_ended_are_shown(kongming: Kongming, tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("n = { from = 1, to = 40 }\n")
    rows = [f"{n},{n},ok," if n <= 20 else f"{n},,timeout,12" for n in range(1, 41)]
    table = "\n".join(["n,seconds,status,at_least", *rows])
    (tmp_path / "runs.csv").write_text(f"{table}\n")
    fit = ("fit", "space.toml", "runs.csv", "--out", "m.json", "--model", "lines")
    assert answer(kongming, *fit)["timed_out"] == 20
    tree = answer(kongming, "show", "m.json")["tree"]
    assert (tree[0]["runs"], tree[0]["ended"]) == (40, 20)
    shown = kongming("explore", "show", "m.json").stdout
    assert "seconds at least 12" in shown
    assert shown.endswith("with the cuts known. Lines miss new runs by more.\n")
    predict = ("predict", "m.json", "--strict", "--at")
    assert answer(kongming, *predict, "n=5")["predictions"][0]["extrapolating"] is False
    error = answer(kongming, *predict, "n=30", status=3)["error"]
    assert error["message"] == "The run that is nearest to n=30 was ended at its time limit."


def test_next_goes_on_from_the_runs(kongming: Kongming, runs: Path, tmp_path: Path) -> None:
    points = answer(kongming, "next", "space.toml", runs, "-n", "3")["points"]
    with runs.open(newline="") as file:
        had = {tuple(row.values())[:5] for row in csv.DictReader(file)}
    names = ("nodes", "mem", "codec", "level", "fast")
    for point in points:
        cells = tuple(str(point.get(name, "")).lower() for name in names)
        assert cells not in had
    assert answer(kongming, "next", "space.toml", runs, "-n", "3")["points"] == points
    assert len(answer(kongming, "next", "space.toml", "-n", "3")["points"]) == 3


def test_next_says_that_all_runs_failed(kongming: Kongming, tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("n = { from = 1, to = 80 }\n")
    (tmp_path / "runs.csv").write_text("n,seconds,error\n3,,out of memory\n5,,out of memory\n")
    document = answer(kongming, "next", "space.toml", "runs.csv", "-n", "2")
    assert len(document["points"]) == 2
    assert document["warnings"] == ["All 2 runs failed: 2 times: out of memory"]
    assert "All 2 runs failed" in kongming("explore", "next", "space.toml", "runs.csv").stderr


def test_next_says_that_enough_is_known(kongming: Kongming, tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("n = { from = 1, to = 80 }\n")
    rows = "\n".join(f"{n},{n}" for n in range(1, 80, 2))
    (tmp_path / "runs.csv").write_text(f"n,seconds\n{rows}\n")
    ask = ("next", "space.toml", "runs.csv", "--stop-pct", "10%")
    document = answer(kongming, *ask)
    assert (document["points"], document["stopped"]) == ([], True)
    assert document["left"] == 40
    text = " ".join(kongming("explore", *ask).stdout.split())
    assert text == "90 % of the space is known within 10 %: no further point is needed."
    assert answer(kongming, *ask[:-2])["stopped"] is False


@pytest.mark.thorough
def test_the_policies_that_weigh_costs_do_and_the_others_refuse_them(
    kongming: Kongming, runs: Path
) -> None:
    """Where many nodes cost thousands of times as much as few, runs are of few."""
    ask = ("next", "space.toml", runs, "-n", "6", "--seed", "1")
    for policy in options.WEIGHING:
        free = answer(kongming, *ask, "--policy", policy)["points"]
        paid = answer(kongming, *ask, "--policy", policy, "--cost", "10 ** (nodes / 4)")["points"]
        assert sum(point["nodes"] for point in paid) < sum(point["nodes"] for point in free)
    # Costs of the runs' own column.
    with runs.open(newline="") as file:
        header, *cells = csv.reader(file)
    with runs.open("w", newline="") as file:
        priced = [[*row, str(10.0 ** (int(row[0]) / 4))] for row in cells]
        csv.writer(file).writerows([[*header, "cost"], *priced])
    free = answer(kongming, *ask)["points"]
    paid = answer(kongming, *ask, "--cost", "told")["points"]
    assert sum(point["nodes"] for point in paid) < sum(point["nodes"] for point in free)
    error = answer(kongming, *ask, "--policy", "actl", "--cost", "mem", status=2)["error"]
    assert "neither the policy actl nor a budget of runs" in error["message"]


def test_costs_are_learned_from_a_column_that_is_there(kongming: Kongming, tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("n = { from = 1, to = 20 }\n")
    ask = ("next", "space.toml", "runs.csv", "--cost", "told")
    for column, costs, words in (
        ("price", [1, 2, 3], None),
        ("cost", ["", "", ""], None),
        ("cost", [1, 2, 3], "3 runs of runs.csv have one, and 4 are needed"),
        ("cost", [1, 2, 3, 4], ""),
        ("cost", [], ""),
    ):
        rows = "".join(f"{n},{n},{cost}\n" for n, cost in enumerate(costs, 1))
        (tmp_path / "runs.csv").write_text(f"n,seconds,{column}\n{rows}")
        document = answer(kongming, *ask, status=2 if words is None else 0)
        if words is None:
            assert "--cost: no run of runs.csv has a cost" in document["error"]["message"]
        else:
            assert len(document["warnings"]) == bool(words)
            assert words in "".join(document["warnings"])


@pytest.mark.parametrize(
    ("row", "column", "text", "message"),
    [
        (
            3,
            "nodes",
            "3",
            "row 3 (line 4), column 'nodes': is not a value of this dimension. Found 3",
        ),
        (3, "mem", "17", "Allowed: a whole number from 1 to 16"),
        (3, "mem", "2.5", "row 3 (line 4), column 'mem'"),
        (3, "mem", "", "row 3 (line 4), column 'mem': is empty"),
        (3, "mem", "inf", "column 'mem': is not a finite number"),
        (3, "codec", "bz", "Found 'bz'. Allowed: gz, xz, zst"),
        (3, "fast", "maybe", "column 'fast'"),
        (3, "seconds", "NaN", "row 3 (line 4), column 'seconds': is not a finite number"),
        (3, "seconds", "1e999", "column 'seconds'"),
        (0, "mem", "memory", "column 'mem': is missing"),
        (0, "mem", "memory", "Allowed: a header with nodes, mem, codec, fast, seconds."),
        (0, "note", "mem", "column 'mem': is there twice"),
        (0, "seconds", "time", "Name the measured column: --target COLUMN"),
    ],
)
def test_wrong_cells(
    kongming: Kongming, runs: Path, row: int, column: str, text: str, message: str
) -> None:
    with runs.open(newline="") as file:
        table = list(csv.reader(file))
    table[row][table[0].index(column)] = text
    with runs.open("w", newline="") as file:
        csv.writer(file).writerows(table)
    error = answer(kongming, "fit", "space.toml", runs, "--out", "m.json", status=2)["error"]
    assert message in f"{error['message']} {error['hint']}"


@pytest.mark.parametrize("command", [("fit", "--out", "m.json", "--model", "lines"), ("next",)])
def test_columns_that_nothing_reads_are_named(
    kongming: Kongming, runs: Path, command: tuple[str, ...]
) -> None:
    done = kongming("explore", command[0], "space.toml", runs, *command[1:])
    assert done.returncode == 0, done.stderr
    warned = "ignored, since the space has no such parameter: column 'note'"
    assert f"warning: {runs}: {warned}\n" in done.stderr
    header, *rows = runs.read_text().splitlines()
    # An index, as other programs write it, and empty columns of a spreadsheet behind the last.
    indexed = [f"{at},{row},," for at, row in enumerate(rows)]
    runs.write_text("\n".join([f",{header},,", *indexed]) + "\n")
    done = kongming("explore", command[0], "space.toml", runs, *command[1:])
    assert f"warning: {runs}: ignored, since the header has no name: column 1\n" in done.stderr
    # Those of explore run are no surprise.
    runs.write_text("\n".join([header.replace("note", "how"), *rows]) + "\n")
    assert "ignored" not in kongming("explore", command[0], "space.toml", runs, *command[1:]).stderr


def test_tables_that_no_model_is_made_of(kongming: Kongming, runs: Path, tmp_path: Path) -> None:
    lines = runs.read_text().splitlines()
    arguments = ("fit", "space.toml", runs, "--out", "m.json")

    def refused(rows: list[str], status: int) -> str:
        runs.write_text("\n".join([lines[0], *rows]) + "\n")
        return str(answer(kongming, *arguments, status=status)["error"]["message"])

    assert "too few runs for any model. Found 1. Allowed: 2 rows" in refused(lines[1:2], 2)
    ends = [line.rsplit(",", 2)[0] for line in lines[1:]]
    assert "column 'seconds': is constant" in refused([f"{line},4.5," for line in ends], 2)
    assert "All 40 runs failed: 40 times: no value" in refused([f"{line},," for line in ends], 3)
    forbidden = "16,16,zst,,true,4.5,"
    error = refused([*lines[1:], forbidden], 2)
    assert "row 41 (line 42), columns 'nodes', 'mem': is forbidden by forbid[0]" in error
    assert error.endswith("Allowed: points without nodes * mem > 100.")
    assert "level" in refused([*lines[1:], "2,2,gz,,true,4.5,"], 2)
    assert not (tmp_path / "m.json").exists()


@pytest.mark.parametrize("name", ["runs.csv", "space.toml"])
def test_a_model_replaces_none_of_its_sources(
    kongming: Kongming, runs: Path, tmp_path: Path, name: str
) -> None:
    content = (tmp_path / name).read_text()
    error = answer(kongming, "fit", "space.toml", runs, "--out", f"./{name}", status=2)["error"]
    assert error["message"].startswith("--out: is the file of the")
    assert (tmp_path / name).read_text() == content


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("nodes=4", "mem: is missing"),
        (AT + ",color=red", "no parameter named 'color'"),
        (AT + ",nodes=4", "has the parameter twice"),
        ("nodes", "is not NAME=VALUE"),
        (AT.replace("=8", "=99"), "--at mem: is not a value of this dimension"),
        (AT.replace("=8", "=much"), "--at mem: is not a finite number"),
        ("nodes=16,mem=16,codec=zst,fast=false", "forbid[0]: nodes * mem > 100"),
    ],
)
def test_wrong_points(kongming: Kongming, runs: Path, at: str, message: str) -> None:
    answer(kongming, "fit", "space.toml", runs, "--out", "m.json", "--model", "lines")
    error = answer(kongming, "predict", "m.json", "--at", at, status=2)["error"]
    assert message in error["message"]


def test_a_point_and_a_folder_that_are_refused(
    kongming: Kongming, runs: Path, tmp_path: Path
) -> None:
    answer(kongming, "fit", "space.toml", runs, "--out", "m.json", "--model", "lines")
    error = answer(kongming, "predict", "m.json", "--at", "nodes=2", status=2)["error"]
    assert error["message"].startswith("--at ")
    (tmp_path / "file").write_text("")
    error = answer(kongming, "plot", "m.json", "--out", "file/figures", status=2)["error"]
    assert error["message"] == "file/figures cannot be written: Not a directory."
    answer(kongming, "plot", "m.json", "--out", "figures", "--over", "nodes,zz", status=2)
    assert not (tmp_path / "figures").exists()


def test_newer_and_damaged_models_are_refused(
    kongming: Kongming, runs: Path, tmp_path: Path
) -> None:
    answer(kongming, "fit", "space.toml", runs, "--out", "m.json", "--model", "lines")
    path = tmp_path / "m.json"
    document = json.loads(path.read_text())
    newer = {**document, "version": document["version"] + 1}
    other = {**document, "target": "other"}
    for content, message in (
        (json.dumps(newer), f"has version {newer['version']}"),
        (json.dumps(other), "checksum does not match"),
        (json.dumps([]), KIND.name),
        ("\x80\x04\x95", "damaged"),
    ):
        path.write_text(content)
        error = answer(kongming, "predict", "m.json", "--at", AT, status=2)["error"]
        assert message in error["message"]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("nodes = [1, 2]\nnodes = [3]\n", "cannot be read"),
        ("nodes = []\n", "nodes: has no values"),
        ("nodes = [1, 1]\n", "nodes: is listed twice"),
        ("nodes = { from = 4, to = 1 }\n", "nodes: is an empty range"),
        ('forbid = ["nodes > 0"]\nnodes = [1, 2]\n', "nodes > 0"),
        ('forbid = ["cores > 0"]\nnodes = [1, 2]\n', "cores"),
        ("forbid = [\"__import__('os')\"]\nnodes = [1, 2]\n", "forbid[0]"),
        ("nodes = 3\n", "nodes: is not a dimension"),
    ],
)
def test_wrong_spaces(kongming: Kongming, tmp_path: Path, space: str, message: str) -> None:
    (tmp_path / "space.toml").write_text(space)
    assert message in answer(kongming, "next", "space.toml", status=2)["error"]["message"]


def test_a_point_may_have_commas_in_its_texts() -> None:
    flags = {"choices": ["-O2", "-O2,-g", "-O2,-march=native", "-O2,-march=native,-mtune=a"]}
    space = Space.from_dict({"flags": flags, "n": [1, 2], "mode": ["a", "b"]})
    point = parse_point(space, "flags=-O2,-g,n=2,mode=a")
    assert dict(point) == {"flags": "-O2,-g", "n": 2, "mode": "a"}
    for choice in flags["choices"]:
        point = parse_point(space, f"flags={choice}, n=2, mode=a")
        assert dict(point) == {"flags": choice, "n": 2, "mode": "a"}
    with pytest.raises(UnknownNameError, match="'nn'"):
        parse_point(space, "flags=-O2,nn=2,mode=a")
    with pytest.raises(InputError, match="is not NAME=VALUE"):
        parse_point(space, "n=2,-g")


def test_runs_that_were_all_ended_are_no_model(kongming: Kongming, tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("n = [1, 2, 3]\n")
    rows = "".join(f"{n},,timeout,time limit,5.0\n" for n in (1, 2, 3))
    (tmp_path / "runs.csv").write_text(f"n,seconds,status,error,at_least\n{rows}")
    refused = answer(kongming, "fit", "space.toml", "runs.csv", "--out", "m.json", status=3)[
        "error"
    ]
    assert "3 of 3 were ended at their time limit" in refused["message"]
    # Of a single one nothing is known either: the limit is the same for all others.
    rows = rows.replace("3,,timeout,time limit,5.0", "3,5.0,ok,,")
    (tmp_path / "runs.csv").write_text(f"n,seconds,status,error,at_least\n{rows}")
    refused = answer(kongming, "fit", "space.toml", "runs.csv", "--out", "m.json", status=3)[
        "error"
    ]
    assert "points with a value: 1; points with a lower bound alone: 2;" in refused["message"]
    assert "Raise the time limit" in refused["hint"]
    assert not (tmp_path / "m.json").exists()
