"""Prepare pairs for scoring: measured co-runs, and the predictions of every model."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kongming.files.missing_file import unreadable
from kongming.records import control, moments
from kongming.records.errors import InputError, KongmingError
from kongming.records.lower_bounds import completed_costs

if TYPE_CHECKING:
    from kongming.evaluate import PairMeasurement, PairPrediction
    from kongming.learning.bracketing import Bracket
    from kongming.learning.intervals import Widening
    from kongming.learning.model_file import ModelFile
    from kongming.records.run import Run, Signature

Scored = Literal["raw", "bracketed"]


@dataclass(frozen=True, slots=True)
class Scale:
    """Factor from an application's slowdown to the scored quantity: 1, or its solo cost."""

    scored: Scored
    solo: Mapping[str, float]

    @classmethod
    def of(cls, scored: Scored, files: Mapping[str, ModelFile]) -> Scale:
        """Build the scale; bracketed costs are slowdowns already."""
        return cls(
            scored,
            {app: 1.0 if scored == "bracketed" else f.solo.median for app, f in files.items()},
        )


def measured_pairs(
    runs: Sequence[Run], pairs: Iterable[tuple[str, str]], scale: Scale
) -> list[PairMeasurement]:
    """Return each ordered pair as measured by the co-runs in ``runs``, oldest first.

    Bracketed costs are relative to the solo runs close in time among ``runs``; an application
    without any has no measurements.
    """
    from kongming.evaluate import PairMeasurement
    from kongming.learning.bracketing import bracket, slowdowns
    from kongming.learning.steadiness import changed, limits

    usual, evicted = limits(runs), control.evicted(runs)
    measurements = []
    for app, other in pairs:
        coruns = sorted(
            (run for run in runs if run.app == app and run.neighbours == (other,) and run.ok),
            key=lambda run: (run.started_at, run.step),
        )
        values, shared = [run.cost for run in coruns], 0.0
        if scale.scored == "bracketed":
            solos = bracket(run for run in runs if run.app == app)
            coruns = [] if solos is None else coruns
            values = [] if solos is None else slowdowns(coruns, solos)
            shared = 0.0 if solos is None else shared_solo_variance(coruns, solos)
        disturbed = control.disturbed(coruns) | evicted
        marks = [True if run.id in disturbed else changed(run, usual) for run in coruns]
        # Without a fingerprint around any run, only what it read was checked.
        marked = () if all(mark is None for mark in marks) else tuple(map(bool, marks))
        measurements.append(PairMeasurement(app, other, tuple(values), marked, shared))
    return measurements


