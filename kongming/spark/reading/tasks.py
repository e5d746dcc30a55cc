"""Tasks as rows: packed as they are read, converted many at a time.

A log may hold millions. Each is packed into a small buffer; a full buffer is converted by numpy and
added to an array that grows in place.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable

import numpy as np

from kongming.spark.application import FAILED, KILLED, LOCALITIES, SUCCEEDED, TASK
from kongming.spark.reading import events

_MILLISECONDS = ("launch", "finish", "getting", "deserialize", "run", "gc", "serialize", "fetch")
_SIZES = (
    *("input", "output", "shuffle_local", "shuffle_remote", "shuffle_write"),
    *("memory_spill", "disk_spill", "peak_execution", "result"),
)
_RAW = np.dtype(
    [
        *((name, "i4") for name in ("stage", "executor", "partition")),
        ("attempt", "i2"),
        *((name, "u1") for name in ("status", "locality")),
        ("speculative", "?"),
        *((name, "i8") for name in (*_MILLISECONDS, "write_ns", *_SIZES, "storage")),
    ]
)
_pack_into = struct.Struct(f"<iiihBB?{len(_MILLISECONDS) + len(_SIZES) + 2}q").pack_into
_BUFFERED = 4096
_STEP = 1 << 20

LATEST_MS = 7_258_118_400_000
"""The year 2200: a moment beyond is none."""

_LOCALITY = {name: place for place, name in enumerate(LOCALITIES)}
_NO_METRICS = events.TaskMetrics()
_NO_READ, _NO_WRITE = events.ShuffleRead(), events.ShuffleWrite()
_NO_INPUT, _NO_OUTPUT = events.BytesRead(), events.BytesWritten()


class _Growing:
    """An array that grows without ever being there twice: its pages are moved, not copied, and
    those that nothing was written to take no memory."""

    def __init__(self, kind: np.dtype) -> None:
        self._kind, self.count = kind, 0
        self._pages = mmap.mmap(-1, _STEP, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def add(self, rows: np.ndarray) -> None:
        begin = self.count * self._kind.itemsize
        end = begin + rows.nbytes
        if end > len(self._pages):
            self._pages.resize(end + max(_STEP, end // 4))
        self._pages[begin:end] = rows.tobytes()
        self.count += len(rows)

    def array(self) -> np.ndarray:
        """All rows, in place; nothing can be added afterwards."""
        return np.frombuffer(self._pages, self._kind, self.count)


class TaskRows:
    """Rows (TASK) of ended tasks; moments are seconds since ``base_ms``."""

    def __init__(self) -> None:
        self._rows, self._stages = _Growing(TASK), _Growing(np.dtype("i4"))
        self._stage_count = 0
        self.base_ms = 0
        self.peak_storage: dict[int, int] = {}  # by executor
        self.stepped_back = 0  # ended before they began
        self.implausible = 0  # left out
        self._buffer = bytearray(_BUFFERED * _RAW.itemsize)
        self._count = 0

    @property
    def empty(self) -> bool:
        """Return whether no task was added yet, so that ``base_ms`` may be set."""
        return not (self._count or self._rows.count)

    def new_stage(self) -> int:
        """A place for the rows of another stage."""
        self._stage_count += 1
        return self._stage_count - 1

    def add(self, stage: int, executor: int, launch_ms: int, event: events.TaskEnd) -> None:
        """Add a task's end.

        Raises:
            struct.error: a number is beyond what any task has.
        """
        info = event.task_info
        metrics = event.task_metrics or _NO_METRICS
        read = metrics.shuffle_read_metrics or _NO_READ
        write = metrics.shuffle_write_metrics or _NO_WRITE
        peaks = event.task_executor_metrics
        partition = info.partition_id
        _pack_into(
            self._buffer,
            self._count * _RAW.itemsize,
            stage,
            executor,
            info.index if partition < 0 else partition,
            info.attempt,
            status_of(event),
            _LOCALITY.get(info.locality, 4),
            info.speculative,
            launch_ms,
            info.finish_time,
            info.getting_result_time,
            metrics.executor_deserialize_time,
            metrics.executor_run_time,
            metrics.jvm_gc_time,
            metrics.result_serialization_time,
            read.fetch_wait_time,
            write.shuffle_write_time,
            (metrics.input_metrics or _NO_INPUT).bytes_read,
            (metrics.output_metrics or _NO_OUTPUT).bytes_written,
            read.local_bytes_read,
            read.remote_bytes_read,
            write.shuffle_bytes_written,
            metrics.memory_bytes_spilled,
            metrics.disk_bytes_spilled,
            metrics.peak_execution_memory,
            metrics.result_size,
            0 if peaks is None else peaks.on_heap_storage_memory + peaks.off_heap_storage_memory,
        )
        self._count += 1
        if self._count == _BUFFERED:
            self.flush()

    def flush(self) -> None:
        """Convert what is in the buffer."""
        raw = np.frombuffer(self._buffer, _RAW, self._count)
        self._count = 0
        plausible = (raw["launch"] > 0) & (raw["launch"] < LATEST_MS) & (raw["finish"] < LATEST_MS)
        self.implausible += len(raw) - int(plausible.sum())
        raw = raw[plausible]
        if not len(raw):
            return
        used = raw[raw["storage"] > 0]
        for executor in np.unique(used["executor"]).tolist():
            peak = int(used["storage"][used["executor"] == executor].max())
            self.peak_storage[executor] = max(peak, self.peak_storage.get(executor, 0))
        rows, stepped_back = _converted(raw, self.base_ms)
        self.stepped_back += stepped_back
        self._rows.add(rows)
        self._stages.add(raw["stage"].astype("i4"))

    def by_stage(self) -> list[np.ndarray]:
        """The rows of each stage, in order of launch, as parts of one array; nothing can be added
        afterwards."""
        self.flush()
        tasks, stages = self._rows.array(), self._stages.array()
        # Lines may come in any order: tasks of one millisecond have theirs by their ends.
        keys = (tasks["partition"], tasks["finish_s"], tasks["launch_s"], stages)
        order = np.lexsort(keys)
        for name in TASK.names or ():
            tasks[name] = tasks[name][order]
        ends = np.cumsum(np.bincount(stages, minlength=self._stage_count))
        return [
            tasks[end - count : end]
            for end, count in zip(ends, np.diff(ends, prepend=0), strict=True)
        ]


def status_of(event: events.TaskEnd) -> int:
    info, reason = event.task_info, event.task_end_reason
    if reason is not None and reason.reason == "Success":
        return SUCCEEDED
    if info.killed or (reason is not None and reason.reason == "TaskKilled"):
        return KILLED
    if info.failed or (reason is not None and reason.reason not in ("Success", "")):
        return FAILED
    return SUCCEEDED


def _converted(raw: np.ndarray, base_ms: int) -> tuple[np.ndarray, int]:
    """TASK rows, and how many tasks ended before they began."""
    rows = np.zeros(len(raw), TASK)
    for name in ("executor", "partition", "attempt", "status", "locality", "speculative"):
        rows[name] = raw[name]
    for name in _SIZES:
        rows[f"{name}_bytes"] = np.maximum(raw[name], 0)
    seconds: Callable[[str], np.ndarray] = lambda name: np.maximum(raw[name], 0) / 1e3  # noqa: E731
    deserialize, run, serialize = seconds("deserialize"), seconds("run"), seconds("serialize")
    known = deserialize + run + serialize
    launch, finish = (raw[name].astype("f8") for name in ("launch", "finish"))
    # A clock that steps back, or no end: it took as long as its executor says.
    backwards = finish < launch
    finish = np.minimum(np.where(backwards, launch + 1e3 * known, finish), float(LATEST_MS))
    span = (finish - launch) / 1e3
    rows["launch_s"] = (launch - base_ms) / 1e3
    rows["finish_s"] = rows["launch_s"] + span
    getting = np.where(raw["getting"] > 0, (finish - raw["getting"]) / 1e3, 0.0).clip(0.0, span)
    # Executor and driver round on their own: what is too much is taken from all alike.
    measured = known + getting
    share = np.where(measured > span, span / np.maximum(measured, 1e-9), 1.0)
    run = run * share
    fetch = np.minimum(seconds("fetch") * share, run)
    write = np.minimum(np.maximum(raw["write_ns"], 0) / 1e9 * share, run - fetch)
    # Collections stop fetching and writing too; they are counted where nothing else was waited for.
    gc = np.minimum(seconds("gc") * share, run - fetch - write)
    rows["deserialize_s"] = deserialize * share
    rows["serialize_s"] = serialize * share
    rows["getting_result_s"] = getting * share
    rows["fetch_wait_s"], rows["shuffle_write_s"], rows["gc_s"] = fetch, write, gc
    rows["compute_s"] = run - fetch - write - gc
    rows["scheduler_delay_s"] = np.maximum(span - measured * share, 0.0)
    return rows, int(backwards.sum())
