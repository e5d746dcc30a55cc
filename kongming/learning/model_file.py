"""The model of a trained application as a sealed JSON document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.files.sealed_document import DocumentKind, finite, positive
from kongming.learning import spaces
from kongming.learning.consensus import consensus
from kongming.learning.intervals import SEVERITY_SHARE
from kongming.learning.posterior import NOTHING_OPEN, Posterior, thawed
from kongming.learning.predictor_loading import Predictor, load
from kongming.learning.registry import Space
from kongming.learning.repeat_noise import Variance
from kongming.learning.usefulness import MEAN, NO_SLOWDOWN
from kongming.records.errors import UnknownNameError
from kongming.records.judgement import Judgement
from kongming.records.run import SoloTime

__all__ = ["FrozenModel", "ModelFile", "Selection", "Variant", "read", "seal"]

_KIND = DocumentKind("kongming-model", 6, "model document", "train it again", "kongming train")
"""Version 2 has shrunk stacks of equal weights, of type ``consensus``, and ``awake``; 3 what each
model is not clearly better than; 4 the verdict on its ``profile``; 5 the ``posterior`` of a
consensus, without which nothing is taken to be left open; 6 its ``presence``. Earlier ones are read
as they are; any may lack ``repeats``, ``disagreements`` and ``worst``."""

_FORMER_CEILING = math.log(10.0)
"""What the upper bound lies above ``worst`` in a document without it."""

_HALF_RANGE = NormalDist().inv_cdf(0.75)
"""Half the inter-quartile range of a normal distribution of standard deviation 1."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The result of a genetic search: the selected surrogates, and the number of training
    observations of each inducer (0 if it was left out)."""

    surrogates: tuple[str, ...]
    observations: Mapping[str, int]


@dataclass(frozen=True, eq=False, slots=True)
class FrozenModel:
    """One model of a variant. ``bounds`` are those of its log slowdowns and ``worst`` the greatest
    of a training run; ``weights`` (p,) is how much each column can move the log slowdown;
    ``residuals`` are those of its validation, over ``groups`` left-out groups, and ``errors`` what
    was to be expected of each (a standard deviation); ``scores`` its errors; ``not_better_than``
    the trivial answers that it is not clearly better than, None where that was not judged;
    ``selection`` that of a genetic model."""

    name: str
    space: Space
    predictor: Predictor | _Stack
    idle: Floats
    spread: Floats
    bounds: tuple[float, float]
    worst: float
    weights: Floats
    residuals: Floats
    errors: Floats
    groups: int
    scores: Mapping[str, float]
    not_better_than: tuple[str, ...] | None = None
    selection: Selection | None = None

    @property
    def presence(self) -> float:
        """Return the log slowdown, 0 or more, that any neighbour adds."""
        return self.predictor.presence if isinstance(self.predictor, _Stack) else 0.0

    @property
    def open_ended(self) -> bool:
        """Return whether ``worst`` is a lower bound: of training runs that were ended before their
        program was. Only then is there no room above it (``spaces.credible_bounds``)."""
        return self.bounds[1] <= self.worst

    def log_slowdown(self, moved: Floats) -> Floats:
        """Return (n,) log slowdowns from ``moved`` (n, p): logs of readings over idle, in the
        columns' order."""
        if isinstance(self.predictor, _Stack):
            return spaces.bounded(self.predictor.log_slowdown(moved), self.bounds)
        return self.answer(spaces.features_of(moved, self.idle, self.space, self.spread))

    def answer(self, features: Floats) -> Floats:
        """Return (n,) log slowdowns from ``features`` (n, p) in the space of a model that is no
        stack."""
        assert not isinstance(self.predictor, _Stack)
        return spaces.log_slowdown(self.predictor.predict(features), self.space, self.bounds)


@dataclass(frozen=True, eq=False, slots=True)
class Variant:
    """All models over one set of columns. ``idle``, ``low`` and ``high`` (p,) are in seconds
    per operation, ``spread`` (p,) and ``noise`` in logs. ``awake``, 0 or less, is the log slowdown
    next to a neighbour that never sleeps and presses on nothing (``kongming.learning.awake``).
    ``repeats`` is the variance of the program's log costs at the same load, ``solo_runs`` how many
    solo runs its slowdowns are over, ``loaded_runs`` how many under a load it was learned from
    (None if that is not known), and ``members`` are the models whose disagreement is the error of a
    prediction; none in earlier documents."""

    name: str
    columns: tuple[str, ...]
    families: tuple[str, ...]
    idle: Floats
    spread: Floats
    low: Floats
    high: Floats
    noise: float
    awake: float
    chosen: str
    models: Mapping[str, FrozenModel]
    repeats: Variance
    solo_runs: int
    loaded_runs: int | None
    members: _Stack | None = None

    def model(self, name: str | None = None) -> FrozenModel:
        """Return the model of that name; the chosen one for None. Raises UnknownNameError."""
        wanted = self.chosen if name is None or name == "auto" else name
        if wanted not in self.models:
            raise UnknownNameError("trained model", wanted, self.models)
        return self.models[wanted]


