"""From records and models to what is scored: co-runs as measured, and as every model predicts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kongming.errors import InputError, KongmingError

if TYPE_CHECKING:
    from kongming.evaluate import PairMeasurement, PairPrediction
    from kongming.models.intervals import Widening
    from kongming.models.persist import ModelFile
    from kongming.run import Run, Signature

Scored = Literal["raw", "bracketed"]


@dataclass(frozen=True, slots=True)
class Scale:
    """What turns a slowdown of each application into what is scored: 1, or its solo cost."""

    scored: Scored
    solo: Mapping[str, float]

    @classmethod
    def of(cls, scored: Scored, files: Mapping[str, ModelFile]) -> Scale:
        """Costs over solo costs are slowdowns already."""
        return cls(
            scored,
            {app: 1.0 if scored == "bracketed" else f.solo.median for app, f in files.items()},
        )


def measured_pairs(runs: Sequence[Run], apps: Sequence[str], scale: Scale) -> list[PairMeasurement]:
    """Every ordered pair of ``apps`` as the co-runs in ``runs`` measured it, oldest first.

    Bracketed costs are over the solo runs of the same minutes among ``runs``; an application
    without any is left without measurements.
    """
    from kongming.bracketing import bracket, slowdowns
    from kongming.evaluate import PairMeasurement
    from kongming.steadiness import changed, limits

    usual = limits(runs)
    found = []
    for app, other in permutations(sorted(apps), 2):
        beside = sorted(
            (run for run in runs if run.app == app and run.neighbours == (other,) and run.ok),
            key=lambda run: (run.started_at, run.step),
        )
        values = [run.cost for run in beside]
        if scale.scored == "bracketed":
            solos = bracket(run for run in runs if run.app == app)
            beside = [] if solos is None else beside
            values = [] if solos is None else slowdowns(beside, solos)
        looked = [changed(run, usual) for run in beside]
        # Nobody looked: there is no fingerprint around any of them.
        marked = () if all(mark is None for mark in looked) else tuple(map(bool, looked))
        found.append(PairMeasurement(app, other, tuple(values), marked))
    return found


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions, why some pairs have none, and by what the intervals of ``auto`` are widened."""

    pairs: list[PairPrediction]
    reasons: list[str]
    widenings: Mapping[str, Widening]


