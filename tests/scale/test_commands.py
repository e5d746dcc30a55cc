"""``kongming scale`` as it is called: documents, exit statuses, files."""

from __future__ import annotations

import csv
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kongming.files.line_file import LineFile
from kongming.scale.points import Runs
from tests.conftest import Kongming
from tests.scale.shapes import grid, measured, published
from tests.variants import variants

FAST = ("--model", "ernest-relative")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two machine types, the second one 1.6 times as fast."""
    path = tmp_path / "runs.csv"
    table = measured(published("regression"), grid((1, 2, 4, 8, 16), (0.02, 0.05, 0.1)), 0.03)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("kind", "machines", "scale", "seconds"))
        for name, faster in (("small", 1.0), ("big", 1.6)):
            for i in range(len(table)):
                writer.writerow(
                    (
                        name,
                        table.points.machines[i],
                        table.points.scale[i],
                        table.seconds[i] / faster,
                    )
                )
    return path


def write_runs(path: Path, runs: Runs) -> None:
    columns = zip(runs.points.machines, runs.points.scale, runs.seconds, strict=True)
    lines = [",".join(f"{value:.6g}" for value in row) for row in columns]
    path.write_text("\n".join(["machines,scale,seconds", *lines]) + "\n")


def answer(kongming: Kongming, *args: str | Path, status: int = 0) -> dict[str, Any]:
    done = kongming("scale", *args, "--json")
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_fit_predict_recommend(kongming: Kongming, runs: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    fitted = answer(kongming, "fit", runs, "--type-column", "kind", *FAST, "--save", model)
    small = fitted["types"]["small"]
    assert set(small["terms"]) == {"intercept", "scale/machines", "log(machines)", "machines"}
    assert {"repeat_nearest", "amdahl"} <= set(small["baselines"])
    assert small["warnings"] == []
    assert small["noise_floor_pct"] is None
    predicted = answer(kongming, "predict", model, "--machines", "64", "--type", "small")
    assert (
        predicted["runtime_s"]["lower"]
        < predicted["runtime_s"]["median"]
        < predicted["runtime_s"]["upper"]
    )
    assert predicted["runtime_s"]["level"] == 0.9
    assert predicted["extrapolating"] is True
    assert predicted["stale"] is False
    answer(kongming, "predict", model, "--machines", "64", "--type", "small", "--strict", status=3)
    answer(kongming, "predict", model, "--machines", "64", status=2)
    prices = tmp_path / "prices.csv"
    prices.write_text("type,price\nsmall,1\nbig,2.5\n")
    wrong = tmp_path / "modle.json"
    mistyped = answer(kongming, "predict", wrong, "--machines", "64", status=2)
    assert str(model) in mistyped["error"]["hint"]

    plot = tmp_path / "curve.svg"
    best = answer(
        kongming, "recommend", model, "--deadline", "60", "--prices", prices, "--plot", plot
    )
    assert best["recommendation"]["type"] == "small"
    assert best["probability"] >= 0.95
    assert plot.read_text().startswith("<?xml")
    output = kongming("scale", "recommend", model, "--deadline", "1m", "--prices", prices).stdout
    assert output.startswith("Take ")
    assert "(required: 95 %)" in " ".join(output.split("\n\n")[0].split())
    assert output.count("\n") < 20
    output = kongming("scale", "recommend", model, "--budget", "20", "--prices", prices).stdout
    assert f"costs up to 20 (money of {prices.name}) with probability" in " ".join(output.split())
    both = kongming("scale", "recommend", model, "--budget", "20", "--deadline", "1m")
    assert both.returncode == 2
    assert "--budget: cannot be given with --deadline" in both.stderr
    none = answer(kongming, "recommend", model, "--deadline", "0.1", "--prices", prices, status=3)
    assert none["recommendation"] is None
    answer(kongming, "recommend", model, "--deadline", "60", status=2)
    curve = answer(kongming, "curve", model, "--machines", "1,8,64", "--prices", prices)
    assert [row["machines"] for row in curve["curve"]] == [1, 8, 64] * 2


@pytest.mark.thorough
def test_the_output_says_which_form_has_the_terms(kongming: Kongming, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    write_runs(table, measured(published("regression"), grid((1, 2, 4, 8), (0.05, 0.1)), 0.03))
    report = answer(kongming, "fit", table)
    weights = {entry["form"]: entry["weight"] for entry in report["stack"]}
    assert list(weights.values()) == sorted(weights.values(), reverse=True)
    assert report["terms_form"] == "cliff"
    shown = kongming("scale", "fit", table).stdout
    assert f"term of cliff ({100 * weights['cliff']:.0f} % of the weight)" in shown
    # Forms come first, by their weights; the terms of a kind that is fitted alone are its own.
    assert shown.index(next(iter(weights))) < shown.index("term of")
    alone = answer(kongming, "fit", table, "--model", "ernest")
    assert alone["terms_form"] is None
    assert "term of" not in kongming("scale", "fit", table, "--model", "ernest").stdout


def test_fewer_machines_than_were_run_are_not_advised(kongming: Kongming, tmp_path: Path) -> None:
    table, model = tmp_path / "runs.csv", tmp_path / "model.json"
    table.write_text("machines,seconds\n4,50\n8,30\n12,25\n")
    answer(kongming, "fit", table, *FAST, "--save", model)
    question = ("recommend", model, "--machines", "2")
    assert answer(kongming, *question, "--deadline", "1h", status=3)["recommendation"] is None
    text = kongming("scale", *question, "--deadline", "1h").stdout
    assert text.startswith("Fewer machines than were run are not advised. The likeliest is 2")
    text = kongming("scale", *question, "--deadline", "1s").stdout
    assert text.startswith("Nothing ends within 1.00 s with the required probability.")


@pytest.mark.thorough
def test_a_curve_over_very_many_machines_has_steps(kongming: Kongming, tmp_path: Path) -> None:
    table, model = tmp_path / "runs.csv", tmp_path / "model.json"
    table.write_text("machines,seconds\n1000000,50\n2000000,30\n")
    answer(kongming, "fit", table, *FAST, "--save", model)
    machines = [row["machines"] for row in answer(kongming, "curve", model)["curve"]]
    assert machines == list(range(800, 8_000_001, 800))


def test_a_table_of_runs_is_not_written_over(kongming: Kongming, runs: Path) -> None:
    text = runs.read_text()
    where = ("--machines", "1..8", "--scale", "0.1..0.4:4")
    for command in (("fit", runs, *FAST, "--save"), ("design", *where, "--done", runs, "--out")):
        error = answer(kongming, *command, runs, status=2)["error"]
        assert "is the table of runs, which it would replace" in error["message"]
    for option, what in (("--cost", "table of costs"), ("--model", "model")):
        error = answer(kongming, "design", *where, option, runs, "--out", runs, status=2)["error"]
        assert f"is the {what}, which it would replace" in error["message"]
    assert runs.read_text() == text


def test_names_are_kept_in_the_store_and_binaries_watched(
    kongming: Kongming, runs: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text("one")
    for version in (1, 2):
        stored = answer(
            kongming, "fit", runs, "--group", "kind", *FAST, "--name", "job", "--track", program
        )
        assert stored["version"] == version
        assert set(stored["groups"]) == {"small", "big"}
    listed = kongming("models", "--json")
    assert listed.returncode == 0, listed.stderr
    assert "scale:job" not in listed.stdout  # these predict no slowdown
    arguments = ("predict", "job", "--machines", "8", "--scale", "0.1", "--group", "big")
    assert answer(kongming, *arguments)["stale"] is False
    program.write_text("two")
    stale = answer(kongming, *arguments)
    assert stale["stale"] is True
    assert "has changed" in stale["warnings"][0]
    unknown = answer(kongming, "predict", "jbo", "--machines", "8", status=2)
    assert "job" in unknown["error"]["hint"]


def test_a_model_that_is_missing_is_named_where_there_is_no_store(
    kongming: Kongming, tmp_path: Path
) -> None:
    (tmp_path / "base.json").touch()
    store = ("--store", f"sqlite:///{tmp_path / 'none.db'}")
    for name, hint in (
        ("bse.json", f"Did you mean {tmp_path / 'base.json'}?"),
        ("bse", f"Did you mean {tmp_path / 'base.json'}?"),
        ("other.json", f"The store {tmp_path / 'none.db'} does not exist."),
        ("job", "Fit it: kongming scale fit"),
    ):
        path = tmp_path / name
        for more in (store, ()):
            error = answer(kongming, "predict", path, "--machines", "4", *more, status=2)["error"]
            assert "no scale model" in error["message"]
            assert str(path) in error["message"]
            assert hint in error["hint"] or not more
    assert not (tmp_path / "none.db").exists()


def test_bad_tables_name_row_and_column(kongming: Kongming, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("machines,scale,seconds\n1,0.1,10\n2,0.1,fast\n")
    error = answer(kongming, "fit", path, status=2)["error"]
    assert "row 2 (line 3), column 'seconds'" in error["message"]


def test_design_run_fit(kongming: Kongming, tmp_path: Path) -> None:
    """Everything but the cluster: designed, carried out, resumed, fitted, and the next best."""
    apps = tmp_path / "apps.toml"
    apps.write_text(
        '[apps.count]\nsetup = "echo {scale} > {dir}/input"\n'
        'command = "test -f {dir}/input && test {rank} -lt {machines} && sleep 0.0{machines}"\n'
    )
    design = tmp_path / "design.json"
    chosen = answer(
        kongming,
        "design",
        *("--machines", "1..8", "--scale", "0.1..0.4:4", "--experiments", "6"),
        *("--target", "16@1.0", "--out", design),
    )
    assert chosen["count"] == 6
    assert chosen["optimality"] == "I"
    assert chosen["relaxation"]["gap"] < 1e-4
    assert chosen["predicted_variance"]["chosen"] <= chosen["predicted_variance"]["paper"]
    table = tmp_path / "count.csv"
    call = ("run", apps, "--app", "count", "--design", design, "--out", table)
    first = answer(kongming, *call)
    assert (first["measured"], first["resumed"], first["failed"]) == (6, 0, [])
    table.write_text("\n".join(table.read_text().splitlines()[:-2]) + "\n2,0.1,0.5,cgr")
    again = answer(kongming, *call)
    assert (again["measured"], again["resumed"]) == (2, 4)
    complete = table.read_text()
    group = complete.replace("process", "cgroup 0.125").replace("cgroup 0.125", "cgroup 0.5")
    table.write_text("".join(group.splitlines(keepends=True)[:-1]))
    assert "'nan' is not a number" in kongming("scale", *call, "--share", "nan").stderr
    message = answer(kongming, *call, status=2)["error"]["message"]
    assert "--share: The machines of the table had 0.5 CPUs (row 1)" in message
    # Nothing is mixed where nothing is left to run.
    table.write_text(group)
    assert answer(kongming, *call)["resumed"] == 6
    table.write_text(complete)
    apps.write_text(apps.read_text().replace("sleep", "sleep 0 && sleep"))
    assert "identity" in answer(kongming, *call, status=2)["error"]["message"]
    fitted = answer(kongming, "fit", table)
    assert fitted["runs"] == 6
    after = answer(
        kongming,
        *("next", table, "--machines", "1..8", "--scale", "0.1..0.4:4"),
        *("--target", "16@1.0", "--stop-at", "0.001%"),
    )
    assert after["stop"] is False
    assert 1 <= after["next"]["machines"] <= 8


@pytest.mark.parametrize("target", variants(("8@1", "64@1", "8@50")))
def test_next_stops_by_the_interval_that_predict_gives(
    kongming: Kongming, tmp_path: Path, target: str
) -> None:
    """Its terms alone are much surer of machines and scales that were never run."""
    path, saved = tmp_path / "runs.csv", tmp_path / "model.json"
    table = measured(published("regression"), grid((1, 2, 4, 8, 16), (0.1, 0.25, 0.5, 1.0)), 0.05)
    write_runs(path, table)
    answer(kongming, "fit", path, "--save", saved)
    machines, scale = target.split("@")
    question = ("--machines", machines, "--scale", scale)
    predicted = answer(kongming, "predict", saved, *question)
    where = ("--machines", "1..16", "--scale", "0.1..1", "--target", target)
    advice = answer(kongming, "next", path, *where, "--stop-at", "20%")
    assert advice["runtime_s"] == pytest.approx(predicted["runtime_s"])
    runtime = predicted["runtime_s"]
    reach = runtime["upper"] / runtime["median"] - 1.0
    assert advice["reach_pct"] == pytest.approx(100.0 * reach)
    assert advice["stop"] == (reach <= 0.2)
    assert set(predicted["reasons"]) <= set(advice["warnings"])
    assert advice["stop"] == (target == "8@1")


def test_next_names_no_option_of_design(kongming: Kongming, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("machines,seconds\n2,10\n4,6\n")
    where = ("--machines", "1..8", "--scale", "0.5,1", "--target", "8@1")
    (unknown,) = [
        text
        for text in answer(kongming, "next", path, *where)["warnings"]
        if "cost of a run is unknown" in text
    ]
    assert unknown.endswith("give --cost, or run more")


@pytest.mark.thorough
def test_variances_at_the_target_have_no_unit_of_time(kongming: Kongming, tmp_path: Path) -> None:
    """They are in those of one run there, in nanoseconds and in years."""
    path = tmp_path / "runs.csv"
    where = ("--machines", "1..8", "--scale", "0.01..0.1", "--target", "64@1.0")
    variances, chosen = [], []
    for unit in (1e-6, 1.0, 1e8):
        rows = [
            f"{m},{s},{unit * (5 + 100 * s / m + 2 * np.log(m) + 0.3 * m)}"
            for m, s in ((1, 0.01), (2, 0.02), (4, 0.05), (8, 0.1), (2, 0.1))
        ]
        path.write_text("\n".join(["machines,scale,seconds", *rows]))
        design = answer(kongming, "design", "--done", path, *where, "--experiments", "2")
        following = answer(kongming, "next", path, *where)["next"]
        variances.append((design["predicted_variance"]["chosen"], following["variance_now"]))
        chosen.append((following["machines"], following["scale"]))
    assert variances[0] == pytest.approx(variances[1], rel=1e-4)
    assert variances[2] == pytest.approx(variances[1], rel=1e-4)
    assert chosen[0] == chosen[1] == chosen[2]
    assert 1.0 < variances[1][0] < variances[1][1] < 1000.0


def test_costs_of_one_iteration_are_named(kongming: Kongming, tmp_path: Path) -> None:
    table, model = tmp_path / "runs.csv", tmp_path / "model.json"
    table.write_text("machines,seconds,turns\n1,120,20\n2,70,20\n4,45,20\n")
    answer(kongming, "fit", table, "--iterations-column", "turns", *FAST, "--save", model)
    where = ("--machines", "1..4", "--scale", "0.5,1", "--experiments", "5")
    design = answer(kongming, "design", *where, "--model", model)
    assert design["machine_seconds"] < 120.0
    assert any("one iteration" in text for text in design["warnings"])


@pytest.mark.thorough
def test_next_ends_where_predict_does_beyond_a_cliff(kongming: Kongming, tmp_path: Path) -> None:
    path, saved = tmp_path / "runs.csv", tmp_path / "model.json"
    points = grid((2, 4, 6, 8, 12), (0.02, 0.05, 0.1))
    table = measured(published("regression"), points, 0.02)
    longer = np.where(points.load == points.load.max(), 4.0, 1.0)
    write_runs(path, Runs(points, table.seconds * longer))
    answer(kongming, "fit", path, "--save", saved)
    error = answer(kongming, "predict", saved, "--machines", "4", status=3)["error"]
    where = ("--machines", "1..16", "--scale", "0.01..0.1", "--target", "4@1")
    assert answer(kongming, "next", path, *where, status=3)["error"] == error


def test_a_failing_run_is_told_and_tried_again(kongming: Kongming, tmp_path: Path) -> None:
    apps = tmp_path / "apps.toml"
    apps.write_text('[apps.no]\ncommand = "echo broken; exit 3"\n')
    done = answer(kongming, "run", apps, "--app", "no", "--experiment", "2@0.1", status=1)
    two_scales = ("--experiment", "2@0.1", "--experiment", "2@0.2")
    alike = answer(kongming, "run", apps, "--app", "no", *two_scales, status=2)["error"]
    assert "has no {scale}" in alike["message"]
    assert "broken" in done["failed"][0]["error"]
    assert not (tmp_path / "no-runs.csv").exists()


def test_a_table_is_appended_to_by_one_command_at_a_time(
    kongming: Kongming, tmp_path: Path
) -> None:
    apps, table = tmp_path / "apps.toml", tmp_path / "runs.csv"
    apps.write_text('[apps.yes]\ncommand = "true"\n')
    call = ("run", apps, "--app", "yes", "--experiment", "1@1", "--out", table)
    with closing(LineFile(table)):
        error = answer(kongming, *call, status=2)["error"]
        assert "Another command appends to this table" in error["message"]
        assert table.read_text() == ""
    assert answer(kongming, *call)["measured"] == 1
    with table.open("a") as file:
        file.write("1,1,0.5,proc")  # what a process that was killed may leave
    done = kongming("scale", *call)
    assert done.returncode == 0
    assert "not complete, and was removed: '1,1,0.5,proc'" in " ".join(done.stderr.split())


def test_a_cost_function_and_its_budget(kongming: Kongming, tmp_path: Path) -> None:
    cost = tmp_path / "cost"
    cost.write_text("machines*(10 + 400*scale/machines)\n")
    call = ("design", "--machines", "1..16", "--scale", "0.01..0.1", "--cost", cost)
    design = answer(kongming, *call, "--budget-machine-seconds", "400", "--at-least", "3@0.1=1")
    assert design["machine_seconds"] <= 400.001
    assert design["warnings"] == []
    assert any(
        experiment["machines"] == 3 and experiment["scale"] == 0.1
        for experiment in design["experiments"]
    )
    cost.write_text("machines,scale,cost\n1,0.01,5\n")
    error = answer(kongming, *call, "--experiments", "5", status=2)["error"]
    assert "has no cost of 2 machines" in error["message"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget-machine-seconds", "0.0001"), r"--budget-.*: allows no exp.*'0.0001'.*10 or mo"),
        (("--budget-machine-seconds", "10"), r"--budget-machine-seconds: So few experiments"),
        (("--experiments", "1"), r"--experiments: So few experiments"),
        (("--at-least", "4@0.1=9", "--experiments", "4"), r"--experiments: .*--at-least.*9 or mo"),
        (("--at-least", "4@0.1=3", "--repeats", "2"), r"--at-least: .*--repeats 2.*'4@0.1=3'"),
        (("--at-least", "4@0.1=\u00b2"), r"--at-least: is not a count"),
        (("--cost", "nope.csv"), r"--cost: There is no file nope.csv"),
    ],
)
def test_a_design_that_is_refused_names_the_option(
    kongming: Kongming, arguments: tuple[str, ...], message: str
) -> None:
    call = ("design", "--machines", "1..8", "--scale", "0.01..0.1")
    error = answer(kongming, *call, *arguments, status=2)["error"]
    assert re.search(message, error["message"]), error
    assert error["hint"] or "--at-least" in message


def test_options_without_a_meaning_over_contexts_are_refused(
    kongming: Kongming, tmp_path: Path
) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("machines,seconds,size\n2,10,1\n4,6,1\n2,20,2\n4,12,2\n")
    where = ("--machines", "2..8", "--scale", "1", "--target", "8@1", "--context", "size=2")
    for option, value in (
        ("--cost", "cost.csv"),
        ("--model", "model.json"),
        ("--optimality", "D"),
        ("--repeats", "2"),
        ("--at-least", "2@1"),
    ):
        error = answer(kongming, "design", "--done", table, *where, option, value, status=2)
        assert error["error"]["message"] == f"{option}: cannot be given with --context."
        assert error["error"]["hint"] == f"Leave out {option}."
    error = answer(kongming, "next", table, *where, "--cost", "cost.csv", status=2)["error"]
    assert error["message"] == "--cost: cannot be given with --context."
    error = answer(kongming, "next", table, *where, "--terms", "auto", status=2)["error"]
    assert error["message"] == "--terms auto: cannot be given with --context."


def test_a_name_that_no_run_had_is_told_before_it_is_run(
    kongming: Kongming, tmp_path: Path
) -> None:
    table = tmp_path / "runs.csv"
    rows = [f"{m},{s * 20 / m},{n}" for n, s in (("small", 1), ("large", 3)) for m in (2, 4, 8)]
    table.write_text("\n".join(["machines,seconds,type", *rows]) + "\n")
    where = ("--machines", "2..8", "--scale", "1", "--target", "8@1", "--context", "type=smal")
    for command in (("next", table), ("design", "--experiments", "2", "--done", table)):
        warnings = answer(kongming, *command, *where)["warnings"]
        assert any("did you mean small?" in text for text in warnings)


def test_machines_are_dropped_and_extras_counted(kongming: Kongming, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text(
        "node,memory,network\n" + "".join(f"n{i},{1 + i / 100},2\n" for i in range(9)) + "x,1,3\n"
    )
    dropped = answer(kongming, "drop", nodes, "--keep", "9")
    assert dropped["drop"] == ["x"]
    assert dropped["gain_pct"] > 0
    by_memory = answer(kongming, "drop", nodes, "--keep", "9", "--by", "memory")
    assert by_memory["drop"] == ["n8"]
    unknown = answer(kongming, "drop", nodes, "--keep", "9", "--by", "nope", status=2)["error"]
    assert "Allowed: memory, network" in unknown["message"]
    extra = answer(kongming, "extra", nodes, "--machines", "10")
    assert extra["extra"] >= 1


def test_the_help_names_every_subcommand(kongming: Kongming) -> None:
    done = kongming("scale", "--help")
    for name in ("fit", "predict", "recommend", "curve", "design", "next", "run", "drop", "extra"):
        assert f"\n  {name}" in done.stdout
        assert kongming("scale", name, "--help").returncode == 0
    assert "fit" in kongming("scale", "ftt").stderr


def test_a_curve_is_drawn_as_a_picture_alone(kongming: Kongming, tmp_path: Path) -> None:
    """Known before the work is done, and no error of the library that draws."""
    (tmp_path / "sort.json").touch()
    for name, problem in (("x.txt", "is not an image file"), ("nowhere/x.svg", "does not exist")):
        done = kongming("scale", "curve", "sort.json", "--plot", name)
        assert done.returncode == 2
        assert f"--plot: is {'not an' if name == 'x.txt' else 'in a folder that'}" in done.stderr
        assert problem in done.stderr
