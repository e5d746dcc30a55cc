"""What is wrong in a log is used or named with its count, and never invented."""

from __future__ import annotations

import io
import json
import re
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kongming.records.errors import CannotAnswerError, InputError
from kongming.spark.application import (
    FAILED,
    KILLED,
    SUCCEEDED,
    TASK,
    UNFINISHED,
    Application,
)
from kongming.spark.gaps import gaps, paused
from kongming.spark.reading import read
from kongming.spark.reading.assembling import _dropped
from kongming.spark.reading.codecs import decompressed
from kongming.spark.reading.lines import LONGEST
from kongming.spark.reading.repairs import Started
from tests.spark.event_lines import START_MS, Event, content, run, task_start
from tests.spark.record import LOGS

Read = Callable[..., Application]


@pytest.fixture
def read_events(tmp_path: Path) -> Read:
    def call(events: Sequence[Event] | bytes, **options: float) -> Application:
        path = tmp_path / "log"
        path.write_bytes(events if isinstance(events, bytes) else content(events))
        return read(path, **options)  # type: ignore[arg-type]

    return call


def kinds(application: Application) -> dict[str, int]:
    return {finding.kind: finding.count for finding in application.findings}


def of(events: Sequence[Event], kind: str) -> list[Event]:
    return [event for event in events if event["Event"] == f"SparkListener{kind}"]


def without(events: Sequence[Event], *dropped: Event) -> list[Event]:
    return [event for event in events if not any(event is unwanted for unwanted in dropped)]


def tasks_of(application: Application) -> np.ndarray:
    return np.concatenate([stage.tasks for stage in application.stages])


def test_a_good_log(read_events: Read) -> None:
    application = read_events(run(stages=2, tasks=4))
    assert application.findings == ()
    assert (application.complete, application.ended_s, application.last_s) == (True, 8.0, 8.0)
    task = application.stages[0].tasks[0]
    parts = {name: float(task[name]) for name in task.dtype.names if name.endswith("_s")}
    assert parts == pytest.approx(
        {
            **{"launch_s": 2.0, "finish_s": 3.0, "scheduler_delay_s": 0.02, "deserialize_s": 0.09},
            **{"fetch_wait_s": 0.05, "compute_s": 0.75, "gc_s": 0.03, "shuffle_write_s": 0.04},
            **{"serialize_s": 0.02, "getting_result_s": 0.0},
        }
    )
    sizes = {name: float(task[name]) for name in task.dtype.names if name.endswith("_bytes")}
    assert {name: size for name, size in sizes.items() if size} == {
        **{"input_bytes": 10_000.0, "shuffle_local_bytes": 100.0, "shuffle_remote_bytes": 300.0},
        **{"shuffle_write_bytes": 500.0, "peak_execution_bytes": 4096.0, "result_bytes": 2000.0},
    }
    assert [executor.peak_storage_bytes for executor in application.executors] == [1e6, 1e6]


def test_no_end_of_job_and_application(read_events: Read) -> None:
    application = read_events(run()[:-2])
    assert kinds(application) == {"no-application-end": 1, "unfinished-jobs": 1}
    assert application.last_s == 7.0


DAY_MS = 86_400_000


@pytest.mark.parametrize("start_ms", [1, START_MS - 2 * DAY_MS, START_MS + 30_000])
def test_a_start_that_cannot_be(read_events: Read, start_ms: int) -> None:
    events = run(stages=8)
    of(events, "ApplicationStart")[0]["Timestamp"] = start_ms
    application = read_events(events)
    assert kinds(application) == {"wrong-application-start": 1}
    # The first executor registered a second after the start.
    assert application.started_ms == START_MS + 1000
    assert application.ended_s == read_events(run(stages=8)).ended_s - 1.0


@pytest.mark.parametrize("end_ms", [START_MS + 10**10, START_MS + 3000, START_MS - DAY_MS])
def test_an_end_that_cannot_be(read_events: Read, end_ms: int) -> None:
    events = run(stages=8)
    events[-1]["Timestamp"] = end_ms
    application = read_events(events)
    assert kinds(application) == {"wrong-application-end": 1}
    # The driver ended a second after its last job.
    assert application.ended_s == application.jobs[-1].completed_s
    assert application.last_s == application.ended_s


