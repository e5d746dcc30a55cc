"""Logs that lack a part of the run: a reason, and no time of the driver alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kongming.spark.application import Application
from kongming.spark.reading import read
from tests.conftest import Kongming
from tests.spark.event_lines import Event, content, run
from tests.spark.record import LOGS


def _of_job(event: Event) -> int | None:
    info = event.get("Stage Info", {})
    job = event.get("Job ID", event.get("Stage ID", info.get("Stage ID")))
    return None if job is None else int(job)  # a stage a job, of the same number


def _compacted(folder: Path) -> Path:
    """Of ten jobs the last one is left, as Spark compacts a rolling log."""
    log = folder / "eventlog_v2_app-1"
    log.mkdir()
    events = [event for event in run(stages=10) if _of_job(event) in (None, 9)]
    (log / "events_3_app-1.compact").write_bytes(content(events[:-1]))
    (log / "events_4_app-1").write_bytes(content(events[-1:]))
    return log


def _with_a_file_absent(folder: Path) -> Path:
    log = folder / "eventlog_v2_app-1"
    log.mkdir()
    events = run(stages=3)
    middle = [place for place, event in enumerate(events) if _of_job(event) == 1]
    (log / "events_1_app-1").write_bytes(content(events[: middle[0]]))
    (log / "events_3_app-1").write_bytes(content(events[middle[-1] + 1 :]))
    return log


def _without_first_start(folder: Path) -> Path:
    events = run(stages=3)
    events = [e for e in events if not (e["Event"].endswith("JobStart") and e["Job ID"] == 0)]
    (folder / "log").write_bytes(content(events))
    return folder / "log"


def _without_first_job(folder: Path) -> Path:
    (folder / "log").write_bytes(content(e for e in run(stages=3) if _of_job(e) != 0))
    return folder / "log"


def _failed(events: list[Event], job: int) -> Event:
    """Let a job fail; its end."""
    end = next(e for e in events if e["Event"].endswith("JobEnd") and e["Job ID"] == job)
    end["Job Result"] = {"Result": "JobFailed"}
    return end


def _without_later_tasks(events: list[Event], job: int, done: int) -> list[Event]:
    """The job's stage fails after ``done`` of its tasks."""
    left = []
    for event in events:
        if event["Event"].endswith(("TaskStart", "TaskEnd")) and event["Stage ID"] == job:
            if event["Task Info"]["Index"] >= done:
                continue
        elif event["Event"].endswith("StageCompleted") and event["Stage Info"]["Stage ID"] == job:
            event["Stage Info"]["Failure Reason"] = "cancelled"
        left.append(event)
    return left


def _with_a_failed_job(folder: Path) -> Path:
    events = run(stages=3)
    _failed(events, 1)
    (folder / "log").write_bytes(content(_without_later_tasks(events, 1, 1)))
    return folder / "log"


def _with_a_stage_never_submitted(folder: Path) -> Path:
    """Job 1 had two more stages, of which the first was skipped."""
    events = run(stages=3)
    _failed(events, 1)
    start = next(e for e in events if e["Event"].endswith("JobStart") and e["Job ID"] == 1)
    start["Stage IDs"] = [0, 1, 50]
    start["Stage Infos"] += [{"Stage ID": 50, "Number of Tasks": 7}]
    (folder / "log").write_bytes(content(events))
    return folder / "log"


def _with_a_number_without_a_job(folder: Path, version: str = "2.4.8") -> Path:
    """Jobs 0, 2 and 3, of stages 0 to 2."""
    events = run(stages=3, version=version)
    for event in events:
        if event.get("Job ID", 0) > 0:
            event["Job ID"] += 1
    (folder / "log").write_bytes(content(events))
    return folder / "log"


def _same_of_spark_3(folder: Path) -> Path:
    return _with_a_number_without_a_job(folder, "3.5.1")