def predicted_pairs(
    files: Mapping[str, ModelFile],
    signatures: Mapping[str, Sequence[Signature]],
    measured: Sequence[PairMeasurement],
    scale: Scale,
) -> Predicted:
    """Every ordered pair by every model that was trained, and by the chosen one as ``auto``.

    An application's intervals are widened by what the measured pairs of the others need, those
    beside it left out as well.
    """
    from kongming.calibration import CoRun, calibrate
    from kongming.evaluate import PairPrediction
    from kongming.models.registry import AUTO
    from kongming.predict import predict_beside
    from kongming.run import geometric_mean

    coruns = [
        CoRun(pair.app, (pair.beside,), geometric_mean(pair.values) / scale.solo[pair.app])
        for pair in measured
        if pair.values and pair.app in files
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
                    said = predict_beside(
                        file,
                        {other: signatures[other]},
                        model=name,
                        widening=widening.factor,
                        widening_groups=widening.groups,
                    )
                except KongmingError as error:
                    reasons[f"{app} beside {other}: {error.message}"] = None
                    continue
                interval = said.slowdown.scaled(solo)
                pairs.append(
                    PairPrediction(
                        app,
                        other,
                        name,
                        interval.median,
                        interval.lower,
                        interval.upper,
                        interval.level,
                        said.extrapolating,
                    )
                )
    # AUTO is last, so its widenings are those that stay.
    return Predicted(pairs, list(reasons), widenings)


def training_mean(profile_runs: Iterable[Run], file: ModelFile, scale: Scale) -> float:
    """The paper's MEAN: over the training runs, on the scale of what is scored."""
    costs = [run.cost for run in profile_runs if run.kind in ("solo", "induced") and run.ok]
    return math.fsum(costs) / len(costs) / file.solo.median * scale.solo[file.app]


def selected(files: Mapping[str, ModelFile]) -> dict[str, dict[str, Any]]:
    """By model that selects surrogates and observations, and by application: what it selected."""
    found: dict[str, dict[str, Any]] = {}
    for app, file in sorted(files.items()):
        for name, model in file.variants["full"].models.items():
            if model.selection is not None:
                found.setdefault(name, {})[app] = {
                    "surrogates": list(model.selection.surrogates),
                    "observations": dict(model.selection.observations),
                }
    return found


def worst_slowdown(profile_runs: Iterable[Run], file: ModelFile) -> float:
    """Under any load level of the profile: what the application suffers at the most."""
    induced = [run.cost for run in profile_runs if run.kind == "induced" and run.ok]
    return max(induced, default=file.solo.median) / file.solo.median


def read_predictions(files: Iterable[Path]) -> list[dict[str, Any]]:
    """What other predictors say: {app, beside, model, slowdown} each.

    Raises:
        InputError: a file is not a list of those, or a model is named as one of ours is.
    """
    from kongming.evaluate.trivial import TRIVIAL
    from kongming.models.registry import AUTO, model_names

    taken = {AUTO, *TRIVIAL, *model_names(optional=True)}
    found = []
    for file in files:
        try:
            entries = json.loads(file.read_text("utf-8"))
        except OSError as error:
            raise InputError(
                f"{file} cannot be read: {error.strerror}.", field="--predictions"
            ) from error
        except ValueError as error:
            raise InputError(f"{file} is not JSON ({error}).", field="--predictions") from error
        if not isinstance(entries, list):
            raise InputError(
                f"{file} holds no list.", field="--predictions", allowed="a list of predictions"
            )
        for number, entry in enumerate(entries):
            found.append(_checked(entry, f"{file}, entry {number + 1}", taken))
    return found


def _checked(entry: object, where: str, taken: set[str]) -> dict[str, Any]:
    wanted = ("app", "beside", "model", "slowdown")
    if not isinstance(entry, dict) or not all(
        isinstance(entry.get(key), str) for key in wanted[:3]
    ):
        raise InputError(
            f"{where}: is no prediction.",
            field="--predictions",
            found=entry,
            allowed='{"app": NAME, "beside": NAME, "model": NAME, "slowdown": NUMBER}',
        )
    slowdown = entry.get("slowdown")
    if (
        isinstance(slowdown, bool)
        or not isinstance(slowdown, int | float)
        or not 0.0 < slowdown < math.inf
    ):
        raise InputError(
            f"{where}: is no slowdown.",
            field="slowdown",
            found=slowdown,
            allowed="a finite number above 0",
        )
    if entry["model"] in taken:
        raise InputError(
            f"{where}: is a name of ours.",
            field="model",
            found=entry["model"],
            allowed="a name that KONGMING has no model of",
        )
    return {key: entry[key] for key in wanted}


def others_predictions(
    entries: Iterable[Mapping[str, Any]], apps: Iterable[str], scale: Scale
) -> list[PairPrediction]:
    """What other predictors say of pairs of these applications; the rest is left out."""
    from kongming.evaluate import PairPrediction

    known = set(apps)
    return [
        PairPrediction(
            entry["app"],
            entry["beside"],
            entry["model"],
            entry["slowdown"] * scale.solo[entry["app"]],
        )
        for entry in entries
        if {entry["app"], entry["beside"]} <= known
    ]


def span_s(runs: Iterable[Run]) -> float:
    """Seconds from the start of the first run to the end of the last, by campaign, added up."""
    ends: dict[str, tuple[float, float]] = {}
    for run in runs:
        start = datetime.fromisoformat(run.started_at).timestamp()
        first, last = ends.get(run.campaign, (start, start))
        ends[run.campaign] = (min(first, start), max(last, start + run.wall_s))
    return math.fsum(last - first for first, last in ends.values())
