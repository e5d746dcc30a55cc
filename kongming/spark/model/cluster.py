"""Executors and their slots: as recorded, and as asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, replace

from kongming.quantities import count as counted
from kongming.records.errors import CannotAnswerError
from kongming.spark.application import Application
from kongming.spark.model.driver import job_end, measured_s, merged
from kongming.spark.model.executors import most_at_once, sized_executors, slots_of, task_cpus
from kongming.spark.written_values import seconds, size_bytes


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Dynamic allocation: requests double every ``sustained_s`` as long as tasks wait."""

    least: int
    most: int
    backlog_s: float = 1.0
    sustained_s: float = 1.0
    idle_s: float = 60.0
    start_s: float = 3.0


NAMED_KINDS = 4
"""Kinds of executors that a sentence names."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """Executors that differ: the slots of each in a cluster's ``arrivals`` and ``removals``, the
    most ``slots`` and ``cores`` at once, and how many executors have how many cores."""

    arrivals: tuple[int, ...]
    removals: tuple[int, ...]
    slots: int
    cores: int
    kinds: tuple[tuple[int, int], ...]

    def sentence(self, cores: int) -> str:
        """``cores``: of the executors that are asked for."""
        named = [f"{count} of {own}" for own, count in self.kinds[:NAMED_KINDS]]
        more = ["..."] if len(self.kinds) > NAMED_KINDS else []
        return (
            f"the recorded executors have different cores ({', '.join([*named, *more])}); "
            f"executors of {counted(cores, 'core')} are estimated"
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """``executors`` of ``cores`` each; ``arrivals`` and ``removals``: (seconds, executors). Where
    recorded executors are ``mixed``, ``cores`` are those of the most frequent kind."""

    executors: int
    cores: int
    task_cpus: float = 1.0
    arrivals: tuple[tuple[float, int], ...] = ()
    removals: tuple[tuple[float, int], ...] = ()
    memory_bytes: float | None = None
    dynamic: Dynamic | None = None
    mixed: Mixed | None = None

    @property
    def slots_each(self) -> int:
        return int(self.cores // self.task_cpus)

    @property
    def slots(self) -> int:
        """Tasks at once."""
        return self.executors * self.slots_each if self.mixed is None else self.mixed.slots

    @property
    def slots_mean(self) -> float:
        """Slots of an executor, on average."""
        return float(self.slots_each) if self.mixed is None else self.slots / self.executors

    @property
    def all_cores(self) -> int:
        return self.executors * self.cores if self.mixed is None else self.mixed.cores


def recorded_cluster(application: Application) -> Cluster:
    """Return the executors of the default resource profile that were registered at once, and when
    they came and went.

    Raises:
        CannotAnswerError: no executor of that profile, none with a slot, or GPUs in a profile.
    """
    _refuse_gpus(application)
    cpus = task_cpus(application)
    known = sized_executors(application)
    default = [each for each in known if each.resource_profile == 0]
    executors = [each for each in default if slots_of(each, cpus) > 0]
    if not known:
        raise CannotAnswerError(
            f"{application.source or application.id}: no executor has registered in the log, so "
            "that the recorded size is not known.",
            hint="Take the log of a run that executed tasks.",
        )
    if not default:
        raise CannotAnswerError(
            f"{application.source or application.id}: all executors are of other resource profiles "
            "than the default one, whose number would be asked for.",
            hint="Take the log of a run without stage-level scheduling.",
        )
    if not executors:
        raise CannotAnswerError(
            f"{application.source or application.id}: no executor has as many cores as "
            f"spark.task.cpus, {cpus:g}, so that none had a slot.",
            hint="Take the log of a run that executed tasks.",
        )
    ones = [1] * len(executors)
    most = most_at_once(executors, ones)
    # Of two kinds that are as frequent, the larger one.
    kinds = sorted(Counter(each.cores for each in executors).items(), reverse=True)
    cores = max(kinds, key=lambda kind: kind[1])[0]
    end = measured_s(application)
    executors.sort(key=lambda each: each.added_s)
    leaving = sorted(
        (each for each in executors if each.removed_s is not None and each.removed_s < end),
        key=lambda each: each.removed_s or 0.0,
    )
    mixed = None
    if len(kinds) > 1:
        slots = [slots_of(each, cpus) for each in executors]
        mixed = Mixed(
            arrivals=tuple(slots),
            removals=tuple(slots_of(each, cpus) for each in leaving),
            slots=most_at_once(executors, slots),
            cores=most_at_once(executors, [each.cores for each in executors]),
            kinds=tuple(kinds),
        )
    return Cluster(
        executors=most,
        cores=cores,
        task_cpus=cpus,
        arrivals=tuple((max(each.added_s, 0.0), 1) for each in executors),
        removals=tuple((each.removed_s or 0.0, 1) for each in leaving),
        memory_bytes=executor_memory(application.settings),
        mixed=mixed,
    )


def asked_cluster(
    recorded: Cluster, executors: int, cores: int | None = None, memory_bytes: float | None = None
) -> Cluster:
    """Return a cluster of another size whose executors register as the recorded ones did: those
    beyond the recorded number come with the last of the first ``recorded.executors``."""
    times = [time for time, _ in recorded.arrivals][: recorded.executors]
    wanted = (times + [times[-1]] * executors)[:executors] if times else []
    return replace(
        recorded,
        executors=executors,
        cores=recorded.cores if cores is None else cores,
        memory_bytes=recorded.memory_bytes if memory_bytes is None else memory_bytes,
        arrivals=tuple((time, 1) for time in wanted),
        removals=(),
        dynamic=None,
        mixed=None,
    )


def dynamic_allocation(application: Application, least: int, most: int) -> Dynamic:
    """Return dynamic allocation with the log's timeouts. Executors start as fast as those that a
    job's backlog had asked for; where there are none as the first, with the driver's own start."""
    settings = application.settings

    def timeout_s(name: str, default: float) -> float:
        written = seconds(settings.get(f"spark.dynamicAllocation.{name}", ""))
        return default if written is None else max(written, 0.001)

    backlog = timeout_s("schedulerBacklogTimeout", 1.0)
    added = [each.added_s for each in application.executors]
    first = min(added, default=3.0)
    if settings.get("spark.dynamicAllocation.enabled", "").lower() == "true":
        first = min([first, *_start_times(application, backlog, first)])
    return Dynamic(
        least=least,
        most=most,
        backlog_s=backlog,
        sustained_s=timeout_s("sustainedSchedulerBacklogTimeout", backlog),
        idle_s=timeout_s("executorIdleTimeout", 60.0),
        start_s=min(max(first, 0.5), 60.0),
    )


def _start_times(application: Application, backlog: float, longest: float) -> list[float]:
    """Seconds from the first request in each stretch of jobs to the first executor that came.

    Later ones may have been requested at any time since, and one that came before a backlog counts
    was requested earlier. Jobs are of one stretch where the executors that the first of them
    requested may still be on their way, for up to ``longest``, when the next begins.
    """
    added = sorted(each.added_s for each in application.executors)
    jobs = [(job.submitted_s, job_end(job, application)) for job in application.jobs]
    waits = []
    for start, end in merged((start, end + longest) for start, end in jobs):
        place = bisect_right(added, start)
        if place < len(added) and added[place] <= end:
            waits.append(added[place] - start - backlog)
    return [wait for wait in waits if wait > 0.0]


LEAST_MEMORY = 450 * 1024.0**2
"""Bytes of heap below which Spark refuses to start an executor: one and a half times the 300 MiB
that it reserves (UnifiedMemoryManager)."""


def executor_memory(settings: dict[str, str]) -> float | None:
    """Return bytes of an executor's heap, as configured."""
    text = settings.get("spark.executor.memory")
    return size_bytes("1g") if text is None else size_bytes(text)


def _refuse_gpus(application: Application) -> None:
    named = {
        name
        for profile in application.resource_profiles
        for name, amount in profile.other.items()
        if amount > 0
    }
    named |= {
        key
        for key, value in application.settings.items()
        if key.startswith("spark.task.resource.") and key.endswith(".amount") and value != "0"
    }
    if named:
        raise CannotAnswerError(
            f"{application.source or application.id}: its tasks need {', '.join(sorted(named))}, "
            "which are not slots of a core; the model has cores only.",
            hint="Take the log of a run without GPUs or other resources.",
        )