def _without_a_job_of_spark_2(folder: Path) -> Path:
    events = run(stages=3, version="2.4.8")
    (folder / "log").write_bytes(content(e for e in events if _of_job(e) != 1))
    return folder / "log"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (_compacted, "compacted, and what had ended before counts as the driver's"),
        (_compacted, "lacks 9 jobs, whose time counts as the driver's"),
        (_with_a_file_absent, "lacks 1 file, and what is in there counts as the driver's"),
        (_without_first_start, "lacks the start of 1 job, whose time counts as the driver's"),
        (_without_first_job, "lacks 1 job, whose time counts as the driver's"),
        (_same_of_spark_3, "lacks 1 job, whose time counts as the driver's"),
        (_without_a_job_of_spark_2, "lacks 1 job, whose time counts as the driver's"),
        (_with_a_failed_job, "1 job failed: what was left to do is not counted"),
        (_with_a_stage_never_submitted, "1 job failed: what was left to do is not counted"),
    ],
)
def test_what_a_log_lacks_is_a_reason(
    log: object, reason: str, kongming: Kongming, tmp_path: Path
) -> None:
    assert callable(log)
    path = log(tmp_path)
    done = kongming("spark", "estimate", path, "--executors", "2,4", "--json")
    for estimate in json.loads(done.stdout)["estimates"]:
        assert estimate["extrapolating"] is True
        assert any(reason in each for each in estimate["reasons"])
    refused = kongming("spark", "estimate", path, "--executors", "2,4", "--strict", "--json")
    assert refused.returncode == 3
    assert reason in json.loads(refused.stdout)["error"]["message"]


def test_inspect_tells_what_is_not_the_driver(kongming: Kongming, tmp_path: Path) -> None:
    shown = json.loads(kongming("spark", "inspect", _compacted(tmp_path), "--json").stdout)
    (driver,) = (each["message"] for each in shown["limits"] if each["kind"] == "driver")
    assert "lacks 9 jobs" in driver
    assert "No executor shortens that" not in driver


def test_failed_jobs_are_counted(kongming: Kongming, tmp_path: Path) -> None:
    shown = json.loads(kongming("spark", "inspect", _with_a_failed_job(tmp_path), "--json").stdout)
    messages = {each["kind"]: each["message"] for each in shown["findings"]}
    assert messages["failed-jobs"] == "1 job failed: what it had left is not counted."
    assert messages["left-tasks"] == "3 tasks of failed jobs were left to do."


def test_tasks_of_stages_that_were_never_submitted_are_left(tmp_path: Path) -> None:
    counts = _counts(read(_with_a_stage_never_submitted(tmp_path)))
    assert (counts["failed-jobs"], counts["left-tasks"]) == (1, 7)


def test_spark_2_writes_no_job_without_partitions(kongming: Kongming, tmp_path: Path) -> None:
    path = _with_a_number_without_a_job(tmp_path)
    assert _counts(read(path)) == {"absent-jobs": 1}
    strict = kongming("spark", "estimate", path, "--executors", "2", "--strict", "--json")
    assert strict.returncode == 0, strict.stdout
    assert json.loads(strict.stdout)["estimates"][0]["reasons"] == []
    shown = json.loads(kongming("spark", "inspect", path, "--json").stdout)
    (driver,) = (each["message"] for each in shown["limits"] if each["kind"] == "driver")
    assert "lacks" not in driver


def _cancelled_when_done(folder: Path) -> Path:
    events = run(stages=3)
    _failed(events, 1)
    (folder / "log").write_bytes(content(events))
    return folder / "log"


def _cancelled_of_many(folder: Path) -> Path:
    """Three tasks of 400 were left."""
    events = run(stages=100)
    _failed(events, 50)
    (folder / "log").write_bytes(content(_without_later_tasks(events, 50, 1)))
    return folder / "log"


def _stopped_by_the_end(folder: Path) -> Path:
    """The application ended while its last job ran."""
    events = run(stages=3)
    end = _failed(events, 2)
    end["Completion Time"] = events[-1]["Timestamp"] + 5
    events.remove(end)
    (folder / "log").write_bytes(content([*_without_later_tasks(events, 2, 3), end]))
    return folder / "log"


def _streaming(folder: Path) -> Path:
    return LOGS / "spark-4-streaming.zstd"


@pytest.mark.parametrize(
    "log", [_cancelled_when_done, _cancelled_of_many, _stopped_by_the_end, _streaming]
)
def test_failed_jobs_that_left_next_to_nothing_are_no_reason(
    log: Callable[[Path], Path], kongming: Kongming, tmp_path: Path
) -> None:
    path = log(tmp_path)
    assert _counts(read(path))["failed-jobs"] == 1
    strict = kongming("spark", "estimate", path, "--executors", "2", "--strict", "--json")
    assert strict.returncode == 0, strict.stdout
    assert json.loads(strict.stdout)["estimates"][0]["reasons"] == []


def test_failed_attempts_leave_what_their_last_did_not_do() -> None:
    counts = _counts(read(LOGS / "spark-4-failures.zstd"))
    assert (counts["failed-jobs"], counts["left-tasks"]) == (1, 4)


def _counts(application: Application) -> dict[str, int]:
    return {each.kind: each.count for each in application.findings}
