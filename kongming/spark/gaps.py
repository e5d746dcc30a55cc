"""Gaps of a log: a part of the run that no model of the rest accounts for."""

from __future__ import annotations

from kongming.quantities import count as counted
from kongming.spark.application import Application
from kongming.spark.reading import findings

_AS_DRIVER = {
    findings.COMPACTED: "the log was compacted, and what had ended before",
    findings.PART_OF_LOG: "the log is one file of a rolling log, and what the others hold",
    findings.MISSING_FILES: "the log lacks {}, and what is in there",
    findings.DAMAGED_FILES: "{} of the log could not be read to the end, and the rest",
    findings.ABSENT_JOBS: "the log lacks {}, whose time",
    findings.HEADLESS_JOBS: "the log lacks the start of {}, whose time",
    findings.ABSENT_STAGES: "the log lacks {} that ran, whose time",
}
"""What cannot be computed from the driver's time, since nothing says when it ran."""

_NOUNS = {
    findings.MISSING_FILES: "file",
    findings.DAMAGED_FILES: "file",
    findings.ABSENT_STAGES: "stage",
}


def gaps(application: Application) -> list[str]:
    """Return a sentence for each kind of thing that ran and that the log lacks."""
    empty = _numbers_without_jobs(application)
    return [
        f"{_AS_DRIVER[each.kind].format(counted(each.count, _NOUNS.get(each.kind, 'job')))} "
        "counts as the driver's"
        for each in application.findings
        if each.kind in _AS_DRIVER and not (empty and each.kind == findings.ABSENT_JOBS)
    ]


def paused(application: Application) -> list[str]:
    """Return a sentence on pauses, whose time is in the tasks that ran."""
    counts = [each.count for each in application.findings if each.kind == findings.PAUSES]
    return [
        f"no task worked in {counted(count, 'pause')} of the run, whose time counts as the tasks'"
        for count in counts
    ]


def _numbers_without_jobs(application: Application) -> bool:
    """Return whether the jobs that are absent had no tasks: Spark 2 gives a job without partitions
    a number and writes nothing of it (SPARK-26714), and any other would have taken stages' numbers.
    """
    stages = {stage for job in application.jobs for stage in job.stages}
    stages |= {stage.stage for stage in application.stages}
    complete = len(stages) == max(stages, default=-1) + 1
    return application.spark_version.startswith("2.") and complete


LEFT_SHARE = 0.01
"""Of all tasks, those that failed jobs may have left before that is a reason."""


def failed_jobs(application: Application) -> list[str]:
    """Return a sentence on jobs that ended before they were done, where that is of weight."""
    counts = {each.kind: each.count for each in application.findings}
    tasks = sum(stage.task_count for stage in application.stages)
    if counts.get(findings.LEFT_TASKS, 0) <= LEFT_SHARE * tasks:
        return []
    failed = counted(counts[findings.FAILED_JOBS], "job")
    return [f"{failed} failed: what was left to do is not counted"]