@dataclass(frozen=True, eq=False, slots=True)
class ModelFile:
    """A model document that was read and checked. ``coupling`` is the median of its training runs;
    None where none was read, as in earlier documents. ``profile`` is the verdict on the runs that
    it was trained on; None where they were not judged, as in earlier documents."""

    app: str
    identity: str
    node_id: str
    placement: str
    suite_version: str
    metric_unit: str
    better: str
    cpu: int
    solo: SoloTime
    variants: Mapping[str, Variant]
    coupling: float | None = None
    profile: Judgement | None = None

    @property
    def solo_metric(self) -> float:
        """The solo value in the unit of the metric."""
        return self.solo.median if self.better == "lower" else 1.0 / self.solo.median


def seal(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload as a document. Raises ValueError for a number that is not finite."""
    return _KIND.seal(payload)


def read(document: object) -> ModelFile:
    """Read and check a model document. Raises InputError and IncompatibleError as
    ``DocumentKind.read``.
    """
    return _KIND.read(document, _model_file)


def _model_file(document: Mapping[str, Any]) -> ModelFile:
    solo = document["solo"]
    noise_pct = solo["noise_pct"]
    # Documents of version 1 have none.
    awake = finite(document.get("awake", 0.0))
    if awake > 0.0:
        raise ValueError("awake")
    loaded_runs = int(document["runs"]["induced"]) if "runs" in document else None
    if loaded_runs is not None and loaded_runs < 0:
        raise ValueError("runs")
    variants = {
        str(name): _variant(str(name), variant, awake, int(solo["n"]), loaded_runs)
        for name, variant in document["variants"].items()
    }
    if "full" not in variants:
        raise KeyError("full")
    if document["better"] not in ("lower", "higher"):
        raise ValueError("better")
    return ModelFile(
        app=str(document["app"]),
        identity=str(document["identity"]),
        node_id=str(document["node_id"]),
        placement=str(document["placement"]),
        suite_version=str(document["suite_version"]),
        metric_unit=str(document["metric_unit"]),
        better=str(document["better"]),
        cpu=int(document["cpu"]),
        solo=SoloTime(
            positive(solo["median"]),
            None if noise_pct is None else finite(noise_pct),
            int(solo["n"]),
        ),
        variants=variants,
        coupling=positive(document["coupling"]) if "coupling" in document else None,
        # Documents of versions 1 to 3 have none.
        profile=Judgement.from_dict(document["profile"]) if "profile" in document else None,
    )


def _variant(
    name: str, document: Mapping[str, Any], awake: float, solo_runs: int, loaded_runs: int | None
) -> Variant:
    columns = tuple(str(column) for column in document["columns"])
    if not columns or len(set(columns)) != len(columns):
        raise ValueError("columns")
    idle, low, high = (_by_column(document[key], columns) for key in ("idle", "low", "high"))
    if not all((times > 0.0).all() for times in (idle, low, high)):
        raise ValueError("a time that is not above 0 s")
    families = tuple(str(document["families"][column]) for column in columns)
    spread = _by_column(document["spread"], columns)
    if (spread < 0.0).any():
        raise ValueError("spread")
    models: dict[str, FrozenModel] = {}
    # A stack is built from its members, so it is read after them.
    for key, model in sorted(document["models"].items(), key=lambda item: _is_stack(item[1])):
        frozen = model["frozen"]
        predictor = (
            _stack(frozen, models, len(columns)) if _is_stack(model) else load(frozen, len(columns))
        )
        models[str(key)] = _frozen_model(str(key), model, columns, idle, spread, predictor)
    chosen = str(document["chosen"])
    if chosen not in models:
        raise KeyError(chosen)
    noise = positive(document["noise"])
    members = [model.predictor for model in models.values() if isinstance(model.predictor, _Stack)]
    disagreeing = all("disagreements" in model for model in document["models"].values())
    return Variant(
        name=name,
        columns=columns,
        families=families,
        idle=idle,
        spread=spread,
        low=low,
        high=high,
        noise=noise,
        awake=awake,
        chosen=chosen,
        models=models,
        repeats=_repeats(document, noise, solo_runs),
        solo_runs=max(solo_runs, 1),
        loaded_runs=loaded_runs,
        members=members[0] if members and disagreeing else None,
    )


def _repeats(document: Mapping[str, Any], noise: float, solo_runs: int) -> Variance:
    if "repeats" not in document:
        return Variance((noise / _HALF_RANGE) ** 2, float(max(solo_runs - 1, 0)))
    repeats = document["repeats"]
    variance = Variance(finite(repeats["variance"]), finite(repeats["degrees"]))
    if min(variance.value, variance.degrees) < 0.0:
        raise ValueError("repeats")
    return variance


@dataclass(frozen=True, eq=False, slots=True)
class _Stack:
    """Several models: the weighted mean of their log slowdowns, or without weights their
    consensus, with the posterior of the runs that they were trained on, and the log slowdown that
    any neighbour adds to it (``kongming.learning.presence``)."""

    members: tuple[FrozenModel, ...]
    weights: Floats | None
    posterior: Posterior = NOTHING_OPEN
    presence: float = 0.0

    def log_slowdown(self, moved: Floats) -> Floats:
        """Return (n,) as ``FrozenModel.log_slowdown``."""
        return self.combined(self.each(moved), moved)

    def combined(self, logs: Floats, moved: Floats) -> Floats:
        """Return (n,) from the members' log slowdowns (n, k) of ``moved`` (n, p)."""
        if self.weights is not None:
            return logs @ self.weights
        return consensus(logs, self.unknown(moved))

    def unknown(self, moved: Floats) -> Floats:
        """Return (n,): the variance that the training runs leave open of ``moved`` (n, p)."""
        if not self.posterior.effect:
            return np.zeros(len(moved))
        first = self.members[0]
        return self.posterior.variance(spaces.features_of(moved, first.idle, "log", first.spread))

    def each(self, moved: Floats) -> Floats:
        """Return (n, k): the members' log slowdowns."""
        logs = np.empty((len(moved), len(self.members)))
        # Members of one space share the same features, since they are of one variant.
        features: dict[Space, Floats] = {}
        for place, member in enumerate(self.members):
            if member.space not in features:
                features[member.space] = spaces.features_of(
                    moved, member.idle, member.space, member.spread
                )
            logs[:, place] = member.answer(features[member.space])
        return logs


def _is_stack(document: Mapping[str, Any]) -> bool:
    return document["frozen"]["type"] in ("stack", "consensus")


def _stack(document: Mapping[str, Any], models: Mapping[str, FrozenModel], columns: int) -> _Stack:
    names = [str(name) for name in document["members"]]
    if document["type"] == "consensus":
        if len(set(names)) < max(len(names), 2):
            raise ValueError("members")
        known = document.get("posterior")
        posterior = NOTHING_OPEN if known is None else thawed(known, columns)
        presence = finite(document.get("presence", 0.0))
        if presence < 0.0:
            raise ValueError("presence")
        return _Stack(tuple(models[name] for name in names), None, posterior, presence)
    weights = np.array([finite(document["members"][name]) for name in names])
    if not names or min(weights) < 0.0 or not math.isclose(float(weights.sum()), 1.0):
        raise ValueError("members")
    return _Stack(tuple(models[name] for name in names), weights)


def _frozen_model(
    name: str,
    document: Mapping[str, Any],
    columns: tuple[str, ...],
    idle: Floats,
    spread: Floats,
    predictor: Predictor | _Stack,
) -> FrozenModel:
    space = document["space"]
    if space not in spaces.SPACES:
        raise ValueError("space")
    low, high = (finite(bound) for bound in document["bounds"])
    # Earlier documents have none, and bounds that leave room for ten times as much.
    worst = finite(document["worst"]) if "worst" in document else high - _FORMER_CEILING
    high = min(high, worst + spaces.CEILING)
    if not low <= worst <= high:
        raise ValueError("bounds")
    scale = "disagreements" if "disagreements" in document else "severities"
    residuals, errors = (
        np.array([finite(value) for value in document[key]], dtype=np.float64)
        for key in ("residuals", scale)
    )
    if len(residuals) != len(errors) or min(errors, default=0.0) < 0.0:
        raise ValueError("residuals")
    return FrozenModel(
        name=name,
        space=space,
        predictor=predictor,
        idle=idle,
        spread=spread,
        bounds=(low, high),
        worst=worst,
        weights=_by_column(document["weights"], columns),
        residuals=residuals,
        errors=errors if scale == "disagreements" else SEVERITY_SHARE * errors,
        groups=int(document["groups"]),
        scores={str(k): finite(v) for k, v in document["scores"].items()},
        not_better_than=_trivial(document.get("not_better_than")),
        selection=_selection(document["selection"], columns) if "selection" in document else None,
    )


def _trivial(names: object) -> tuple[str, ...] | None:
    # Documents of versions 1 and 2 have none.
    if names is None:
        return None
    if not isinstance(names, list) or not set(names) <= {MEAN, NO_SLOWDOWN}:
        raise ValueError("not_better_than")
    return tuple(names)


def _selection(document: Mapping[str, Any], columns: tuple[str, ...]) -> Selection:
    surrogates = tuple(document["surrogates"])
    if not set(surrogates) <= set(columns):
        raise ValueError("surrogates")
    observations = {str(name): count for name, count in document["observations"].items()}
    for count in observations.values():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError("observations")
    return Selection(surrogates, observations)


def _by_column(values: Mapping[str, Any], columns: tuple[str, ...]) -> Floats:
    return np.array([finite(values[column]) for column in columns], dtype=np.float64)
