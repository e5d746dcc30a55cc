"""Forecasts from an environment and a model: carried to the model's node, widened by age."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kongming.arrays import Floats
from kongming.engine import scoring
from kongming.engine.environment import ratio_of
from kongming.engine.movement import Movement
from kongming.engine.nodes import NodeView
from kongming.engine.scoring import Served
from kongming.engine.slots import ANY_SUITE
from kongming.engine.state import FleetState
from kongming.learning.estimate import Estimate, EstimateOptions, estimate_row, prediction_of
from kongming.learning.intervals import Widening
from kongming.records.answers import Forecast
from kongming.records.errors import IncompatibleError, UntrainedError
from kongming.records.prediction import Interval, Prediction

TAKE_A_REFERENCE = "Let the node's agent take a reference, or on the node: kongming reference"
"""What to do about a node without one."""


@dataclass(frozen=True, eq=False, slots=True)
class Met:
    """An environment on a node: ``logs`` and ``idle`` (C,), log seconds per operation there.

    ``carried`` is whether it counts by its slowdowns over ``idle``, put onto the idle times of
    the node that the model is of. ``awake`` is the share of time in which neighbours keep a CPU
    awake, NaN without any.
    """

    logs: Floats
    idle: Floats
    carried: bool
    awake: float = math.nan


def estimated(model: Served, met: Met, options: EstimateOptions) -> Estimate:
    """The slowdown of an application in an environment. Raises InputError where too many of its
    surrogates were not read."""
    rows = scoring.rows_of(model, met.logs, met.logs - met.idle, met.carried)
    return estimate_row(model.file, model.by_name(), rows, replace(options, awake=met.awake))


def widening_of(fleet: FleetState, model: Served) -> Widening:
    """Return what co-runs say of the intervals of a model. They were compared with what the version
    in service says by its chosen model of all columns, so of another version, or another model of
    the file, only the noise of other programs' repeats is known."""
    widening = fleet.catalog.widening(*model.key)
    served = fleet.catalog.served(*model.key)
    scorer = model.scorers[scoring.FULL]
    is_compared = served is not None and served.file is model.file
    is_compared &= scorer.frozen.name == scorer.variant.chosen
    return widening if is_compared else widening.repeats_alone()


def predicted(model: Served, met: Met, options: EstimateOptions, *, strict: bool) -> Prediction:
    """Raises as ``kongming.learning.predict.predict_environment``."""
    answer = estimated(model, met, options)
    return prediction_of(model.file, answer, options, strict=strict)


def check_suite(fleet: FleetState, slot: int, view: NodeView, model: Served) -> None:
    """Raise IncompatibleError where a slot was read with another suite than the model's."""
    suite = int(fleet.slots.suite[slot])
    if suite not in (model.suite, ANY_SUITE):
        raise IncompatibleError(
            f"The fingerprint of {view.facts.name} is of suite version "
            f"{fleet.catalog.suite_name(suite)}; the model of {model.file.app} was trained on "
            f"{model.file.suite_version}.",
            hint="Surrogates of different sizes are different columns: profile and train "
            "again with this suite.",
        )


def check_readable(fleet: FleetState, slot: int, view: NodeView, model: Served) -> None:
    """Raise UntrainedError where the times of a slot mean nothing to the model: they are of another
    node, and there is no reference to count them by."""
    if not fleet.is_readable(slot, model):
        raise UntrainedError(
            f"{view.facts.name} has no idle reference, and no node like it has one: its readings "
            f"mean nothing to the model of {model.file.app}, which is of another node.",
            hint=TAKE_A_REFERENCE,
        )


def borrowed(fleet: FleetState, slot: int, view: NodeView, forecast: Forecast) -> Forecast:
    """A forecast from slowdowns over the slot's idle reference: with a warning, and no longer
    calibrated, where that is of like nodes."""
    lenders = int(fleet.slots.lenders[slot])
    if not lenders:
        return forecast
    nodes = "that of one node" if lenders == 1 else f"the median of {lenders} nodes"
    warning = (
        f"{view.facts.name} has no idle reference: {nodes} of the same CPU model and "
        "caches was taken for it."
    )
    return replace(uncalibrated(forecast), warnings=(*forecast.warnings, warning))


def uncalibrated(forecast: Forecast) -> Forecast:
    """The forecast with both of its intervals calibrated no longer."""
    runtime = forecast.runtime_s
    return replace(
        forecast,
        slowdown=replace(forecast.slowdown, calibrated=False),
        runtime_s=None if runtime is None else replace(runtime, calibrated=False),
    )