def test_a_start_and_an_end_hours_from_all_else_are_as_they_are_written(
    read_events: Read,
) -> None:
    events = run()
    of(events, "ApplicationStart")[0]["Timestamp"] -= DAY_MS // 2
    events[-1]["Timestamp"] += DAY_MS // 2
    application = read_events(events)
    assert application.findings == ()
    assert application.ended_s == read_events(run()).ended_s + 86_400.0


@pytest.mark.parametrize("days", [1, 3, 20])
def test_an_application_that_was_stopped_after_days_of_idling(read_events: Read, days: int) -> None:
    events = run(stages=8)
    events[-1]["Timestamp"] += days * DAY_MS
    application, expected = read_events(events), read_events(run(stages=8))
    assert application.findings == ()
    assert expected.ended_s is not None
    assert application.ended_s == application.last_s == expected.ended_s + days * 86_400.0
    assert application.jobs == expected.jobs


def test_a_job_that_the_end_stopped_after_days_of_idling(read_events: Read) -> None:
    events = run(stages=8)
    late, end = events[-2], events[-1]
    for event in (late, end):
        event["Completion Time" if event is late else "Timestamp"] += 3 * DAY_MS
    application = read_events([*events[:-2], end, late])
    assert application.findings == ()
    assert application.ended_s == 3 * 86_400.0 + (read_events(run(stages=8)).ended_s or 0.0)


def test_a_server_that_waited_days_for_its_first_query(read_events: Read) -> None:
    """Its driver's block manager registered at its start."""
    events = run()
    of(events, "ApplicationStart")[0]["Timestamp"] -= 3 * DAY_MS
    manager = {
        "Event": "SparkListenerBlockManagerAdded",
        "Block Manager ID": {"Executor ID": "driver", "Host": "localhost", "Port": 1},
        "Maximum Memory": 400_000_000,
        "Timestamp": START_MS - 3 * DAY_MS + 500,
    }
    application = read_events([*events[:3], manager, *events[3:]])
    assert application.findings == ()
    assert application.started_ms == START_MS - 3 * DAY_MS


def test_no_start(read_events: Read) -> None:
    events = run()
    application = read_events(without(events, *of(events, "ApplicationStart")))
    assert kinds(application) == {"no-application-start": 1}
    # The first executor registered a second after the start.
    assert application.last_s == 7.0


def test_a_tail_cut_within_a_line_and_broken_lines(read_events: Read) -> None:
    lines = content(run(stages=3)).splitlines(keepends=True)
    lines[3] = lines[3][:40] + b"\n"
    lines.insert(5, b"\xff\xfe{]\n")
    lines.insert(6, b"\n")
    lines.insert(7, b'{"Event":"SparkListenerNobodyKnows","Stage ID":"x"}\n')
    application = read_events(b"".join(lines)[:-50])
    assert kinds(application) == {
        "no-application-end": 1,
        "cut-tail": 1,
        "broken-lines": 2,
        "unregistered-executors": 1,
    }
    assert [executor.cores for executor in application.executors] == [1, 1]


def test_a_line_longer_than_any_event(read_events: Read) -> None:
    good = content(run())
    long = b'{"Event":"Other","text":"' + b"x" * (LONGEST + (1 << 20)) + b'"}\n'
    application = read_events(good[: good.index(b"\n") + 1] + long + good)
    assert kinds(application) == {"long-lines": 1}


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("StageCompleted", b'"Number of Tasks":4'),
        ("StageCompleted", b'"Memory Size":0'),
        ("BlockManagerAdded", b'"Maximum Memory":7'),
    ],
)
def test_a_number_of_more_digits_than_any_event_has(
    kind: str, field: bytes, read_events: Read
) -> None:
    added = {
        "Event": "SparkListenerBlockManagerAdded",
        "Block Manager ID": {"Executor ID": "1"},
        "Maximum Memory": 7,
    }
    events = run()
    events.insert(5, added)
    (line, *_) = of(events, kind)
    lines = [content([event]) for event in events]
    at = events.index(line)
    assert field in lines[at]
    lines[at] = lines[at].replace(field, field + b"0" * 400)
    assert kinds(read_events(b"".join(lines)))["broken-lines"] == 1


