"""Score predictions for ordered pairs of co-located applications.

The layout is the paper's Table V, extended by the excess over the noise, what the truth itself
would score, trivial predictors, heavy pairs, regret and the coverage of intervals.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kongming.evaluate.cases import Cases, Floats, geometric, mean
from kongming.evaluate.coverage import one_level
from kongming.evaluate.measuring_curve import measuring_curves
from kongming.evaluate.noise import errors_of_means, floors, mean_variances, shrunk_variances
from kongming.evaluate.records import PairMeasurement, PairPrediction, Scored, once_each, unmarked
from kongming.evaluate.rounds import HEAVY, Rounds, by_rounds
from kongming.evaluate.skill import resampled_mean
from kongming.evaluate.summary import (
    document,
    geomeans,
    interval_coverage,
    model_order,
    summary,
    unpredicted,
)
from kongming.evaluate.trivial import (
    MEAN,
    OF_OTHERS,
    PAIRMEDIAN,
    ROWCOL,
    SOLO,
    TRIVIAL,
    pair_predictors,
)
from kongming.learning.registry import AUTO
from kongming.records.errors import InputError
from kongming.records.run import geometric_mean, noise_floor_pct


def score_pairs(
    measured: Sequence[PairMeasurement],
    predicted: Sequence[PairPrediction],
    *,
    solo: Mapping[str, float],
    training_mean: Mapping[str, float],
    repeats: int,
    chosen: Mapping[str, str],
    placement: str,
    node: Mapping[str, Any],
    runs: int,
    elapsed_s: float,
    scored: Scored,
    minutes: Mapping[str, float] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the JSON document of an evaluation over pairs; None for undefined figures.

    ``solo`` and ``training_mean`` (the mean cost over the training runs) are by application, on
    the scale of the measured values. The predictors of ``TRIVIAL`` are added here; predictions that
    arrive under these names are not used, except MEAN's for an application without a training
    mean. ``repeats`` is how many were asked for, ``runs`` and ``elapsed_s`` what they took;
    ``chosen`` says which model ``auto`` is, by application, and ``minutes`` how long the measuring
    takes that a model needs, where known. ``placement``, ``node``, ``chosen`` and ``scored`` are
    handed on. ``seed`` draws bootstrap samples.

    Measured is the geometric mean of a pair's repeats. ``excess`` is the headline (see ``excess``).
    An error in the table is |predicted - measured| / measured in per cent, an application's figure
    the median over its partners, and ``geomean_pct`` is over applications (a figure below 0.001 per
    cent counts as that); ``floored_geomean_pct`` takes no application's error below its noise
    floor. ``spearman`` is within an application, mean over them. A model is scored on the pairs
    that it predicted; ``unpredicted`` says how many it did not. Pairs without a successful repeat
    are listed in ``unmeasured``; predictions for them are not used. ``pairs`` holds every number
    that was scored.

    ``truth`` is what a predictor would score that knows each pair's true mean. Heavy and quiet
    pairs and regret need two repeats (``rounds`` says how they are scored); ``regret_gain`` is how
    far the regret is below that of a random partner. PAIRMEAN and PAIRMEDIAN rank nothing: without
    the scored partner the mean is least for the worst one.

    Raises:
        InputError: a pair or a prediction occurs twice, there is no pair, an application has no
            solo time, or intervals of ``auto`` have different levels.
    """
    pairs = _Pairs.of(measured, predicted, solo, training_mean)
    cases = pairs.cases()
    truth = pairs.truth()
    rounds = by_rounds(cases, pairs.repeats)
    floor = floors(truth, cases.app_of, len(cases.apps))
    return document(
        {
            "kind": "pairs",
            "placement": placement,
            "node": node,
            "apps": cases.apps,
            "runs": runs,
            "repeats": repeats,
            "elapsed_s": elapsed_s,
            "scored": scored,
            **summary(
                cases, floor, pairs.variances(), pairs.neighbour_of, trivial=PAIRMEDIAN, seed=seed
            ),
            "all": _all(cases, rounds, seed),
            "truth": {
                "geomean_pct": geometric(floor),
                "mean_abs_log_pct": 100.0 * mean(truth.ravel()),
                "heavy_pct": rounds.truth_heavy,
                "quiet_pct": rounds.truth_quiet,
                "regret_pct": rounds.truth_regret,
            },
            "random_regret_pct": mean(rounds.random_regrets),
            "heavy_pairs": np.count_nonzero(cases.measured > HEAVY * cases.solo),
            "minutes": {m: (minutes or {}).get(m) for m in cases.models},
            "measuring": measuring_curves(
                cases, pairs.neighbour_of, pairs.repeats, (minutes or {}).get(ROWCOL), seed=seed
            ),
            "coverage": _coverage(cases, pairs),
            "chosen": chosen,
            "marked": _marked(pairs),
            "unpredicted": unpredicted(cases),
            "unmeasured": pairs.unmeasured,
            "pairs": _rows(cases, pairs),
        }
    )


