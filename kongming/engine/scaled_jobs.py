"""Predict a job on several machines: its scale model times the slowdown of its nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kongming.records.answers import Forecast, RankedNode, RankedSet
from kongming.records.errors import CannotAnswerError, UnknownNameError, UntrainedError
from kongming.records.questions import Question
from kongming.records.scaling import ProfiledSlowdown, Scaling, SlowedNode
from kongming.steps import Steps

if TYPE_CHECKING:
    # They load SciPy, which takes longer than a prediction: only who asks about a job pays for it.
    from kongming.scale.fit.model import ScaleModel
    from kongming.scale.fit.scale_file import ScaleFile

_T = TypeVar("_T")


class ScaleModels:
    """Scale models by name: each the newest that the store has."""

    def __init__(self) -> None:
        self._files: dict[str, ScaleFile] = {}

    def put(self, name: str, file: ScaleFile) -> None:
        self._files[name] = file

    def drop(self, name: str) -> None:
        """Dropping what is not there is harmless."""
        self._files.pop(name, None)

    def names(self) -> tuple[str, ...]:
        return tuple(self._files)

    def find(self, app: str, scaling: Scaling) -> tuple[str, ScaleModel]:
        """The model that a question means, and its name.

        Raises:
            UntrainedError: the application has none of its own name, and none is named.
            UnknownNameError: the one that is named is not there, or the machine type.
            InputError: it is of several jobs, or machine types, and none is named.
        """
        name = scaling.model or app
        file = self._files.get(name)
        if file is not None:
            from kongming.scale.decide.combination import model_for

            return name, model_for(file, app, scaling.machine_type)
        if scaling.model:
            raise UnknownNameError("scale model", name, self._files)
        known = f"; there are those of {', '.join(sorted(self._files)[:8])}" if self._files else ""
        raise UntrainedError(
            f"{app} has no scale model{known}.",
            hint=f"Fit one: kongming scale fit RUNS.csv --name {app} (for a server, with its "
            "--store); or name another: --scale-model",
        )


def forecast_job(
    question: Question,
    scale_model: tuple[str, ScaleModel],
    forecast_of: Callable[[Question], Forecast],
    named: Callable[[str], tuple[str, str]],
    profiles: Mapping[tuple[int, float], tuple[str, str]],
) -> Steps[Forecast]:
    """Predict a whole job, in steps; ``forecast_of`` answers for one node, and ``named`` gives a
    node's id and name. ``profiles`` are those of the job at configurations of its own:
    application and placement by machines and scale. Where there are any they answer instead of the
    job's own, whose configuration is not known, unless a version of that is asked for. Raises as
    ``combine`` and as they do."""
    from kongming.scale.decide.combination import combine_in_steps
    from kongming.scale.fit.model import warnings_of

    assert question.scaling is not None
    name, model = scale_model
    driver = "" if question.driver is None else named(question.driver)[0]
    places = [] if question.model_version else _nearest_first(profiles, question.scaling)
    forecasts, nodes = [], []
    profiled: dict[str, list[ProfiledSlowdown]] = {}
    for node in question.nodes:
        alone = replace(question, node=node, scaling=None, driver=None, nodes=())
        if places:
            answers = []
            for place in places:
                app, placement = profiles[place]
                answers.append(forecast_of(replace(alone, app=app, placement=placement)))
                yield
            profiled[answers[0].node_id] = [
                ProfiledSlowdown(*place, answer.slowdown)
                for place, answer in zip(places, answers, strict=True)
            ]
            forecast = replace(
                answers[0],
                app=question.app,
                extrapolating=any(answer.extrapolating for answer in answers),
                warnings=_once(w for answer in answers for w in answer.warnings),
                notes=_once(n for answer in answers for n in answer.notes),
            )
        else:
            forecast = forecast_of(alone)
        forecasts.append(forecast)
        nodes.append(
            SlowedNode(
                forecast.node_id,
                named(forecast.node_id)[1],
                forecast.slowdown,
                forecast.extrapolating,
            )
        )
        yield
    combination = yield from combine_in_steps(
        model,
        question.scaling,
        nodes,
        profiled=profiled,
        name=name,
        driver=driver,
        level=question.level,
        strict=question.strict,
    )
    slowest = next(f for f in forecasts if f.node_id == combination.scaled.slowest)
    oldest = max(forecasts, key=lambda f: (f.fingerprint_age_s is not None, f.fingerprint_age_s))
    return replace(
        slowest,
        slowdown=combination.slowdown,
        solo_s=combination.idle.median,
        runtime_s=combination.runtime,
        metric_unit="s",
        fingerprint_age_s=oldest.fingerprint_age_s,
        fingerprint_taken_at=oldest.fingerprint_taken_at,
        stale=any(f.stale for f in forecasts),
        extrapolating=combination.extrapolating,
        residents={key: impact for f in forecasts for key, impact in f.residents.items()},
        warnings=_once((*(w for f in forecasts for w in f.warnings), *warnings_of([model]))),
        notes=_once((*(n for f in forecasts for n in f.notes), *combination.notes)),
        added=_once(p for f in forecasts for p in f.added),
        removed=_once(p for f in forecasts for p in f.removed),
        scaled=combination.scaled,
    )


def _nearest_first(
    places: Iterable[tuple[int, float]], scaling: Scaling
) -> list[tuple[int, float]]:
    """Return machines and scales, those that are most like the question first."""
    return sorted(
        places,
        key=lambda place: (
            math.hypot(
                math.log(place[0] / scaling.machines),
                math.log(place[1] / scaling.scale),
            ),
            place,
        ),
    )


def ranked_set(
    nodes: Sequence[RankedNode],
    score: float,
    scaling: Scaling,
    scale_model: tuple[str, ScaleModel] | None,
    level: float,
) -> Steps[RankedSet]:
    """Build the answer about a set, in steps; without a scale model it has the slowest node's
    slowdown alone."""
    slowest = max(nodes, key=lambda node: (node.slowdown.median, node.node_id))
    alone = RankedSet(
        tuple(nodes),
        score,
        replace(slowest.slowdown, at_least=any(n.slowdown.at_least for n in nodes)),
        extrapolating=any(n.extrapolating for n in nodes),
    )
    if scale_model is None:
        warning = "There is no scale model: no runtime is predicted, only the slowdown."
        return replace(alone, warnings=(warning,))
    from kongming.scale.decide.combination import combine_in_steps
    from kongming.scale.fit.model import warnings_of

    name, model = scale_model
    try:
        combination = yield from combine_in_steps(
            model,
            scaling,
            [SlowedNode(n.node_id, n.name, n.slowdown, n.extrapolating) for n in nodes],
            name=name,
            level=level,
        )
    except CannotAnswerError as error:
        # The order of nodes holds whatever the job takes.
        return replace(alone, warnings=(error.message,))
    return replace(
        alone,
        slowdown=combination.slowdown,
        runtime_s=combination.runtime,
        scaled=combination.scaled,
        extrapolating=combination.extrapolating,
        warnings=(*combination.scaled.reasons, *warnings_of([model])),
    )


def _once(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))