def test_a_number_of_tasks_that_no_stage_has(read_events: Read) -> None:
    """Of two attempts, one of which has a task without an end."""
    events = run(stages=1)
    again = json.loads(json.dumps([*of(events, "StageSubmitted"), *of(events, "StageCompleted")]))
    for event in again:
        event["Stage Info"] |= {"Stage Attempt ID": 1, "Number of Tasks": 1 << 40}
    started = task_start(99, 0, 2, START_MS + 2000, 1) | {"Stage Attempt ID": 1}
    application = read_events([*events[:-1], again[0], started, again[1], events[-1]])
    assert kinds(application)["filled-in-tasks"] == 1


def test_dropped_ends_are_filled_in_from_their_like(read_events: Read) -> None:
    events = run(stages=2, tasks=20)
    ends, starts = of(events, "TaskEnd"), of(events, "TaskStart")
    # Of one task the end is missing, of another all.
    application = read_events(without(events, ends[3], ends[8], starts[8]))
    assert kinds(application) == {"filled-in-tasks": 2}
    tasks = application.stages[0].tasks
    assert len(tasks) == 20
    filled = tasks[tasks["filled_in"]]
    assert sorted(filled["partition"]) == [3, 8]
    assert (filled["finish_s"] - filled["launch_s"]).tolist() == pytest.approx([1.0, 1.0])
    assert filled["compute_s"] == pytest.approx(0.75)
    started = filled[filled["partition"] == 3][0]
    assert (started["launch_s"], started["executor"]) == (3.0, 1)
    assert filled[filled["partition"] == 8][0]["executor"] == -1
    assert set(tasks["status"]) == {SUCCEEDED}


def test_too_many_dropped_ends_have_no_honest_answer(read_events: Read) -> None:
    events = run(stages=2, tasks=10)
    fewer = without(events, *of(events, "TaskEnd")[:5])
    with pytest.raises(CannotAnswerError, match=r"5 of 20 tasks .* 20 %.*--missing"):
        read_events(fewer)
    assert kinds(read_events(fewer, missing=0.25)) == {"filled-in-tasks": 5}


def stage_lines(events: Sequence[Event], stage: int, *names: str) -> list[Event]:
    """The lines of a stage with these names, but for the starts of jobs."""
    return [
        event
        for name in names
        for event in of(events, name)
        if stage in (event.get("Stage ID"), event.get("Stage Info", {}).get("Stage ID"))
    ]


def test_the_end_of_a_stage_is_dropped_with_those_of_its_tasks(read_events: Read) -> None:
    events = run(stages=2, tasks=10)
    end = stage_lines(events, 0, "StageCompleted")
    tasks = stage_lines(events, 0, "TaskStart", "TaskEnd")
    fewer = without(events, *end, *(each for each in tasks if each["Task Info"]["Index"] < 5))
    with pytest.raises(CannotAnswerError, match=r"5 of 20 tasks have no end"):
        read_events(fewer)
    application = read_events(fewer, missing=0.25)
    assert kinds(application) == {"endless-stages": 1, "filled-in-tasks": 5}
    stage = application.stages[0]
    assert (len(stage.tasks), stage.completed_s) == (10, 7.0)
    assert set(stage.tasks["status"]) == {SUCCEEDED}


def test_the_end_of_a_stage_is_dropped_and_a_task_started(read_events: Read) -> None:
    """It did not run on until the end of the log: its job had succeeded long before."""
    events = run(stages=3, tasks=10)
    end = stage_lines(events, 0, "StageCompleted")
    application = read_events(without(events, *end, of(events, "TaskEnd")[9]))
    assert kinds(application) == {"endless-stages": 1, "filled-in-tasks": 1}
    assert application.stages[0].tasks["finish_s"].max() == 7.0


def test_a_stage_whose_tasks_alone_are_in_the_log_keeps_its_parents(read_events: Read) -> None:
    """Two stages of one job, the second of which reads what the first one writes."""
    events = run(stages=2, tasks=4)
    first, second = of(events, "JobStart")
    first["Stage IDs"] = [0, 1]
    first["Stage Infos"] += second["Stage Infos"]
    for event in stage_lines(events, 1, "StageSubmitted", "StageCompleted"):
        event["Stage Info"]["Parent IDs"] = [0]
    first["Stage Infos"][1]["Parent IDs"] = [0]
    job_end = of(events, "JobEnd")[0]
    good = without(events, second, job_end)
    of(good, "JobEnd")[0]["Job ID"] = 0
    expected = read_events(good)
    assert expected.findings == ()
    for lost in ((0,), (1,), (0, 1)):
        lines = [
            line
            for stage in lost
            for line in stage_lines(good, stage, "StageSubmitted", "StageCompleted")
        ]
        application = read_events(without(good, *lines))
        assert kinds(application) == {"endless-stages": len(lost)}
        for stage, other in zip(application.stages, expected.stages, strict=True):
            assert (stage.parents, stage.name) == (other.parents, other.name)
            assert (stage.submitted_s, stage.completed_s) == (other.submitted_s, other.completed_s)
            assert stage.task_count == other.task_count == len(stage.tasks)


