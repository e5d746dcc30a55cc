"""What one model says of one environment: slowdown, interval, drivers, and words when unsure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kongming.dataset import Floats
from kongming.errors import ExtrapolationError
from kongming.fingerprint import Fingerprint
from kongming.models import extrapolation, intervals
from kongming.models.drivers import drivers
from kongming.models.intervals import UNWIDENED, Widening
from kongming.models.persist import FrozenModel, ModelFile, Variant
from kongming.models.readings import VariantName, check_suite, row_of, variant_for
from kongming.prediction import Interval, Prediction

Times = Mapping[str, float]
"""Seconds per operation by surrogate."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How a prediction is asked for.

    ``model`` and ``variant`` None are the chosen model and the columns that the environment has
    readings of; ``level`` and ``widening`` are the interval's, and ``floor`` is the least log
    slowdown of its median, None for what the model itself finds credible.
    """

    model: str | None = None
    variant: VariantName | None = None
    level: float = 0.9
    widening: Widening = UNWIDENED
    floor: float | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Answer:
    """The slowdown that is said of an environment, and what it was said by: ``values`` (p,) are
    the environment's seconds per operation in the order of the variant's columns."""

    said: Interval
    values: Floats
    variant: Variant
    frozen: FrozenModel
    warnings: tuple[str, ...]


def say(file: ModelFile, environment: Fingerprint | Times, asked: Asked) -> Answer:
    """The slowdown alone.

    Raises:
        IncompatibleError: the fingerprint is of another suite version than the model.
        InputError: too many of the model's surrogates are missing, or a reading is not a finite
            time above 0 s.
        UnknownNameError: no such model was trained.
    """
    warnings: list[str] = []
    if isinstance(environment, Fingerprint):
        check_suite(file, environment.suite_version, "The fingerprint")
        if environment.node.id != file.node_id:
            warnings.append("The fingerprint was taken on another node than the training runs.")
        times: Times = environment.times()
    else:
        times = environment
    variant = variant_for(file, times, asked.variant, warnings)
    values = row_of(variant, times, warnings)
    frozen = variant.model(asked.model)
    log_slowdown = float(frozen.log_slowdown(values[None, :])[0])
    said = intervals.interval(
        log_slowdown if asked.floor is None else max(log_slowdown, asked.floor),
        float(intervals.severity(values[None, :], variant.idle, variant.spread)[0]),
        residuals=frozen.residuals,
        severities=frozen.severities,
        noise=variant.noise,
        lowest=frozen.bounds[0],
        groups=frozen.groups,
        level=asked.level,
        widening=asked.widening.factor,
        widening_groups=asked.widening.groups,
    )
    return Answer(said, values, variant, frozen, tuple(warnings))


def prediction(
    file: ModelFile,
    environment: Fingerprint | Times,
    asked: Asked,
    *,
    strict: bool,
    beside: Sequence[str],
) -> Prediction:
    """The runtime with all that is said beside it; ``beside`` only labels it.

    Raises: as ``say``, and ExtrapolationError under ``strict`` outside the training environments.
    """
    answer = say(file, environment, asked)
    variant, frozen, warnings = answer.variant, answer.frozen, [*answer.warnings]
    far = extrapolation.distance(
        answer.values,
        low=variant.low,
        high=variant.high,
        spread=variant.spread,
        weights=frozen.weights,
    )
    if far.outside:
        named = ", ".join(variant.columns[j] for j in far.columns[:3])
        more = f" and {len(far.columns) - 3} more" if len(far.columns) > 3 else ""
        sentence = (
            f"The environment lies outside the {file.app} training runs in {named}{more} "
            f"(distance {far.value:.1f}, allowed 1)."
        )
        if strict:
            raise ExtrapolationError(
                sentence, hint="Profile under such load, or predict without --strict."
            )
        warnings.append(sentence)
    if not answer.said.calibrated:
        warnings.append(_uncalibrated(frozen, asked))
    return Prediction(
        app=file.app,
        model=frozen.name,
        placement=file.placement,
        solo_s=file.solo_metric,
        runtime_s=_runtime(file, answer.said),
        slowdown=answer.said,
        extrapolating=far.outside,
        drivers=drivers(frozen.log_slowdown, answer.values, variant.idle, variant.families),
        beside=tuple(beside),
        warnings=tuple(warnings),
        metric_unit=file.metric_unit,
    )


def _uncalibrated(frozen: FrozenModel, asked: Asked) -> str:
    needed = intervals.groups_needed(asked.level)
    if max(frozen.groups, asked.widening.groups) >= needed:
        return (
            f"The interval is not calibrated: {len(frozen.residuals)} validated runs are too few "
            "for its level."
        )
    learnt = asked.widening.groups
    others = f", and {learnt} other applications were run beside others" if learnt else ""
    return (
        f"The interval is not calibrated: validation left out {frozen.groups} groups of runs"
        f"{others}; {needed} of either are the least for it."
    )


def _runtime(file: ModelFile, slowdown: Interval) -> Interval:
    """The metric in its own unit; where higher is better, more slowdown is a lower value."""
    solo = file.solo_metric
    if file.better == "lower":
        return slowdown.scaled(solo)
    return Interval(
        median=solo / slowdown.median,
        lower=solo / slowdown.upper,
        upper=solo / slowdown.lower,
        level=slowdown.level,
        calibrated=slowdown.calibrated,
    )
