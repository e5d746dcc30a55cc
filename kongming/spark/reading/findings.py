"""Findings of what may be wrong or unusual in a log, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Mapping

from kongming.quantities import count as counted
from kongming.spark.application import Finding

NO_START, NO_END = "no-application-start", "no-application-end"
WRONG_START, WRONG_END = "wrong-application-start", "wrong-application-end"
UNFINISHED_JOBS, HEADLESS_JOBS, ABSENT_JOBS = "unfinished-jobs", "headless-jobs", "absent-jobs"
FAILED_JOBS, LEFT_TASKS = "failed-jobs", "left-tasks"
BROKEN_LINES, LONG_LINES, CUT_TAIL = "broken-lines", "long-lines", "cut-tail"
DAMAGED_FILES, MISSING_FILES, COMPACTED = "damaged-files", "missing-files", "compacted"
EMPTY_FILES = "empty-files"
PART_OF_LOG = "part-of-log"
FILLED_IN, UNFINISHED_TASKS = "filled-in-tasks", "unfinished-tasks"
DUPLICATES, IMPLAUSIBLE, CLOCK = "duplicate-tasks", "implausible-tasks", "clock"
PAUSES = "pauses"
SKIPPED_STAGES, STAGE_ATTEMPTS, FAILED_STAGES = "skipped-stages", "stage-attempts", "failed-stages"
ENDLESS_STAGES, ABSENT_STAGES = "endless-stages", "absent-stages"
FAILED, KILLED, SPECULATIVE = "failed-tasks", "killed-tasks", "speculative-tasks"
RESUBMITTED = "resubmitted-tasks"
LOST, EXCLUDED, LATE = "lost-executors", "excluded-executors", "late-executors"
UNREGISTERED, REDACTED = "unregistered-executors", "redacted-settings"

_SENTENCES = {
    NO_START: "The log has no start of the application: time counts from its first event.",
    NO_END: "The log has no end of the application: it still ran, or its driver was killed.",
    WRONG_START: "The application's start is after other events, or a day or more before them: the "
    "first of them counts instead.",
    WRONG_END: "The application's end is before other events, or 30 days or more after them: the "
    "last of them counts instead.",
    UNFINISHED_JOBS: "{} had no end.",
    FAILED_JOBS: "{} failed: what {they} had left is not counted.",
    LEFT_TASKS: "{} of failed jobs {were} left to do.",
    HEADLESS_JOBS: "{} ended whose start is not in the log; left out.",
    ABSENT_JOBS: "The log lacks {}, by their numbers.",
    BROKEN_LINES: "{} could not be read; left out.",
    LONG_LINES: "{} {were} longer than any event; left out.",
    CUT_TAIL: "The log is cut within its last line.",
    DAMAGED_FILES: "{} could not be read to the end",
    EMPTY_FILES: "{} of the log {are} empty",
    MISSING_FILES: "{} of the rolling log {are} missing",
    COMPACTED: "The log was compacted: what had ended before is not in it.",
    PART_OF_LOG: "This is one file of a rolling log. Give the folder to read all of it.",
    ABSENT_STAGES: "The log lacks {} of jobs that succeeded.",
    ENDLESS_STAGES: "The log lacks the end of {} of jobs that succeeded: that of the last task "
    "counts instead.",
    FILLED_IN: "{} had no end in the log though their stage ended; filled in from their like.",
    UNFINISHED_TASKS: "{} had not ended; such a task counts as running to the end.",
    DUPLICATES: "{} {were} in the log twice; counted once.",
    IMPLAUSIBLE: "{} had times that cannot be; left out.",
    CLOCK: "The driver's clock stepped back; {} {were} put right.",
    PAUSES: "There {were} {} in which no task that ran worked, as when the driver's clock is set "
    "forward or its machine is suspended",
    SKIPPED_STAGES: "{} {were} skipped: what they make was there already.",
    STAGE_ATTEMPTS: "{} {were} further attempts.",
    FAILED_STAGES: "{} failed.",
    FAILED: "{} failed, after holding a slot.",
    KILLED: "{} {were} killed, after holding a slot.",
    SPECULATIVE: "{} {were} copied by speculation, and the copies held slots.",
    RESUBMITTED: "{} had to run again, since what they wrote was lost.",
    LOST: "{} {were} lost",
    EXCLUDED: "{} {were} excluded for a time.",
    LATE: "{} registered after the first job had begun.",
    UNREGISTERED: "{} never registered",
    REDACTED: "{} {are} redacted.",
}

_COUNTED = {
    UNFINISHED_JOBS: "job",
    FAILED_JOBS: "job",
    HEADLESS_JOBS: "job",
    ABSENT_JOBS: "job",
    BROKEN_LINES: "line",
    LONG_LINES: "line",
    DAMAGED_FILES: "file",
    EMPTY_FILES: "file",
    MISSING_FILES: "file",
    CLOCK: "moment",
    PAUSES: "pause",
    ABSENT_STAGES: "stage",
    ENDLESS_STAGES: "stage",
    SKIPPED_STAGES: "stage",
    STAGE_ATTEMPTS: "stage attempt",
    FAILED_STAGES: "stage attempt",
    LOST: "executor",
    EXCLUDED: "executor",
    LATE: "executor",
    UNREGISTERED: "executor",
    REDACTED: "setting",
}
"""What is counted, where it is not tasks."""


def finding(kind: str, count: int, detail: str = "") -> Finding:
    """``detail`` ends a sentence that has no end: which, or why."""
    noun = _COUNTED.get(kind, "task")
    words = ("was", "is", "it") if count == 1 else ("were", "are", "they")
    verbs = dict(zip(("were", "are", "they"), words, strict=True))
    message = _SENTENCES[kind].format(counted(count, noun), **verbs)
    if not message.endswith("."):
        message += f": {detail.rstrip('.')}." if detail else "."
    return Finding(kind, count, message)


def findings(counts: Mapping[str, int], details: Mapping[str, str]) -> tuple[Finding, ...]:
    """A finding for each kind that was counted, in the order of this module."""
    return tuple(
        finding(kind, counts[kind], details.get(kind, ""))
        for kind in _SENTENCES
        if counts.get(kind)
    )
