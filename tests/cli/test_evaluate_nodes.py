"""``kongming evaluate --nodes`` over what a store holds: each environment is left out in turn."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from kongming.cli.main import run
from kongming.evaluate.predicted_environments import by_environment, training_tasks
from kongming.learning import dataset
from kongming.store import Store
from tests.cli import evaluated

PROGRAMS = ("chaser", "writer")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nodes")
    file = evaluated.applications_file(path, PROGRAMS)
    with Store.open(f"sqlite:///{path / 'store.db'}") as store:
        evaluated.fill_nodes(store, file, synthetic_kind="mix")
    return path


def command(folder: Path, *args: str | Path) -> tuple[str, ...]:
    url = f"sqlite:///{folder / 'store.db'}"
    start = ("evaluate", folder / "apps.toml", "--nodes", "--score-only", "--store", url)
    return tuple(map(str, (*start, *args)))


def test_each_environment_is_predicted_by_models_of_the_others(
    folder: Path, one_cpu: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "out"
    with evaluated.light_pages():
        assert run(command(folder, "--models", "RIDGE", "--out", out)) == 0
    shown = capsys.readouterr().out
    assert "Synthetic environments" in shown
    assert "Not possible here: memory: no memory controller" in shown
    document: dict[str, Any] = json.loads((out / "document.json").read_text())
    assert (document["kind"], document["scored"], document["complete"]) == ("nodes", "raw", True)
    assert document["runs"] == 2 * len(evaluated.ENVIRONMENTS) * 3
    assert {environment["name"] for environment in document["environments"]} == set(
        evaluated.ENVIRONMENTS
    )
    assert set(document["geomean_pct"]) == {"MEAN", "SOLO", "RIDGE", "auto"}
    # Only those that are real are in the table.
    assert set(document["per_environment"]) == {
        name for name, (kind, _) in evaluated.ENVIRONMENTS.items() if kind != "mix"
    }
    assert document["ratio_to_mean"]["auto"]["value"] < 0.4
    assert document["synthetic"]["geomean_pct"]["auto"] > 0
    chosen = document["chosen_by_environment"]
    assert set(chosen) == set(PROGRAMS)
    assert all(set(models) == set(evaluated.ENVIRONMENTS) for models in chosen.values())
    assert (out / "runs.csv").read_text().count("\n") == 1 + document["runs"] * 4
    assert (out / "error-cdf-light.svg").exists()


def test_nothing_of_an_environment_is_in_what_its_models_learn_from(folder: Path) -> None:
    with Store.open(f"sqlite:///{folder / 'store.db'}") as store:
        runs = store.runs(kind="environment")
    cases = by_environment(runs, PROGRAMS)
    seen = set()
    for task in training_tasks(cases, "cross-core", None, 0):
        app, left_out = task.key
        seen.add(task.key)
        assert {run.app for run in task.runs} == {app}
        names = {run.config["environment"] for run in task.runs}
        assert names == set(evaluated.ENVIRONMENTS) - {left_out}
        data = dataset.build(task.runs)
        solo = "idle" if left_out != "idle" else _fastest(task.runs)
        # The runs that slowdowns are over stand for no load; every other environment does.
        assert {name for group in data.groups for name in group} == {
            f"in:{name}" for name in names - {solo}
        }
        assert {name for inducers in data.inducers for name in inducers} == names - {solo}
        assert data.kinds.count("solo") == 3
        assert data.solo.median == pytest.approx(
            sorted(run.cost for run in task.runs if run.config["environment"] == solo)[1]
        )
        assert len(set(data.levels)) == len(names)
    assert seen == {(app, name) for app in PROGRAMS for name in evaluated.ENVIRONMENTS}


def _fastest(runs: Any) -> str:
    costs: dict[str, list[float]] = {}
    for measured in runs:
        costs.setdefault(measured.config["environment"], []).append(math.log(measured.cost))
    return min(costs, key=lambda name: sorted(costs[name])[1])


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--environments", "9"), 3, ("no runs in environments", "without --score-only")),
        (("--repeats", "2"), 3, ("2 times each",)),
        (("--scored", "raw"), 2, ("--pairs",)),
        (("--predictions", "x.json"), 2, ("--pairs",)),
    ],
)
def test_what_cannot_be_done_says_the_way_out(
    folder: Path,
    arguments: tuple[str, ...],
    status: int,
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(command(folder, *arguments)) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    for word in words:
        assert word in captured.err