def of_another_type(
    fleet: FleetState, view: NodeView, model: Served, forecast: Forecast
) -> Forecast:
    """A forecast for a node: with a warning, and without a calibrated runtime, unless the node is
    of the type of the one that the solo runtime is of. Runs of one type say nothing of the solo
    runtime on another."""
    is_of_type = fleet.is_of_type(view, model)
    if is_of_type or forecast.runtime_s is None:
        return forecast
    name, app = view.facts.name, model.file.app
    its = (
        f"It is not known whether {name} has the CPU model and caches of"
        if is_of_type is None
        else f"{name} has another CPU model or other caches than"
    )
    warning = (
        f"{its} the node that {app} was profiled on: what {app} takes there alone may differ, so a "
        "runtime from that node's solo runtime is not calibrated."
    )
    return replace(
        forecast,
        runtime_s=replace(forecast.runtime_s, calibrated=False),
        warnings=(*forecast.warnings, warning),
    )


def slowdown(model: Served, met: Met, level: float, widening: Widening) -> Interval:
    """A resident's slowdown alone. Raises as ``estimated``."""
    return estimated(model, met, EstimateOptions(None, None, level, widening)).interval


def moved(model: Served, places: Sequence[Met], movement: float) -> list[tuple[float, float]]:
    """Return how far the log slowdown in each environment may have fallen or risen (each 0 or
    more) once its surrogates have all moved by ``movement``, in logs, one way or the other."""
    steps = np.array([[-movement], [0.0], [movement]])
    rows = np.concatenate([met.logs + steps for met in places])
    idle = np.repeat([met.idle for met in places], 3, axis=0)
    scores = scoring.score(
        model,
        rows,
        rows - idle,
        np.repeat([met.carried for met in places], 3),
        np.repeat([met.awake for met in places], 3),
    ).log_slowdown
    return [
        (movement, movement)
        if math.isnan(low + middle + high)
        else (max(middle - low, 0.0), max(high - middle, 0.0))
        for low, middle, high in scores.reshape(-1, 3).tolist()
    ]


def widened(interval: Interval, down: float, up: float) -> Interval:
    """The interval with another uncertainty, independent of its own, put onto it (in logs). No
    validation has seen that one: the interval is calibrated no longer."""
    x = interval.median

    def wider(lower: float, upper: float) -> tuple[float, float]:
        return (
            x * math.exp(-math.hypot(math.log(x / lower), down)),
            x * math.exp(math.hypot(math.log(upper / x), up)),
        )

    lower, upper = wider(interval.lower, interval.upper)
    low, high = (None, None) if interval.expected is None else wider(*interval.expected)
    return replace(
        interval,
        lower=lower,
        upper=upper,
        expected_lower=low,
        expected_upper=high,
        calibrated=False,
    )


def aged(
    interval: Interval, model: Served | None, met: Met, movement: Movement, age_s: float
) -> Interval:
    """The interval of a slowdown once the environment ``met`` is ``age_s`` old, at its own level;
    ``model`` None is a general slowdown, which moves as the environment does."""
    reach = movement.reach(age_s, interval.level)
    down, up = (reach, reach) if model is None else moved(model, [met], reach)[0]
    return widened(interval, down, up)


def general(slowed: Floats, level: float) -> Interval:
    """A node's slowdown for a program of which nothing is known, from its surrogates' log
    slowdowns (C,): their geometric mean, and the bounds that hold ``level`` of the surrogates.
    It may depend on any of them, so that is what it might meet; nothing calibrates it."""
    known = slowed[~np.isnan(slowed)]
    tail = (1.0 - level) / 2.0
    middle = float(known.mean())
    ordered = sorted(known.tolist())
    low, high = _quantile(ordered, tail), _quantile(ordered, 1.0 - tail)
    return Interval(
        ratio_of(middle), ratio_of(min(low, middle)), ratio_of(max(high, middle)), level, False
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile as ``np.quantile`` does, in a tenth of its time for the few values of a
    node, which a ranking needs for every place that it returns."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def half(interval: Interval) -> float:
    """Half the interval's width, in logs."""
    return math.log(interval.upper / interval.lower) / 2.0


def listed(names: Sequence[str], most: int = 3) -> str:
    """A few names and how many more."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def forecast_of(
    prediction: Prediction, node_id: str, domain: int, placement: str, model: Served
) -> Forecast:
    known = prediction.prediction_fields() | {"placement": placement}
    return Forecast(
        **known, node_id=node_id, domain=domain, basis="model", model_version=model.version
    )


def carried_note(model: Served, view: NodeView | None) -> str:
    name = "The node" if view is None else view.facts.name
    return (
        f"{model.file.app} was profiled on another node ({model.file.node_id}): slowdowns over the "
        f"idle reference of {name} are put onto that node's idle times, and the solo runtime is "
        "that node's."
    )
