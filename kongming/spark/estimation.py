"""Estimates of one application at many sizes: time, cost, and what limits it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kongming.processes.pool import available_cpus, in_order
from kongming.quantities import count as counted
from kongming.quantities import per_cent
from kongming.records.errors import CannotAnswerError, ExtrapolationError, InputError
from kongming.spark.application import Application
from kongming.spark.gaps import failed_jobs, gaps, paused
from kongming.spark.history import Residual
from kongming.spark.model.baselines import ConstantLengths, Linear
from kongming.spark.model.cluster import Cluster, Dynamic, asked_cluster
from kongming.spark.model.corrections.correction import Change
from kongming.spark.model.corrections.growth import Growth
from kongming.spark.model.corrections.input_growth import InputGrowth
from kongming.spark.model.critical_path import critical_path_s
from kongming.spark.model.executors import core_remarks, other_cores_share
from kongming.spark.model.groups import job_groups
from kongming.spark.model.intervals import (
    USUAL,
    Uncertainty,
    factor,
    probability_within,
    task_deviation,
)
from kongming.spark.model.pipeline import Corrected, Pipeline, arrived
from kongming.spark.model.replay import Replayed, replay
from kongming.spark.model.workload import Workload, workload_of
from kongming.spark.sample_ratio import recorded_ratio, warning

HOUR_S = 3600.0

MOST_CORES = 250_000
"""Cores of a cluster above which none is asked for; a replay keeps each slot."""

FAR = 4.0
"""Times the recorded slots, or its inverse, beyond which an estimate extrapolates."""

UNEXPLAINED = 0.08
"""Error of the replay of the recorded size above which the log does not explain its own time."""

MIXED_SHARE = 0.05
"""Share of the slot-seconds of executors of other cores above which the recorded run is none of
executors of one size."""

MANY_RUNS = 2
"""Further runs from which on they say how uncertain sizes between them are."""

FAR_OFF = 10.0
"""Times its replay, or its inverse, that a further run may take before that is a reason: minutes or
milliseconds that are given for seconds differ by more, and no scaling does."""

MUCH_CORRECTED = 2.0
"""Times that the corrections lengthen a run beyond which an estimate extrapolates."""

MANY_TASKS = 1_000_000
"""Tasks to be replayed above which further processes are worth their start."""


Price = float | Mapping[int, float]
"""Of one executor and hour: of any, or by its cores."""


@dataclass(frozen=True, slots=True)
class Size:
    """Executors of ``cores`` and ``memory_bytes`` each; None: as recorded."""

    executors: int
    cores: int | None = None
    memory_bytes: float | None = None
    dynamic: Dynamic | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """One SQL execution at one size."""

    execution: int
    median_s: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds at one size; ``deviation`` is of the log of the time, ``machine_s`` executors times
    seconds, ``corrections`` the seconds that each added to constant lengths in the replay."""

    executors: int
    cores: int
    median_s: float
    deviation: float
    level: float
    baselines: dict[str, float]
    corrections: dict[str, float]
    machine_s: float
    utilisation: float
    reasons: tuple[str, ...]
    extrapolating: bool
    remarks: tuple[str, ...]
    executions: tuple[Span, ...]

    @property
    def lower_s(self) -> float:
        return self.median_s / factor(self.deviation, self.level)

    @property
    def upper_s(self) -> float:
        return self.median_s * factor(self.deviation, self.level)

    @property
    def runtime_s(self) -> dict[str, float]:
        return {
            "median": self.median_s,
            "lower": self.lower_s,
            "upper": self.upper_s,
            "level": self.level,
        }

    def probability(self, seconds: float) -> float:
        """Return the probability that the run ends within this time."""
        if seconds <= 0.0:
            return 0.0
        return probability_within(self.deviation, math.log(seconds / max(self.median_s, 1e-9)))

    def cost(self, price_per_hour: Price) -> float:
        """Money, at a price for one executor and hour."""
        if isinstance(price_per_hour, Mapping):
            price_per_hour = price_per_hour[self.cores]
        return self.machine_s / HOUR_S * price_per_hour


