"""Rows of a stage attempt made whole: shifted, in order, once each; what was dropped filled in.

A filled-in task is taken from its like: its duration and parts are the medians of the tasks of its
stage attempt that are known, or else its share of the attempt's own totals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kongming.spark.application import SUCCEEDED, TASK, UNFINISHED

PARTS = (
    *("scheduler_delay_s", "deserialize_s", "fetch_wait_s", "compute_s", "gc_s"),
    *("shuffle_write_s", "serialize_s", "getting_result_s"),
)
"""The parts of a task (TASK), which add up to its duration."""

EARLY_S = 60.0
"""A task that was launched longer than that before the application's start never was."""

_MEDIANS = tuple(name for name in TASK.names or () if name.endswith("_bytes"))


@dataclass(frozen=True)
class Started:
    """A task that started, and whose end is not in the log."""

    launch_s: float
    executor: int
    partition: int
    attempt: int
    locality: int
    speculative: bool


@dataclass(frozen=True)
class StageSpan:
    """Span of a stage attempt, by what it says of itself."""

    task_count: int
    submitted_s: float
    completed_s: float
    run_time_s: float | None  # of all its tasks
    slots: int


def put_right(tasks: np.ndarray, shift_s: float) -> tuple[np.ndarray, int, int]:
    """Tasks (TASK), in place, ``shift_s`` later, each attempt of a partition once; how many were
    there twice, and how many long before the application's start, which are left out."""
    for name in ("launch_s", "finish_s"):
        tasks[name] += shift_s
    timely = tasks["launch_s"] > -EARLY_S
    early = len(tasks) - int(timely.sum())
    if early:
        tasks = tasks[timely]
    # One a little before the start, by a clock that was set, has its length from the start on.
    before = tasks["launch_s"] < 0.0
    tasks["finish_s"][before] -= tasks["launch_s"][before]
    tasks["launch_s"][before] = 0.0
    keys = _keys(tasks)
    keys.sort()
    twice = int((keys[1:] == keys[:-1]).sum())
    del keys
    if twice:
        tasks = tasks[np.sort(np.unique(_keys(tasks), return_index=True)[1])]
    return tasks, twice, early


def _keys(tasks: np.ndarray) -> np.ndarray:
    """One number for each attempt of a partition, with no array next to it."""
    keys: np.ndarray = tasks["partition"].astype("i8")
    keys <<= 16
    keys += tasks["attempt"]
    return keys


def with_unfinished(
    tasks: np.ndarray, started: Sequence[Started], ends_s: Sequence[float]
) -> np.ndarray:
    """Add tasks that had not ended when their stage, executor or log did, at ``ends_s``."""
    more = _rows(started)
    more["finish_s"] = np.maximum(ends_s, more["launch_s"])
    more["compute_s"] = more["finish_s"] - more["launch_s"]
    more["status"] = UNFINISHED
    return _joined(tasks, more)


def with_filled_in(
    tasks: np.ndarray, started: Sequence[Started], absent: Sequence[int], span: StageSpan
) -> np.ndarray:
    """Add the tasks whose ends were dropped: of some the start is known, of the partitions
    ``absent`` nothing."""
    like = tasks[tasks["status"] == SUCCEEDED]
    more = _rows(started)
    unknown = np.zeros(len(absent), TASK)
    unknown["partition"], unknown["executor"] = absent, -1
    launches = like["launch_s"] if len(like) else np.array([span.submitted_s])
    shares = (np.arange(len(absent)) + 0.5) / max(1, len(absent))
    unknown["launch_s"] = np.quantile(launches, shares)
    more = _joined(more, unknown)
    if len(like):
        duration = float(np.median(like["finish_s"] - like["launch_s"]))
        parts = np.array([np.median(like[name]) for name in PARTS], "f8")
        for name in _MEDIANS:
            more[name] = np.median(like[name])
    else:
        duration, parts = _own_share(span), np.array([name == "compute_s" for name in PARTS], "f8")
    ends = np.minimum(more["launch_s"] + duration, span.completed_s)
    more["finish_s"] = np.maximum(ends, more["launch_s"])
    shares_of = parts / parts.sum() if parts.sum() > 0 else parts
    for name, share in zip(PARTS, shares_of, strict=True):
        more[name] = share * (more["finish_s"] - more["launch_s"])
    if not shares_of.sum():
        more["compute_s"] = more["finish_s"] - more["launch_s"]
    more["filled_in"], more["status"] = True, SUCCEEDED
    return _joined(tasks, more)


def _own_share(span: StageSpan) -> float:
    """Seconds of a task of an attempt of which no task is known."""
    if span.run_time_s is not None:
        return span.run_time_s / max(1, span.task_count)
    waves = max(1.0, span.task_count / max(1, span.slots))
    return (span.completed_s - span.submitted_s) / waves


def _rows(started: Sequence[Started]) -> np.ndarray:
    rows = np.zeros(len(started), TASK)
    for place, each in enumerate(started):
        row = rows[place]
        row["launch_s"], row["executor"] = max(0.0, each.launch_s), each.executor
        row["partition"], row["attempt"] = each.partition, each.attempt
        row["locality"], row["speculative"] = each.locality, each.speculative
    return rows


def _joined(tasks: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Both in order of launch, which ``tasks`` are already: one copy, since they may be many."""
    more = more[np.argsort(more["launch_s"], kind="stable")]
    return np.insert(tasks, np.searchsorted(tasks["launch_s"], more["launch_s"]), more)