def pressures(document: Mapping[str, Any]) -> dict[str, float]:
    """Pressure of each application: the geometric mean slowdown of those co-located with it.

    Computed from a document of ``score_pairs``; applications without a measured neighbour are left
    out, as are pairs of an application with itself.
    """
    inflicted: dict[str, list[float]] = {}
    for pair in document["pairs"]:
        if pair["app"] != pair["neighbour"]:
            inflicted.setdefault(pair["neighbour"], []).append(pair["slowdown"])
    return {app: geometric_mean(inflicted[app]) for app in sorted(inflicted)}


def _all(cases: Cases, rounds: Rounds, seed: int) -> dict[str, dict[str, Any]]:
    logs, ranks = cases.mean_abs_log_pct(), cases.spearman()
    figures: dict[str, dict[str, Any]] = {}
    for m, model in enumerate(cases.models):
        regrets, rank = rounds.regrets[m], ranks[m]
        if model in OF_OTHERS:
            regrets, rank = np.full_like(regrets, np.nan), math.nan
        gain, interval = resampled_mean(rounds.random_regrets - regrets, seed=seed)
        figures[model] = {
            "mean_abs_log_pct": logs[m],
            "spearman": rank,
            "heavy_pct": rounds.heavy[m],
            "quiet_pct": rounds.quiet[m],
            "regret_pct": mean(regrets),
            "regret_gain": {"value": gain, "interval": interval},
        }
    return figures


def _coverage(cases: Cases, pairs: _Pairs) -> dict[str, Any]:
    """Coverage of ``auto``'s intervals: of single repeats by the ``run`` ones, and of the means of
    repeats, less what their error explains, by the ``expected`` ones; and how often a
    prediction was of the edge of the training runs, or outside them. What lies above a prediction
    that says "at least" is held by it."""
    predictions = [pairs.prediction(pair, AUTO) for pair in pairs.measured]
    runs = [
        None
        if prediction is None or prediction.lower is None or prediction.upper is None
        else (prediction.lower, prediction.upper)
        for prediction in predictions
    ]
    known = [
        prediction
        for prediction, bounds in zip(predictions, runs, strict=True)
        if prediction and bounds
    ]
    level = one_level({prediction.level for prediction in known})
    predicted = cases.predicted[cases.models.index(AUTO)] if AUTO in cases.models else cases.solo
    reach = 0.0 if level is None else NormalDist().inv_cdf((1.0 + level) / 2.0)
    at_least = [prediction is not None and prediction.at_least for prediction in predictions]
    counts = np.array([len(pair.values) for pair in pairs.measured], dtype=np.float64)
    variances = shrunk_variances(pairs.repeats, cases.app_of) / counts + pairs.solo_variances
    errors = reach * np.sqrt(variances)
    missed = np.log(cases.measured / predicted)
    beyond = np.sign(missed) * np.sqrt(np.maximum(missed**2 - errors**2, 0.0))
    means = predicted * np.exp(beyond)
    return {
        "level": level,
        "run": interval_coverage(cases, runs, pairs.repeats, at_least),
        "expected": interval_coverage(
            cases,
            [None if prediction is None else prediction.expected for prediction in predictions],
            means[:, None].tolist(),
            at_least,
        ),
        "at_edge": mean(np.array([prediction.at_least for prediction in known], dtype=np.float64)),
        "extrapolating": mean(
            np.array([prediction.extrapolating for prediction in known], dtype=np.float64)
        ),
    }


