"""The events that are read, and of each the fields that are needed (Spark's JsonProtocol).

A field that a version of Spark does not write has a default. All moments are milliseconds since the
epoch, durations milliseconds, shuffle write time nanoseconds, sizes bytes.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A number as Spark has them, of 64 bits; JSON's may be of any length."""

_WORDS = {"id": "ID", "ids": "IDs", "jvm": "JVM", "gc": "GC", "rdd": "RDD", "of": "of"}


def _title(name: str) -> str:
    """``stage_attempt_id`` as Spark names it: ``Stage Attempt ID``."""
    return " ".join(_WORDS.get(word, word.capitalize()) for word in name.split("_"))


class _Event(msgspec.Struct, gc=False, rename=_title):
    pass


class _ClassEvent(msgspec.Struct, gc=False, rename="camel"):
    """One that Spark writes field by field of its class."""


# -- tasks


class TaskInfo(_Event):
    task_id: Long
    index: Long
    attempt: Long
    launch_time: Long
    executor_id: str
    host: str = ""
    locality: str = ""
    speculative: bool = False
    getting_result_time: Long = 0
    finish_time: Long = 0
    failed: bool = False
    killed: bool = False
    partition_id: Long = -1  # since Spark 3.3; before, the index


class ShuffleRead(_Event):
    fetch_wait_time: Long = 0
    remote_bytes_read: Long = 0
    local_bytes_read: Long = 0


class ShuffleWrite(_Event):
    shuffle_bytes_written: Long = 0
    shuffle_write_time: Long = 0


class BytesRead(_Event):
    bytes_read: Long = 0


class BytesWritten(_Event):
    bytes_written: Long = 0


class TaskMetrics(_Event):
    executor_deserialize_time: Long = 0
    executor_run_time: Long = 0
    jvm_gc_time: Long = 0
    result_serialization_time: Long = 0
    result_size: Long = 0
    memory_bytes_spilled: Long = 0
    disk_bytes_spilled: Long = 0
    peak_execution_memory: Long = 0  # since Spark 3.0
    shuffle_read_metrics: ShuffleRead | None = None
    shuffle_write_metrics: ShuffleWrite | None = None
    input_metrics: BytesRead | None = None
    output_metrics: BytesWritten | None = None


class ExecutorMetrics(_ClassEvent, rename="pascal"):
    on_heap_storage_memory: Long = 0
    off_heap_storage_memory: Long = 0
    minor_gc_time: Long = msgspec.field(default=0, name="MinorGCTime")
    major_gc_time: Long = msgspec.field(default=0, name="MajorGCTime")


class TaskEndReason(_Event):
    reason: str = ""


class TaskStart(_Event):
    stage_id: Long
    stage_attempt_id: Long
    task_info: TaskInfo


class TaskEnd(_Event):
    stage_id: Long
    stage_attempt_id: Long
    task_info: TaskInfo
    task_type: str = ""
    task_end_reason: TaskEndReason | None = None
    task_metrics: TaskMetrics | None = None
    task_executor_metrics: ExecutorMetrics | None = None


# -- stages and jobs


class StorageLevel(_Event):
    use_disk: bool = False
    use_memory: bool = False


class RddInfo(_Event):
    rdd_id: Long
    name: str = ""
    number_of_partitions: Long = 0
    number_of_cached_partitions: Long = 0
    memory_size: Long = 0
    disk_size: Long = 0
    barrier: bool = False
    storage_level: StorageLevel | None = None


class Accumulable(_Event):
    name: str | None = None
    value: Any = None


class StageInfo(_Event):
    stage_id: Long
    number_of_tasks: Long
    stage_attempt_id: Long = 0
    stage_name: str = ""
    rdd_info: list[RddInfo] = []
    parent_ids: list[Long] = []
    submission_time: Long | None = None
    completion_time: Long | None = None
    failure_reason: str | None = None
    accumulables: list[Accumulable] = []
    resource_profile_id: Long = msgspec.field(default=0, name="Resource Profile Id")


class StageSubmitted(_Event):
    stage_info: StageInfo


class StageCompleted(_Event):
    stage_info: StageInfo


class PlannedStage(_Event):
    stage_id: Long = -1
    number_of_tasks: Long = 0
    stage_name: str = ""
    parent_ids: list[Long] = []


class JobStart(_Event):
    job_id: Long
    submission_time: Long | None = None
    stage_ids: list[Long] = []
    stage_infos: list[PlannedStage] | None = None
    properties: dict[str, str | None] | None = None


class JobResult(_Event):
    result: str = ""


class JobEnd(_Event):
    job_id: Long
    completion_time: Long | None = None
    job_result: JobResult | None = None


# -- SQL executions


class SqlStart(_ClassEvent):
    execution_id: Long
    time: Long
    description: str = ""
    root_execution_id: Long | None = None
    physical_plan_description: msgspec.Raw = msgspec.Raw(b"")

    @property
    def adaptive(self) -> bool:
        return b"AdaptiveSparkPlan" in bytes(self.physical_plan_description)


class SqlEnd(_ClassEvent):
    execution_id: Long
    time: Long


class SqlAdaptive(_ClassEvent):
    execution_id: Long


# -- executors


class ExecutorInfo(_Event):
    host: str = ""
    total_cores: Long = 1
    resource_profile_id: Long = msgspec.field(default=0, name="Resource Profile Id")


