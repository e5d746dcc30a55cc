"""``kongming evaluate --pairs`` over what a store holds: scores, words and ways out."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kongming.campaigns.preregistration import preregister
from kongming.cli.evaluate.evaluate import _models
from kongming.cli.evaluate.report import keep, show
from kongming.cli.main import run
from kongming.learning.training import train_application
from kongming.records.run import geometric_mean
from kongming.store import Store
from tests.cli import evaluated
from tests.conftest import Kongming, on_one_cpu

MODELS = ("--models", "RIDGE,LM")
DRIFT = 0.3
"""By how much, in logs, everything became slower while the pairs were run."""

Asks = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of pairs: all of four times each, and half of twice each."""
    path = tmp_path_factory.mktemp("pairs")
    file = evaluated.applications_file(path)
    for name, repeats, done in (("whole", 4, 1.0), ("half", 2, 0.5)):
        with Store.open(f"sqlite:///{path / name}.db") as store:
            evaluated.fill_pairs(store, file, repeats=repeats, done=done, drift=DRIFT)
    return path


def command(folder: Path, store: str, *args: str | Path) -> tuple[str, ...]:
    url = f"sqlite:///{folder / store}.db"
    start = ("evaluate", folder / "apps.toml", "--pairs", "--score-only", "--store", url)
    return tuple(map(str, (*start, *args)))


@pytest.fixture(scope="module")
def others(folder: Path) -> Path:
    """Predictions of others: one that is always right, and one for a program that is elsewhere."""
    entries = [
        {
            "app": app,
            "neighbour": other,
            "model": "oracle",
            "slowdown": evaluated.slowdown(app, other),
        }
        for app in evaluated.PROGRAMS
        for other in evaluated.PROGRAMS
        if app != other
    ]
    entries.append({"app": "elsewhere", "neighbour": "sums", "model": "oracle", "slowdown": 1.5})
    path = folder / "others.json"
    path.write_text(json.dumps(entries))
    return path


@pytest.fixture(scope="module")
def documents(folder: Path, others: Path) -> dict[str, dict[str, Any]]:
    """What the command wrote and what it printed, by what is scored."""
    arguments = (*MODELS, "--predictions", others)
    out = folder / "bracketed"
    with on_one_cpu(), evaluated.light_pages():
        assert run(command(folder, "whole", *arguments, "--scored", "bracketed", "--out", out)) == 0
    with contextlib.redirect_stdout(io.StringIO()) as printed, on_one_cpu():
        assert run(command(folder, "whole", *arguments, "--scored", "raw", "--json")) == 0
    return {
        "bracketed": json.loads((out / "document.json").read_text()),
        "raw": json.loads(printed.getvalue()),
    }


def test_every_ordered_pair_is_scored_by_every_model(documents: dict[str, dict[str, Any]]) -> None:
    document = documents["bracketed"]
    trivial = {"MEAN", "SOLO", "PAIRMEAN", "PAIRMEDIAN", "ROW+COL", "AWAKE"}
    models = {*trivial, "RIDGE", "LM", "oracle", "auto"}
    assert set(document["geomean_pct"]) == models
    assert set(document["table"]) == set(evaluated.PROGRAMS)
    assert (document["kind"], document["placement"], document["repeats"]) == (
        "pairs",
        "cross-core",
        4,
    )
    assert document["node"]["id"] == "node-1"
    assert (document["complete"], document["failed"], document["scored"]) == (True, 0, "bracketed")
    assert {(pair["app"], pair["neighbour"]) for pair in document["pairs"]} == {
        (app, other) for app in evaluated.PROGRAMS for other in evaluated.PROGRAMS if app != other
    }
    assert all(set(pair["predictions"]) == models for pair in document["pairs"])
    assert set(document["chosen"].values()) <= {"MEAN", "RIDGE", "LM"}
    # What profiles are made of is known; pairs are run with solo runs between them.
    assert document["runs"] == 4 * 28 + 4 * (12 + 4)
    assert document["elapsed_s"] > (4 * (12 + 4) - 1) * evaluated.EVERY_S
    assert all(profile["signatures"] == 3 for profile in document["profiles"].values())


