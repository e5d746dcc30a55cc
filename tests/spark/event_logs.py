"""Write an application as Spark's event log: what the reader needs of it, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kongming.spark.application import Application, StageAttempt


def write(application: Application, path: Path) -> Path:
    """Write the events in their order of time; moments are rounded to milliseconds."""
    events: list[tuple[float, int, dict[str, Any]]] = []

    def add(moment: float, order: int, event: dict[str, Any]) -> None:
        events.append((moment, order, event))

    start = 1_700_000_000_000

    def ms(seconds: float) -> int:
        return start + round(seconds * 1000)

    for executor in application.executors:
        add(
            0.0,
            2,
            {
                "Event": "SparkListenerExecutorAdded",
                "Timestamp": ms(executor.added_s),
                "Executor ID": executor.id,
                "Executor Info": {"Host": executor.host, "Total Cores": executor.cores},
            },
        )
    for job in application.jobs:
        properties = {}
        if job.execution is not None:
            properties["spark.sql.execution.id"] = str(job.execution)
        add(
            job.submitted_s,
            3,
            {
                "Event": "SparkListenerJobStart",
                "Job ID": job.id,
                "Submission Time": ms(job.submitted_s),
                "Stage Infos": [],
                "Stage IDs": list(job.stages),
                "Properties": properties,
            },
        )
        if job.completed_s is not None:
            add(
                job.completed_s,
                7,
                {
                    "Event": "SparkListenerJobEnd",
                    "Job ID": job.id,
                    "Completion Time": ms(job.completed_s),
                    "Job Result": {"Result": "JobSucceeded"},
                },
            )
    for stage in application.stages:
        _add_stage(stage, add, ms)
    events.sort(key=lambda each: (round(each[0], 3), each[1]))
    head = [
        {"Event": "SparkListenerLogStart", "Spark Version": application.spark_version},
        {
            "Event": "SparkListenerEnvironmentUpdate",
            "JVM Information": {},
            "Spark Properties": application.settings,
            "System Properties": {},
            "Classpath Entries": {},
        },
        {
            "Event": "SparkListenerApplicationStart",
            "App Name": application.name,
            "App ID": application.id,
            "Timestamp": start,
            "User": application.user,
        },
    ]
    lines = [*head, *(event for _, _, event in events)]
    if application.ended_s is not None:
        lines.append({"Event": "SparkListenerApplicationEnd", "Timestamp": ms(application.ended_s)})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _add_stage(stage: StageAttempt, add: Any, ms: Any) -> None:
    info: dict[str, Any] = {
        "Stage ID": stage.stage,
        "Stage Attempt ID": stage.attempt,
        "Stage Name": stage.name,
        "Number of Tasks": stage.task_count,
        "RDD Info": [],
        "Parent IDs": list(stage.parents),
        "Details": "",
        "Accumulables": [],
    }
    assert stage.submitted_s is not None
    assert stage.completed_s is not None
    submitted = {**info, "Submission Time": ms(stage.submitted_s)}
    add(stage.submitted_s, 4, {"Event": "SparkListenerStageSubmitted", "Stage Info": submitted})
    completed = {**submitted, "Completion Time": ms(stage.completed_s)}
    add(stage.completed_s, 6, {"Event": "SparkListenerStageCompleted", "Stage Info": completed})
    for number, task in enumerate(stage.tasks):
        seconds = task["finish_s"] - task["launch_s"]
        add(
            float(task["finish_s"]),
            5,
            {
                "Event": "SparkListenerTaskEnd",
                "Stage ID": stage.stage,
                "Stage Attempt ID": stage.attempt,
                "Task Type": "ResultTask",
                "Task End Reason": {"Reason": "Success"},
                "Task Info": {
                    "Task ID": stage.stage * 100_000 + number,
                    "Index": int(task["partition"]),
                    "Attempt": 0,
                    "Launch Time": ms(float(task["launch_s"])),
                    "Executor ID": str(int(task["executor"])),
                    "Host": "host",
                    "Locality": "ANY",
                    "Speculative": False,
                    "Getting Result Time": 0,
                    "Finish Time": ms(float(task["finish_s"])),
                    "Failed": False,
                    "Killed": False,
                    "Accumulables": [],
                },
                "Task Metrics": {"Executor Run Time": round(seconds * 1000)},
            },
        )
