"""Memory cliff: cached data that does not fit is computed again, by every stage that reads it.

Spark never evicts blocks of an RDD for others of the same, so with too little memory the same share
of its partitions misses in every stage (MemoryStore). Sizes come from what the log has: RDD info,
the executors' peak of storage memory, or the bytes that tasks read from the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kongming.arrays import Floats
from kongming.quantities import format_bytes
from kongming.spark.application import Application
from kongming.spark.model.cluster import Cluster
from kongming.spark.model.corrections.correction import Change, Lengths
from kongming.spark.model.corrections.first_tasks import FirstTasks
from kongming.spark.model.workload import StageWork, Workload

RESERVED = 300.0 * (1 << 20)
"""Bytes of the heap that Spark keeps for itself (UnifiedMemoryManager)."""

PROTECTED = 0.5
"""spark.memory.storageFraction by default: the share that cached blocks keep from execution."""

PROCESS_LOCAL = 0

SPARED = 0.5
"""Share of a hit's length that is reading what was cached."""

LEAST_LEFT = 0.05
"""Share of a miss that stays when its partition is cached."""


@dataclass(frozen=True, eq=False, slots=True)
class Memory:
    """``cached_bytes``: the most of persisted RDDs at once, if they fitted; ``storage_bytes`` of an
    executor as recorded, of which ``protected`` is the share that execution cannot take from cached
    blocks; ``again_s`` (stages,): seconds a task takes to compute a missing partition, NaN for
    stages that read nothing cached."""

    workload: Workload
    cached_bytes: float
    storage_bytes: float
    execution_bytes: float
    again_s: Floats
    protected: float = PROTECTED
    grown: float = 1.0  # cached bytes at the asked size over those recorded: more input
    usable: float = 1.0  # share of the storage that the recorded run came to use, if it missed

    name = "memory"

    def missing(self, cluster: Cluster, grown: float = 1.0) -> float:
        """Share of the cached data that does not fit."""
        if not self.cached_bytes or not self.storage_bytes:
            return 0.0
        needed = self.cached_bytes * grown
        return max(1.0 - cluster.executors * self.room(cluster) / needed, 0.0)

    def room(self, cluster: Cluster) -> float:
        """Bytes that an executor can cache: what execution does not take, or cannot."""
        storage = self.unified(cluster)
        most = (1.0 - self.protected) * storage
        room = storage - min(self.execution_bytes * cluster.slots_each, most)
        return room * self.usable

    def unified(self, cluster: Cluster) -> float:
        """Bytes of an executor for storage and execution together."""
        recorded = self.workload.cluster
        if not (cluster.memory_bytes and recorded.memory_bytes):
            return self.storage_bytes
        before = max(recorded.memory_bytes - RESERVED, 1.0)
        return self.storage_bytes * max(cluster.memory_bytes - RESERVED, 0.0) / before

    def fits_from(self, cluster: Cluster) -> int | None:
        """The fewest executors that hold all cached data."""
        room = self.room(cluster)
        if not self.cached_bytes or room <= 0.0:
            return None
        return int(np.ceil(self.cached_bytes * self.grown / room - 1e-9))

    def crosses(self, change: Change) -> bool:
        """Return whether all of it fits at one of the two sizes only."""
        return (self.missing(change.recorded) > 0.0) != (
            self.missing(change.target, self.grown) > 0.0
        )

    def apply(self, lengths: Lengths, change: Change) -> Lengths:
        before = self.missing(change.recorded)
        after = self.missing(change.target, self.grown)
        if abs(before - after) < 1e-9:
            return lengths
        corrected = []
        for number, own in enumerate(lengths):
            again = self.again_s[number]
            if not np.isfinite(again):
                corrected.append(own)
                continue
            missed = _missed(self.workload.stages[number])
            if len(missed) != len(own):
                missed = _spread(len(own), before) > 0.0
            places = np.flatnonzero(~missed if after > before else missed)
            # Spread evenly over the partitions that hit, or that missed, so far.
            count = abs(after - before) * len(own)
            share = min(count / max(len(places), 1), 1.0)
            step = np.zeros(len(own))
            step[places] = _spread(len(places), share) * again
            if after > before:
                corrected.append(own + step)
            else:
                corrected.append(np.maximum(own - step, LEAST_LEFT * own))
        return corrected

    def cliffs(self, change: Change) -> list[str]:
        """Return a sentence on what fits at the recorded size or the asked one, and not at both."""
        cliffs = []
        if self.crosses(change):
            fits = self.fits_from(change.target)
            where = f"{fits} executors or more" if fits else "no number of executors of this memory"
            cliffs.append(
                f"memory cliff: {format_bytes(self.cached_bytes * self.grown)} of cached data fit "
                f"into {where}; recorded were {change.recorded.executors}, asked are "
                f"{change.target.executors}"
            )
        return cliffs

    def remarks(self, change: Change) -> list[str]:
        return self.cliffs(change)


