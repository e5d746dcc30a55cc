"""Parts of an application that a replay needs: jobs, stages, lengths of tasks, gaps of the
driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.records.errors import CannotAnswerError
from kongming.spark.application import SUCCEEDED, Application, Executor, Job, StageAttempt
from kongming.spark.model.cluster import Cluster, recorded_cluster
from kongming.spark.model.driver import job_end, measured_s
from kongming.spark.model.executors import (
    executor_slots,
    most_at_once,
    profile_cpus,
    registered_slots,
    sized_executors,
    slots_of,
)
from kongming.spark.model.groups import TICK_S, Waiting, dependencies, in_order
from kongming.spark.model.speculation import Speculation, speculation_of

Mask = NDArray[np.bool_]
SlotCounts = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Apart:
    """A resource profile that is not the default one: ``slots`` of its own executors, which are as
    recorded at every size. None where it has none: its tasks run on those of the default one, with
    ``slots_each``."""

    profile: int
    slots_each: int
    slots: int | None


@dataclass(frozen=True, eq=False, slots=True)
class StageWork:
    """One stage attempt. ``lengths`` (n,): seconds from launch to finish, in order of launch;
    ``needed`` (n,): the stage waits for it (not so for copies that were killed), None: for all.

    ``lag_s``: from when its parents had ended to the first launch, free slots given;
    ``turnover_s``: mean seconds from a task's finish to the next launch in its slot.
    ``reads_cached``: what an earlier stage persisted. ``kind``: stages of one kind run the same
    code, as far as the log tells. ``first_of_...`` (n,): the first tasks of their slot in the
    application, of that kind, and in the stage. ``speculation``: copies of tasks.
    """

    attempt: StageAttempt
    job: int
    parents: tuple[int, ...]
    lag_s: float
    lengths: Floats
    turnover_s: float
    needed: Mask | None
    reads_cached: bool
    kind: str
    first_of_app: Mask
    first_of_kind: Mask
    first_of_stage: Mask
    barrier: bool
    apart: Apart | None
    speculation: Speculation | None

    @property
    def tasks(self) -> np.ndarray:
        return self.attempt.tasks

    @property
    def elsewhere(self) -> bool:
        """Return whether it runs on executors of its own, whose number no size changes."""
        return self.apart is not None and self.apart.slots is not None


@dataclass(frozen=True, slots=True)
class JobWork:
    """One job: what it waits for, its stages, and ``tail_s`` from its last stage to its end."""

    job: Job
    waiting: Waiting
    stages: tuple[int, ...]
    tail_s: float

    @property
    def pool(self) -> str:
        return self.job.pool or "default"


@dataclass(frozen=True, eq=False, slots=True)
class Workload:
    """``end_s``: from the last job's end to the application's; ``slots`` (executors + 1,) of each,
    and last of one that is not known."""

    application: Application
    cluster: Cluster
    jobs: tuple[JobWork, ...]
    stages: tuple[StageWork, ...]
    end_s: float
    measured_s: float
    fair: bool
    slots: SlotCounts

    @property
    def tasks(self) -> int:
        return sum(len(stage.lengths) for stage in self.stages)


def workload_of(application: Application) -> Workload:
    """Convert a log to what is replayed.

    Raises:
        CannotAnswerError: no task has finished or none belongs to a known job, the run took no
            time, no executor is known, or tasks need GPUs.
    """
    if not any(len(stage.tasks) for stage in application.stages):
        raise CannotAnswerError(
            f"{application.source or application.id}: no task has finished.",
            hint="Take the log of a run that executed tasks.",
        )
    measured = measured_s(application)
    if measured <= 0.0:
        raise CannotAnswerError(
            f"{application.source or application.id}: all moments in the log are the same, so that "
            "the run took no time.",
            hint="Take a log whose times are as Spark wrote them.",
        )
    cluster = recorded_cluster(application)
    jobs = in_order(application)
    ends = [job_end(job, application) for job in jobs]
    waiting = dependencies(application, jobs)
    attempts = sorted(
        (
            stage
            for stage in application.stages
            if len(stage.tasks) or stage.submitted_s is not None
        ),
        key=lambda stage: (_submitted(stage), stage.stage, stage.attempt),
    )
    owners = _owners(attempts, jobs, ends)
    attempts = [attempt for attempt in attempts if owners[id(attempt)] is not None]
    if not any(len(attempt.tasks) for attempt in attempts):
        raise CannotAnswerError(
            f"{application.source or application.id}: no task belongs to a job whose start is in "
            "the log.",
            hint="Give all files of the log, from the application's start.",
        )
    executors = sized_executors(application)
    own_slots = executor_slots(application, executors)
    aparts = _aparts(application, attempts, cluster, own_slots)
    free = _Slots(
        application,
        [each for each in attempts if each.resource_profile not in aparts] or attempts,
    )
    slots = np.maximum([*own_slots, cluster.slots_each], 1)
    first_of_app = _first_together(attempts, slots)
    readers = _readers(attempts)
    kinds = _kinds(attempts, readers)
    first_of_kind = _first_of_kinds(attempts, kinds, slots)
    placed: dict[int, int] = {}
    stage_ends: list[float] = []
    stages: list[StageWork] = []
    slots_by_profile = _slots_by_profile(application, executors, aparts, slots)
    turnovers = _turnovers(attempts, slots_by_profile)
    for attempt, reads, kind, turnover in zip(attempts, readers, kinds, turnovers, strict=True):
        job = owners[id(attempt)]
        assert job is not None
        known = [placed[parent] for parent in attempt.parents if parent in placed]
        if attempt.stage in placed:  # a further attempt follows the former one
            known.append(placed[attempt.stage])
        # One that overlaps its parent ran without it (a retry of some partitions).
        submitted = _submitted(attempt)
        parents = tuple(sorted({at for at in known if stage_ends[at] <= submitted + TICK_S}))
        ready = max([jobs[job].submitted_s, *(stage_ends[parent] for parent in parents)])
        apart = aparts.get(attempt.resource_profile)
        tasks = attempt.tasks
        lengths = np.maximum(tasks["finish_s"] - tasks["launch_s"], 0.0)
        stages.append(
            StageWork(
                attempt=attempt,
                job=job,
                parents=parents,
                lag_s=_lag(attempt, ready, free, apart),
                lengths=np.asarray(lengths, dtype=np.float64),
                turnover_s=turnover,
                needed=_needed(attempt),
                reads_cached=reads,
                kind=kind,
                first_of_app=first_of_app[id(attempt)],
                first_of_kind=first_of_kind[id(attempt)],
                first_of_stage=_first(tasks, slots_by_profile.get(attempt.resource_profile, slots)),
                barrier=attempt.barrier or any(rdd.barrier for rdd in attempt.rdds),
                apart=apart,
                speculation=speculation_of(application, attempt),
            )
        )
        placed[attempt.stage] = len(stage_ends)
        stage_ends.append(_completed(attempt))
    of_jobs: list[list[int]] = [[] for _ in jobs]
    for number, stage in enumerate(stages):
        of_jobs[stage.job].append(number)
    works = []
    for place, (job_record, wait) in enumerate(zip(jobs, waiting, strict=True)):
        own = tuple(of_jobs[place])
        done = max([job_record.submitted_s, *(stage_ends[number] for number in own)])
        works.append(JobWork(job_record, wait, own, max(ends[place] - done, 0.0)))
    return Workload(
        application=application,
        cluster=cluster,
        jobs=tuple(works),
        stages=tuple(stages),
        end_s=max(measured - max(ends, default=0.0), 0.0),
        measured_s=measured,
        fair=application.settings.get("spark.scheduler.mode", "FIFO").upper() == "FAIR",
        slots=slots,
    )


def _submitted(stage: StageAttempt) -> float:
    if stage.submitted_s is not None:
        return stage.submitted_s
    return float(stage.tasks["launch_s"].min()) if len(stage.tasks) else 0.0


def _completed(stage: StageAttempt) -> float:
    if stage.completed_s is not None:
        return max(stage.completed_s, _submitted(stage))
    return float(stage.tasks["finish_s"].max()) if len(stage.tasks) else _submitted(stage)


def _owners(
    attempts: Sequence[StageAttempt], jobs: Sequence[Job], ends: Sequence[float]
) -> dict[int, int | None]:
    """The job that ran each attempt: the first one that lists the stage and ran then."""
    lists: dict[int, list[int]] = {}
    for place, job in enumerate(jobs):
        for stage in job.stages:
            lists.setdefault(stage, []).append(place)
    owners: dict[int, int | None] = {}
    for attempt in attempts:
        places = lists.get(attempt.stage, [])
        moment = _submitted(attempt)
        within = [
            place
            for place in places
            if jobs[place].submitted_s - TICK_S <= moment <= ends[place] + TICK_S
        ]
        candidates = within or places
        owners[id(attempt)] = candidates[0] if candidates else None
    return owners


class _Slots:
    """Free slots of the default resource profile at a moment."""

    def __init__(self, application: Application, attempts: Sequence[StageAttempt]) -> None:
        arrays = [attempt.tasks for attempt in attempts if len(attempt.tasks)]
        self._launched = np.sort(np.concatenate([tasks["launch_s"] for tasks in arrays]))
        self._finished = np.sort(np.concatenate([tasks["finish_s"] for tasks in arrays]))
        self._moments, self._registered = registered_slots(application)

    def is_free(self, moment: float) -> bool:
        launched = int(np.searchsorted(self._launched, moment, side="left"))
        busy = launched - int(np.searchsorted(self._finished, moment, side="right"))
        return bool(busy < self._registered[np.searchsorted(self._moments, moment, side="right")])

    def opened(self, begin: float, end: float) -> float:
        """Return the moment when one is there for a stage that was submitted at ``begin``, as
        executors register; ``end`` if only a task that ends gives one until then."""
        if self.is_free(begin + TICK_S):
            return begin
        first, last = np.searchsorted(self._moments, [begin, end], side="right")
        arrivals = self._moments[first:last].tolist()
        return next((moment for moment in arrivals if self.is_free(moment)), end)


def _lag(attempt: StageAttempt, ready: float, slots: _Slots, apart: Apart | None) -> float:
    """The driver's part of the time until the first launch."""
    submitted = max(_submitted(attempt), ready)
    lag = submitted - ready
    if not len(attempt.tasks):
        return lag
    launched = max(float(attempt.tasks["launch_s"].min()), submitted)
    if apart is not None and apart.slots is not None:
        # Its executors start then, or are there: at any size.
        return lag + launched - submitted
    # Waiting for a slot or for executors is the replay's, the rest is the driver's.
    return lag + launched - slots.opened(submitted, launched)