def test_the_last_stage_of_a_job_that_succeeded_is_never_skipped(read_events: Read) -> None:
    events = run(stages=6, tasks=10)
    lines = stage_lines(events, 2, "StageSubmitted", "StageCompleted", "TaskStart", "TaskEnd")
    of(events, "JobStart")[2]["Stage IDs"].insert(0, 1)
    application = read_events(without(events, *lines))
    assert kinds(application) == {"absent-stages": 1}
    assert gaps(application) == [
        "the log lacks 1 stage that ran, whose time counts as the driver's"
    ]
    with pytest.raises(CannotAnswerError, match=r"10 of 60 tasks have no end"):
        read_events(without(events, *lines), missing=0.15)


def test_stages_of_a_job_that_failed_are_not_missing(read_events: Read) -> None:
    events = run(stages=2, tasks=4)
    of(events, "JobEnd")[0]["Job Result"] = {"Result": "JobFailed"}
    lines = stage_lines(events, 0, "StageCompleted")
    assert kinds(read_events(without(events, *lines, of(events, "TaskEnd")[3]))) == {
        "failed-jobs": 1,
        "left-tasks": 1,
        "unfinished-tasks": 1,
    }


def test_a_stage_of_which_no_task_is_known_is_filled_in_by_its_totals(read_events: Read) -> None:
    events = run(stages=8, tasks=2)
    dropped = [
        event
        for kind in ("TaskEnd", "TaskStart")
        for event in of(events, kind)
        if event["Stage ID"] == 3
    ]
    done = of(events, "StageCompleted")[3]["Stage Info"]
    done["Accumulables"] = [{"Name": "internal.metrics.executorRunTime", "Value": 1500}]
    stage = read_events(without(events, *dropped)).stages[3]
    assert (stage.tasks["finish_s"] - stage.tasks["launch_s"]).tolist() == [0.75, 0.75]


def test_tasks_without_an_end_in_an_unfinished_stage(read_events: Read) -> None:
    events = run(stages=1, tasks=4)
    last = events.index(of(events, "TaskEnd")[2])
    application = read_events(events[:last])
    assert kinds(application)["unfinished-tasks"] == 2
    tasks = application.stages[0].tasks
    assert tasks["status"].tolist() == [SUCCEEDED, SUCCEEDED, UNFINISHED, UNFINISHED]
    assert tasks["finish_s"].max() == application.last_s


def test_events_that_are_in_the_log_twice(read_events: Read) -> None:
    events = run()
    application = read_events([*events[:-1], *of(events, "TaskEnd")[:3], events[-1]])
    assert kinds(application) == {"duplicate-tasks": 3}
    assert len(tasks_of(application)) == 8


def test_failed_killed_and_speculative_tasks_hold_slots(read_events: Read) -> None:
    events = run(stages=1, tasks=4)
    ends = of(events, "TaskEnd")
    copies = json.loads(json.dumps(ends[:2]))
    for number, (copy, reason) in enumerate(
        zip(copies, ("ExceptionFailure", "TaskKilled"), strict=True)
    ):
        copy["Task End Reason"] = {"Reason": reason}
        info = copy["Task Info"]
        info |= {"Task ID": 100 + number, "Attempt": 1, "Failed": number == 0, "Killed": number > 0}
        info["Speculative"] = number == 1
    application = read_events([*events[:-1], *copies, events[-1]])
    assert kinds(application) == {"failed-tasks": 1, "killed-tasks": 1, "speculative-tasks": 1}
    statuses = application.stages[0].tasks["status"]
    assert sorted(statuses.tolist()) == [SUCCEEDED] * 4 + [FAILED, KILLED]