def test_what_was_learned_under_load_holds_beside_programs(
    documents: dict[str, dict[str, Any]],
) -> None:
    error = documents["bracketed"]["geomean_pct"]
    assert error["auto"] < 0.5 * min(error["MEAN"], error["SOLO"], error["PAIRMEAN"])
    assert error["oracle"] < 3.0 * documents["bracketed"]["noise_floor_pct"]["geomean"]
    excess = documents["bracketed"]["excess"]
    assert excess["SOLO"] == {"value": 1.0, "interval": [1.0, 1.0]}
    assert abs(excess["oracle"]["value"]) < 0.1
    assert excess["auto"]["value"] < 0.2 < excess["PAIRMEDIAN"]["value"]
    assert documents["bracketed"]["noise"]["too_noisy"] is False
    # These programs never wait, so AWAKE says what SOLO says.
    assert excess["AWAKE"] == excess["SOLO"]


def test_pairs_are_divided_by_the_coupling_that_they_were_run_at(
    folder: Path, documents: dict[str, dict[str, Any]]
) -> None:
    section = documents["bracketed"]["coupling"]
    # Three pairs each next to those of 4, 3 and 1.1; nothing was read next to the fourth.
    assert section["pairs"] == {"median": 3.0, "low": 1.1, "high": 4.0, "n": 9 * 4}
    assert section["profiles"] == {"median": 1.2, "low": 1.2, "high": 1.2, "n": 4 * 28}
    assert set(section["unlike"]) == set(evaluated.PROGRAMS)
    low, high = section["strata"]
    assert (low["pairs"], high["pairs"], low["low"], high["high"]) == (4, 5, 1.1, 4.0)
    assert set(low["error_pct"]) == {"auto", "SOLO"}
    assert high["error_pct"]["auto"] < high["error_pct"]["SOLO"]
    table = (folder / "bracketed" / "table.md").read_text()
    assert "pairs 3.00 (1.10 to 4.00, 36 read); profiles 1.20" in table
    assert "Warning: sums was profiled at a coupling of 1.20" in table


def test_each_predictor_has_the_minutes_of_its_measuring(
    documents: dict[str, dict[str, Any]],
) -> None:
    document = documents["bracketed"]
    minutes = document["minutes"]
    assert minutes["SOLO"] < minutes["AWAKE"] < minutes["MEAN"] <= minutes["auto"]
    assert minutes["auto"] == minutes["RIDGE"]
    assert minutes["oracle"] is None
    # One of the pairs' runs begins every minute.
    assert minutes["ROW+COL"] == pytest.approx(4 * (12 + 4) - 1, rel=0.05)
    assert document["measuring"]["measured"][0][0] == pytest.approx(minutes["ROW+COL"] / 4)


def test_slow_drift_divides_out_of_bracketed_costs_only(
    documents: dict[str, dict[str, Any]],
) -> None:
    def missed(document: dict[str, Any]) -> float:
        """By how much, on average over the pairs, the truth was missed by measuring."""
        ratios = [
            pair["slowdown"] / evaluated.slowdown(pair["app"], pair["neighbour"])
            for pair in document["pairs"]
        ]
        return geometric_mean([max(ratio, 1.0 / ratio) for ratio in ratios])

    assert missed(documents["bracketed"]) < 1.03
    assert missed(documents["raw"]) > 1.12


def test_the_scale_is_of_what_is_scored(documents: dict[str, dict[str, Any]]) -> None:
    for scored, solo in (("bracketed", 1.0), ("raw", evaluated.SOLO_S)):
        document = documents[scored]
        assert document["scored"] == scored
        metric = {"unit": "s", "better": "lower"}
        assert document["metrics"] == dict.fromkeys(evaluated.PROGRAMS, metric)
        for pair in document["pairs"]:
            predictions = pair["predictions"]
            assert predictions["SOLO"]["value"] == pytest.approx(solo, rel=0.05)
            assert predictions["MEAN"]["value"] > predictions["SOLO"]["value"]
            assert predictions["MEAN"]["value"] < 2.0 * predictions["SOLO"]["value"]
            auto = predictions["auto"]
            assert auto["lower"] <= auto["value"] <= auto["upper"]
            truth = evaluated.slowdown(pair["app"], pair["neighbour"])
            assert auto["value"] == pytest.approx(truth * predictions["SOLO"]["value"], rel=0.1)
    chosen = documents["raw"]["chosen"]
    for pair in documents["raw"]["pairs"]:
        predictions = pair["predictions"]
        assert predictions["auto"]["value"] == predictions[chosen[pair["app"]]]["value"]


def test_intervals_are_widened_by_what_other_programs_need(
    documents: dict[str, dict[str, Any]],
) -> None:
    widening = documents["bracketed"]["widening"]
    assert set(widening) == set(evaluated.PROGRAMS)
    # Of twelve pairs six are left without a program, of the three others, with four runs each.
    assert {(factors["groups"], factors["pairs"]) for factors in widening.values()} == {(3, 24)}
    assert all(factors["factor"] >= 1.0 for factors in widening.values())