def _slots_by_profile(
    application: Application,
    executors: Sequence[Executor],
    aparts: Mapping[int, Apart],
    slots: SlotCounts,
) -> dict[int, SlotCounts]:
    """``slots`` of the default resource profile; others that share its executors have their own."""
    counts = {0: slots}
    for profile, apart in aparts.items():
        if apart.slots is None:
            cpus = profile_cpus(application, profile)
            own = [slots_of(each, cpus) for each in executors]
            counts[profile] = np.maximum([*own, apart.slots_each], 1)
    return counts


def _turnovers(
    attempts: Sequence[StageAttempt], slots_by_profile: Mapping[int, SlotCounts]
) -> list[float]:
    """Mean seconds between a finish and the next launch in the same slot, for each attempt. It is
    negative where a slot was given away before the result was fetched.

    Counted where the launched task's stage had been launching already: a slot that waited for a
    stage to begin waited for its parents, or for the driver, and one that a speculative copy took
    for the copy to be due. Attempts of a profile with slots of its own are counted apart: fewer of
    their tasks fit into an executor.
    """
    together: dict[int, list[int]] = {}
    for place, attempt in enumerate(attempts):
        profile = attempt.resource_profile if attempt.resource_profile in slots_by_profile else 0
        together.setdefault(profile, []).append(place)
    turnovers = np.zeros(len(attempts))
    for profile, places in together.items():
        own = [attempts[place] for place in places]
        turnovers[places] = _turnovers_together(own, slots_by_profile[profile])
    return turnovers.tolist()