def test_looking_for_dropped_events_takes_little_memory() -> None:
    """Next to 98 bytes that a task is, of which by far the most are kept: 150 in all."""
    count = 200_000
    tasks = np.zeros(count, TASK)
    tasks["partition"] = np.arange(count)[::-1]
    running = [Started(0.0, 0, partition, 0, 0, True) for partition in (5, count + 7)]
    tracemalloc.start()
    try:
        without = _dropped(tasks, [], count, True)
        peaks = [tracemalloc.get_traced_memory()[1]]
        tracemalloc.reset_peak()
        dropped = _dropped(tasks, running, count + 10, True)
        peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert (without.started, without.unknown) == ((), 0)
    assert (dropped.started, dropped.unknown) == ((running[1],), 9)
    assert max(peaks) < 24 * count


def test_what_was_lost_and_runs_again_is_no_task_of_its_own(read_events: Read) -> None:
    events = run()
    again = json.loads(json.dumps(of(events, "TaskEnd")[0]))
    again["Task End Reason"] = {"Reason": "Resubmitted"}
    application = read_events([*events[:-1], again, events[-1]])
    assert kinds(application) == {"resubmitted-tasks": 1}
    assert len(tasks_of(application)) == 8


def test_a_clock_that_is_set_back(read_events: Read) -> None:
    """By an hour, while the second wave of tasks runs."""
    good, events = run(stages=2, tasks=4), run(stages=2, tasks=4)
    at = events.index(of(events, "TaskEnd")[2])
    for event in events[at:]:
        for holder in (event, event.get("Task Info", {}), event.get("Stage Info", {})):
            for key in ("Timestamp", "Submission Time", "Completion Time", "Finish Time"):
                if holder.get(key):
                    holder[key] -= 3_600_000
        if event.get("Stage ID") == 1:
            event["Task Info"]["Launch Time"] -= 3_600_000
    # The submission of the stage that ran, by the clock of before.
    application, expected = read_events(events), read_events(good)
    assert kinds(application) == {"clock": 1}
    # What passed while it was set is not known: less than a second.
    assert application.last_s == pytest.approx(expected.last_s, abs=1.0)
    spans = tasks_of(application)["finish_s"] - tasks_of(application)["launch_s"]
    assert (spans >= 0).all()
    assert spans.max() <= 1.0


