"""A scale model: the question, the answer, and what the answer does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.dataset import Floats
from kongming.errors import CannotAnswerError, InputError, UnknownNameError
from kongming.scale.cliffs import Edge
from kongming.scale.points import Configuration, Points, Runs
from kongming.scale.spread import Spread
from kongming.scale.tracking import TrackedFile
from kongming.scale.validation import Fit

__all__ = ["Ranges", "ScaleFile", "ScaleModel", "ScalePrediction"]

SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Ranges:
    """(least, most) of what was run; ``load`` is scale per machine."""

    machines: tuple[float, float]
    scale: tuple[float, float]
    load: tuple[float, float]

    @classmethod
    def of(cls, runs: Runs) -> Ranges:
        points = runs.points
        machines, scale, load = (
            (float(values.min()), float(values.max()))
            for values in (points.machines, points.scale, points.load)
        )
        return cls(machines, scale, load)

    def beyond(self, at: Configuration) -> tuple[str, ...]:
        """A sentence for each way in which a configuration lies outside."""
        asked = (
            ("machines", at.machines, self.machines),
            ("scale", at.scale, self.scale),
            ("scale per machine", at.scale / at.machines, self.load),
        )
        return tuple(
            f"{name} {value:g} is {'above' if value > most else 'below'} the trained "
            f"{least:g} to {most:g}"
            for name, value, (least, most) in asked
            if value > most * (1.0 + SLACK) or value < least * (1.0 - SLACK)
        )


@dataclass(frozen=True, slots=True)
class ScalePrediction:
    """Seconds: ``median``, and the interval that holds the runtime with probability ``level``.
    ``reasons`` tell why it is ``extrapolating``; ``deviation`` is of the log of the time."""

    at: Configuration
    iterations: float
    median: float
    lower: float
    upper: float
    level: float
    reasons: tuple[str, ...]
    deviation: float

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


@dataclass(frozen=True, eq=False, slots=True)
class ScaleModel:
    """One job on one machine type. ``report`` is what fitting said of it (errors, baselines,
    warnings); ``edge`` a memory cliff that is not modelled beyond; ``memory_load`` the scale per
    machine that the user says fits; ``iterated``: times are per iteration."""

    fit: Fit
    spread: Spread
    ranges: Ranges
    report: Mapping[str, Any]
    iterated: bool = False
    edge: Edge | None = None
    memory_load: float | None = None
    group: str | None = None
    machine_type: str | None = None

    @property
    def label(self) -> str:
        names = [name for name in (self.group, self.machine_type) if name is not None]
        return " on ".join(names) if names else "the job"

    def check(self, at: Configuration) -> None:
        """Raises CannotAnswerError beyond a memory cliff that the model knows nothing behind."""
        load = at.scale / at.machines
        if self.edge is not None and load > self.edge.inside * (1.0 + SLACK):
            raise CannotAnswerError(
                f"{at} puts a scale of {load:g} on each machine. Up to {self.edge.inside:g} was "
                f"run; at {self.edge.beyond:g} the job took {self.edge.times:.1f} times what the "
                "model foretells, as when memory is full.",
                hint="Ask for more machines, or run three configurations beyond that and fit "
                "again.",
            )
        if self.memory_load is not None and load > self.memory_load * (1.0 + SLACK):
            raise CannotAnswerError(
                f"{at} puts a scale of {load:g} on each machine; {self.memory_load:g} fits into "
                "memory, as was said at fitting.",
                hint="Ask for more machines.",
            )

    def seconds(self, points: Points) -> Floats:
        """(n,) median seconds of whole runs."""
        return np.asarray(self.fit.predict(points) * points.iterations, dtype=np.float64)

    def predict(
        self, at: Configuration, *, iterations: float | None = None, level: float = 0.9
    ) -> ScalePrediction:
        """The runtime of one run.

        Raises:
            InputError: a value that is out of range, or iterations that are missing.
            CannotAnswerError: it lies beyond a memory cliff.
        """
        self._check_question(at, iterations, level)
        self.check(at)
        points = Points.of([at], 1.0 if iterations is None else iterations)
        median = float(self.seconds(points)[0])
        reasons = self.ranges.beyond(at)
        deviation = float(self.spread.deviation(self.fit, points, beyond=bool(reasons))[0])
        factor = self.spread.factor(deviation, level)
        return ScalePrediction(
            at=at,
            iterations=float(points.iterations[0]),
            median=median,
            lower=median / factor,
            upper=median * factor,
            level=level,
            reasons=reasons,
            deviation=deviation,
        )

    def probability(self, prediction: ScalePrediction, seconds: float) -> float:
        """That the run ends within ``seconds``."""
        if seconds <= 0.0:
            return 0.0
        return self.spread.probability(
            prediction.deviation, float(np.log(seconds / prediction.median))
        )

    def _check_question(self, at: Configuration, iterations: float | None, level: float) -> None:
        if not (np.isfinite(at.machines) and at.machines >= 1.0):
            raise InputError("is out of range.", field="machines", found=at.machines, allowed=">=1")
        if not (np.isfinite(at.scale) and at.scale > 0.0):
            raise InputError("is out of range.", field="scale", found=at.scale, allowed="above 0")
        if not 0.0 < level < 1.0:
            raise InputError(
                "is out of range.", field="level", found=level, allowed="between 0 and 1"
            )
        if self.iterated and iterations is None:
            raise InputError(
                "The model is of one iteration; how many a run has is not said.",
                field="--iterations",
                hint="Say it: --iterations K",
            )
        if iterations is not None and not (np.isfinite(iterations) and iterations >= 1.0):
            raise InputError(
                "is out of range.", field="--iterations", found=iterations, allowed="1 or more"
            )
        if iterations is not None and not self.iterated:
            raise InputError(
                "The model is of whole runs: iterations were no column of its table.",
                field="--iterations",
                found=iterations,
            )


@dataclass(frozen=True, eq=False, slots=True)
class ScaleFile:
    """All models of one table. ``created_at`` is UTC in ISO 8601."""

    name: str | None
    created_at: str
    models: tuple[ScaleModel, ...]
    tracked: tuple[TrackedFile, ...] = ()

    def of_group(self, group: str | None) -> tuple[ScaleModel, ...]:
        """The models of one job, one for each machine type.

        Raises:
            InputError: several jobs and none named.
            UnknownNameError: no such job.
        """
        groups = list(dict.fromkeys(model.group for model in self.models))
        if group is None:
            if len(groups) > 1:
                raise InputError(
                    "The model is of several jobs.",
                    field="--group",
                    allowed=", ".join(str(one) for one in groups),
                )
            return self.models
        if group not in groups:
            raise UnknownNameError("job in the model", group, [str(one) for one in groups])
        return tuple(model for model in self.models if model.group == group)

    def one(self, group: str | None = None, machine_type: str | None = None) -> ScaleModel:
        """The model of one job on one machine type. Raises as ``of_group``."""
        models = self.of_group(group)
        types = [str(model.machine_type) for model in models]
        if machine_type is None:
            if len(models) > 1:
                raise InputError(
                    "The model is of several machine types.",
                    field="--type",
                    allowed=", ".join(types),
                )
            return models[0]
        if machine_type not in types:
            raise UnknownNameError("machine type in the model", machine_type, types)
        return models[types.index(machine_type)]


def warnings_of(models: Sequence[ScaleModel]) -> tuple[str, ...]:
    """What fitting warned of, each with the job that it is of where there are several."""
    return tuple(
        f"{model.label}: {text}" if len(models) > 1 else str(text)
        for model in models
        for text in model.report.get("warnings", ())
    )
