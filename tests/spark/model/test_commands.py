"""``kongming spark estimate`` and ``evaluate`` as they are called."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kongming.spark.application import Application
from kongming.spark.estimation import Estimator, Size
from kongming.spark.progress import progress
from kongming.spark.reading import read
from kongming.spark.reading.codecs import decompressed
from tests.conftest import Kongming
from tests.spark.event_logs import write
from tests.spark.programs import Part, Program, Stage, random_program, run
from tests.spark.record import LOGS

CLUSTERS = Path(__file__).parents[3] / "benchmarks/spark/logs"

PROGRAM = Program(
    (
        Part((Stage((3.0,) * 24), Stage((2.0,) * 12, (0,))), execution=0, tail=0.1),
        Part((Stage((4.0,) * 30),), gap=2.0, after=(0,), execution=1),
    ),
    first_s=0.8,
)

GROWING = ("--input-scale", "1", "--ratio", "10%", "--sample")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(run(PROGRAM, 3), tmp_path_factory.mktemp("logs") / "app-1")


def answer(kongming: Kongming, *args: str | Path, status: int = 0) -> dict[str, Any]:
    done = kongming("spark", *args, "--json")
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_an_estimate_has_its_baselines_and_picks(kongming: Kongming, log: Path) -> None:
    report = answer(kongming, "estimate", log, "--executors", "1..12", "--by", "execution")
    assert report["application"]["executors"] == 3
    assert report["application"]["complete"] is True
    assert report["self_check"]["error_pct"] < 1.0
    assert report["driver_s"] == pytest.approx(3.5, abs=0.2)
    assert [each["executors"] for each in report["estimates"]] == list(range(1, 13))
    for each in report["estimates"]:
        runtime = each["runtime_s"]
        assert runtime["lower"] < runtime["median"] < runtime["upper"]
        measured = run(PROGRAM, each["executors"]).ended_s
        assert runtime["median"] == pytest.approx(measured, rel=0.05)
        assert set(each["baselines"]) == {"constant_durations", "linear"}
        assert 0.0 < each["utilisation"] <= 1.0
        hours = each["executors"] * runtime["median"] / 3600
        assert each["cost"] == pytest.approx(hours, rel=0.01)
    # Below a quarter and above four times the recorded slots.
    assert not any(each["extrapolating"] for each in report["estimates"])
    assert report["recommendation"]["cheapest"]["executors"] == 1
    assert report["recommendation"]["fastest"]["executors"] == 12
    assert 1 < report["recommendation"]["knee"]["executors"] < 12
    assert [each["id"] for each in report["executions"]] == [0, 1]
    first = report["executions"][0]
    assert first["estimates"][2]["runtime_s"]["median"] == pytest.approx(
        first["measured_s"], rel=0.01
    )


def test_the_paper_model_is_constant_lengths_alone(kongming: Kongming, log: Path) -> None:
    report = answer(kongming, "estimate", log, "--executors", "9", "--model", "paper")
    (estimate,) = report["estimates"]
    assert estimate["runtime_s"]["median"] == pytest.approx(
        estimate["baselines"]["constant_durations"]
    )
    assert estimate["corrections"] == {}


@pytest.mark.parametrize(
    "args",
    [
        ("--input-scale", "1", "--ratio", "10%", "--sample", "other", "20%"),
        ("--runs", "runs.csv"),
        ("--history", "other"),
        ("--without", "memory"),
        ("--like", "other"),
        ("--memory", "8g"),
        ("--dynamic", "1..4"),
    ],
    ids=lambda args: args[0],
)
def test_the_paper_model_has_no_place_for_corrections(
    kongming: Kongming, log: Path, args: tuple[str, ...]
) -> None:
    error = answer(kongming, "estimate", log, "--model", "paper", *args, status=2)["error"]
    assert f"--model paper and {args[0]} cannot be given together" in error["message"]
    assert "Leave --model paper out" in error["hint"]


def test_prices_cores_and_strict(kongming: Kongming, log: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("type,price\nexecutor,36\n")
    report = answer(
        kongming, "estimate", log, "--executors", "2,4", "--cores", "1,2", "--prices", prices
    )
    assert [(each["executors"], each["cores"]) for each in report["estimates"]] == [
        *((2, 1), (4, 1), (2, 2), (4, 2)),
    ]
    estimate = report["estimates"][0]
    assert estimate["cost"] == pytest.approx(estimate["machine_s"] / 100)
    assert any("an executor of 2 cores costs as much as one of 1" in w for w in report["warnings"])
    far = answer(kongming, "estimate", log, "--executors", "64")
    assert far["estimates"][0]["extrapolating"] is True
    assert "times more slots" in far["estimates"][0]["reasons"][0]
    refused = answer(kongming, "estimate", log, "--executors", "64", "--strict", status=3)
    assert "--strict" in refused["error"]["hint"]


def test_without_prices_executors_of_several_cores_cost_by_the_core(
    kongming: Kongming, log: Path
) -> None:
    several = "estimate", log, "--executors", "3", "--cores", "1,16"
    report = answer(kongming, *several)
    small, large = report["estimates"]
    assert small["cost"] == pytest.approx(small["machine_s"] / 3600)
    assert large["cost"] == pytest.approx(16 * large["machine_s"] / 3600)
    # Sixteen times the cores, and far from sixteen times as fast.
    assert report["recommendation"]["cheapest"]["cores"] == 1
    assert any("costs are core-hours" in warning for warning in report["warnings"])
    assert "core-hours" in kongming("spark", *several).stdout
    assert "core-hours" not in kongming("spark", *several[:4], "--cores", "16").stdout


def test_prices_by_the_cores_of_an_executor(kongming: Kongming, log: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("type,price\n1,36\n2,48\n")
    priced = "estimate", log, "--executors", "3", "--prices", prices
    report = answer(kongming, *priced, "--cores", "1,2")
    for estimate, price in zip(report["estimates"], (36, 48), strict=True):
        assert estimate["cost"] == pytest.approx(estimate["machine_s"] * price / 3600)
    assert not any("cost" in warning for warning in report["warnings"])
    error = answer(kongming, *priced, "--cores", "2,4", status=2)["error"]
    assert "no price of executors of 4 cores" in error["message"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--executors", "0"), "--executors"),
        (("--memory", "lots"), "--memory"),
        (("--memory", "4"), "450m or more"),
        (("--dynamic", "1..4", "--executors", "3"), "not both"),
        (("--dynamic", "1..100000000"), "cores in all"),
        (("--dynamic", "\N{SUPERSCRIPT TWO}..4"), "--dynamic: is not a range"),
        (("--dynamic", "1.." + "9" * 5000), "--dynamic: is not a range"),
        (("--dynamic", "1..200000", "--cores", "1,2"), "--dynamic 1..200000 with --cores 1,2 are"),
        (("--executors", "10000", "--cores", "100"), "up to 250000 cores in all, here 2500 exec"),
        (("--executors", "1000000000"), "--executors: is more than 250000. Found '1000000000'"),
        (("--executors", "2..999999"), "has '999999', which is more than 250000"),
        (("--executors", "9" * 5000), "is more than 250000"),
        (("--cores", "999999999"), "--cores: is more than 250000. Found '999999999'"),
        (("--memory", "inf"), "--memory: is not a size. Found 'inf'"),
        (("--memory", "1e400g"), "--memory: is not a size"),
        (("--executors", "2,,4"), "has no value"),
        (("--executors", "2.."), "lacks a number"),
        (("--plot", "figure.txt"), "not an image file"),
        (("--plot", "nowhere/figure.svg"), "does not exist"),
        (("--sample", str(LOGS / "spark-4-cache.zstd"), "10%"), "--input-scale"),
        (("--runs", str(LOGS / "spark-4-cache.zstd")), "another application"),
        (
            (*GROWING, str(LOGS / "spark-4-cache.zstd"), "20%"),
            "--sample: is a run of another application",
        ),
        ((*GROWING, "nowhere", "20%"), "--sample: There is no file or folder nowhere"),
        (("--like", "nowhere"), "--like: There is no file or folder nowhere"),
        (("--history", "nowhere"), "--history: There is no file or folder nowhere"),
    ],
)
def test_what_is_wrong_is_named(
    kongming: Kongming, log: Path, args: tuple[str, ...], message: str
) -> None:
    assert message in answer(kongming, "estimate", log, *args, status=2)["error"]["message"]


def test_the_way_out_where_no_size_has_a_slot(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    application = run(PROGRAM, 2, 2)
    settings = {**application.settings, "spark.task.cpus": "2"}
    wide = write(replace(application, settings=settings), tmp_path / "wide")
    error = answer(kongming, "estimate", wide, "--cores", "1", status=3)["error"]
    assert "No slot for a task of 2 CPUs" in error["message"]
    assert error["hint"] == "Ask for more cores: --cores."


def test_the_run_of_a_sample_gives_the_shape_and_says_so(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    """By --ratio, or by the setting under which 'spark sample' lets its sample be read."""
    application = run(PROGRAM, 3)
    settings = {**application.settings, "spark.kongming.sample.ratio": "0.1"}
    sampled = write(replace(application, settings=settings), tmp_path / "sampled")
    sizes, expected = ("--executors", "2,6"), "a sample, 10 % of the input"
    plain = answer(kongming, "estimate", log, *sizes)
    assert not any("sample" in warning for warning in plain["warnings"])
    model = tmp_path / "model.json"
    for arguments in ((log, "--ratio", "10%"), (sampled,), (sampled, "--model", "paper")):
        report = answer(kongming, "estimate", *arguments, *sizes, "--save", model)
        assert expected in report["warnings"][0]
        assert "not the time on all data" in report["warnings"][0]
        assert len(report["estimates"]) == 2
        predicted = kongming("scale", "predict", model, "--machines", "2", "--json")
        assert expected in json.loads(predicted.stdout)["warnings"][0]
    assert expected in kongming("spark", "estimate", sampled).stderr
    full = answer(kongming, "estimate", sampled, "--ratio", "1", *sizes)
    assert not any("sample" in warning for warning in full["warnings"])


def test_one_sample_does_not_tell_how_time_grows(kongming: Kongming, log: Path) -> None:
    report = answer(kongming, "estimate", log, "--input-scale", "1", "--ratio", "10%", status=3)
    assert "--sample" in report["error"]["hint"]
    alone = answer(kongming, "estimate", log, "--input-scale", "1", status=3)
    assert alone["error"]["message"] == report["error"]["message"]


def test_no_log_and_nothing_finished(kongming: Kongming, tmp_path: Path) -> None:
    answer(kongming, "estimate", tmp_path / "none", status=2)
    application = run(PROGRAM, 2)
    empty = replace(application, stages=(), jobs=(), executions=())
    answer(kongming, "estimate", write(empty, tmp_path / "empty"), status=3)


def test_a_run_that_took_no_time(kongming: Kongming, tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    for executors, path in enumerate(paths, 2):
        text = write(run(PROGRAM, executors), path).read_text()
        path.write_text(re.sub(r"\b1700\d{9}\b", "1700000000000", text))
    for command in (["estimate", paths[0]], ["evaluate", *paths]):
        error = answer(kongming, *command, status=3)["error"]
        assert "the run took no time" in error["message"]


def test_a_saved_replay_is_a_scale_model(kongming: Kongming, log: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    report = answer(kongming, "estimate", log, "--executors", "1..12", "--save", model)
    at = {each["executors"]: each["runtime_s"] for each in report["estimates"]}

    def scale(*args: str | Path, status: int = 0) -> dict[str, Any]:
        done = kongming("scale", *args, "--json")
        assert done.returncode == status, done.stderr
        document = json.loads(done.stdout)
        assert isinstance(document, dict)
        return document

    predicted = scale("predict", model, "--machines", "6")
    assert predicted["model"] == "spark-replay"
    assert predicted["runtime_s"]["median"] == pytest.approx(at[6]["median"])
    assert predicted["runtime_s"]["upper"] == pytest.approx(at[6]["upper"], rel=1e-3)
    assert scale("predict", model, "--machines", "40")["extrapolating"] is True
    scale("predict", model, "--machines", "6", "--scale", "0.5", status=3)
    curve = scale("curve", model, "--machines", "1..12")["curve"]
    assert len(curve) == 12
    there = "--scale", "1", "--target", "12@1"
    # No run says more about the largest size than a run of it.
    advice = scale("next", model, "--machines", "1..12", *there, "--per-run")
    assert advice["stop"] is False
    assert advice["next"]["machines"] == 12
    assert advice["next"]["variance_after"] < 0.5 * advice["next"]["variance_now"]
    assert advice["runtime_s"]["median"] == pytest.approx(at[12]["median"])
    scale("next", model, "--machines", "2..8", "--scale", "0.5", "--target", "8@1", status=3)
    best = scale("recommend", model, "--deadline", f"{at[4]['upper'] * 1.1}s")
    assert best["machines"] <= 4


def test_dynamic_allocation_is_no_scale_model(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model.json"
    error = answer(kongming, "estimate", log, "--dynamic", "1..4", "--save", model, status=2)
    assert "--save and --dynamic cannot be given together" in error["error"]["message"]
    assert "without --dynamic" in error["error"]["hint"]
    assert not model.exists()


def test_runs_of_other_sizes_move_and_narrow_the_estimate(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    table = tmp_path / "runs.csv"
    before = answer(kongming, "estimate", log, "--executors", "6")["estimates"][0]["runtime_s"]
    rows = [f"{count},{1.2 * before['median'] * 6 / count}\n" for count in (6, 6, 6)]
    table.write_text("executors,seconds\n" + "".join(rows))
    after = answer(kongming, "estimate", log, "--executors", "6", "--runs", table)
    runtime = after["estimates"][0]["runtime_s"]
    assert 1.1 * before["median"] < runtime["median"] < 1.2 * before["median"]
    assert after["estimates"][0]["corrections"]["runs"] > 0.0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("executors,seconds\n", "has a header and no row. Found 'runs.csv'"),
        ("executors,seconds\n6,20\n4.5,20\n", "row 2 (line 3), column 'executors': is out of"),
        ("executors,seconds\n0,20\n", "column 'executors': is out of range. Found '0'"),
        ("executors,seconds\n1e300,20\n", "column 'executors': are too many. Found '1e300'"),
        ("executors,seconds\n6,0\n", "column 'seconds': is out of range. Found '0'"),
        ("executors,seconds\n6,1e-300\n", "column 'seconds': is out of range. Found '1e-300'"),
        ("executors,seconds\n6,9\n6,1e300\n", "row 2 (line 3), column 'seconds': is out of range"),
        ("executors,seconds,cores\n6,20,1.5\n", "column 'cores': is out of range. Found '1.5'"),
        ("executors,seconds,cores\n6,20,0\n", "column 'cores': is out of range. Found '0'"),
        ("executors,seconds,cores\n6,20,abc\n", "column 'cores': is not a number. Found 'abc'"),
    ],
)
def test_a_table_of_runs_names_its_row(
    kongming: Kongming, log: Path, tmp_path: Path, rows: str, message: str
) -> None:
    (tmp_path / "runs.csv").write_text(rows)
    error = answer(kongming, "estimate", log, "--runs", "runs.csv", status=2)["error"]
    assert message in error["message"]
    assert "Allowed:" in error["message"]


def test_history_of_other_programs_teaches_growth(kongming: Kongming, tmp_path: Path) -> None:
    """On this cluster every doubling of the executors makes tasks a tenth longer."""

    def grown(seed: int, executors: int) -> Path:
        program = random_program(seed)
        factor = 1.1 ** {2: 0, 4: 1, 8: 2}[executors]
        parts = tuple(
            replace(
                part,
                stages=tuple(
                    replace(stage, lengths=tuple(factor * each for each in stage.lengths))
                    for stage in part.stages
                ),
            )
            for part in program.parts
        )
        application = run(replace(program, parts=parts), executors, name=f"job{seed}")
        return write(application, tmp_path / f"{seed}-{executors}")

    own = grown(0, 2)
    other = [arg for s in (1, 2) for n in (2, 4, 8) for arg in ("--history", str(grown(s, n)))]
    plain, taught = (
        answer(kongming, "estimate", own, "--executors", "8", *args)["estimates"][0]
        for args in ([], other)
    )
    measured = answer(kongming, "estimate", grown(0, 8), "--executors", "8")
    target = measured["application"]["measured_s"]
    errors = [abs(each["runtime_s"]["median"] / target - 1.0) for each in (plain, taught)]
    assert errors[1] < 0.35 * errors[0]


def half_done(path: Path) -> tuple[Path, float]:
    """A run of PROGRAM on three executors in the middle of its second job, and the moment."""
    finished = run(PROGRAM, 3)
    middle = (finished.jobs[0].completed_s or 0.0) + 0.5
    stages = tuple(stage for stage in finished.stages if stage.stage in finished.jobs[0].stages)
    half = replace(
        finished, jobs=finished.jobs[:1], stages=stages, ended_s=None, last_s=middle, executions=()
    )
    return write(half, path), middle


def test_what_is_left_of_a_run_like_an_earlier_one(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    running, middle = half_done(tmp_path / "running")
    report = answer(
        kongming, "estimate", running, "--like", log, "--executors", "2,3,6", "--deadline", "60s"
    )
    progress = report["progress"]
    assert (progress["jobs_done"], progress["jobs"]) == (1, 2)
    assert report["application"]["complete"] is False
    # Of the whole run, not of the part that the log holds.
    assert report["deadline"]["meets"] == progress["meets_deadline"]
    assert max(each["total_s"] for each in progress["left"]) > 60.0
    left = {each["executors"]: each["left_s"] for each in progress["left"]}
    ended_s = run(PROGRAM, 3).ended_s
    assert ended_s is not None
    assert left[3] == pytest.approx(ended_s - middle, rel=0.1)
    assert left[6] < left[3] < left[2]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("program", ["sort", "windows", "words"])
def test_what_is_left_of_a_run_whose_first_tasks_take_long(
    program: str, share: float, tmp_path: Path
) -> None:
    """Half of a job may have passed before any task has ended: judged by itself a run is in pace,
    and what is left is what was left."""
    path = CLUSTERS / f"{program}-4-0.zstd"
    with path.open("rb") as file:
        lines = b"".join(decompressed(file)).splitlines(keepends=True)
    part = tmp_path / "running"
    part.write_bytes(b"".join(lines[: int(share * len(lines))]))
    earlier, running = Estimator(read(path)), read(part)
    seen = progress(earlier, running, [Size(4)])
    assert seen.pace == pytest.approx(1.0, abs=0.02)
    assert seen.left[0].total_s == pytest.approx(earlier.workload.measured_s, rel=0.02)


def test_a_log_is_not_written_over(kongming: Kongming, log: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_bytes(before := log.read_bytes())
    for logs in ((own,), (log, "--like", own), (log, "--runs", own), (log, "--history", own)):
        done = kongming("spark", "estimate", *logs, "--save", own)
        assert done.returncode == 2
        assert "which it would replace" in done.stderr
    assert own.read_bytes() == before


@pytest.mark.parametrize("waited_s", [0.0, 30.0, 60.5])
def test_what_is_left_while_the_driver_works_alone(waited_s: float) -> None:
    """It works for a minute between two jobs of 3 s; half a second later nothing has finished."""
    part = Part((Stage((1.0,) * 6),), gap=20.0)
    finished = run(Program((part, replace(part, gap=60.0, after=(0,)))), 2)
    assert finished.ended_s is not None
    first, second = finished.jobs
    assert first.completed_s is not None
    now = first.completed_s + waited_s
    jobs = [first, replace(second, completed_s=None, succeeded=None)]
    begun = [job for job in jobs if job.submitted_s <= now]
    running = replace(
        finished, jobs=tuple(begun), stages=finished.stages[:1], ended_s=None, last_s=now
    )
    known = progress(Estimator(finished), running, [Size(2)])
    assert known.pace == pytest.approx(1.0, rel=0.02)
    assert known.left[0].left_s == pytest.approx(finished.ended_s - now, abs=0.6)


@pytest.mark.parametrize("in_job", [False, True])
@pytest.mark.parametrize("share", [0.02, 0.2, 0.4, 0.7, 0.95])
@pytest.mark.parametrize(
    ("earlier_s", "own_s"), [(0.0, 0.0), (0.0, 300.0), (60.0, 0.0), (300.0, 300.0), (300.0, 20.0)]
)
def test_the_wait_for_executors_is_not_the_pace_of_tasks(
    earlier_s: float, own_s: float, share: float, in_job: bool
) -> None:
    """Either run may have waited, before its first job or within it."""
    finished = run(PROGRAM, 3)
    assert finished.ended_s is not None
    now = share * finished.ended_s
    earlier, running = (
        delayed(each, by_s, in_job=in_job)
        for each, by_s in ((finished, earlier_s), (cut(finished, now), own_s))
    )
    known = progress(Estimator(earlier), running, [Size(3), Size(6)])
    left = finished.ended_s - now
    assert known.pace == pytest.approx(1.0, abs=0.05)
    assert known.left[0].left_s == pytest.approx(left, rel=0.05, abs=0.8)
    assert known.left[0].total_s == pytest.approx(finished.ended_s + own_s, rel=0.05)
    larger = run(PROGRAM, 6).ended_s
    assert larger is not None
    assert known.left[1].left_s == pytest.approx(larger * (1.0 - share), rel=0.1, abs=1.5)


def delayed(application: Application, by_s: float, *, in_job: bool) -> Application:
    """The same so many seconds later after its start, when its executors came; ``in_job``: to its
    first task, after it had submitted its first job."""

    def later(stage: Any) -> Any:
        tasks = stage.tasks.copy()
        for name in ("launch_s", "finish_s"):
            tasks[name] += by_s
        # The first stage waits with its job.
        submitted_s = stage.submitted_s + (0.0 if in_job and stage.stage == 0 else by_s)
        completed_s = stage.completed_s + by_s
        return replace(stage, tasks=tasks, submitted_s=submitted_s, completed_s=completed_s)

    first, *others = (
        replace(
            job,
            submitted_s=job.submitted_s + by_s,
            completed_s=None if job.completed_s is None else job.completed_s + by_s,
        )
        for job in application.jobs
    )
    came_s = first.submitted_s if by_s else 0.0
    if in_job:
        first = replace(first, submitted_s=first.submitted_s - by_s)
    return replace(
        application,
        executors=tuple(replace(each, added_s=came_s) for each in application.executors),
        jobs=(first, *others),
        stages=tuple(later(stage) for stage in application.stages),
        ended_s=None if application.ended_s is None else application.ended_s + by_s,
        last_s=application.last_s + by_s,
    )


def cut(finished: Application, now: float) -> Application:
    """A run as its log has it at a moment."""
    jobs = (
        job
        if job.completed_s is not None and job.completed_s <= now
        else replace(job, completed_s=None, succeeded=None)
        for job in finished.jobs
        if job.submitted_s <= now
    )
    stages = (
        replace(stage, tasks=stage.tasks[stage.tasks["finish_s"] <= now])
        for stage in finished.stages
    )
    return replace(finished, jobs=tuple(jobs), stages=tuple(stages), ended_s=None, last_s=now)


ONE_AFTER_THE_OTHER = Program(
    (Part((Stage((10.0,) * 30),), gap=1.0), Part((Stage((5.0,) * 8),), gap=2.0, after=(0,)))
)
OVERLAPPING = Program(
    (Part((Stage((100.0,) * 3),), gap=1.0), Part((Stage((5.0,) * 2),), gap=2.0, after=()))
)


@pytest.mark.parametrize("now", [3.0, 10.0, 12.0, 45.0, 80.5, 85.0])
def test_what_is_left_before_a_wave_of_tasks_has_ended(now: float) -> None:
    finished = run(ONE_AFTER_THE_OTHER, 4)
    assert finished.ended_s is not None
    known = progress(Estimator(finished), cut(finished, now), [Size(4)])
    assert known.left[0].left_s == pytest.approx(finished.ended_s - now, rel=0.15, abs=2.0)


@pytest.mark.parametrize("now", [10.0, 60.0, 90.0])
def test_what_is_left_of_jobs_that_overlap(now: float) -> None:
    """The second ends long before the first."""
    finished = run(OVERLAPPING, 4)
    assert finished.ended_s is not None
    known = progress(Estimator(finished), cut(finished, now), [Size(4)])
    assert known.left[0].left_s == pytest.approx(finished.ended_s - now, rel=0.15, abs=2.0)


def test_executors_of_the_run_that_is_left_have_its_own_cores(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    running, _ = half_done(tmp_path / "running")
    earlier = write(run(PROGRAM, 3, cores=2), tmp_path / "earlier")
    arguments = "estimate", running, "--executors", "3", "--like", earlier
    left = answer(kongming, *arguments)["progress"]["left"]
    assert left == answer(kongming, *arguments, "--cores", "1")["progress"]["left"]
    assert [each["cores"] for each in left] == [1]


def test_what_is_left_under_dynamic_allocation(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    running, _ = half_done(tmp_path / "running")
    like = "estimate", running, "--like", log, "--deadline", "10m"
    dynamic = answer(kongming, *like, "--dynamic", "1..6")
    (left,) = dynamic["progress"]["left"]
    # All that is estimated is dynamic allocation up to 6.
    assert dynamic["deadline"]["meets"] == {"executors": 6, "cores": 1}
    (constant,) = answer(kongming, *like, "--executors", "6")["progress"]["left"]
    assert left["left_s"] > constant["left_s"]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A run of PROGRAM on two executors whose log has no end."""
    application = run(PROGRAM, 2)
    return write(replace(application, ended_s=None), tmp_path / "killed")


