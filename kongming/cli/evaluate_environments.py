"""From runs in environments to what is scored: each environment left out in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from kongming.errors import KongmingError

if TYPE_CHECKING:
    from kongming.cli.evaluate_training import Key, Task
    from kongming.evaluate import EnvironmentMeasurement, EnvironmentPrediction
    from kongming.fingerprint import Fingerprint
    from kongming.models.persist import ModelFile
    from kongming.run import Run

IDLE = "idle"
"""The environment whose runs are the solo runs."""

ByEnvironment = Mapping[tuple[str, str], Sequence["Run"]]
"""Runs that succeeded, oldest first, by application and name of the environment."""


def by_environment(runs: Sequence[Run], apps: Sequence[str]) -> dict[tuple[str, str], list[Run]]:
    """Runs without a fingerprint before them are left out: nothing can be predicted of them."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.started_at, run.step)):
        if run.ok and run.before is not None and run.app in apps:
            found.setdefault((run.app, str(run.config["environment"])), []).append(run)
    return dict(sorted(found.items()))


def measured_environments(cases: ByEnvironment) -> list[EnvironmentMeasurement]:
    """The costs, and which runs the node visibly changed during."""
    from kongming.evaluate import EnvironmentMeasurement
    from kongming.steadiness import changed, limits

    usual = limits(run for runs in cases.values() for run in runs)
    found = []
    for (app, name), runs in cases.items():
        looked = [changed(run, usual) for run in runs]
        found.append(
            EnvironmentMeasurement(
                app,
                name,
                str(runs[0].config["kind"]),
                bool(runs[0].config["synthetic"]),
                tuple(run.cost for run in runs),
                () if all(mark is None for mark in looked) else tuple(map(bool, looked)),
            )
        )
    return found


def solo_costs(cases: ByEnvironment) -> dict[str, float]:
    """By application: the median on the idle node, or where it is fastest if it never ran there."""
    found = {}
    for app in sorted({app for app, _ in cases}):
        mine = {name: runs for (one, name), runs in cases.items() if one == app}
        found[app] = median(run.cost for run in mine[_reference(mine)])
    return found


def _reference(runs: Mapping[str, Sequence[Run]]) -> str:
    """The environment that slowdowns are over: the idle one; where that is left out, the one in
    which the application is fastest."""
    if IDLE in runs:
        return IDLE
    return min(runs, key=lambda name: median(run.cost for run in runs[name]))


def training_tasks(
    cases: ByEnvironment, placement: str, models: Sequence[str] | None, seed: int
) -> Iterator[Task]:
    """For each application and environment: its runs in all others."""
    from kongming.cli.evaluate_training import Task
    from kongming.dataset import in_environments

    for app, left_out in cases:
        others = {
            name: runs for (one, name), runs in cases.items() if one == app and name != left_out
        }
        if others:
            runs = [run for name in others for run in others[name]]
            yield Task(
                (app, left_out),
                tuple(in_environments(runs, _reference(others))),
                placement,
                models,
                seed,
                # Every fingerprint is a quick one: a quick variant would be the same again.
                quick_columns=(),
            )


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions, and why some runs have none."""

    environments: list[EnvironmentPrediction]
    reasons: list[str]


def predicted_environments(cases: ByEnvironment, files: Mapping[Key, ModelFile]) -> Predicted:
    """Each run by the models that were not trained on its environment, from the fingerprint that
    was taken right before it."""
    from kongming.models.registry import AUTO

    found: list[EnvironmentPrediction] = []
    reasons: dict[str, None] = {}
    for (app, name), runs in cases.items():
        file = files.get((app, name))
        if file is None:
            continue
        fingerprints = [run.before for run in runs if run.before is not None]
        for model in (*file.variants["full"].models, AUTO):
            try:
                found.append(_predicted(file, name, model, fingerprints))
            except KongmingError as error:
                reasons[f"{app} in {name}: {error.message}"] = None
    return Predicted(found, list(reasons))


def _predicted(
    file: ModelFile, environment: str, model: str, fingerprints: Sequence[Fingerprint]
) -> EnvironmentPrediction:
    from kongming.evaluate import EnvironmentPrediction
    from kongming.predict import predict_environment

    said = [predict_environment(file, one, model=model, variant="full") for one in fingerprints]
    costs = [one.slowdown.scaled(file.solo.median) for one in said]
    return EnvironmentPrediction(
        file.app,
        environment,
        model,
        tuple(cost.median for cost in costs),
        tuple(cost.lower for cost in costs),
        tuple(cost.upper for cost in costs),
        costs[0].level,
        tuple(one.extrapolating for one in said),
    )


def chosen_most(files: Mapping[Key, ModelFile]) -> dict[str, str]:
    """By application: the model that was chosen for most of the environments left out."""
    votes: dict[str, Counter[str]] = {}
    for (app, _), file in sorted(files.items()):
        votes.setdefault(app, Counter())[file.variants["full"].chosen] += 1
    return {
        app: min(count, key=lambda model: (-count[model], model)) for app, count in votes.items()
    }
