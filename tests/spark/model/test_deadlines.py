"""``kongming spark estimate --deadline``: a size that keeps it, not one that may."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kongming.spark.estimation import Estimator, Size
from kongming.spark.recommendation import by_deadline
from tests.conftest import Kongming
from tests.spark.event_logs import write
from tests.spark.programs import Part, Program, Stage, run

PROGRAM = Program((Part((Stage((3.0,) * 48),)), Part((Stage((2.0,) * 24),), after=(0,))))
SIZES = ("--executors", "2..8")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(run(PROGRAM, 4), tmp_path_factory.mktemp("logs") / "app-1")


def answer(kongming: Kongming, *args: str | Path, status: int = 0) -> dict[str, Any]:
    done = kongming("spark", "estimate", *args, "--json")
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_a_deadline_is_kept_with_the_required_probability(kongming: Kongming, log: Path) -> None:
    """The median of four executors, which they miss about every second time."""
    estimates = answer(kongming, log, *SIZES)["estimates"]
    runtimes = {each["executors"]: each["runtime_s"] for each in estimates}
    deadline = "--deadline", f"{1.001 * runtimes[4]['median']}s"
    report = answer(kongming, log, *SIZES, *deadline)["deadline"]
    assert report["risk"] == 0.95
    assert report["meets"]["executors"] > 4
    assert report["meets"]["probability"] >= 0.95
    # Of a 90 % interval, a twentieth is above its upper end.
    assert runtimes[report["meets"]["executors"]]["upper"] <= float(deadline[1][:-1])
    even = answer(kongming, log, *SIZES, *deadline, "--risk", "50%")["deadline"]
    assert even["meets"]["executors"] == 4
    assert even["meets"]["probability"] == pytest.approx(0.5, abs=0.02)
    shown = " ".join(kongming("spark", "estimate", log, *SIZES, *deadline).stdout.split())
    assert f"{report['meets']['executors']} executors of 1 core, with probability" in shown
    assert "(required: 95 %)" in shown


def test_the_likeliest_is_named_where_no_size_keeps_a_deadline(
    kongming: Kongming, log: Path
) -> None:
    fastest = answer(kongming, log, *SIZES)["estimates"][-1]["runtime_s"]["median"]
    deadline = "--deadline", f"{fastest}s"
    report = answer(kongming, log, *SIZES, *deadline)["deadline"]
    assert report["meets"] is None
    assert report["likeliest"]["executors"] == 8
    assert report["likeliest"]["probability"] == pytest.approx(0.5)
    shown = " ".join(kongming("spark", "estimate", log, *SIZES, *deadline).stdout.split())
    assert "with the required probability. The likeliest: 8 executors of 1 core" in shown


def test_of_sizes_that_keep_a_deadline_the_smallest_is_taken() -> None:
    estimates = Estimator(run(PROGRAM, 4)).estimates([Size(count) for count in (8, 2, 4)])
    best, likeliest = by_deadline(estimates, 10_000.0, 0.95)
    assert best is not None
    assert best.executors == likeliest.executors == 2
    assert by_deadline(estimates, 0.001, 0.95)[0] is None


def test_where_no_size_can_keep_a_deadline_the_fastest_is_the_likeliest() -> None:
    estimates = Estimator(run(PROGRAM, 4)).estimates([Size(count) for count in (2, 4, 8)])
    fastest = min(estimates, key=lambda each: each.median_s)
    assert fastest.executors == 8
    assert all(each.probability(1e-9) == 0.0 for each in estimates)
    assert by_deadline(estimates, 1e-9, 0.95) == (None, fastest)


@pytest.fixture
def running(tmp_path: Path) -> Path:
    """A run between its two jobs."""
    finished = run(PROGRAM, 4)
    middle = (finished.jobs[0].completed_s or 0.0) + 0.5
    stages = tuple(stage for stage in finished.stages if stage.stage in finished.jobs[0].stages)
    part = replace(finished, jobs=finished.jobs[:1], stages=stages, ended_s=None, last_s=middle)
    return write(part, tmp_path / "running")


@pytest.mark.parametrize("option", ["--runs", "--input-scale"])
def test_a_part_of_a_run_is_not_compared_with_full_runs(
    kongming: Kongming, log: Path, running: Path, option: str
) -> None:
    """The first of two jobs took less time than the run at another size did, whatever the size."""
    args = {"--runs": (log,), "--input-scale": ("1", "--ratio", "10%", "--sample", log, "20%")}
    error = answer(kongming, running, option, *args[option], status=2)["error"]
    assert error["message"].startswith(f"{option}: is of full runs, and LOG is of a run that has")
    assert "once it has the application's end" in error["hint"]


@pytest.mark.parametrize("earlier", [False, True])
def test_a_part_of_a_run_is_not_saved_as_a_model(
    kongming: Kongming, log: Path, running: Path, tmp_path: Path, earlier: bool
) -> None:
    """Its times are those of the first of two jobs, and nothing in the file says so."""
    like = ("--like", log) if earlier else ()
    for saving in (("--save", tmp_path / "model"), ("--name", "app")):
        error = answer(kongming, running, *SIZES, *like, *saving, status=2)["error"]
        assert error["message"].startswith(f"{saving[0]}: is of full runs, and LOG is of a run")
        assert "once it has the application's end" in error["hint"]
    assert not (tmp_path / "model").exists()


def test_a_part_of_a_run_says_nothing_of_its_deadline(
    kongming: Kongming, log: Path, running: Path
) -> None:
    error = answer(kongming, running, "--deadline", "1h", status=2)["error"]
    assert "a run that has not ended" in error["message"]
    assert "--like LOG" in error["hint"]
    like = "--like", log, "--deadline", "1h"
    report = answer(kongming, running, *SIZES, *like)
    assert report["deadline"] == {
        "seconds": 3600.0,
        "risk": None,
        "meets": {"executors": 2, "cores": 1},
    }
    assert any("a median without an interval" in warning for warning in report["warnings"])
    shown = kongming("spark", "estimate", running, *SIZES, *like).stdout
    assert "ends within 1 h 00 min by the median: 2 executors" in " ".join(shown.split())


def test_a_probability_is_required_of_a_deadline_alone(kongming: Kongming, log: Path) -> None:
    error = answer(kongming, log, "--risk", "0.9", status=2)["error"]
    assert "--risk tells nothing without --deadline" in error["message"]
    like = "--like", log, "--deadline", "1h", "--risk", "0.9"
    error = answer(kongming, log, *like, status=2)["error"]
    assert "--risk and --like cannot be given together" in error["message"]