def set_forward(events: Sequence[Event], at_ms: int, by_ms: int) -> list[Event]:
    """The events if the clock is set forward at a moment: all later ones are later."""

    def later(value: object) -> object:
        if isinstance(value, list):
            return [later(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            key: each + by_ms
            if key.endswith(("Time", "Timestamp")) and isinstance(each, int) and each > at_ms
            else later(each)
            for key, each in value.items()
        }

    return [later(event) for event in events]  # type: ignore[misc]


def test_a_clock_that_is_set_forward_while_tasks_run(read_events: Read) -> None:
    events = run(stages=2, tasks=40, executors=4)
    application = read_events(set_forward(events, START_MS + 5500, 3_600_000))
    assert kinds(application) == {"pauses": 1}
    (finding,) = application.findings
    assert finding.message.endswith("its machine is suspended: 3601 s in all.")
    assert paused(application) == [
        "no task worked in 1 pause of the run, whose time counts as the tasks'"
    ]


def test_long_tasks_and_first_tasks_that_wait_a_little_are_no_pause(read_events: Read) -> None:
    """A task may wait for the files of its application, and others may work meanwhile."""
    assert read_events(run(stages=2, tasks=4, task_ms=600_000)).findings == ()
    assert read_events(set_forward(run(), START_MS + 2500, 30_000)).findings == ()
    events = set_forward(run(stages=2, tasks=4), START_MS + 2500, 600_000)
    metrics = of(events, "TaskEnd")[0]["Task Metrics"]
    metrics["Executor Run Time"] += 600_000
    assert read_events(events).findings == ()
    # Nothing tells what a task without metrics did.
    for event in of(events, "TaskEnd"):
        del event["Task Metrics"]
    assert read_events(events).findings == ()


def test_a_task_that_ends_before_it_begins(read_events: Read) -> None:
    events = run()
    info = of(events, "TaskEnd")[0]["Task Info"]
    info["Finish Time"] = info["Launch Time"] - 500
    application = read_events(events)
    assert kinds(application) == {"clock": 1}
    tasks = tasks_of(application)
    assert (tasks["finish_s"] - tasks["launch_s"]).min() == pytest.approx(0.98)


def test_times_that_cannot_be(read_events: Read) -> None:
    events = run(stages=1, tasks=10)
    of(events, "TaskEnd")[0]["Task Info"]["Launch Time"] = 2**62
    of(events, "TaskEnd")[1]["Task Metrics"]["Executor Run Time"] = 10**30
    application = read_events(events)
    assert kinds(application) == {"implausible-tasks": 1, "broken-lines": 1, "filled-in-tasks": 2}
    assert application.last_s == 8.0


def test_a_start_that_no_task_has(read_events: Read) -> None:
    events = run(stages=1, tasks=10)
    start = of(events, "TaskStart")[4]
    start["Task Info"] |= {"Index": 2**31, "Partition ID": 2**31}
    dropped = of(events, "TaskEnd")[4]
    assert kinds(read_events(without(events, dropped))) == {
        "implausible-tasks": 1,
        "filled-in-tasks": 1,
    }


def test_tasks_before_the_start_of_the_application(read_events: Read) -> None:
    """Half a second before, by a clock that was set, a task keeps its length; an hour before it
    never was."""
    events = run(stages=1, tasks=10)
    for event, early_ms in zip(of(events, "TaskEnd"), (2500, 3_600_000), strict=False):
        event["Task Info"]["Launch Time"] -= early_ms
        event["Task Info"]["Finish Time"] -= early_ms
    application = read_events(events)
    assert kinds(application)["implausible-tasks"] == 1
    first = application.stages[0].tasks[0]
    assert (first["launch_s"], first["finish_s"]) == (0.0, 1.0)


def test_executors_by_their_registration(read_events: Read) -> None:
    events = run(executors=2)
    late = json.loads(json.dumps(of(events, "ExecutorAdded")[0]))
    late |= {"Executor ID": "9", "Timestamp": START_MS + 5000}
    removed = {
        "Event": "SparkListenerExecutorRemoved",
        "Timestamp": START_MS + 6000,
        "Executor ID": "9",
        "Removed Reason": "Container killed by YARN for exceeding memory limits.\nmore",
    }
    excluded = [
        {
            "Event": f"org.apache.spark.scheduler.SparkListenerExecutor{word}",
            "time": START_MS + moment,
            "executorId": "1",
        }
        for word, moment in (("Blacklisted", 4000), ("Excluded", 4000), ("Unexcluded", 5000))
    ]
    application = read_events([*events[:-1], late, *excluded, removed, events[-1]])
    counts = {"lost-executors": 1, "excluded-executors": 1, "late-executors": 1}
    assert kinds(application) == counts
    assert application.executors[0].excluded_s == ((4.0, 5.0),)
    gone = application.executors[2]
    assert (gone.added_s, gone.removed_s) == (5.0, 6.0)
    messages = {finding.kind: finding.message for finding in application.findings}
    assert messages["lost-executors"].endswith("exceeding memory limits.")


def test_redacted_settings_and_skipped_stages(read_events: Read) -> None:
    events = run()
    properties = of(events, "EnvironmentUpdate")[0]["Spark Properties"]
    properties["spark.hadoop.fs.s3a.secret.key"] = "*********(redacted)"
    for event in stage_lines(events, 1, "StageSubmitted", "StageCompleted", "TaskStart", "TaskEnd"):
        event.get("Stage Info", event)["Stage ID"] = 7
    of(events, "JobStart")[1]["Stage IDs"] = [5, 7]
    assert kinds(read_events(events)) == {"skipped-stages": 1, "redacted-settings": 1}


def test_spark_2_4(read_events: Read) -> None:
    """No partition's number, no peaks, another order of fields, spaces after colons."""
    events = run(version="2.4.8")
    for event in of(events, "TaskEnd") + of(events, "TaskStart"):
        del event["Task Info"]["Partition ID"]
    for event in of(events, "TaskEnd"):
        del event["Task Executor Metrics"], event["Task Metrics"]["Peak Execution Memory"]
    for event in of(events, "StageCompleted") + of(events, "StageSubmitted"):
        del event["Stage Info"]["Resource Profile Id"]
    plain = read_events(events)
    assert plain.findings == ()
    assert sorted(plain.stages[0].tasks["partition"]) == [0, 1, 2, 3]
    spaced = b"".join(json.dumps(dict(sorted(event.items()))).encode() + b"\n" for event in events)
    assert (tasks_of(read_events(spaced)) == tasks_of(plain)).all()


def test_nothing_of_a_large_line_is_needed_to_choose_it(read_events: Read) -> None:
    """Of metrics of SQL, what is not needed may even be broken."""
    events = run(stages=1)
    text = content(events).replace(
        b'"Accumulables":[]},"Task Ex', b'"Accumulables":[{"}]},"Task Ex'
    )
    assert (tasks_of(read_events(text)) == tasks_of(read_events(events))).all()


def test_a_log_of_events_without_an_application(read_events: Read) -> None:
    with pytest.raises(InputError, match="no events of a Spark application"):
        read_events(b'{"Event":"SparkListenerLogStart","Spark Version":"3.5.1"}\n')


QUERIES = b"".join(decompressed(io.BytesIO((LOGS / "spark-4-queries.zstd").read_bytes())))


def order_independent(application: Application) -> tuple[object, ...]:
    """What of an application does not depend on the order of its lines."""
    spans = [
        (stage.stage, len(stage.tasks), sorted(stage.tasks["finish_s"].round(3).tolist()))
        for stage in application.stages
    ]
    executors = sorted(
        (each.id, each.added_s, each.removed_s, each.storage_bytes, each.peak_storage_bytes)
        for each in application.executors
    )
    return application.ended_s, application.jobs, application.executions, executors, spans


@pytest.mark.parametrize("seed", range(4))
def test_lines_in_any_order_say_the_same(read_events: Read, seed: int) -> None:
    lines = QUERIES.splitlines(keepends=True)
    shuffled = [lines[at] for at in np.random.default_rng(seed).permutation(len(lines))]
    application, expected = read_events(b"".join(shuffled)), read_events(QUERIES)
    assert order_independent(application) == order_independent(expected)
    assert kinds(application) == kinds(expected)


def test_tasks_of_one_millisecond_have_an_order_of_their_own(read_events: Read) -> None:
    """Each wave is launched at once; a replay takes tasks in the order in which they are."""
    events = run(stages=2, tasks=8, executors=4)
    ends = of(events, "TaskEnd")
    for at, event in enumerate(ends):
        event["Task Info"]["Finish Time"] += at % 4
    expected = read_events(events)
    backwards = [event for event in events if event not in ends]
    application = read_events([*backwards[:-1], *reversed(ends), backwards[-1]])
    for stage, other in zip(application.stages, expected.stages, strict=True):
        assert stage.tasks["partition"].tolist() == other.tasks["partition"].tolist()


def test_a_log_that_is_in_its_file_twice(read_events: Read) -> None:
    application, expected = read_events(QUERIES * 2), read_events(QUERIES)
    assert order_independent(application) == order_independent(expected)
    assert kinds(application)["duplicate-tasks"] == 30
    assert "clock" not in kinds(application)


def test_two_applications_in_one_file(read_events: Read, tmp_path: Path) -> None:
    other = [json.loads(line) for line in content(run(app="app-2")).splitlines()]
    with pytest.raises(InputError, match=r"several applications.*Found 'app-1, app-2'") as raised:
        read_events(content([*run(), *other]))
    assert "SparkListenerLogStart" in str(raised.value.hint)
    attempts = [*run(attempt="1"), *run(attempt="2")]
    with pytest.raises(InputError, match=r"app-1 \(attempt 1\), app-1 \(attempt 2\)"):
        read_events(content(attempts))


def test_a_start_that_is_written_twice(read_events: Read) -> None:
    events = run()
    again = of(events, "ApplicationStart")
    application = read_events([*events[:-1], *again, events[-1]])
    assert application.findings == ()
    assert application.ended_s == 8.0


def test_a_clock_that_is_set_back_by_seconds(read_events: Read) -> None:
    moment = re.compile(rb"\b(1[67]\d{11})\b")
    lines = QUERIES.splitlines(keepends=True)
    half = len(lines) // 2
    back = [moment.sub(lambda at: b"%d" % (int(at[1]) - 30_000), line) for line in lines[half:]]
    application, expected = read_events(b"".join(lines[:half] + back)), read_events(QUERIES)
    assert kinds(application)["clock"] >= 1
    assert application.ended_s == pytest.approx(expected.ended_s, rel=0.05)


def test_tasks_that_begin_and_end_after_a_step_keep_their_length(read_events: Read) -> None:
    """The clock is set back before the second wave of tasks, whose ends are the first to show."""
    events, good = run(stages=1, tasks=6), run(stages=1, tasks=6)
    wave = events.index(of(events, "TaskStart")[2])
    later = {each["Task Info"]["Task ID"] for each in of(events[wave:], "TaskStart")}
    for event in events[wave:]:
        info = event.get("Task Info", {})
        for holder in (event, info, event.get("Stage Info", {})):
            for key in ("Timestamp", "Completion Time", "Finish Time"):
                if holder.get(key):
                    holder[key] -= 20_000
        if info.get("Task ID") in later:
            info["Launch Time"] -= 20_000
    application, expected = read_events(events), read_events(good)
    assert kinds(application)["clock"] >= 1
    lengths, known = (
        each["finish_s"] - each["launch_s"] for each in map(tasks_of, (application, expected))
    )
    assert sorted(lengths) == pytest.approx(sorted(known), abs=0.01)


@pytest.mark.parametrize("wrong", [1, 12])
def test_wrong_ends_of_tasks_are_no_clock_that_is_set_back(read_events: Read, wrong: int) -> None:
    events, good = run(tasks=6), run(tasks=6)
    for event in of(events, "TaskEnd")[:wrong]:
        event["Task Info"]["Finish Time"] -= 100_000_000_000
    assert read_events(events).ended_s == read_events(good).ended_s


@pytest.mark.parametrize("lines_later", [20, 59])
def test_ends_of_tasks_that_are_written_late_are_no_clock_that_is_set_back(
    read_events: Read, lines_later: int
) -> None:
    lines = QUERIES.splitlines(keepends=True)
    ends = [
        at for at, line in enumerate(lines) if line.startswith(b'{"Event":"SparkListenerTaskEnd')
    ]
    expected = read_events(QUERIES)
    for pair in pairwise(ends):
        moved = list(lines)
        for at in reversed(pair):
            moved.insert(min(at + lines_later, len(lines) - 2), moved.pop(at))
        application = read_events(b"".join(moved))
        assert order_independent(application) == order_independent(expected)
        assert kinds(application) == kinds(expected)


def test_a_query_that_starts_while_ends_of_tasks_wait_is_no_clock_that_is_set_back(
    read_events: Read,
) -> None:
    """The scheduler was busy for nine seconds, while another thread wrote its query's start."""
    events = run(stages=1, tasks=40)
    at = events.index(of(events, "TaskEnd")[10])
    moment = events[at]["Task Info"]["Finish Time"] + 9000
    query = {
        "Event": "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart",
        "executionId": 0,
        "description": "",
        "time": moment,
    }
    expected = read_events(events)
    application = read_events([*events[:at], query, *events[at:]])
    assert application.findings == ()
    assert application.ended_s == expected.ended_s
    assert (tasks_of(application) == tasks_of(expected)).all()


def test_a_clock_is_set_back_and_ends_of_tasks_are_written_late(read_events: Read) -> None:
    back_ms = 3_600_000
    moment = re.compile(rb"\b(1[67]\d{11})\b")
    lines = QUERIES.splitlines(keepends=True)
    ends = [
        at for at, line in enumerate(lines) if line.startswith(b'{"Event":"SparkListenerTaskEnd')
    ]
    half, early = len(lines) // 2, [at for at in ends if at < len(lines) // 4]
    lines[half:] = [
        moment.sub(lambda at: b"%d" % (int(at[1]) - back_ms), line) for line in lines[half:]
    ]
    expected = read_events(b"".join(lines))
    lines.insert(early[0] + 30, lines.pop(early[0]))
    application = read_events(b"".join(lines))
    assert kinds(application) == kinds(expected)
    assert kinds(application)["clock"] == 1
    assert application.ended_s == expected.ended_s
    assert application.ended_s == pytest.approx(read_events(QUERIES).ended_s, rel=0.05)


def test_a_byte_order_mark_is_no_part_of_the_first_line(read_events: Read) -> None:
    application = read_events(b"\xef\xbb\xbf" + content(run()))
    assert (application.spark_version, application.findings) == ("3.5.1", ())