def _marked(pairs: _Pairs) -> dict[str, Any] | None:
    """Share of marked repeats, and the errors without them; None if no repeat was checked."""
    marks = [mark for pair in pairs.measured for mark in pair.marked]
    if not marks:
        return None
    rest = pairs.without_marked()
    figures: dict[str, Any] = {"share": float(np.mean(marks)), "pairs_left": 0}
    if rest is None:
        return figures | {"geomean_pct": dict.fromkeys(pairs.models), "noise_floor_pct": None}
    cases = rest.cases()
    floor = floors(rest.truth(), cases.app_of, len(cases.apps))
    return figures | {
        "pairs_left": len(rest.measured),
        "geomean_pct": geomeans(cases, cases.quartiles()[1]),
        "noise_floor_pct": geometric(floor),
    }


def _rows(cases: Cases, pairs: _Pairs) -> list[dict[str, Any]]:
    errors, variances = cases.errors, pairs.variances()
    return [
        {
            "app": pair.app,
            "neighbour": pair.neighbour,
            "measured": cases.measured[i],
            "slowdown": cases.measured[i] / cases.solo[i],
            "repeats": pair.values,
            "marked": pair.marked,
            "noise_floor_pct": noise_floor_pct(pair.values),
            "standard_error_pct": 100.0 * np.sqrt(variances[i]),
            "predictions": {
                model: _scored_prediction(
                    cases.predicted[m, i],
                    errors[m, i],
                    None if model in TRIVIAL else pairs.prediction(pair, model),
                )
                for m, model in enumerate(cases.models)
                if np.isfinite(cases.predicted[m, i])
            },
        }
        for i, pair in enumerate(pairs.measured)
    ]


def _scored_prediction(
    value: float, error: float, prediction: PairPrediction | None
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "value": value,
        "error_pct": error,
        "lower": None,
        "upper": None,
        "level": None,
        "extrapolating": False,
        "expected": None,
        "at_least": False,
    }
    if prediction is not None:
        entry["lower"], entry["upper"] = prediction.lower, prediction.upper
        entry["level"] = None if prediction.lower is None else prediction.level
        entry["extrapolating"] = prediction.extrapolating
        entry["expected"], entry["at_least"] = prediction.expected, prediction.at_least
    return entry


