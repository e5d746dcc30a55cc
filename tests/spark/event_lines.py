"""Events of a made-up application, as Spark's JsonProtocol writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["START_MS", "Event", "content", "run", "task_end", "task_start"]

Event = dict[str, Any]

START_MS = 1_700_000_000_000


def content(events: Iterable[Event]) -> bytes:
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)


def run(
    *,
    stages: int = 2,
    tasks: int = 4,
    executors: int = 2,
    task_ms: int = 1000,
    version: str = "3.5.1",
    attempt: str | None = None,
    app: str = "app-1",
) -> list[Event]:
    """Jobs of one stage each, one after the other, a second between them; executors of one core.
    In each wave every executor runs one task of ``task_ms``; the driver ends a second later."""
    start: Event = {
        "Event": "SparkListenerApplicationStart",
        "App Name": "made up",
        "App ID": app,
        "Timestamp": START_MS,
        "User": "user",
    }
    if attempt is not None:
        start["App Attempt ID"] = attempt
    events: list[Event] = [
        {"Event": "SparkListenerLogStart", "Spark Version": version},
        {
            "Event": "SparkListenerEnvironmentUpdate",
            "Spark Properties": {"spark.executor.cores": "1", "spark.task.cpus": "1"},
        },
        start,
        *(_executor_added(str(place + 1)) for place in range(executors)),
    ]
    now = START_MS + 2000
    number = 0
    for stage in range(stages):
        info = _stage_info(stage, tasks) | {"Submission Time": now}
        events.append(
            {
                "Event": "SparkListenerJobStart",
                "Job ID": stage,
                "Submission Time": now,
                "Stage Infos": [info],
                "Stage IDs": [stage],
                "Properties": {"spark.job.description": f"job {stage}"},
            }
        )
        events.append({"Event": "SparkListenerStageSubmitted", "Stage Info": info})
        for first in range(0, tasks, executors):
            wave = range(first, min(first + executors, tasks))
            events += [task_start(number + at, stage, at, now, 1 + at - first) for at in wave]
            ends = [task_end(number + at, stage, at, now, task_ms, 1 + at - first) for at in wave]
            events += ends
            now += task_ms
        number += tasks
        done = info | {"Completion Time": now}
        events.append({"Event": "SparkListenerStageCompleted", "Stage Info": done})
        events.append(
            {
                "Event": "SparkListenerJobEnd",
                "Job ID": stage,
                "Completion Time": now,
                "Job Result": {"Result": "JobSucceeded"},
            }
        )
        now += 1000
    return [*events, {"Event": "SparkListenerApplicationEnd", "Timestamp": now}]


def task_start(number: int, stage: int, index: int, launch_ms: int, executor: int) -> Event:
    return {
        "Event": "SparkListenerTaskStart",
        "Stage ID": stage,
        "Stage Attempt ID": 0,
        "Task Info": _task_info(number, index, launch_ms, executor) | {"Accumulables": []},
    }


def task_end(
    number: int,
    stage: int,
    index: int,
    launch_ms: int,
    task_ms: int,
    executor: int,
    accumulables: int = 0,
) -> Event:
    """Its parts: 90 ms of deserialising, 20 of serialising, 20 of scheduler delay, the rest run,
    of which 50 fetch wait, 30 GC, 40 shuffle write."""
    info = _task_info(number, index, launch_ms, executor) | {"Finish Time": launch_ms + task_ms}
    info["Accumulables"] = [
        {
            "ID": place,
            "Name": f"internal.metrics.number.{place}",
            "Update": 1234567 + number,
            "Value": 98765432100 + number,
            "Internal": True,
            "Count Failed Values": True,
        }
        for place in range(accumulables)
    ]
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Stage Attempt ID": 0,
        "Task Type": "ShuffleMapTask",
        "Task End Reason": {"Reason": "Success"},
        "Task Info": info,
        "Task Executor Metrics": {
            "JVMHeapMemory": 100_000_000,
            "JVMOffHeapMemory": 50_000_000,
            "OnHeapExecutionMemory": 0,
            "OffHeapExecutionMemory": 0,
            "OnHeapStorageMemory": 1_000_000,
            "OffHeapStorageMemory": 0,
            "MinorGCCount": 3,
            "MinorGCTime": 40,
        },
        "Task Metrics": {
            "Executor Deserialize Time": 90,
            "Executor Deserialize CPU Time": 90_000_000,
            "Executor Run Time": task_ms - 130,
            "Executor CPU Time": 700_000_000,
            "Peak Execution Memory": 4096,
            "Result Size": 2000,
            "JVM GC Time": 30,
            "Result Serialization Time": 20,
            "Memory Bytes Spilled": 0,
            "Disk Bytes Spilled": 0,
            "Shuffle Read Metrics": {
                "Remote Blocks Fetched": 1,
                "Local Blocks Fetched": 1,
                "Fetch Wait Time": 50,
                "Remote Bytes Read": 300,
                "Remote Bytes Read To Disk": 0,
                "Local Bytes Read": 100,
                "Total Records Read": 5,
            },
            "Shuffle Write Metrics": {
                "Shuffle Bytes Written": 500,
                "Shuffle Write Time": 40_000_000,
                "Shuffle Records Written": 5,
            },
            "Input Metrics": {"Bytes Read": 10_000, "Records Read": 100},
            "Output Metrics": {"Bytes Written": 0, "Records Written": 0},
            "Updated Blocks": [],
        },
    }


def _task_info(number: int, index: int, launch_ms: int, executor: int) -> Event:
    return {
        "Task ID": number,
        "Index": index,
        "Attempt": 0,
        "Partition ID": index,
        "Launch Time": launch_ms,
        "Executor ID": str(executor),
        "Host": "localhost",
        "Locality": "PROCESS_LOCAL",
        "Speculative": False,
        "Getting Result Time": 0,
        "Finish Time": 0,
        "Failed": False,
        "Killed": False,
    }


def _executor_added(id: str) -> Event:
    return {
        "Event": "SparkListenerExecutorAdded",
        "Timestamp": START_MS + 1000,
        "Executor ID": id,
        "Executor Info": {"Host": "localhost", "Total Cores": 1, "Log Urls": {}},
    }


def _stage_info(stage: int, tasks: int) -> Event:
    return {
        "Stage ID": stage,
        "Stage Attempt ID": 0,
        "Stage Name": f"stage {stage}",
        "Number of Tasks": tasks,
        "RDD Info": [
            {
                "RDD ID": stage,
                "Name": "MapPartitionsRDD",
                "Storage Level": {"Use Disk": False, "Use Memory": False, "Replication": 1},
                "Number of Partitions": tasks,
                "Number of Cached Partitions": 0,
                "Memory Size": 0,
                "Disk Size": 0,
            }
        ],
        "Parent IDs": [],
        "Details": "",
        "Accumulables": [],
        "Resource Profile Id": 0,
    }