class ExecutorAdded(_Event):
    timestamp: Long
    executor_id: str
    executor_info: ExecutorInfo


class ExecutorRemoved(_Event):
    timestamp: Long
    executor_id: str
    removed_reason: str | None = None


class Excluded(_ClassEvent):
    """An executor that gets no more tasks (until Spark 3.0: blacklisted)."""

    time: Long
    executor_id: str


class Unexcluded(_ClassEvent):
    time: Long
    executor_id: str


class BlockManagerId(_Event):
    executor_id: str


class BlockManagerAdded(_Event):
    block_manager_id: BlockManagerId
    maximum_memory: Long = 0
    timestamp: Long | None = None


class BlockInfo(_Event):
    block_id: str
    memory_size: Long = 0
    disk_size: Long = 0
    block_manager_id: BlockManagerId | None = None


class BlockUpdated(_Event):
    """Only in logs with spark.eventLog.logBlockUpdates.enabled."""

    block_updated_info: BlockInfo


class StageExecutorMetrics(_Event):
    """Only in logs with spark.eventLog.logStageExecutorMetrics."""

    executor_id: str
    executor_metrics: ExecutorMetrics


class Amount(_Event):
    amount: float = 0.0


class ResourceProfileAdded(_Event):
    profile: Long = msgspec.field(name="Resource Profile Id")
    executor_resource_requests: dict[str, Amount] = {}
    task_resource_requests: dict[str, Amount] = {}


# -- the application


class LogStart(_Event):
    spark_version: str = ""


class EnvironmentUpdate(_Event):
    spark_properties: dict[str, str | None] = {}


class ApplicationStart(_Event):
    timestamp: Long
    app_name: str = ""
    app_id: str | None = None
    user: str = ""
    app_attempt_id: str | None = None


class ApplicationEnd(_Event):
    timestamp: Long


EVENTS: dict[bytes, type[msgspec.Struct]] = {
    **{
        b"SparkListener" + kind.__name__.encode(): kind
        for kind in (
            TaskStart,
            TaskEnd,
            StageSubmitted,
            StageCompleted,
            JobStart,
            JobEnd,
            ExecutorAdded,
            ExecutorRemoved,
            BlockManagerAdded,
            BlockUpdated,
            StageExecutorMetrics,
            ResourceProfileAdded,
            LogStart,
            EnvironmentUpdate,
            ApplicationStart,
            ApplicationEnd,
        )
    },
    b"SparkListenerSQLExecutionStart": SqlStart,
    b"SparkListenerSQLExecutionEnd": SqlEnd,
    b"SparkListenerSQLAdaptiveExecutionUpdate": SqlAdaptive,
    b"SparkListenerExecutorExcluded": Excluded,
    b"SparkListenerExecutorBlacklisted": Excluded,
    b"SparkListenerExecutorUnexcluded": Unexcluded,
    b"SparkListenerExecutorUnblacklisted": Unexcluded,
}
"""By the name of the event, without its package."""

DECODERS: dict[bytes, Any] = {
    name: msgspec.json.Decoder(kind).decode for name, kind in EVENTS.items()
}

_START = b'{"Event":"'
_TASK_END = b'{"Event":"SparkListenerTaskEnd"'
_TASK_START = b'{"Event":"SparkListenerTaskStart"'
_TASK_ID = b'"Task ID":'
_ACCUMULABLES, _AFTER_ACCUMULABLES = b'"Accumulables":[', b']},"Task Executor Metrics":{'
_decode_task_end = DECODERS[b"SparkListenerTaskEnd"]
decode_task_start = msgspec.json.Decoder(TaskStart).decode


def started_task(line: bytes) -> int | None:
    """The number of the task that starts; None for any other line, or one that has it not where
    Spark writes it. All else that such a line says, its end says again if it has one."""
    if not line.startswith(_TASK_START):
        return None
    begin = line.find(_TASK_ID, len(_TASK_START), 200)
    number = line[begin + len(_TASK_ID) : line.find(b",", begin)]
    return int(number) if begin > 0 and number.isdigit() and len(number) < 19 else None


class _Named(msgspec.Struct, gc=False):
    Event: str


_decode_name = msgspec.json.Decoder(_Named).decode


def event_of(line: bytes) -> msgspec.Struct | None:
    """The event of a line; None for one that is not needed. It is chosen by the line's first bytes,
    before any JSON is parsed.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: the line is broken, or has not the form of its
            event.
    """
    if line.startswith(_TASK_END):
        # Two thirds of such a line are metrics of SQL that are not needed, in one piece.
        begin = line.find(_ACCUMULABLES)
        end = line.find(_AFTER_ACCUMULABLES, begin)
        if 0 < begin < end:
            line = line[: begin + len(_ACCUMULABLES)] + line[end:]
        return _decode_task_end(line)  # type: ignore[no-any-return]
    if line.startswith(_START):
        end = line.find(b'"', len(_START))
        name = line[len(_START) : end]
        if end < 0:
            raise msgspec.DecodeError("cut within the name of its event")
    else:
        # Written by another program, with spaces or its fields in another order.
        if not line.strip():
            return None
        name = _decode_name(line).Event.encode()
    decode = DECODERS.get(name) or DECODERS.get(name.rpartition(b".")[2])
    return None if decode is None else decode(line)