def test_files_hold_the_document_tables_every_case_and_figures(
    folder: Path, documents: dict[str, dict[str, Any]]
) -> None:
    out = folder / "bracketed"
    table = (out / "table.md").read_text()
    for word in ("| application |", "oracle", "noise floor", "geo.mean"):
        assert word in table
    with (out / "pairs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12 * 10
    for name in ("error-cdf", "error-minutes", "heat-map", "sensitivity-pressure"):
        assert (out / f"{name}-light.svg").stat().st_size > 0
    assert documents["bracketed"]["sensitivity"]["writer"] > 1.2


@pytest.mark.thorough
def test_figures_are_for_light_and_dark_pages(folder: Path, tmp_path: Path) -> None:
    with on_one_cpu():
        assert run(command(folder, "whole", *MODELS, "--out", tmp_path)) == 0
    for name in ("error-cdf", "error-minutes", "heat-map", "sensitivity-pressure"):
        for ending in ("light.svg", "dark.svg", "light.png", "dark.png"):
            assert (tmp_path / f"{name}-{ending}").stat().st_size > 0


@pytest.mark.thorough
def test_without_matplotlib_there_are_tables_all_the_same(
    folder: Path, kongming: Kongming, tmp_path: Path, one_cpu: None
) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "matplotlib.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'matplotlib'\", name='matplotlib')"
    )
    root = Path(__file__).resolve().parents[2]
    arguments = (
        "--models",
        "MEAN",
        "--app",
        "chaser",
        "--app",
        "sums",
        "--out",
        tmp_path / "out",
    )
    done = kongming(
        *command(folder, "whole", *arguments),
        env={"PYTHONPATH": f"{blocked}:{root}", "COLUMNS": "60"},
    )
    assert done.returncode == 0, done.stderr
    assert "No figures" in " ".join(done.stdout.split())
    assert "kongming[plots]" in done.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "document.json",
        "pairs.csv",
        "table.md",
    ]
    # Two programs of the four that were run; a table that does not fit is shown in parts.
    document = json.loads((tmp_path / "out" / "document.json").read_text())
    assert set(document["table"]) == {"chaser", "sums"}
    heads = [line for line in done.stdout.splitlines() if line.split()[:1] == ["application"]]
    assert len(heads) > 1
    assert all(len(line) <= 60 for line in heads)
    assert {word for line in heads for word in line.split()} >= {"MEAN", "PAIRMEDIAN", "auto"}


def test_what_is_not_complete_is_scored_and_reported(
    folder: Path, one_cpu: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(folder, "half", "--models", "MEAN")) == 1
    shown = capsys.readouterr().out
    assert "Incomplete" in shown
    assert run(command(folder, "half", "--models", "MEAN", "--json")) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["complete"] is False
    assert all(len(pair["repeats"]) == 1 for pair in document["pairs"])
    assert document["noise_floor_pct"]["geomean"] is None


