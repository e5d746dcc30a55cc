"""Prepare runs in environments for scoring: each environment is left out in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from kongming.records.errors import KongmingError

if TYPE_CHECKING:
    from kongming.evaluate import EnvironmentMeasurement, EnvironmentPrediction
    from kongming.evaluate.training import Key, Task
    from kongming.learning.model_file import ModelFile
    from kongming.records.fingerprint import Fingerprint
    from kongming.records.run import Run

IDLE = "idle"
"""The environment whose runs are the solo runs."""

ByEnvironment = Mapping[tuple[str, str], Sequence["Run"]]
"""Successful runs, oldest first, by application and name of the environment."""


def by_environment(runs: Sequence[Run], apps: Sequence[str]) -> dict[tuple[str, str], list[Run]]:
    """Group runs. Runs without a preceding fingerprint are ignored, as they cannot be predicted."""
    grouped: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.started_at, run.step)):
        if run.ok and run.before is not None and run.app in apps:
            grouped.setdefault((run.app, str(run.config["environment"])), []).append(run)
    return dict(sorted(grouped.items()))


def measured_environments(cases: ByEnvironment) -> list[EnvironmentMeasurement]:
    """Return the costs, and a mark for each run during which the node visibly changed."""
    from kongming.evaluate import EnvironmentMeasurement
    from kongming.learning.steadiness import changed, limits

    usual = limits(run for runs in cases.values() for run in runs)
    measurements = []
    for (app, name), runs in cases.items():
        marks = [changed(run, usual) for run in runs]
        measurements.append(
            EnvironmentMeasurement(
                app,
                name,
                str(runs[0].config["kind"]),
                bool(runs[0].config["synthetic"]),
                tuple(run.cost for run in runs),
                () if all(mark is None for mark in marks) else tuple(map(bool, marks)),
            )
        )
    return measurements


def solo_costs(cases: ByEnvironment) -> dict[str, float]:
    """Solo cost by application: the median on the idle node, or in the fastest environment if it
    never ran there."""
    costs = {}
    for app in sorted({app for app, _ in cases}):
        own = {name: runs for (owner, name), runs in cases.items() if owner == app}
        costs[app] = median(run.cost for run in own[_reference(own)])
    return costs


def _reference(runs: Mapping[str, Sequence[Run]]) -> str:
    """Reference environment of slowdowns: the idle one, or if that is left out, the one in which
    the application is fastest."""
    if IDLE in runs:
        return IDLE
    return min(runs, key=lambda name: median(run.cost for run in runs[name]))


def training_tasks(
    cases: ByEnvironment, placement: str, models: Sequence[str] | None, seed: int
) -> Iterator[Task]:
    """Training tasks: for each application and environment, its runs in all other environments."""
    from kongming.evaluate.training import Task
    from kongming.learning.dataset import in_environments

    for app, left_out in cases:
        others = {
            name: runs for (owner, name), runs in cases.items() if owner == app and name != left_out
        }
        if others:
            runs = [run for name in others for run in others[name]]
            yield Task(
                (app, left_out),
                tuple(in_environments(runs, _reference(others))),
                placement,
                models,
                seed,
                # Every fingerprint is a quick one, so a quick variant would be identical.
                quick_columns=(),
            )


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions, and the reasons why some runs have none."""

    environments: list[EnvironmentPrediction]
    reasons: list[str]


def predicted_environments(cases: ByEnvironment, files: Mapping[Key, ModelFile]) -> Predicted:
    """Predict each run by the models that were not trained on its environment, from the fingerprint
    taken right before it."""
    from kongming.learning.registry import AUTO

    predictions: list[EnvironmentPrediction] = []
    reasons: dict[str, None] = {}
    for (app, name), runs in cases.items():
        file = files.get((app, name))
        if file is None:
            continue
        fingerprints = [run.before for run in runs if run.before is not None]
        for model in (*file.variants["full"].models, AUTO):
            try:
                predictions.append(_predicted(file, name, model, fingerprints))
            except KongmingError as error:
                reasons[f"{app} in {name}: {error.message}"] = None
    return Predicted(predictions, list(reasons))


def _predicted(
    file: ModelFile, environment: str, model: str, fingerprints: Sequence[Fingerprint]
) -> EnvironmentPrediction:
    from kongming.evaluate import EnvironmentPrediction
    from kongming.learning.predict import predict_environment

    predictions = [
        predict_environment(file, fingerprint, model=model, variant="full")
        for fingerprint in fingerprints
    ]
    costs = [prediction.slowdown.scaled(file.solo.median) for prediction in predictions]
    return EnvironmentPrediction(
        file.app,
        environment,
        model,
        tuple(cost.median for cost in costs),
        tuple(cost.lower for cost in costs),
        tuple(cost.upper for cost in costs),
        costs[0].level,
        tuple(prediction.extrapolating for prediction in predictions),
        tuple(cost.at_least for cost in costs),
    )


def chosen_most(files: Mapping[Key, ModelFile]) -> dict[str, str]:
    """Return, by application, the model that was chosen for most of the left-out environments."""
    votes: dict[str, Counter[str]] = {}
    for (app, _), file in sorted(files.items()):
        votes.setdefault(app, Counter())[file.variants["full"].chosen] += 1
    return {
        app: min(count, key=lambda model: (-count[model], model)) for app, count in votes.items()
    }