def shared_solo_variance(coruns: Sequence[Run], solos: Bracket) -> float:
    """Variance that the solo runs' errors add to the mean log slowdown of ``coruns`` beyond what
    the spread of the slowdowns shows.

    Each slowdown is over a weighted mean of solo logs. What two of them share is the inner product
    of their weights times the variance of one solo log, which is taken from consecutive solo runs,
    so that slow drift is not counted; 0 below two co-runs or solo runs.
    """
    count = len(solos.logs)
    if len(coruns) < 2 or count < 2:
        return 0.0
    moment = [moments.unix(run.started_at) for run in coruns]
    # The weight of solo run k at a moment is the bracket of a log of 1 there and 0 elsewhere.
    weights = [
        [
            math.log(replace(solos, logs=tuple(float(j == k) for j in range(count))).at(t))
            for k in range(count)
        ]
        for t in moment
    ]
    products = [math.fsum(map(mul, a, b)) for a, b in combinations(weights, 2)]
    steps = [later - earlier for earlier, later in pairwise(solos.logs)]
    variance = math.fsum(step**2 for step in steps) / len(steps) / 2.0
    return variance * math.fsum(products) / len(products)


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions, the reasons why some pairs have none, and the widenings of ``auto``."""

    pairs: list[PairPrediction]
    reasons: list[str]
    widenings: Mapping[str, Widening]


def predicted_pairs(
    files: Mapping[str, ModelFile],
    signatures: Mapping[str, Sequence[Signature]],
    measured: Sequence[PairMeasurement],
    scale: Scale,
) -> Predicted:
    """Predict every ordered pair by every trained model, and by the chosen one as ``auto``.

    The widenings of an application's intervals are calibrated on the co-runs of the others, without
    those co-located with it.
    """
    from kongming.evaluate import PairPrediction
    from kongming.learning.calibration import CoRun, calibrate
    from kongming.learning.predict import predict_colocated
    from kongming.learning.registry import AUTO

    coruns = [
        CoRun(pair.app, (pair.neighbour,), value / scale.solo[pair.app])
        for pair in measured
        if pair.app in files
        for value in pair.values
    ]
    names = dict.fromkeys(name for file in files.values() for name in file.variants["full"].models)
    pairs: list[PairPrediction] = []
    reasons: dict[str, None] = {}
    widenings: dict[str, Widening] = {}
    for name in (*names, AUTO):
        calibration = calibrate(files, signatures, coruns, model=name)
        for app, file in sorted(files.items()):
            widening = widenings[app] = calibration.widening(app)
            solo = scale.solo[app]
            for other in sorted(signatures.keys() - {app}):
                try:
                    prediction = predict_colocated(
                        file,
                        {other: signatures[other]},
                        model=name,
                        widening=widening,
                    )
                except KongmingError as error:
                    reasons[f"{app} next to {other}: {error.message}"] = None
                    continue
                interval = prediction.slowdown.scaled(solo)
                pairs.append(
                    PairPrediction(
                        app,
                        other,
                        name,
                        interval.median,
                        interval.lower,
                        interval.upper,
                        interval.level,
                        prediction.extrapolating,
                        interval.expected,
                        interval.at_least,
                    )
                )
    # AUTO is last, so the widenings are those of ``auto``.
    return Predicted(pairs, list(reasons), widenings)


def training_mean(profile_runs: Iterable[Run], file: ModelFile, scale: Scale) -> float:
    """The paper's MEAN: the mean over the training runs, on the scale of the scored quantity. One
    that was cut off counts as slow as those that came to their end above it."""
    costs = completed_costs(
        run for run in profile_runs if run.kind in ("solo", "induced") and run.ok
    )
    return math.fsum(costs) / len(costs) / file.solo.median * scale.solo[file.app]


def selected(files: Mapping[str, ModelFile]) -> dict[str, dict[str, Any]]:
    """Surrogates and observations that were selected, by selecting model and application."""
    selections: dict[str, dict[str, Any]] = {}
    for app, file in sorted(files.items()):
        for name, model in file.variants["full"].models.items():
            if model.selection is not None:
                selections.setdefault(name, {})[app] = {
                    "surrogates": list(model.selection.surrogates),
                    "observations": dict(model.selection.observations),
                }
    return selections


def worst_slowdown(profile_runs: Iterable[Run], file: ModelFile) -> float:
    """Largest slowdown of the application under any load level of its profile."""
    induced = [run.cost for run in profile_runs if run.kind == "induced" and run.ok]
    return max(induced, default=file.solo.median) / file.solo.median


def awake_predictions(
    files: Mapping[str, ModelFile], profiles: Mapping[str, Sequence[Run]], scale: Scale
) -> list[PairPrediction]:
    """AWAKE: predict every ordered pair by the application's awake factor alone, for the time that
    the other one, by the solo runs of its profile, does not wait itself."""
    from kongming.evaluate import PairPrediction
    from kongming.evaluate.trivial import AWAKE
    from kongming.records.run import waiting_share

    busy = {app: 1.0 - (waiting_share(runs) or 0.0) for app, runs in profiles.items()}
    return [
        PairPrediction(
            app,
            other,
            AWAKE,
            math.exp(file.variants["full"].awake * busy[other]) * scale.solo[app],
        )
        for app, file in files.items()
        for other in busy
        if other != app
    ]


def minutes_of(
    profile_records: Iterable[Iterable[Run | Signature]],
    coruns: Sequence[Run],
    models: Iterable[str],
    others: Iterable[Mapping[str, Any]] = (),
) -> dict[str, float]:
    """Minutes of measuring by predictor. ``profile_records`` are of each application; ``others``
    are external predictions, which may state their own."""
    from kongming.evaluate.minutes import campaign_costs, minutes_needed

    profiles, pairs = campaign_costs(itertools.chain.from_iterable(profile_records), coruns)
    stated = {
        str(entry["model"]): float(entry["minutes"]) for entry in others if "minutes" in entry
    }
    return minutes_needed(profiles, pairs, models) | stated


def read_predictions(files: Iterable[Path]) -> list[dict[str, Any]]:
    """Read predictions of external predictors: {app, neighbour, model, slowdown} each, and minutes.

    Raises:
        InputError: a file is not a list of those, or a model has the name of a KONGMING model.
    """
    from kongming.evaluate.trivial import AWAKE, TRIVIAL
    from kongming.learning.registry import AUTO, model_names

    reserved = {AUTO, AWAKE, *TRIVIAL, *model_names(optional=True)}
    predictions = []
    for file in files:
        try:
            entries = json.loads(file.read_text("utf-8"))
        except OSError as error:
            raise unreadable(file, error, field="--predictions") from error
        except ValueError as error:
            raise InputError(f"{file} is not JSON ({error}).", field="--predictions") from error
        if not isinstance(entries, list):
            raise InputError(
                f"{file} is not a list.", field="--predictions", allowed="a list of predictions"
            )
        for number, entry in enumerate(entries):
            predictions.append(_checked(entry, f"{file}, entry {number + 1}", reserved))
    return predictions


def _checked(entry: object, where: str, reserved: set[str]) -> dict[str, Any]:
    keys = ("app", "neighbour", "model", "slowdown")
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in keys[:3]):
        raise InputError(
            f"{where}: is not a prediction.",
            field="--predictions",
            value=entry,
            allowed='{"app": NAME, "neighbour": NAME, "model": NAME, "slowdown": NUMBER}',
        )
    slowdown = entry.get("slowdown")
    if (
        isinstance(slowdown, bool)
        or not isinstance(slowdown, int | float)
        or not 0.0 < slowdown < math.inf
    ):
        raise InputError(
            f"{where}: is not a slowdown.",
            field="slowdown",
            value=slowdown,
            allowed="a finite number above 0",
        )
    if entry["model"] in reserved:
        raise InputError(
            f"{where}: is the name of a KONGMING model.",
            field="model",
            value=entry["model"],
            allowed="any other name",
        )
    minutes = entry.get("minutes", 0.0)
    if (
        isinstance(minutes, bool)
        or not isinstance(minutes, int | float)
        or not 0 <= minutes < math.inf
    ):
        raise InputError(
            f"{where}: is not a time.",
            field="minutes",
            value=minutes,
            allowed="minutes of measuring that the predictor needs, 0 or more; may be left out",
        )
    return {key: entry[key] for key in (*keys, "minutes") if key in entry}


def others_predictions(
    entries: Iterable[Mapping[str, Any]], apps: Iterable[str], scale: Scale
) -> list[PairPrediction]:
    """Convert external predictions for pairs of these applications; others are ignored."""
    from kongming.evaluate import PairPrediction

    known = set(apps)
    return [
        PairPrediction(
            entry["app"],
            entry["neighbour"],
            entry["model"],
            entry["slowdown"] * scale.solo[entry["app"]],
        )
        for entry in entries
        if {entry["app"], entry["neighbour"]} <= known
    ]


def order_measured(
    profiles: Iterable[Run | Signature], pairs: Iterable[Run]
) -> list[dict[str, str]]:
    """Return what was measured and when, oldest first: the order of profiles, signatures and
    pairs."""
    from kongming.records.run import Run

    entries = []
    for record in (*profiles, *pairs):
        if isinstance(record, Run):
            at, kind = record.started_at, record.kind
            neighbour = "+".join(record.neighbours or map(str, record.levels))
        else:
            at, kind, neighbour = record.fingerprint.started_at, "signature", ""
        entries.append({"at": at, "kind": kind, "app": record.app, "neighbour": neighbour})
    return sorted(entries, key=lambda entry: (moments.unix(entry["at"]), entry["app"]))


def span_s(runs: Iterable[Run]) -> float:
    """Return the time of all campaigns, each from the start of its first run to the end of its
    last; time in which several of them measured in turns counts once."""
    ends: dict[str, tuple[float, float]] = {}
    for run in runs:
        start = moments.unix(run.started_at)
        first, last = ends.get(run.campaign, (start, start))
        ends[run.campaign] = (min(first, start), max(last, start + run.wall_s))
    total, counted = 0.0, -math.inf
    for first, last in sorted(ends.values()):
        total += max(last - max(first, counted), 0.0)
        counted = max(counted, last)
    return total