def test_what_was_trained_next_to_a_program_is_not_scored_next_to_it(
    folder: Path, tmp_path: Path, one_cpu: None, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(folder / "apps.toml", tmp_path)
    with Store.open(f"sqlite:///{tmp_path / 'loaded'}.db") as store:
        evaluated.fill_pairs(store, tmp_path / "apps.toml", load="writer")
    arguments = ("--models", "MEAN", "--inducer-app", "writer", "--json")
    assert run(command(tmp_path, "loaded", *arguments)) == 0
    document = json.loads(capsys.readouterr().out)
    show(document, Console(file=(shown := io.StringIO())))
    assert "chaser next to writer" in " ".join(shown.getvalue().split())
    others = sorted(evaluated.PROGRAMS.keys() - {"writer"})
    assert document["trained_on"] == [[app, "writer"] for app in others]
    assert {pair["neighbour"] for pair in document["pairs"]} == set(others)
    assert len(document["pairs"]) == 12 - 3
    assert document["profiles"]["writer"]["runs"] == 28
    assert document["profiles"]["sums"]["runs"] == 28 + 3
    # Profiles with such loads and without are not each other.
    assert run(command(tmp_path, "loaded")) == 3
    assert "no programs as loads" in capsys.readouterr().err
    every = [word for name in evaluated.PROGRAMS for word in ("--inducer-app", name)]
    assert run(command(tmp_path, "loaded", *every)) == 2
    assert "leaves no pair" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--repeats", "3"), 3, ("no pairs", "3 times each", "without --score-only")),
        (("--placement", "same-core"), 3, ("no pairs", "same-core")),
        (("--plan", "paper"), 3, ("no complete paper profile of chaser", "without --score-only")),
        (("--app", "chaser"), 2, ("too few for a pair",)),
        (("--app", "chasr"), 2, ("Did you mean chaser?",)),
        (("--models", "RIGDE"), 2, ("Did you mean RIDGE",)),
        (("--again",), 2, ("--again",)),
        (("--dry-run",), 2, ("--dry-run",)),
        (("--nodes",), 2, ("choose one",)),
        (("--environments", "7"), 2, ("--nodes",)),
        (("--environments", "0"), 2, ("--environments", "1 or more")),
        (("--budget", "0"), 2, ("budget", "above 0")),
        (("--precision", "3%"), 3, ("no pairs",)),
        (("--precision", "none"), 2, ("--precision", "0.1% to 50%")),
        (("--precision", "3%", "--repeats", "4"), 2, ("--repeats is left out",)),
        (("--preregister", "missing.json"), 2, ("--preregister", "There is no file")),
    ],
)
def test_what_cannot_be_done_says_the_way_out(
    folder: Path,
    arguments: tuple[str, ...],
    status: int,
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(command(folder, "whole", *arguments)) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    for word in words:
        assert word in captured.err


def test_neither_pairs_nor_nodes_is_no_question(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", str(folder / "apps.toml")]) == 2
    assert "--pairs, --nodes" in capsys.readouterr().err


@pytest.mark.thorough
def test_programs_that_have_changed_since_are_not_those_that_were_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(folder / "whole.db", tmp_path / "whole.db")
    text = (folder / "apps.toml").read_text().replace("true sums", "true sums twice")
    (tmp_path / "apps.toml").write_text(text)
    assert run(command(tmp_path, "whole")) == 3
    assert "as they are now" in capsys.readouterr().err
    # What was registered before they were run names them.
    with Store.open(f"sqlite:///{tmp_path / 'whole.db'}") as store:
        own = max((campaign.document["apps"] for campaign in store.campaigns()), key=len)
    preregister(tmp_path / "plan.json", {}, ["LM"], {"apps": own})
    arguments = ("--models", "LM", "--preregister", tmp_path / "plan.json", "--json")
    assert run(command(tmp_path, "whole", *arguments)) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["pairs"]) == 12
    assert document["preregistered"]["before_first_run"] is False


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", ("is not JSON",)),
        ("{}", ("is not a list",)),
        ('[{"app": "sums"}]', ("entry 1", '"slowdown": NUMBER')),
        ('[{"app": "a", "neighbour": "b", "model": "x", "slowdown": 0}]', ("slowdown", "above 0")),
        ('[{"app": "a", "neighbour": "b", "model": "x", "slowdown": Infinity}]', ("slowdown",)),
        ('[{"app": "a", "neighbour": "b", "model": "LM", "slowdown": 1}]', ("model", "'LM'")),
        (
            '[{"app": "a", "neighbour": "b", "model": "x", "slowdown": 1, "minutes": -1}]',
            ("minutes", "0 or more"),
        ),
        (None, ("There is no file",)),
    ],
)
def test_wrong_predictions_are_explained(
    folder: Path,
    tmp_path: Path,
    content: str | None,
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "predictions.json"
    if content is not None:
        file.write_text(content)
    assert run(command(folder, "whole", "--predictions", file)) == 2
    message = capsys.readouterr().err
    for word in words:
        assert word in message


def test_nothing_is_written_where_nothing_is_measured(folder: Path, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{folder / 'whole'}.db") as store:
        assert store.models() == []
    with Store.open(f"sqlite:///{tmp_path / 'mine.db'}") as store:
        evaluated.fill_pairs(store, folder / "apps.toml")
        runs = store.runs(app="sums", kind="solo") + store.runs(app="sums", kind="induced")
        of_profile = [run for run in runs if run.levels or run.fingerprint is not None]
        for seed in (0, 0):
            keep(store, train_application(of_profile, models=["MEAN"], random_state=seed))
        # The same model is kept once.
        assert [entry.version for entry in store.models(app="sums")] == [1]


@pytest.mark.parametrize(
    ("text", "names"), [(None, None), ("auto", None), ("auto,LM", ("LM",)), ("LM,LM", ("LM",))]
)
def test_models_that_are_named(text: str | None, names: tuple[str, ...] | None) -> None:
    assert _models(text) == names
