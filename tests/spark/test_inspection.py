"""Where the time and the slots of a run went, and what limits it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from kongming.records.errors import CannotAnswerError
from kongming.spark.application import TASK
from kongming.spark.inspection import Inspection, inspect
from kongming.spark.reading import read
from kongming.spark.timeline import busy_slots
from tests.spark.event_lines import START_MS, Event, content, run


def inspected(tmp_path: Path, events: Sequence[Event]) -> Inspection:
    (tmp_path / "log").write_bytes(content(events))
    return inspect(read(tmp_path / "log"))


def limits(inspection: Inspection) -> dict[str, float]:
    return {limit.kind: limit.share for limit in inspection.limits}


def ends(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event["Event"].endswith("TaskEnd")]


def test_slots_and_driver_add_up(tmp_path: Path) -> None:
    """Two executors from 1 s on, two jobs of 2 s, a second of the driver before, between, after."""
    inspection = inspected(tmp_path, run(stages=2, tasks=4))
    assert (inspection.measured_s, inspection.slots.at_once, inspection.slots.executors) == (
        8.0,
        2,
        2,
    )
    assert (
        inspection.driver.startup_s,
        inspection.driver.between_jobs_s,
        inspection.driver.end_s,
    ) == (2, 1, 1)
    slots = inspection.slots
    assert (slots.busy_s, slots.idle_no_job_s, slots.idle_few_tasks_s) == (8.0, 6.0, 0.0)
    assert slots.utilisation == pytest.approx(8 / 14)
    assert [(group.jobs, group.gap_s, group.busy_s) for group in inspection.groups] == [
        ((0,), 2.0, 4.0),
        ((1,), 1.0, 4.0),
    ]
    assert limits(inspection) == pytest.approx({"driver": 0.5, "widest-stage": 0.0})


def test_idle_slots_of_narrow_stages(tmp_path: Path) -> None:
    inspection = inspected(tmp_path, run(stages=2, tasks=3, executors=6))
    assert inspection.slots.idle_few_tasks_s == pytest.approx(6.0)
    message = next(limit.message for limit in inspection.limits if limit.kind == "few-tasks")
    assert "2 of 2 stages had fewer tasks than the 6 slots" in message


def test_slots_of_executors_that_come_and_go_within_jobs(tmp_path: Path) -> None:
    """A third executor from the middle of the first job of 2 s to that of the second."""
    events = run(stages=2, tasks=4)
    third = {
        "Event": "SparkListenerExecutorAdded",
        "Timestamp": START_MS + 3000,
        "Executor ID": "3",
        "Executor Info": {"Host": "localhost", "Total Cores": 1},
    }
    gone = {
        "Event": "SparkListenerExecutorRemoved",
        "Timestamp": START_MS + 6000,
        "Executor ID": "3",
        "Removed Reason": "idle",
    }
    slots = inspected(tmp_path, [*events[:-1], third, gone, events[-1]]).slots
    assert (slots.busy_s, slots.idle_no_job_s, slots.idle_few_tasks_s) == (8.0, 7.0, 2.0)


def test_skew_is_not_what_first_tasks_take_longer(tmp_path: Path) -> None:
    """The first two tasks are 3 s longer; then one of the last of the second stage is."""
    events = run(stages=2, tasks=10)
    for event in ends(events)[:2]:
        _lengthen(event, 3000)
    first = inspected(tmp_path, events)
    assert first.stages[0].first_s == pytest.approx(6.0)
    assert "skew" not in limits(first)
    assert "first-tasks" in limits(first)
    _lengthen(ends(events)[19], 5000)
    skewed = inspected(tmp_path, events)
    assert skewed.stages[1].skew == pytest.approx(6.0)
    assert limits(skewed)["skew"] == pytest.approx(4.0 / skewed.measured_s)


def test_a_longer_first_task_makes_no_skew_worse(tmp_path: Path) -> None:
    events = run(stages=1, tasks=10)
    _lengthen(ends(events)[0], 3000)
    _lengthen(ends(events)[9], 1900)
    skewed = inspected(tmp_path, events)
    assert (skewed.stages[0].longest_s, skewed.stages[0].skew) == (4.0, pytest.approx(2.9))
    assert limits(skewed)["skew"] == pytest.approx(0.9 / skewed.measured_s)
    assert any("2.90 s against 1.00 s" in limit.message for limit in skewed.limits)


def _lengthen(event: Event, ms: int) -> None:
    event["Task Info"]["Finish Time"] += ms
    event["Task Metrics"]["Executor Run Time"] += ms


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("spill", "Disk Bytes Spilled", 1 << 30),
        ("gc", "JVM GC Time", 600),
        ("deserialize", "Executor Deserialize Time", 400),
    ],
)
def test_parts_of_tasks(kind: str, field: str, value: int, tmp_path: Path) -> None:
    good, bad = run(), run()
    for event in ends(bad):
        event["Task Metrics"][field] = value
        if field.startswith("Executor"):
            event["Task Metrics"]["Executor Run Time"] -= value
    assert kind not in limits(inspected(tmp_path, good))
    assert limits(inspected(tmp_path, bad))[kind] > 0.1


def test_failed_tasks_are_counted_with_their_slot_time(tmp_path: Path) -> None:
    events = run()
    again = json.loads(json.dumps(ends(events)[0]))
    again["Task End Reason"] = {"Reason": "ExceptionFailure"}
    again["Task Info"] |= {"Task ID": 99, "Attempt": 1, "Failed": True}
    inspection = inspected(tmp_path, [*events[:-1], again, events[-1]])
    assert inspection.stages[0].failed == 1
    assert limits(inspection)["failures"] == pytest.approx(1 / 9)
    _lengthen(again, 4000)
    longer = inspected(tmp_path, [*events[:-1], again, events[-1]])
    assert limits(longer)["failures"] == pytest.approx(5 / 13)


def test_nothing_ran(tmp_path: Path) -> None:
    with pytest.raises(CannotAnswerError, match="No task ran"):
        inspected(tmp_path, run(stages=0))


def test_busy_slots_are_the_tasks_of_each_moment() -> None:
    tasks = np.zeros(3, TASK)
    tasks["launch_s"], tasks["finish_s"] = [0.0, 1.0, 1.5], [2.0, 3.0, 1.5]
    assert busy_slots(tasks, np.array([0.0, 1.0, 2.0, 3.0, 4.0])) == pytest.approx([1, 2, 1, 0])
