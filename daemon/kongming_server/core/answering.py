"""From an environment and a model to a forecast: carried to the model's node, widened by age."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kongming.dataset import Floats
from kongming.models.answer import Asked, prediction, say
from kongming.models.intervals import Widening
from kongming.models.persist import ModelFile
from kongming.prediction import Interval, Prediction
from kongming_server.core import scoring
from kongming_server.core.columns import Columns
from kongming_server.core.nodes import NodeView
from kongming_server.core.questions import Basis, Forecast
from kongming_server.core.scoring import Served

NO_SLOWDOWN = 0.0
"""Log slowdown below which no median beside neighbours lies: they never make a program faster."""


@dataclass(frozen=True, eq=False, slots=True)
class Met:
    """An environment on a node: ``logs`` and ``idle`` (C,), log seconds per operation there.

    ``carried`` is whether it counts by its slowdowns over ``idle``, put onto the idle times of
    the node that the model is of.
    """

    logs: Floats
    idle: Floats
    carried: bool


def times_for(model: Served, met: Met, columns: Columns) -> dict[str, float]:
    """The environment as the model understands it: seconds per operation by surrogate."""
    if not met.carried:
        return columns.times(met.logs)
    slowed = met.logs - met.idle
    times: dict[str, float] = {}
    for scorer in model.scorers.values():
        logs = scorer.log_idle + slowed[scorer.places]
        for name, value in zip(scorer.variant.columns, logs.tolist(), strict=True):
            if value == value:
                times[name] = math.exp(value)
    return times


def predicted(
    model: Served,
    met: Met,
    columns: Columns,
    *,
    name: str | None,
    level: float,
    widening: Widening,
    strict: bool,
) -> Prediction:
    """Raises as ``kongming.predict.predict_environment``."""
    return prediction(
        model.file,
        times_for(model, met, columns),
        Asked(name, None, level, widening),
        strict=strict,
        beside=(),
    )


def slowdown(
    model: Served, met: Met, columns: Columns, level: float, widening: Widening
) -> Interval:
    """A resident's slowdown alone. Raises as ``kongming.predict.predict_environment``."""
    asked = Asked(None, None, level, widening, NO_SLOWDOWN)
    return say(model.file, times_for(model, met, columns), asked).said


def moved(model: Served, met: Met, movement: float) -> tuple[float, float]:
    """By how much the log slowdown may have fallen or risen (each 0 or more) in an environment
    whose surrogates have all moved by ``movement``, in logs, one way or the other."""
    rows = met.logs + np.array([[-movement], [0.0], [movement]])
    scores = scoring.score(
        model, rows, rows - met.idle, np.full(3, met.carried, dtype=np.bool_)
    ).log_slowdown
    low, middle, high = scores.tolist()
    if math.isnan(low + middle + high):
        return movement, movement
    return max(middle - low, 0.0), max(high - middle, 0.0)


def widened(interval: Interval, down: float, up: float) -> Interval:
    """The interval with another uncertainty, independent of its own, put onto it (in logs)."""
    lower = math.hypot(math.log(interval.median / interval.lower), down)
    upper = math.hypot(math.log(interval.upper / interval.median), up)
    return Interval(
        interval.median,
        interval.median * math.exp(-lower),
        interval.median * math.exp(upper),
        interval.level,
        interval.calibrated,
    )


def runtime(file: ModelFile, slowdown: Interval) -> Interval:
    """In the metric's own unit; where higher is better, more slowdown is a lower value."""
    solo = file.solo_metric
    if file.better == "lower":
        return slowdown.scaled(solo)
    return Interval(
        solo / slowdown.median,
        solo / slowdown.upper,
        solo / slowdown.lower,
        slowdown.level,
        slowdown.calibrated,
    )


def general(slowed: Floats, level: float) -> Interval:
    """A node's slowdown for a program of which nothing is known, from its surrogates' log
    slowdowns (C,): their geometric mean, and the bounds that hold ``level`` of the surrogates.
    It may depend on any of them, so that is what it might meet; nothing calibrates it."""
    known = slowed[~np.isnan(slowed)]
    tail = (1.0 - level) / 2.0
    middle = float(known.mean())
    low, high = np.quantile(known, [tail, 1.0 - tail]).tolist()
    return Interval(
        math.exp(middle), math.exp(min(low, middle)), math.exp(max(high, middle)), level, False
    )


def half(interval: Interval) -> float:
    """Half the interval's width, in logs."""
    return math.log(interval.upper / interval.lower) / 2.0


def listed(names: Sequence[str], most: int = 3) -> str:
    """A few names and how many more."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def forecast_of(
    said: Prediction, node_id: str, domain: int, placement: str, model: Served
) -> Forecast:
    return Forecast(
        app=said.app,
        node_id=node_id,
        domain=domain,
        placement=placement,
        basis=Basis.MODEL,
        slowdown=said.slowdown,
        model=said.model,
        model_version=model.version,
        solo=said.solo_s,
        runtime=said.runtime_s,
        metric_unit=said.metric_unit,
        extrapolating=said.extrapolating,
        drivers=said.drivers,
        warnings=said.warnings,
        notes=said.notes,
    )


def carried_note(model: Served, view: NodeView | None) -> str:
    name = "The node" if view is None else view.facts.name
    return (
        f"{model.file.app} was profiled on another node ({model.file.node_id}): slowdowns over the "
        f"idle reference of {name} are put onto that node's idle times, and the solo runtime is "
        "that node's."
    )
