"""Scale models and their predictions: runtime, interval, extrapolation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kongming.arrays import Floats
from kongming.quantities import per_cent
from kongming.records.errors import CannotAnswerError, InputError
from kongming.scale.fit import low_end
from kongming.scale.fit.cliffs import Edge
from kongming.scale.fit.context_spread import Answer, ContextSpread, Limited
from kongming.scale.fit.spark_replay import ReplayFit
from kongming.scale.fit.spread import interval_factor, probability_within
from kongming.scale.fit.stack import StackFit
from kongming.scale.fit.stack_spread import StackSpread
from kongming.scale.fit.validation import Fit
from kongming.scale.points import (
    ITERATIONS,
    MACHINES,
    SCALES,
    SECONDS,
    Configuration,
    Points,
    Runs,
    check_within,
)

SLACK = 1e-9
ONCE = 0.3
BOUND_AT = 0.9
"""Probability of the interval that ends where ``ONCE`` of a run's time is spent once."""

DRIFT = 0.05
"""Deviation (in logs) of the time of an iteration per distance (in logs) beyond those that were
run."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """(lowest, highest) trained value of each quantity; ``load`` is scale per machine,
    ``iterations`` None in files that do not know them."""

    machines: tuple[float, float]
    scale: tuple[float, float]
    load: tuple[float, float]
    iterations: tuple[float, float] | None = None

    @classmethod
    def of(cls, runs: Runs) -> Ranges:
        points = runs.points
        machines, scale, load, iterations = (
            (float(values.min()), float(values.max()))
            for values in (points.machines, points.scale, points.load, points.iterations)
        )
        return cls(machines, scale, load, iterations)

    def document(self) -> dict[str, list[float]]:
        """Return the ranges as JSON types."""
        document = {"machines": [*self.machines], "scale": [*self.scale], "load": [*self.load]}
        if self.iterations is not None:
            document["iterations"] = [*self.iterations]
        return document

    def beyond(self, at: Configuration, iterations: float = 1.0) -> tuple[str, ...]:
        """Return a sentence for each quantity that lies outside its trained range."""
        quantities = [
            ("machines", at.machines, self.machines),
            ("scale", at.scale, self.scale),
            ("scale per machine", at.scale / at.machines, self.load),
        ]
        if self.iterations is not None:
            quantities.append(("iterations", iterations, self.iterations))
        return tuple(
            f"{name} {value:g} is {'above' if value > highest else 'below'} the trained "
            f"{lowest:g} to {highest:g} ({max(value / highest, lowest / value):.3g} times)"
            for name, value, (lowest, highest) in quantities
            if value > highest * (1.0 + SLACK) or value < lowest * (1.0 - SLACK)
        )

    def iterations_deviations(self, iterations: float, freedom: float) -> tuple[float, float]:
        """Return the standard deviations (of logs) below and above the median that iterations
        outside of those that were run add. What a run costs once is at most ``ONCE`` of its time
        there, or a third of that where runs differ in their iterations and tell it: fewer
        iterations may take longer than their share, more may take less, and an interval at
        ``BOUND_AT`` ends there. Iterations also change with time, both ways."""
        if self.iterations is None:
            return 0.0, 0.0
        low, high = self.iterations
        end = min(max(iterations, low), high)
        once = ONCE if low == high else ONCE / 3.0
        distance = float(np.log(iterations / end))
        bound = float(np.log1p(once * np.expm1(-distance)))
        size = abs(bound) / float(np.log(interval_factor(1.0, freedom, BOUND_AT)))
        drift = DRIFT * abs(distance)
        wide = float(np.hypot(size, drift))
        return (wide, drift) if bound < 0.0 else (drift, wide)


@dataclass(frozen=True, slots=True)
class ScalePrediction:
    """Predicted seconds: ``median`` (that of times with enough memory where it may not suffice),
    and the interval that holds the runtime with probability ``level``. ``reasons`` explain why it
    is ``extrapolating``; ``deviation`` is the standard deviation of the log of the time, ``below``
    that of times below the median where they differ (None: they do not)."""

    at: Configuration
    iterations: float
    median: float
    lower: float
    upper: float
    level: float
    reasons: tuple[str, ...]
    deviation: float
    below: float | None = None

    @property
    def deviation_below(self) -> float:
        return self.deviation if self.below is None else self.below

    @property
    def extrapolating(self) -> bool:
        return bool(self.reasons)

    @property
    def runtime_s(self) -> dict[str, float]:
        return {
            "median": self.median,
            "lower": self.lower,
            "upper": self.upper,
            "level": self.level,
        }


class Uncertainty(Protocol):
    """Uncertainty of a run, how far it may be from its prediction, in logs."""

    @property
    def freedom(self) -> float: ...

    @property
    def coverage(self) -> float | None: ...

    @property
    def covered(self) -> int: ...

    def deviation(self, fit: Fit, points: Points, *, beyond: bool) -> Floats:
        """(n,) standard deviation of the log of the time."""

    def document(self) -> dict[str, Any]:
        """Return it as JSON types."""


@dataclass(frozen=True, eq=False, slots=True)
class ScaleModel:
    """Model of one job on one machine type. ``report`` is the fitting report (errors, baselines,
    warnings); ``edge`` a memory cliff beyond which nothing is predicted; ``memory_load`` the scale
    per machine that fits according to the user; ``iterated``: times are per iteration. ``context``
    has the columns' values in a model over contexts; ``notes`` are reasons why every prediction
    extrapolates."""

    fit: Fit
    spread: Uncertainty
    ranges: Ranges
    report: Mapping[str, Any]
    iterated: bool = False
    edge: Edge | None = None
    memory_load: float | None = None
    group: str | None = None
    machine_type: str | None = None
    context: Mapping[str, float | str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        names = [name for name in (self.group, self.machine_type) if name is not None]
        return " on ".join(names) if names else "the job"

    @property
    def fewest_machines(self) -> float | None:
        """Fewest machines whose memory is known to suffice; None if that is known of other inputs
        only."""
        if isinstance(self.fit, Limited):
            return self.fit.fewest_machines()
        return self.ranges.machines[0]

    def check(self, at: Configuration) -> None:
        """Raise CannotAnswerError for a configuration beyond the memory limit of the model."""
        load = at.scale / at.machines
        if self.edge is not None and load > self.edge.inside * (1.0 + SLACK):
            raise CannotAnswerError(
                f"{at} puts a scale of {load:g} on each machine. The model is fitted up to "
                f"{self.edge.inside:g}; at {self.edge.beyond:g} the job took "
                f"{self.edge.times:.1f} times the predicted time, as when memory is full.",
                hint="Use more machines, or run three configurations beyond that and fit again.",
            )
        if self.memory_load is not None and load > self.memory_load * (1.0 + SLACK):
            raise CannotAnswerError(
                f"{at} puts a scale of {load:g} on each machine; only {self.memory_load:g} fits "
                "into memory, according to --memory-load when the model was fitted.",
                hint="Use more machines.",
            )

    def seconds(self, points: Points) -> Floats:
        """(n,) median seconds of whole runs."""
        return np.asarray(self.fit.predict(points) * points.iterations, dtype=np.float64)

    def predict(
        self, at: Configuration, *, iterations: float | None = None, level: float = 0.9
    ) -> ScalePrediction:
        """Predict the runtime of one run.

        Raises:
            InputError: a value is out of range, or iterations are missing.
            CannotAnswerError: the configuration lies beyond a memory cliff, or so far from all
                runs that its time would be none that a run takes.
        """
        self._check_question(at, iterations, level)
        self.check(at)
        points = Points.of([at], 1.0 if iterations is None else iterations)
        turns = float(points.iterations[0])
        reasons = (*self.notes, *self.ranges.beyond(at, turns))
        answer: Answer | None = None
        cliff = self._cliff(at, turns)
        if isinstance(self.fit, StackFit) and isinstance(self.spread, StackSpread):
            logs, parts = self.fit.answer(points)
            median = float(np.exp(logs[0]) * points.iterations[0])
            deviation = float(self.spread.of(parts, cliff=cliff.chance > 0.0)[0])
        elif isinstance(self.fit, Limited) and isinstance(self.spread, ContextSpread):
            answer = self.fit.answer(points)
            median = float(answer.seconds[0] * points.iterations[0])
            deviation = float(self.spread.of(answer)[0])
        else:
            median = float(self.seconds(points)[0])
            deviation = float(self.spread.deviation(self.fit, points, beyond=bool(reasons))[0])
        if isinstance(self.fit, ReplayFit):
            # Its deviation is of these already.
            reasons = (*reasons, *self.fit.reasons_at(at.machines))
        if not SECONDS[0] <= median <= SECONDS[1]:
            raise CannotAnswerError(
                f"{at} would take {median:.3g} s, which no run does ({SECONDS[0]:g} to "
                f"{SECONDS[1]:g} s): the runs are too far away to tell.",
                hint="Run experiments nearer to it.",
            )
        freedom = self.spread.freedom
        apart = self.ranges.iterations_deviations(turns, freedom)
        below, deviation = (float(np.hypot(deviation, each)) for each in apart)
        lower = median / interval_factor(below, freedom, level)
        upper = median * interval_factor(deviation, freedom, level)
        if answer is not None:
            # What the runs limit is the median; a run differs from that by its noise.
            noise = [
                interval_factor(float(np.hypot(answer.noise, each)), freedom, level)
                for each in apart
            ]
            least = float(answer.least[0] * points.iterations[0]) / noise[0]
            most = float(answer.most[0] * points.iterations[0]) * noise[1]
            if lower < least or upper > most:
                lower, upper = max(lower, least), min(upper, most)
                reasons = (*reasons, "the interval is cut near the times that were measured")
        if cliff.chance > 0.0:
            upper = max(upper, median * self._upper(deviation, level, cliff))
            suffices = per_cent(100.0 * (1.0 - cliff.chance), ".0f")
            reasons = (
                *reasons,
                f"memory may end {cliff.where} the machines that were run",
                f"the median is the time if memory suffices, as it does to {suffices}",
            )
        return ScalePrediction(
            at=at,
            iterations=float(points.iterations[0]),
            median=median,
            lower=lower,
            upper=upper,
            level=level,
            reasons=reasons,
            deviation=deviation,
            below=None if below == deviation else below,
        )

    def probability(self, prediction: ScalePrediction, seconds: float) -> float:
        """Probability that the run ends within ``seconds``."""
        if seconds <= 0.0:
            return 0.0
        log_ratio = float(np.log(seconds / prediction.median))
        cliff = self._cliff(prediction.at, prediction.iterations)
        deviation, freedom = prediction.deviation, self.spread.freedom
        if log_ratio < 0.0:
            deviation = prediction.deviation_below
        if cliff.chance > 0.0:
            return low_end.probability(deviation, freedom, log_ratio, cliff)
        return probability_within(deviation, freedom, log_ratio)

    def _chance_of_cliff(self, at: Configuration) -> float:
        """Probability that memory does not suffice where fewer machines than ever had more to hold
        than ever; 0 where it is known that it does."""
        below = self.ranges.machines[0] / at.machines
        beyond = min(below, at.scale / at.machines / self.ranges.load[1])
        if self.memory_load is not None:
            return 0.0
        meets = beyond > 1.0 and isinstance(self.fit, StackFit | Limited)
        chance = low_end.chance_of_cliff(float(np.log(beyond))) if meets else 0.0
        own = self.fit.chance_of_cliff(at) if isinstance(self.fit, Limited) else 0.0
        return max(chance, own)

    def _cliff(self, at: Configuration, iterations: float) -> low_end.Cliff:
        """Return the chance of a cliff below the machines that were run, or between those of which
        the fewer took far more than their share of the work."""
        chance = self._chance_of_cliff(at)
        if chance > 0.0 or self.memory_load is not None or not isinstance(self.fit, StackFit):
            return low_end.Cliff(chance)
        if self.fit.differs_in_iterations:
            # What the set-up takes of an iteration would be taken for memory.
            return low_end.Cliff(0.0)
        counts = self.fit.counts_at(at.scale)
        ratios = counts / at.machines
        fewer, more = counts[ratios < 1.0 - SLACK], counts[ratios > 1.0 + SLACK]
        if not (len(fewer) and len(more)) or len(fewer) + len(more) < len(counts):
            return low_end.Cliff(0.0)
        low, high = float(fewer.max()), float(more.min())
        points = Points.of([Configuration(low, at.scale), at], iterations)
        work = self.fit.predict(points) * points.machines
        return low_end.between(at.machines, low, high, float(work[0] / work[1]))

    def _upper(self, deviation: float, level: float, cliff: low_end.Cliff) -> float:
        freedom = self.spread.freedom
        usual = float(np.log(interval_factor(deviation, freedom, level)))
        return float(np.exp(low_end.upper(deviation, freedom, level, cliff, usual)))

    def _check_question(self, at: Configuration, iterations: float | None, level: float) -> None:
        check_within("machines", at.machines, MACHINES)
        check_within("scale", at.scale, SCALES)
        if not 0.0 < level < 1.0:
            raise InputError(
                "is out of range.", field="level", value=level, allowed="between 0 and 1"
            )
        if self.iterated and iterations is None:
            raise InputError(
                "The model predicts one iteration; the number of iterations is missing.",
                field="--iterations",
                hint="Set it: --iterations K",
            )
        if iterations is not None:
            check_within("--iterations", iterations, ITERATIONS)
        if iterations is not None and not self.iterated:
            raise InputError(
                "The model predicts whole runs: its table had no column of iterations.",
                field="--iterations",
                value=iterations,
            )


def warnings_of(models: Sequence[ScaleModel]) -> tuple[str, ...]:
    """Warnings of the fits, each prefixed with its job if there are several fits: the machine types
    of one model over contexts share one, and have its very report."""
    shared = len({id(model.report) for model in models}) <= 1
    texts = [
        str(text) if shared else f"{model.label}: {text}"
        for model in models
        for text in model.report.get("warnings", ())
    ]
    return tuple(dict.fromkeys(texts))