def _turnovers_together(attempts: Sequence[StageAttempt], slots: SlotCounts) -> list[float]:
    arrays = [attempt.tasks for attempt in attempts]
    owner = np.repeat(np.arange(len(arrays)), [len(tasks) for tasks in arrays])
    executor, launched, finished, speculative = (
        np.concatenate([tasks[name] for tasks in arrays])
        for name in ("executor", "launch_s", "finish_s", "speculative")
    )
    begun = np.array([tasks["launch_s"].min() if len(tasks) else np.inf for tasks in arrays])
    sums, counts = np.zeros(len(arrays)), np.zeros(len(arrays))
    for number in np.unique(executor):
        own = np.flatnonzero(executor == number)
        if len(own) <= slots[number]:
            continue
        order = own[np.argsort(launched[own], kind="stable")][slots[number] :]
        freed = np.sort(finished[own])[: -slots[number]]
        counted = (freed > begun[owner[order]]) & ~speculative[order]
        gaps = (launched[order] - freed)[counted]
        stages = owner[order][counted]
        np.add.at(sums, stages, gaps)
        np.add.at(counts, stages, 1.0)
    turnovers = []
    for tasks, total, count in zip(arrays, sums, counts, strict=True):
        typical = float(np.median(tasks["finish_s"] - tasks["launch_s"])) if len(tasks) else 0.0
        mean = float(total / count) if count else 0.0
        turnovers.append(float(np.clip(mean, -0.5 * typical, 2.0 * typical + 0.1)))
    return turnovers