class Estimator:
    """Answers for one application. ``paper``: the thesis' model, constant lengths and no more.
    ``ratio``: the share of the input that it had, if not as its log says.

    Raises:
        CannotAnswerError: see ``workload_of``.
    """

    def __init__(
        self,
        application: Application,
        *,
        paper: bool = False,
        without: Collection[str] = (),
        growth: Growth | None = None,
        inputs: InputGrowth | None = None,
        residual: Residual | None = None,
        ratio: float | None = None,
        level: float = 0.9,
        strict: bool = False,
        uncertainty: Uncertainty = USUAL,
    ) -> None:
        if not 0.0 < level < 1.0:
            raise InputError("is out of range.", field="level", value=level, allowed="0 to 1")
        self.workload: Workload = workload_of(application)
        self.pipeline = Pipeline(self.workload, without, growth, inputs)
        self.inputs = inputs
        self.growth = growth
        self.ratio = recorded_ratio(application) if ratio is None else ratio
        self.paper, self.level, self.strict = paper, level, strict
        self.uncertainty = uncertainty
        self._constant = ConstantLengths(self.workload)
        self._linear = Linear(self.workload)
        recorded = self.workload.cluster
        self._mixed_share = (
            0.0
            if recorded.mixed is None
            else other_cores_share(application, recorded.cores, self.workload.measured_s)
        )
        self.refused: list[str] = []
        self._replayed_s: float | None = None
        self.residual = residual

    @property
    def residual(self) -> Residual | None:
        """Return what further runs teach, and the run of the log itself, which is set with them;
        not that of a sample, which is of another input."""
        return self._residual

    @residual.setter
    def residual(self, further: Residual | None) -> None:
        self._far_off = _far_off(further)
        if further is not None and self.inputs is None:
            further = further.adding(0.0, -self.self_check())
        self._residual = further

    def input_warnings(self) -> list[str]:
        """Return what the run does not tell of all data, if it was on a sample of them."""
        sentence = warning(self.ratio) if self.inputs is None else None
        return [] if sentence is None else [sentence]

    def replayed_s(self) -> float:
        """Seconds of the recorded size when it is replayed as any other: the self-check."""
        if self._replayed_s is None:
            recorded = self.workload.cluster
            if self.paper:
                self._replayed_s = self._constant.seconds(recorded)
            elif self.inputs is not None:  # the answer is of another input than the log
                self._replayed_s = replay(self.workload, recorded).end_s
            else:
                self._replayed_s = self.pipeline.replay(recorded).replayed.end_s
        return self._replayed_s

    @property
    def unexplained(self) -> float:
        """Relative error of the recorded size when it is replayed."""
        measured = self.workload.measured_s
        return abs(self.replayed_s() / measured - 1.0) if measured > 0.0 else 0.0

    def self_check(self) -> float:
        """The log of replayed over measured at the recorded size."""
        measured, replayed = self.workload.measured_s, self.replayed_s()
        return math.log(replayed / measured) if measured > 0.0 and replayed > 0.0 else 0.0

    def critical_path_s(self) -> float:
        """Seconds that the model takes on endless slots with the tasks' lengths as recorded."""
        return self._constant.critical_path_s() if self.paper else critical_path_s(self.workload)

    def cluster(self, size: Size) -> Cluster:
        """Return the cluster of a size. Raises InputError: no executor, no core, or too many."""
        for name, value in (("executors", size.executors), ("cores", size.cores)):
            if value is not None and value < 1:
                raise InputError("is out of range.", field=name, value=value, allowed="1 or more")
        cores = size.executors * (size.cores or self.workload.cluster.cores)
        if cores > MOST_CORES:
            raise InputError(
                f"are {cores} cores in all.",
                field="executors",
                value=size.executors,
                allowed=f"up to {MOST_CORES} cores",
            )
        cluster = asked_cluster(
            self.workload.cluster, size.executors, size.cores, size.memory_bytes
        )
        return cluster if size.dynamic is None else replace(cluster, dynamic=size.dynamic)

    def estimate(self, size: Size, *, strict: bool | None = None) -> Estimate:
        """Estimate one size; ``strict`` instead of the estimator's own.

        Raises:
            InputError: no executor, no core, or too many.
            CannotAnswerError: no slot, or a barrier that does not fit.
            ExtrapolationError: under ``strict``, the size lies outside what the log can tell.
        """
        cluster = self.cluster(size)
        constant_s = self._constant.seconds(cluster)
        baselines = {
            "constant_durations": constant_s,
            "linear": self._linear.seconds(cluster),
        }
        corrected = None if self.paper else self.pipeline.replay(cluster)
        replayed = replay(self.workload, cluster) if corrected is None else corrected.replayed
        there = arrived(cluster, replayed)
        ratio = there.slots / self.workload.cluster.slots
        reasons = self._reasons(there, ratio)
        remarks: list[str] = []
        if corrected is None:
            median, deviation = constant_s, self._deviation(ratio, 0.0, 0.0)
            corrections: dict[str, float] = {}
            busy = sum(float(stage.lengths.sum()) for stage in self.workload.stages)
        else:
            median = replayed.end_s
            corrections, remarks = dict(corrected.contributions), corrected.remarks
            reasons += _much_corrected(corrected)
            changed = math.log(max(median, 1e-9) / max(corrected.constant_s, 1e-9))
            own = task_deviation(self.workload, cluster, corrected.lengths)
            deviation = self._deviation(ratio, changed, own)
            busy = replayed.busy_s
            if self.residual is not None:
                before = median
                median *= math.exp(self.residual.at(math.log2(ratio)))
                corrections["runs"] = median - before
        if reasons and (self.strict if strict is None else strict):
            raise ExtrapolationError(
                f"{counted(cluster.executors, 'executor')} of {counted(cluster.cores, 'core')}: "
                f"{'; '.join(reasons)}.",
                hint="Record a run nearer to it, or estimate without --strict.",
            )
        stretch = median / max(replayed.end_s, 1e-9)
        machine_s = replayed.executor_s * stretch
        held = machine_s * cluster.slots_each
        return Estimate(
            executors=size.executors,
            cores=cluster.cores,
            median_s=median,
            deviation=deviation,
            level=self.level,
            baselines=baselines,
            corrections=corrections,
            machine_s=machine_s,
            utilisation=min(busy / held, 1.0) if held > 0.0 else 0.0,
            reasons=tuple(reasons),
            extrapolating=bool(reasons),
            remarks=tuple(remarks),
            executions=self._executions(replayed, stretch),
        )

    def estimates(self, sizes: Sequence[Size], jobs: int | None = None) -> list[Estimate]:
        """Estimate several sizes; many tasks in several processes. Sizes without an answer are left
        out and named in ``refused``.

        Raises:
            CannotAnswerError: no size has an answer, or under ``strict`` one has none.
        """
        if jobs is None:
            many = self.workload.tasks * len(sizes) > MANY_TASKS
            jobs = available_cpus() if many else 1
        self.replayed_s()  # once, for all processes
        # A share of the sizes for each process: the tasks are sent once, not with every size.
        shares = [sizes[k::jobs] for k in range(jobs) if sizes[k::jobs]]
        outcomes: list[Estimate | _Refusal | None] = [None] * len(sizes)
        for k, (_, own) in enumerate(in_order(partial(_estimates, self), shares, len(shares))):
            outcomes[k :: len(shares)] = own
        answers = [each for each in outcomes if isinstance(each, Estimate)]
        refusals = [each for each in outcomes if isinstance(each, _Refusal)]
        self.refused = [each.message for each in refusals]
        if refusals and (self.strict or not answers):
            hint = refusals[0].hint or "Ask for other sizes: --executors."
            raise CannotAnswerError(refusals[0].message, hint=hint)
        return answers

    def _deviation(self, ratio: float, changed: float, own: float) -> float:
        uncertainty = self.uncertainty
        if self.growth is not None and self.growth.scatter is not None:
            uncertainty = replace(uncertainty, doubling=max(0.01, self.growth.scatter))
        residual = self.residual
        of_log = 1 if self.inputs is None else 0
        if residual is not None and len(residual.observations) >= MANY_RUNS + of_log:
            # Between sizes that have been measured only what the runs leave is uncertain.
            doublings = math.log2(ratio)
            beyond = residual.beyond(doublings)
            share = beyond / max(beyond, abs(doublings)) if beyond else 0.0
            near = max(residual.deviation, uncertainty.noise)
            measured = replace(uncertainty, noise=near)
            return measured.deviation(2.0**beyond, share * changed, own)
        left = 0.0 if residual is None else residual.deviation
        # What the log does not explain at its own size is not explained at others either.
        return math.hypot(uncertainty.deviation(ratio, changed, own), self.self_check(), left)

    def _reasons(self, cluster: Cluster, ratio: float) -> list[str]:
        reasons = []
        if self.unexplained > UNEXPLAINED:
            off = per_cent(100.0 * self.unexplained, ".0f")
            reasons.append(f"the replay of the recorded size is {off} off")
        if not 1.0 / FAR <= ratio <= FAR:
            times = max(ratio, 1.0 / ratio)
            where = "more" if ratio > 1.0 else "fewer"
            reasons.append(f"{times:.3g} times {where} slots than the recorded run had")
        reasons += self.pipeline.cliffs(Change(self.workload.cluster, cluster))
        if self.inputs is not None and self.inputs.times > FAR:
            reasons.append(f"{self.inputs.times:.3g} times the input of the recorded sample")
        reasons += () if self.inputs is None else self.inputs.reasons
        reasons += self._far_off
        mixed = self.workload.cluster.mixed
        if mixed is not None and self._mixed_share > MIXED_SHARE:
            reasons.append(mixed.sentence(cluster.cores))
        application = self.workload.application
        reasons += [*gaps(application), *paused(application), *failed_jobs(application)]
        if not application.complete:
            reasons.append("the log has no end of the application: what came after is not counted")
        return reasons

    def _executions(self, replayed: Replayed, stretch: float) -> tuple[Span, ...]:
        spans = []
        for group in job_groups([work.job for work in self.workload.jobs]):
            if group.execution is None:
                continue
            begin = min(float(replayed.job_spans[place, 0]) for place in group.jobs)
            end = max(float(replayed.job_spans[place, 1]) for place in group.jobs)
            spans.append(Span(group.execution, (end - begin) * stretch))
        return tuple(spans)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Reason why a size has no answer, and the way out."""

    message: str
    hint: str | None


def _estimates(estimator: Estimator, sizes: Sequence[Size]) -> list[Estimate | _Refusal]:
    outcomes: list[Estimate | _Refusal] = []
    for size in sizes:
        try:
            outcomes.append(estimator.estimate(size))
        except ExtrapolationError:
            raise
        except CannotAnswerError as error:
            message = f"{counted(size.executors, 'executor')}: {error.message}"
            outcomes.append(_Refusal(message, error.hint))
    return outcomes


def _far_off(further: Residual | None) -> list[str]:
    """A reason where a further run took far longer or shorter than its replay."""
    logs = [] if further is None else [log for _, log in further.observations]
    worst = max(logs, key=abs, default=0.0)
    if abs(worst) <= math.log(FAR_OFF):
        return []
    times = float(f"{math.exp(worst):.3g}")
    return [f"a further run took {times:g} times as long as its replay"]


def _much_corrected(corrected: Corrected) -> list[str]:
    """A reason where the answer is more of the corrections than of the log; what another input adds
    is no correction of it."""
    plain_s = corrected.constant_s + corrected.contributions.get("input", 0.0)
    times = corrected.replayed.end_s / max(plain_s, 1e-9)
    if times <= MUCH_CORRECTED:
        return []
    return [f"corrections make it {times:.3g} times as long as the tasks' recorded lengths do"]


def _profiles(workload: Workload) -> list[str]:
    """A sentence on executors of other resource profiles, where stages have some."""
    profiles = {stage.apart.profile for stage in workload.stages if stage.apart and stage.elsewhere}
    own = sum(each.resource_profile in profiles for each in workload.application.executors)
    if not own:
        return []
    return [
        f"{counted(own, 'executor')} of other resource profiles than the default one are as "
        "recorded at every size, and not in its costs"
    ]


def warnings_of(estimator: Estimator, estimates: Sequence[Estimate]) -> list[str]:
    """Sentences about the log and the answer as a whole: a sample's limits and the log's own
    findings first."""
    workload = estimator.workload
    warnings = estimator.input_warnings()
    warnings += [finding.message for finding in workload.application.findings]
    if estimator.unexplained > UNEXPLAINED:
        off = per_cent(100.0 * estimator.unexplained, ".0f")
        warnings.append(
            f"the replay of the recorded size is {off} off: the log does not explain its own time, "
            "and other sizes are as uncertain"
        )
    warnings += core_remarks(workload.application)
    warnings += _profiles(workload)
    mixed = workload.cluster.mixed
    if mixed is not None:
        warnings += [mixed.sentence(cores) for cores in sorted({each.cores for each in estimates})]
    warnings += estimator.refused
    warnings += of_sizes((remark, each.executors) for each in estimates for remark in each.remarks)
    return list(dict.fromkeys(warnings))


def of_sizes(sentences: Iterable[tuple[str, int]]) -> list[str]:
    """Return each sentence with the range of executors that it is about."""
    sizes: dict[str, list[int]] = {}
    for sentence, executors in sentences:
        sizes.setdefault(sentence, []).append(executors)
    named = []
    for sentence, counts in sizes.items():
        low, high = min(counts), max(counts)
        where = counted(high, "executor")
        named.append(f"{where if low == high else f'{low} to {where}'}: {sentence}")
    return named
