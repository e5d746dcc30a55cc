"""``kongming model`` as a user runs it, and what co-runs do to the intervals of predictions."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kongming.cli.predict.model_view import bars
from kongming.learning import model_file as persist
from kongming.learning.training import train_application
from kongming.store import Store
from tests import builders
from tests.conftest import Kongming
from tests.models import synthetic
from tests.predict.conftest import PROGRAMS
from tests.variants import variants


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_card_tells_what_a_model_is_and_was_made_from(corun: str, kongming: Kongming) -> None:
    card = answer(kongming("model", "chaser", "--json"))
    assert (card["app"], card["placement"], card["version"]) == ("chaser", "cross-core", 1)
    assert card["node"]["cpu_model"] == "Example CPU"
    assert card["solo"]["value"] == pytest.approx(3.0, rel=0.03)
    assert (card["runs"]["total"], card["runs"]["solo"], card["runs"]["induced"]) == (28, 6, 22)
    assert card["runs"]["first_at"] < card["runs"]["last_at"] < card["trained_at"]
    full = card["variants"]["full"]
    assert {"MEAN", "NNLS", "LM.GA"} <= set(full["errors"])
    assert full["errors"][full["chosen"]]["median_pct"] < full["errors"]["MEAN"]["median_pct"]
    assert full["noise_floor_pct"] > 0.0
    selection = full["selected"]["LM.GA"]
    assert set(selection["surrogates"]) <= set(full["columns"])
    assert sum(selection["observations"].values()) > 0
    for members in full["members"].values():
        assert set(members) <= set(full["errors"])
        assert sum(members.values()) == pytest.approx(1.0)
    assert card["pressure"]["memory"] > 1.3
    assert card["elsewhere"] == []


def test_sensitivity_is_where_the_program_is_sensitive(corun: str, kongming: Kongming) -> None:
    families = {"chaser": "memory", "writer": "write", "caller": "os", "number": "compute"}
    for app, family in families.items():
        card = answer(kongming("model", app, "--model", "NNLS", "--json"))
        curves = card["sensitivity"]["curves"]
        first = curves[0]
        assert (first["kind"], first["name"]) == ("family", family)
        assert first["load"][0] == pytest.approx(1.0)
        assert first["slowdown"][0] == pytest.approx(1.0, abs=0.03)
        assert first["slowdown"][-1] == max(first["slowdown"]) > 1.2
        surrogate = next(curve for curve in curves if curve["kind"] == "surrogate")
        assert surrogate["name"] in first["surrogates"]


def test_a_card_for_a_person(corun: str, kongming: Kongming) -> None:
    shown = kongming("model", "chaser").stdout
    for words in (
        "chaser, cross-core: model version 1",
        "repeat noise",
        "28 (6 solo, 22 induced)",
        "example: Example CPU, 2 CPUs, 32.0 MiB cache",
        "not calibrated: 8 groups left out in turn",
        "noise floor",
        "LM.GA selected",
        "slows others",
    ):
        assert words in shown
    row = next(line for line in shown.splitlines() if line.startswith(" memory ("))
    assert set("▇█") & set(row)
    # Narrow terminals have shorter bars, and no cell that is cut off.
    narrow = kongming("model", "chaser", env={"COLUMNS": "80"}).stdout
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80


@pytest.mark.parametrize("suffix", variants(("svg", "png")))
def test_curves_are_drawn_to_a_file(
    corun: str, kongming: Kongming, tmp_path: Path, suffix: str
) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / f"curves.{suffix}"
    done = kongming("model", "chaser", "--plot", file)
    assert done.returncode == 0, done.stderr
    assert str(file) in done.stdout.replace("\n", "")
    begins = {"svg": b"<?xml", "png": b"\x89PNG"}[suffix]
    written = file.read_bytes()
    assert written.startswith(begins)
    answer(kongming("model", "chaser", "--plot", file, "--json"))
    assert file.read_bytes() == written


@pytest.mark.thorough
def test_without_matplotlib_the_way_to_it_is_shown(
    corun: str, kongming: Kongming, tmp_path: Path
) -> None:
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "matplotlib.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'matplotlib'\", name='matplotlib')"
    )
    root = str(Path(__file__).resolve().parents[2])
    env = {"PYTHONPATH": f"{tmp_path / 'blocked'}:{root}"}
    done = kongming("model", "chaser", "--plot", "curves.svg", env=env)
    assert done.returncode == 2
    assert "pip install 'kongming[plots]'" in done.stderr
    assert kongming("model", "chaser", env=env).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("chasr",), 2, "Did you mean chaser"),
        (("chaser", "--model", "CARD"), 2, "Did you mean CART"),
        (("chaser", "--model", "CART"), 2, "no trained model named 'CART'"),
        (("chaser", "--plot", "curves.pdf"), 2, ".svg or .png"),
        (("chaser", "--placement", "same-core"), 3, "It has one at cross-core on example"),
        (("chaser", "--node", "elsewhere"), 3, "no model at cross-core on elsewhere"),
    ],
)
def test_what_there_is_no_card_for_says_the_way_out(
    corun: str, kongming: Kongming, arguments: tuple[str, ...], status: int, words: str
) -> None:
    done = kongming("model", *arguments)
    assert done.returncode == status
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_newest_model_of_the_node_that_is_named(corun: str, kongming: Kongming) -> None:
    with Store.open(corun) as store:
        document = store.model("chaser", "cross-core")
        assert document is not None
        store.put_node(builders.node(id="node-2", name="other"))
        bare = {k: v for k, v in document.items() if k not in ("format", "version", "checksum")}
        moved = persist.seal({**bare, "node_id": "node-2"})
        store.put_model("chaser", document["identity"], "node-2", "cross-core", moved)
    for node, version in (("example", 1), ("node-1", 1), ("other", 2), ("node-2", 2)):
        card = answer(kongming("model", "chaser", "--node", node, "--json"))
        assert card["version"] == version
        assert len(card["elsewhere"]) == 1
    assert answer(kongming("model", "chaser", "--json"))["version"] == 2


def test_the_model_in_service_is_shown_and_any_other_by_its_version(
    corun: str, kongming: Kongming
) -> None:
    with Store.open(corun) as store:
        document = store.model("chaser", "cross-core")
        assert document is not None
        store.put_model("chaser", document["identity"], "node-1", "cross-core", document)
    assert answer(kongming("model", "chaser", "--json"))["version"] == 2
    assert kongming("models", "rollback", "chaser").returncode == 0
    card = answer(kongming("model", "chaser", "--json"))
    assert (card["version"], card["in_service"]) == (1, 1)
    assert card["interval"]["coruns"] > 0
    card = answer(kongming("model", "chaser", "--version", "2", "--json"))
    assert (card["version"], card["in_service"]) == (2, 1)
    # Co-runs were compared with the version in service.
    assert card["interval"]["coruns"] == 0
    shown = kongming("model", "chaser", "--version", "2").stdout
    assert "chaser, cross-core: model version 2 (in service is version 1)" in shown
    refused = kongming("model", "chaser", "--version", "7")
    assert refused.returncode == 2
    assert "--version: is no version of chaser's model at cross-core" in refused.stderr
    assert "allowed: 2, 1" in refused.stderr.lower()


def test_a_damaged_model_is_not_put_into_service(corun: str, kongming: Kongming) -> None:
    with Store.open(corun) as store:
        document = store.model("chaser", "cross-core")
        assert document is not None
        # Its checksum is that of the unchanged document.
        damaged = document | {"solo": {"value": 1e6}}
        store.put_model("chaser", document["identity"], "node-1", "cross-core", damaged)
        store.promote("chaser", "cross-core", 1)
    refused = kongming("models", "rollback", "chaser", "--version", "2")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "damaged" in refused.stderr
    assert answer(kongming("model", "chaser", "--json"))["in_service"] == 1


@pytest.mark.thorough
def test_co_runs_of_others_widen_intervals_and_it_is_reported(
    corun: str, kongming: Kongming
) -> None:
    sentence = (
        r"The interval is widened by [\d.]+, learned from 9 co-runs of 3 other applications\."
    )
    card = answer(kongming("model", "chaser", "--json"))
    assert card["interval"]["widening"] > 1.0
    assert (card["interval"]["applications"], card["interval"]["coruns"]) == (3, 9)
    assert not card["interval"]["calibrated"]
    assert (card["interval"]["calibrated_by"], card["interval"]["calibrated_groups"]) == ("", 0)
    pair = answer(kongming("pair", "chaser", "writer", "--json"))["predictions"]
    colocated = answer(kongming("predict", "chaser", "--with", "writer", "--json"))
    for prediction in (*pair, colocated):
        assert len(prediction["notes"]) == 1
        assert re.fullmatch(sentence, prediction["notes"][0])
        assert prediction["slowdown"]["median"] >= 1.0
    assert colocated["slowdown"] == pair[0]["slowdown"]
    (writer,) = colocated["neighbours"]
    assert writer["slowdown"] == pair[1]["slowdown"]
    shown = kongming("pair", "chaser", "writer").stdout
    assert len(re.findall(sentence, shown)) == 2
    with Store.open(corun) as store:
        store.add_all(
            runs=[
                builders.run(
                    "chaser", 900.0, kind="corun", neighbours=("writer",), campaign="pairs"
                )
            ],
            signatures=[],
        )
    again = answer(kongming("pair", "chaser", "number", "--json"))["predictions"]
    first = answer(kongming("model", "chaser", "--json"))["interval"]
    assert first == card["interval"]
    assert "learned from 10 co-runs of 3 other applications" in again[1]["notes"][0]


def test_without_co_runs_nothing_is_said_of_them(store_url: str, kongming: Kongming) -> None:
    with Store.open(store_url) as store:
        store.put_node(builders.node())
        powers, loads = PROGRAMS["chaser"]
        runs = synthetic.campaign("chaser", powers)
        store.add_all(runs=runs, signatures=[synthetic.signature("chaser", loads)])
        document = train_application(runs, models=("NNLOG",))
        store.put_model("chaser", document["identity"], "node-1", "cross-core", document)
    itself = answer(kongming("pair", "chaser", "chaser", "--json"))["predictions"][0]
    assert itself["notes"] == []
    assert any("not calibrated" in warning for warning in itself["warnings"])


def test_bars_reach_from_the_least_to_the_most() -> None:
    assert bars([0.0, 0.5, 1.0], 0.0, 1.0, 3) == "▁▅█"
    assert bars([0.0, 1.0], 0.0, 1.0, 4) == "▁▁██"
    assert bars([-1.0, 2.0], 0.0, 1.0, 2) == "▁█"
