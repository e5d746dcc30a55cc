"""Executors whose registration is not in the log: how many cores they have."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from kongming.spark.application import Application
from kongming.spark.reading import read
from kongming.spark.reading.codecs import decompressed
from tests.spark.event_lines import START_MS, Event, content, run, task_end
from tests.spark.record import LOGS


def unregistered(path: Path, events: list[Event], **settings: str) -> Application:
    """Read events without those of registrations, under other settings."""
    left = [event for event in events if not event["Event"].endswith("ExecutorAdded")]
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    for event in left:
        if event["Event"].endswith("EnvironmentUpdate"):
            event["Spark Properties"] = properties
    path.write_bytes(content(left))
    return read(path)


def cores(application: Application) -> list[int]:
    return [executor.cores for executor in application.executors]


def late(events: list[Event], late_ms: int) -> list[Event]:
    """The ends of tasks are noted so much later than their slots are free."""
    for event in events:
        if event["Event"].endswith("TaskEnd"):
            event["Task Info"]["Finish Time"] += late_ms
    return events


@pytest.mark.parametrize(
    ("settings", "expected", "source"),
    [
        ({"spark_executor_cores": "3"}, 3, "spark.executor.cores"),
        ({"spark_master": "local[6]", "spark_executor_cores": "3"}, 6, "spark.master"),
        ({"spark_master": "local[5, 2]"}, 5, "spark.master"),
        ({"spark_master": "local"}, 1, "spark.master"),
        ({"spark_master": "local-cluster[2,4,1024]"}, 4, "spark.master"),
        ({"spark_master": "yarn"}, 1, "tasks"),
        ({"spark_master": "yarn", "spark_executor_cores": "3"}, 3, "spark.executor.cores"),
        ({"spark_master": "local[*]", "spark_executor_cores": "3"}, 1, "tasks"),
        ({"spark_executor_cores": "many"}, 1, "tasks"),
        ({"spark_task_cpus": "2"}, 2, "tasks"),
        ({"spark_task_cpus": "inf"}, 1, "tasks"),
    ],
)
def test_settings_say_the_cores(
    settings: dict[str, str], expected: int, source: str, tmp_path: Path
) -> None:
    application = unregistered(tmp_path / "log", late(run(tasks=8), 15), **settings)
    assert cores(application) == [expected, expected]
    (finding,) = application.findings
    assert (finding.kind, finding.count) == ("unregistered-executors", 2)
    assert source in finding.message


@pytest.mark.parametrize("late_ms", [0, 15, 200])
def test_a_late_end_is_no_second_core(late_ms: int, tmp_path: Path) -> None:
    assert cores(unregistered(tmp_path / "log", late(run(tasks=8), late_ms))) == [1, 1]


@pytest.mark.parametrize("master", ["yarn", "k8s://https://10.0.0.1:443", "spark://host:7077"])
def test_tasks_at_once_are_cores(master: str, tmp_path: Path) -> None:
    """No default of a cluster is of more weight than what ran."""
    events = run(tasks=8)
    for event in events:
        if event["Event"].endswith(("TaskStart", "TaskEnd")):
            event["Task Info"]["Executor ID"] = "1"
    application = unregistered(tmp_path / "log", late(events, 15), spark_master=master)
    assert cores(application) == [2]


def test_tasks_without_an_end_take_no_core(tmp_path: Path) -> None:
    """Such a task counts as running to the end, next to all that came after it."""
    events = run(tasks=8, stages=1)
    ends = [event for event in events if event["Event"].endswith("TaskEnd")]
    cut = events.index(ends[-1])
    left = [event for event in events[:cut] if event is not ends[1]]
    application = unregistered(tmp_path / "log", left)
    assert "unfinished-tasks" in {finding.kind for finding in application.findings}
    assert cores(application) == [1, 1]


def test_a_resource_profile_says_the_cores_of_its_executors(tmp_path: Path) -> None:
    events = run(tasks=8, stages=1)
    requests: dict[str, Any] = {"cores": {"Amount": 4}}
    profile = {
        "Event": "SparkListenerResourceProfileAdded",
        "Resource Profile Id": 1,
        "Executor Resource Requests": requests,
        "Task Resource Requests": {"cpus": {"Amount": 2.0}},
    }
    for event in events:
        if "Stage Info" in event:
            event["Stage Info"]["Resource Profile Id"] = 1
    application = unregistered(tmp_path / "log", [profile, *events], spark_executor_cores="1")
    assert cores(application) == [4, 4]
    assert [executor.resource_profile for executor in application.executors] == [1, 1]


def test_an_executor_that_only_ended_a_task(tmp_path: Path) -> None:
    events = run(tasks=8, stages=1)
    extra = task_end(99, 0, 0, START_MS + 2000, 1000, 7)
    extra["Task Info"]["Attempt"] = 1
    assert cores(unregistered(tmp_path / "log", [*events[:-1], extra, events[-1]])) == [1, 1, 1]


@pytest.mark.parametrize("name", ["spark-4-queries", "spark-4-pools", "spark-35-queries"])
def test_recorded_tasks_at_once_are_the_cores_of_their_executor(name: str, tmp_path: Path) -> None:
    """The logs are of two cores, whose tasks overlap by up to a hundred milliseconds."""
    packed = (LOGS / f"{name}.zstd").read_bytes()
    lines = b"".join(decompressed(io.BytesIO(packed))).splitlines(keepends=True)
    left = [
        line.replace(b"local[2]", b"local[*]") for line in lines if b"ExecutorAdded" not in line
    ]
    (tmp_path / "log").write_bytes(b"".join(left))
    assert cores(read(tmp_path / "log")) == [2]
