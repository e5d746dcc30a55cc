"""Jobs on several machines, answered from a local store: scale models times slowdowns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from kongming.errors import CannotAnswerError, UnknownNameError, UntrainedError
from kongming.fingerprint import NodeFacts
from kongming.rpc.answers import Forecast, RankedNode, RankedSet
from kongming.rpc.questions import Question, RankQuestion
from kongming.scale import persist
from kongming.scale.combination import combine, model_for
from kongming.scale.model import ScaleFile, ScaleModel, warnings_of
from kongming.scale.sets import Weights, best_set, set_score
from kongming.scale.tracking import changes
from kongming.scaling import Scaling, SlowedNode
from kongming.store import Store
from kongming.store.models import SCALE, SCALE_PREFIX


class LocalScales:
    """Scale models of a store, beside files that were read already (``files``, by the name that a
    question calls them)."""

    def __init__(self, store: Store, files: Mapping[str, ScaleFile]) -> None:
        self._store = store
        self._files = files

    def find(self, app: str, asked: Scaling) -> tuple[str, ScaleModel, tuple[str, ...]]:
        """The model that a question means: its name, itself, and warnings of it.

        Raises:
            UntrainedError: the application has none of its own name, and none is named.
            UnknownNameError: the one that is named is not there, or the machine type.
            InputError: it is of several jobs, or machine types, and none is named.
        """
        name = asked.model or app
        file = self._files.get(name)
        if file is None:
            document = self._store.model(SCALE_PREFIX + name, SCALE)
            if document is None:
                raise self._missing(app, asked.model)
            file = persist.read(document)
        model = model_for(file, app, asked.machine_type)
        _, said = changes(file.tracked)
        return name, model, (*said, *warnings_of([model]))

    def _missing(self, app: str, named: str) -> Exception:
        names = [
            entry.app.removeprefix(SCALE_PREFIX) for entry in self._store.models(placement=SCALE)
        ]
        hint = "Fit it: kongming scale fit RUNS.csv --name NAME, or --save FILE"
        if named:
            return UnknownNameError("scale model, in a file or the store,", named, names, hint=hint)
        known = f"; there are those of {', '.join(sorted(set(names))[:8])}" if names else ""
        return UntrainedError(
            f"{app} has no scale model{known}.",
            hint=f"Name one: --scale-model FILE_OR_NAME. {hint}",
        )


def forecast_job(
    question: Question,
    scales: LocalScales,
    forecast_of: Callable[[Question, NodeFacts], Forecast],
    named: Callable[[str], NodeFacts],
) -> Forecast:
    """The forecast of a whole job; ``forecast_of`` answers for one node, and ``named`` finds one.

    Raises: as ``combine``, as ``LocalScales.find``, and as they do.
    """
    assert question.scaling is not None
    name, model, warnings = scales.find(question.app, question.scaling)
    facts = [named(node) for node in question.nodes]
    forecasts = [
        forecast_of(replace(question, node=node.id, scaling=None, driver=None, nodes=()), node)
        for node in facts
    ]
    said = combine(
        model,
        question.scaling,
        [
            SlowedNode(node.id, node.name, forecast.slowdown, forecast.extrapolating)
            for node, forecast in zip(facts, forecasts, strict=True)
        ],
        name=name,
        driver="" if question.driver is None else named(question.driver).id,
        level=question.level,
        strict=question.strict,
    )
    slowest = next(one for one in forecasts if one.node_id == said.scaled.slowest)
    told = (warning for forecast in forecasts for warning in forecast.warnings)
    noted = (note for forecast in forecasts for note in forecast.notes)
    return replace(
        slowest,
        slowdown=said.slowdown,
        solo_s=said.idle.median,
        runtime_s=said.runtime,
        metric_unit="s",
        fingerprint_age_s=max(
            (one.fingerprint_age_s for one in forecasts if one.fingerprint_age_s is not None),
            default=None,
        ),
        stale=any(one.stale for one in forecasts),
        extrapolating=said.extrapolating,
        warnings=tuple(dict.fromkeys((*told, *warnings))),
        notes=tuple(dict.fromkeys((*noted, *said.notes))),
        scaled=said.scaled,
    )


def ranked_sets(
    question: RankQuestion,
    scales: LocalScales,
    places: Sequence[RankedNode],
    *,
    tolerance: float,
    random: np.random.Generator,
) -> tuple[RankedSet, ...]:
    """Sets of nodes for a job, best first and without a common one; ``tolerance`` as for single
    nodes. A store knows no residents: the slowest node is all that counts."""
    assert question.scaling is not None
    warnings: tuple[str, ...] = ()
    found = None
    try:
        name, model, warnings = scales.find(question.app, question.scaling)
        found = name, model
    except UntrainedError as error:
        warnings = (f"{error.message} No runtime is told, only the slowdown.",)
    weights = Weights(question.newcomer_weight, question.resident_weight, tolerance)
    left = np.arange(len(places))
    slowed = np.array([math.log(place.slowdown.median) for place in places])
    lots = random.random(len(places))
    sets: list[RankedSet] = []
    while len(sets) < question.limit:
        harm = np.zeros(len(left))
        best = best_set(slowed[left], harm, question.scaling.machines, weights, lots[left])
        if best is None:
            break
        chosen = left[best[0]]
        nodes = tuple(
            replace(places[place], tied_with_first=tied)
            for place, tied in zip(chosen.tolist(), best[1].tolist(), strict=True)
        )
        score = set_score(slowed[chosen], np.zeros(len(chosen)), weights)
        made = RankedSet(
            nodes,
            score,
            nodes[-1].slowdown,
            extrapolating=any(node.extrapolating for node in nodes),
            warnings=warnings,
        )
        sets.append(made if found is None else _with_runtime(made, question, *found))
        left = left[~np.isin(left, chosen)]
    return tuple(sets)


def _with_runtime(
    made: RankedSet, question: RankQuestion, name: str, model: ScaleModel
) -> RankedSet:
    assert question.scaling is not None
    try:
        said = combine(
            model,
            question.scaling,
            [
                SlowedNode(node.node_id, node.name, node.slowdown, node.extrapolating)
                for node in made.nodes
            ],
            name=name,
            level=question.level,
        )
    except CannotAnswerError as error:
        # The order of nodes holds whatever the job takes.
        return replace(made, warnings=(*made.warnings, error.message))
    return replace(
        made,
        slowdown=said.slowdown,
        runtime_s=said.runtime,
        scaled=said.scaled,
        extrapolating=said.extrapolating,
        warnings=(*said.scaled.reasons, *made.warnings),
    )