def learn_memory(workload: Workload, first_tasks: FirstTasks | None = None) -> Memory:
    """Learn what computing a partition again takes from lengths without the excess of first tasks:
    where it is computed again, its executor has run such tasks before."""
    persisted: dict[int, int] = {}  # RDD -> the stage that computed it
    latest: dict[int, int] = {}  # RDD -> the last stage that reads it
    read_first: dict[int, float] = {}  # RDD -> settled seconds of the first stage that read it
    again = np.full(len(workload.stages), np.nan)
    readers = []
    for number, stage in enumerate(workload.stages):
        for rdd in stage.attempt.rdds:
            if not (rdd.persisted or rdd.cached_partitions):
                continue
            maker = persisted.setdefault(rdd.id, number)
            latest[rdd.id] = number
            if maker != number and len(stage.lengths):
                lengths = workload.stages[maker].lengths
                if first_tasks is not None:
                    lengths = first_tasks.warm(maker)
                own = _settled(stage.lengths)
                first = max(read_first.setdefault(rdd.id, own), 1e-9)
                # Executors have warmed up since it was computed, as much as reading it shows.
                cost = _settled(lengths) * min(own / first, 1.0) if len(lengths) else 0.0
                again[number] = np.nanmax([again[number], _again(stage, cost)])
                readers.append(stage)
    application = workload.application
    execution = max(
        (
            float(np.quantile(stage.tasks["peak_execution_bytes"], 0.9))
            for stage in workload.stages
            if len(stage.tasks)
        ),
        default=0.0,
    )
    memory = Memory(
        workload=workload,
        cached_bytes=_cached(application, readers, persisted, latest) if readers else 0.0,
        storage_bytes=_storage(application, workload.cluster),
        execution_bytes=execution,
        again_s=again,
        protected=_share(application, "spark.memory.storageFraction", PROTECTED),
    )
    missed = float(np.mean([_missed(stage).mean() for stage in readers])) if readers else 0.0
    room = workload.cluster.executors * memory.room(workload.cluster)
    if missed > 0.0 and memory.cached_bytes and room > 0.0:
        # Less than all of the storage is of use: a block is unrolled next to those that are kept.
        usable = (1.0 - missed) * memory.cached_bytes / room
        return replace(memory, usable=min(usable, 1.0))
    return memory


def _storage(application: Application, cluster: Cluster) -> float:
    """Unified memory of an executor: of its block manager, else from its settings."""
    known = [each.storage_bytes for each in application.executors if each.storage_bytes]
    if known:
        return float(np.median(known))
    if cluster.memory_bytes is None:
        return 0.0
    fraction = _share(application, "spark.memory.fraction", 0.6)
    return max(cluster.memory_bytes - RESERVED, 0.0) * fraction


def _share(application: Application, name: str, default: float) -> float:
    """A setting from 0 to 1; the default where the log has none that could be."""
    try:
        share = float(application.settings.get(name, default))
    except ValueError:
        return default
    return share if 0.0 <= share <= 1.0 else default


def _cached(
    application: Application,
    readers: list[StageWork],
    begins: Mapping[int, int],
    ends: Mapping[int, int],
) -> float:
    """The most bytes of persisted RDDs at once if all of their partitions were in memory. One that
    no later stage reads makes room for others, whether it is unpersisted or evicted."""
    sizes: dict[int, float] = {}
    for stage in readers:
        for rdd in stage.attempt.rdds:
            if rdd.memory_bytes and rdd.cached_partitions:
                total = rdd.memory_bytes * rdd.partitions / rdd.cached_partitions
                sizes[rdd.id] = max(sizes.get(rdd.id, 0.0), total)
    if sizes:
        changes = np.zeros(max(ends.values()) + 2)
        for rdd_id, size in sizes.items():
            changes[begins[rdd_id]] += size
            changes[ends[rdd_id] + 1] -= size
        return float(np.cumsum(changes).max())
    # A task that finds its partition reads its bytes from the executor's own memory.
    largest = 0.0
    for stage in readers:
        read = stage.tasks["input_bytes"].astype(np.float64)
        hits = (stage.tasks["locality"] == PROCESS_LOCAL) & (read > 0.0)
        if hits.any():
            largest = max(largest, float(read[hits].mean()) * len(read))
    peaks = [each.peak_storage_bytes for each in application.executors if each.peak_storage_bytes]
    return largest or float(sum(peaks))


def _settled(lengths: Floats) -> float:
    """Median of the later half of a stage's tasks: the code that they run has been compiled."""
    return float(np.median(lengths[len(lengths) // 2 :]))


def _spread(count: int, share: float) -> Floats:
    """(count,) ones for a share of the places, evenly spread."""
    marks = np.floor((np.arange(count) + 1) * share + 1e-9)
    return np.diff(np.concatenate([[0.0], marks]))


def _missed(stage: StageWork) -> np.ndarray:
    """(n,) tasks that found nothing cached, in a stage where others did: those read no bytes."""
    read: np.ndarray = stage.tasks["input_bytes"] > 0.0
    return ~read if read.any() else np.zeros(len(read), dtype=np.bool_)


def _again(stage: StageWork, made_s: float) -> float:
    """Seconds that a miss takes longer than a hit: as the stage shows it, else what computing the
    partition took, less the reading that a miss is spared."""
    missed, rest = _missed(stage), ~stage.first_of_stage
    misses, hits = stage.lengths[missed & rest], stage.lengths[~missed & rest]
    if len(misses) > 1 and len(hits) > 1:
        return max(float(np.median(misses) - np.median(hits)), 0.0)
    return made_s - SPARED * min(made_s, float(np.median(stage.lengths)))
