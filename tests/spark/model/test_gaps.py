"""Logs that lack a part of the run: a reason, and no time of the driver alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Kongming
from tests.spark.event_lines import Event, content, run


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


def _with_a_failed_job(folder: Path) -> Path:
    events = run(stages=3)
    failed = next(e for e in events if e["Event"].endswith("JobEnd") and e["Job ID"] == 1)
    failed["Job Result"] = {"Result": "JobFailed"}
    (folder / "log").write_bytes(content(events))
    return folder / "log"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (_compacted, "compacted, and what had ended before counts as the driver's"),
        (_compacted, "lacks 9 jobs, whose time counts as the driver's"),
        (_with_a_file_absent, "lacks 1 file, and what is in there counts as the driver's"),
        (_without_first_start, "lacks the start of 1 job, whose time counts as the driver's"),
        (_without_first_job, "lacks 1 job, whose time counts as the driver's"),
        (_with_a_failed_job, "1 job failed: what was left to do is not counted"),
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
    messages = [each["message"] for each in shown["findings"] if each["kind"] == "failed-jobs"]
    assert messages == ["1 job failed: what it had left is not counted."]
