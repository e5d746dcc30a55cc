"""All corrections in their order, and what each contributes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kongming.arrays import Floats
from kongming.records.errors import UnknownNameError
from kongming.spark.model.cluster import Cluster
from kongming.spark.model.corrections.contention import learn_contention
from kongming.spark.model.corrections.correction import Change, Correction
from kongming.spark.model.corrections.first_tasks import learn_first_tasks
from kongming.spark.model.corrections.growth import Growth
from kongming.spark.model.corrections.input_growth import InputGrowth
from kongming.spark.model.corrections.launch_rate import LaunchRate, learn_launch_rate
from kongming.spark.model.corrections.memory import Memory, learn_memory
from kongming.spark.model.corrections.shuffle import Shuffle
from kongming.spark.model.corrections.spill import Spill, learn_spill
from kongming.spark.model.corrections.task_counts import learn_task_counts
from kongming.spark.model.corrections.warm_up import learn_warm_up
from kongming.spark.model.replay import Replayed, replay
from kongming.spark.model.workload import Workload

NAMES = (
    "task-counts",
    "first-tasks",
    "warm-up",
    "input",
    "memory",
    "spill",
    "shuffle",
    "contention",
    "launch-rate",
    "history",
)

EXACT_TASKS = 20_000
"""Tasks up to which each correction's contribution is a replay of its own; above that it is its
share of the change in task seconds."""


@dataclass(frozen=True, eq=False, slots=True)
class Corrected:
    """A replay with corrections. ``constant_s``: without any; ``contributions``: seconds of each,
    which add up to the difference; ``remarks``: sentences for a person."""

    replayed: Replayed
    lengths: list[Floats]
    constant_s: float
    contributions: dict[str, float]
    remarks: list[str]


class Pipeline:
    """The corrections that one log teaches; ``growth`` comes from other logs."""

    def __init__(
        self,
        workload: Workload,
        without: Collection[str] = (),
        growth: Growth | None = None,
        inputs: InputGrowth | None = None,
    ) -> None:
        for name in without:
            if name not in NAMES:
                raise UnknownNameError("correction", name, NAMES)
        self.workload = workload
        first = None if "first-tasks" in without else learn_first_tasks(workload)
        memory = learn_memory(workload, first)
        learned: dict[str, Correction | None] = {
            "task-counts": learn_task_counts(workload, first),
            "first-tasks": first,
            "warm-up": None if "warm-up" in without else learn_warm_up(workload, first),
            "input": inputs,
            "memory": replace(memory, grown=1.0 if inputs is None else inputs.cached),
            "spill": learn_spill(workload, memory),
            "shuffle": Shuffle(workload),
            "contention": learn_contention(workload),
            "launch-rate": learn_launch_rate(workload),
            "history": growth,
        }
        self.corrections: tuple[Correction, ...] = tuple(
            correction
            for name in NAMES
            if name not in without and (correction := learned[name]) is not None
        )

    def cliffs(self, change: Change) -> list[str]:
        """Return sentences on the memory that suffices at one of the two sizes only."""
        return [
            cliff
            for each in self.corrections
            if isinstance(each, Memory | Spill)
            for cliff in each.cliffs(change)
        ]

    def _with_fixed(self, corrected: list[Floats], lengths: list[Floats]) -> list[Floats]:
        """Stages whose executors no size changes are as long as before."""
        return [
            own if stage.elsewhere else new
            for stage, new, own in zip(self.workload.stages, corrected, lengths, strict=True)
        ]

    def replay(self, cluster: Cluster) -> Corrected:
        """Replay on a cluster, with what each correction contributes."""
        lengths: list[Floats] = [stage.lengths for stage in self.workload.stages]
        exact = self.workload.tasks <= EXACT_TASKS
        current = replay(self.workload, cluster, lengths)
        constant_s = current.end_s
        change = Change(self.workload.cluster, cluster)
        if cluster.dynamic is not None:
            present = tuple(current.stage_executors.tolist())
            change = Change(change.recorded, arrived(cluster, current), present)
        contributions: dict[str, float] = {}
        work: dict[str, float] = {}
        interval, driver = 0.0, 1.0
        remarks: list[str] = []
        for correction in self.corrections:
            corrected = correction.apply(lengths, change)
            if correction.name != "input":
                corrected = self._with_fixed(corrected, lengths)
            before = interval, driver
            if isinstance(correction, LaunchRate):
                interval = correction.interval(change)
            elif isinstance(correction, Growth):
                driver = correction.driver_factor(change)
            same = before == (interval, driver) and all(
                new is old for new, old in zip(corrected, lengths, strict=True)
            )
            remarks += correction.remarks(change)
            contributions[correction.name] = work[correction.name] = 0.0
            if same:
                continue
            if exact:
                now = replay(
                    self.workload,
                    cluster,
                    corrected,
                    driver_factor=driver,
                    launch_interval_s=interval,
                )
                contributions[correction.name] = float(now.end_s - current.end_s)
                current = now
            else:
                work[correction.name] = _total(corrected) - _total(lengths)
            lengths = corrected
        if not exact:
            current = replay(
                self.workload, cluster, lengths, driver_factor=driver, launch_interval_s=interval
            )
            contributions = _shares(work, current.end_s - constant_s)
        return Corrected(current, lengths, constant_s, contributions, remarks)


def arrived(cluster: Cluster, replayed: Replayed) -> Cluster:
    """Return the cluster with the executors that came: under dynamic allocation not all may."""
    if cluster.dynamic is None:
        return cluster
    return replace(cluster, executors=max(replayed.executors, 1))


def _total(lengths: Sequence[Floats]) -> float:
    return sum(float(own.sum()) for own in lengths)


def _shares(work: dict[str, float], difference_s: float) -> dict[str, float]:
    total = sum(abs(change) for change in work.values())
    if not total:
        return dict.fromkeys(work, 0.0)
    signed = sum(work.values())
    if abs(signed) < 0.1 * total:  # they cancel each other: by size alone
        return {name: float(difference_s * abs(change) / total) for name, change in work.items()}
    return {name: float(difference_s * change / signed) for name, change in work.items()}