@dataclass(frozen=True, eq=False, slots=True)
class _Pairs:
    """Measured pairs with a successful repeat, sorted by name, and their predictions.

    Everything is computed in the order of names, so results do not depend on the measuring order.
    """

    measured: tuple[PairMeasurement, ...]
    unmeasured: tuple[tuple[str, str], ...]
    predicted: Mapping[tuple[str, str, str], PairPrediction]
    models: tuple[str, ...]
    solo: Mapping[str, float]
    training_mean: Mapping[str, float]

    @classmethod
    def of(
        cls,
        measured: Sequence[PairMeasurement],
        predicted: Sequence[PairPrediction],
        solo: Mapping[str, float],
        training_mean: Mapping[str, float],
    ) -> _Pairs:
        """Validate and sort the records. Raises InputError as ``score_pairs`` documents."""
        ordered = sorted(measured, key=lambda pair: (pair.app, pair.neighbour))
        pairs = tuple(pair for pair in ordered if pair.values)
        _check_once(ordered)
        if not pairs:
            raise InputError(
                "holds no pair with a successful repeat.", field="measured", allowed="one or more"
            )
        for pair in pairs:
            _check_above_zero(pair.app, "solo", solo.get(pair.app))
            if pair.app in training_mean:
                _check_above_zero(pair.app, "training_mean", training_mean[pair.app])
        return cls(
            pairs,
            tuple((pair.app, pair.neighbour) for pair in ordered if not pair.values),
            _by_key(predicted),
            model_order([prediction.model for prediction in predicted], TRIVIAL),
            solo,
            training_mean,
        )

    def prediction(self, pair: PairMeasurement, model: str) -> PairPrediction | None:
        """Prediction of a model for a pair, if there is one."""
        return self.predicted.get((pair.app, pair.neighbour, model))

    def cases(self) -> Cases:
        """Arrange the pairs as cases, measured by the geometric mean of their repeats, and add the
        trivial predictors."""
        pairs = self.measured
        apps = tuple(dict.fromkeys(pair.app for pair in pairs))
        app_of = np.array([apps.index(pair.app) for pair in pairs], dtype=np.intp)
        costs = np.array([geometric_mean(pair.values) for pair in pairs])
        solos = np.array([self.solo[pair.app] for pair in pairs], dtype=np.float64)
        predicted = np.full((len(self.models), len(pairs)), np.nan)
        for m, model in enumerate(self.models):
            for i, pair in enumerate(pairs):
                prediction = self.prediction(pair, model)
                if prediction is not None:
                    predicted[m, i] = prediction.value
                if model == MEAN and pair.app in self.training_mean:
                    predicted[m, i] = self.training_mean[pair.app]
        predicted[self.models.index(SOLO)] = solos
        for model, values in pair_predictors(costs, solos, app_of, self.neighbour_of).items():
            predicted[self.models.index(model)] = values
        return Cases(apps, app_of, costs, solos, self.models, predicted)

    @property
    def neighbour_of(self) -> NDArray[np.intp]:
        """(pairs,) numbers of the partners."""
        return np.unique([pair.neighbour for pair in self.measured], return_inverse=True)[1]

    @property
    def repeats(self) -> list[tuple[float, ...]]:
        return [pair.values for pair in self.measured]

    @property
    def solo_variances(self) -> Floats:
        return np.array([pair.solo_variance for pair in self.measured], dtype=np.float64)

    def variances(self) -> Floats:
        """(pairs,): variance of the log of each measured cost, solo runs' included."""
        return mean_variances(self.repeats, self.solo_variances)

    def truth(self) -> Floats:
        """(draws, pairs): absolute log errors of a perfect predictor."""
        return errors_of_means(self.repeats, self.solo_variances)

    def without_marked(self) -> _Pairs | None:
        """Return the same pairs with unmarked repeats only; None if all are marked."""
        remaining = [
            PairMeasurement(pair.app, pair.neighbour, values, solo_variance=pair.solo_variance)
            for pair in self.measured
            if (values := unmarked(pair.values, pair.marked))
        ]
        if not remaining:
            return None
        return _Pairs(
            tuple(remaining), (), self.predicted, self.models, self.solo, self.training_mean
        )


def _check_once(ordered: Sequence[PairMeasurement]) -> None:
    for pair, following in itertools.pairwise(ordered):
        if (pair.app, pair.neighbour) == (following.app, following.neighbour):
            raise InputError(
                "is there twice.",
                field="measured",
                value=f"{pair.app} next to {pair.neighbour}",
                allowed="each ordered pair once",
                hint="Put all repeats of a pair into one record.",
            )


def _by_key(
    predicted: Sequence[PairPrediction],
) -> dict[tuple[str, str, str], PairPrediction]:
    return once_each(
        predicted,
        lambda prediction: (prediction.app, prediction.neighbour, prediction.model),
        describe=lambda prediction: (
            f"{prediction.model} for {prediction.app} next to {prediction.neighbour}"
        ),
        allowed="one prediction of a model for a pair",
    )


def _check_above_zero(app: str, field: str, value: float | None) -> None:
    if value is None or not (np.isfinite(value) and value > 0.0):
        raise InputError(
            f"is missing or not a cost for {app}.",
            field=field,
            value=value,
            allowed="a finite number above 0 by application",
        )