def _needed(attempt: StageAttempt) -> Mask | None:
    tasks = attempt.tasks
    good = tasks["status"] == SUCCEEDED
    if good.all() and len(np.unique(tasks["partition"])) == len(tasks):
        return None
    if not good.any():
        return None  # a failed attempt ended with its tasks
    needed: Mask = good.copy()
    order = np.argsort(tasks["finish_s"], kind="stable")
    order = order[good[order]]
    _, first = np.unique(tasks["partition"][order], return_index=True)
    needed[:] = False
    needed[order[first]] = True
    return needed


def _first(tasks: np.ndarray, slots: SlotCounts) -> Mask:
    """The first task of each slot: those that their executor launched before any had finished. A
    slot may be given away a little before the finish is recorded, hence at most one a slot."""
    first = np.zeros(len(tasks), dtype=np.bool_)
    for executor in np.unique(tasks["executor"]):
        own = np.flatnonzero(tasks["executor"] == executor)
        own = own[np.argsort(tasks["launch_s"][own], kind="stable")][: slots[executor]]
        every = tasks["executor"] == executor
        first[own] = tasks["launch_s"][own] < tasks["finish_s"][every].min()
    return first


def _readers(attempts: Sequence[StageAttempt]) -> list[bool]:
    """Return whether each stage reads what an earlier one persisted."""
    persisted: set[int] = set()
    readers = []
    for attempt in attempts:
        cached = {rdd.id for rdd in attempt.rdds if rdd.persisted or rdd.cached_partitions}
        readers.append(bool(cached & persisted))
        persisted |= cached
    return readers


def _kinds(attempts: Sequence[StageAttempt], readers: Sequence[bool]) -> list[str]:
    """The names of each stage's RDDs, and whether it reads what an earlier one persisted. A stage
    whose RDDs are unknown is of a kind of its own."""
    kinds = []
    for number, (attempt, reads) in enumerate(zip(attempts, readers, strict=True)):
        names = sorted(rdd.name for rdd in attempt.rdds) or [f"stage {number}"]
        kinds.append(" ".join([*names, "cached"] if reads else names))
    return kinds


def _first_together(attempts: Sequence[StageAttempt], slots: SlotCounts) -> dict[int, Mask]:
    """Find first tasks as ``_first`` does, in several stages together, by the attempt's id."""
    together = np.concatenate([attempt.tasks for attempt in attempts])
    first = _first(together, slots)
    ends = np.cumsum([len(attempt.tasks) for attempt in attempts])[:-1]
    return {id(attempt): own for attempt, own in zip(attempts, np.split(first, ends), strict=True)}


def _first_of_kinds(
    attempts: Sequence[StageAttempt], kinds: Sequence[str], slots: SlotCounts
) -> dict[int, Mask]:
    together: dict[str, list[StageAttempt]] = {}
    for attempt, kind in zip(attempts, kinds, strict=True):
        together.setdefault(kind, []).append(attempt)
    first: dict[int, Mask] = {}
    for alike in together.values():
        first |= _first_together(alike, slots)
    return first


def _aparts(
    application: Application,
    attempts: Sequence[StageAttempt],
    cluster: Cluster,
    slots: Sequence[int],
) -> dict[int, Apart]:
    """The resource profiles of stages, but for the default one."""
    executors = application.executors
    aparts = {}
    for profile in {attempt.resource_profile for attempt in attempts} - {0}:
        own = [place for place, each in enumerate(executors) if each.resource_profile == profile]
        named = [each for each in application.resource_profiles if each.id == profile]
        if not own and not named:
            continue
        cores = named[0].executor_cores if named else None
        slots_each = (cores or cluster.cores) // profile_cpus(application, profile)
        at_once = None
        if own:
            at_once = most_at_once([executors[place] for place in own], [slots[k] for k in own])
        aparts[profile] = Apart(profile, max(int(slots_each), 1), at_once or None)
    return aparts