@pytest.mark.parametrize(
    ("command", "args", "field"),
    [
        ("estimate", ("--runs",), "--runs"),
        ("estimate", ("--history",), "--history"),
        ("evaluate", (), "LOGS"),
        ("evaluate", ("--history",), "--history"),
    ],
)
def test_a_run_that_has_not_ended_is_no_measurement(
    kongming: Kongming, log: Path, killed: Path, command: str, args: tuple[str, ...], field: str
) -> None:
    error = answer(kongming, command, log, *args, killed, status=2)["error"]
    assert error["message"].startswith(f"{field}: is the log of a run that has not ended")
    assert str(killed) in error["message"]


def test_a_log_is_no_other_sample_of_itself(kongming: Kongming, log: Path) -> None:
    error = answer(kongming, "estimate", log, *GROWING, log, "20%", status=2)["error"]
    assert error["message"].startswith("--sample: is LOG itself")


def test_a_sample_has_to_have_ended(kongming: Kongming, log: Path, killed: Path) -> None:
    growing = "--input-scale", "1", "--ratio", "10%", "--sample", killed, "20%"
    error = answer(kongming, "estimate", log, *growing, status=2)["error"]
    assert error["message"].startswith("--sample: is the log of a run that has not ended")


def test_a_log_without_its_name_is_no_further_run(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    nameless = write(run(PROGRAM, 2, name=""), tmp_path / "nameless")
    error = answer(kongming, "estimate", log, "--runs", nameless, status=2)["error"]
    assert error["message"].startswith("--runs: is a run of another application.")


def test_the_earlier_run_has_ended_and_is_of_the_same_application(
    kongming: Kongming, log: Path, killed: Path, tmp_path: Path
) -> None:
    error = answer(kongming, "estimate", killed, "--like", killed, status=2)["error"]
    assert error["message"].startswith("--like: is the log of a run that has not ended")
    other = write(run(PROGRAM, 2, name="other"), tmp_path / "other")
    error = answer(kongming, "estimate", killed, "--like", other, status=2)["error"]
    assert error["message"].startswith("--like: is a run of another application. Found 'other (")
    assert answer(kongming, "estimate", killed, "--like", log)["progress"]["jobs_done"] == 2


def test_what_is_unusual_in_other_logs_is_a_warning(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    other = write(run(PROGRAM, 6), tmp_path / "app-6")
    lines = other.read_bytes().splitlines(keepends=True)
    other.write_bytes(b"".join([*lines[:-1], b"{\n", lines[-1]]))
    expected = f"{other}: 1 line could not be read; left out."
    for args in (
        ("estimate", log, "--runs", other),
        ("estimate", log, "--history", other, "--history", log),
        ("evaluate", log, other),
    ):
        assert expected in answer(kongming, *args)["warnings"]
    shown = kongming("spark", "evaluate", log, other)
    assert "could not be read" in shown.stderr


def test_an_evaluation_compares_every_pair_of_sizes(kongming: Kongming, tmp_path: Path) -> None:
    logs = [write(run(PROGRAM, count), tmp_path / f"app-{count}") for count in (1, 2, 4, 8)]
    report = answer(kongming, "evaluate", *logs)
    assert len(report["pairs"]) == 12
    assert set(report["error_pct"]) == {
        *("replay", "constant_durations", "linear", "sparklens", "ernest"),
    }
    assert report["error_pct"]["replay"]["mean"] < 0.5 * report["error_pct"]["linear"]["mean"]
    assert report["error_over_constant"]["geometric_mean"] < 0.65
    assert report["coverage"] > 0.8
    assert [each["id"] for each in report["executions"]] == [0, 1]
    for execution in report["executions"]:
        assert set(execution["error_pct"]) == set(report["error_pct"])
        assert len(execution["pairs"]) == 12
        assert execution["error_over_constant"]["geometric_mean"] < 0.65
        errors = {name: error["mean"] for name, error in execution["error_pct"].items()}
        assert errors["constant_durations"] == pytest.approx(errors["sparklens"], abs=0.5)
        assert errors["replay"] < 0.5 * errors["linear"]
    shown = kongming("spark", "evaluate", *logs, "--wide").stdout
    assert {"execution", "constant", "Sparklens", "linear", "Ernest"} <= set(shown.split())
    answer(kongming, "evaluate", logs[0], status=2)
    known = "evaluate", *logs[:2], "--history", logs[2], "--history", logs[3]
    error = answer(kongming, *known, status=2)["error"]
    assert "is a run of the application that is evaluated" in error["message"]


def test_figures_are_drawn(kongming: Kongming, log: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "curve.svg"
    answer(kongming, "estimate", log, "--executors", "1..6", "--plot", plot)
    assert "measured" in plot.read_text()


@pytest.mark.thorough
def test_figures_of_an_application_with_dollar_signs_in_its_name(
    kongming: Kongming, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    logs = [
        write(run(PROGRAM, executors, name="cost $a_{ and $b"), tmp_path / str(executors))
        for executors in (2, 3)
    ]
    plot = tmp_path / "figure.svg"
    for command in (["inspect", logs[0]], ["estimate", logs[0]], ["evaluate", *logs]):
        answer(kongming, *command, "--plot", plot)
        assert "cost $a_{ and $b" in plot.read_text()
        plot.unlink()


def test_one_of_a_thing_is_no_plural(kongming: Kongming) -> None:
    shown = kongming("spark", "estimate", LOGS / "spark-4-queries.zstd", "--executors", "1,2")
    assert " on 1 executor of 2 cores;" in " ".join(shown.stdout.split())
    assert "executor-hours" in shown.stdout
    assert "warning: 2 executors: another number of tasks at this size in 1 stage" in shown.stderr
    barrier = kongming("spark", "estimate", LOGS / "spark-4-barrier.zstd", "--executors", "1")
    for text in (shown.stdout, shown.stderr, barrier.stderr):
        assert not re.search(r"\b1 (executors|cores|stages|slots|tasks)\b", text)


def test_executions_are_shown_at_the_sizes_of_the_table(kongming: Kongming, log: Path) -> None:
    def shown(*args: str) -> tuple[list[str], str]:
        text = kongming("spark", "estimate", log, "--by", "execution", *args).stdout
        rows = [line.split() for line in text.splitlines() if re.match(r" +\d+ ", line)]
        (line,) = [
            line for line in text.replace("\n", " ").split("execution ") if line[:3] == "0 ("
        ]
        return [" x ".join(row[:2]) for row in rows], line.partition("measured")[2]

    sizes, times = shown("--executors", "2,3", "--cores", "1,2")
    assert sizes == ["2 x 1", "3 x 1", "2 x 2", "3 x 2"]
    assert re.findall(r"(\d+ x \d+):", times) == sizes
    sizes, times = shown("--executors", "1..80")
    assert re.findall(r"(\d+):", times) == [size.split()[0] for size in sizes]
    assert len(sizes) < 20


def test_the_examples_of_estimate_fit_80_columns(kongming: Kongming) -> None:
    shown = kongming("spark", "estimate", "--help", env={"COLUMNS": "80"})
    assert max(map(len, shown.stdout.splitlines())) <= 80
