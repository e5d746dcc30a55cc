"""``kongming train``, ``predict`` and ``pair`` as a user runs them."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from kongming.cli.main import run
from kongming.cli.predict.explain import command as explain
from kongming.cli.predict.predict import command
from kongming.files.sealed_document import checksum
from kongming.learning import model_names, training
from kongming.learning.model_file import read, seal
from kongming.learning.predict import predict_environment
from kongming.learning.readings import idle_times
from kongming.learning.training import train_application
from kongming.records.errors import IncompatibleError
from kongming.store import Store
from tests import builders
from tests.models import synthetic

Kongming = Callable[..., "subprocess.CompletedProcess[str]"]

PROGRAMS = {
    "chaser": ({"memory.random.128M": 0.6}, {"memory": 0.5}),
    "writer": ({"iobench.write.4M": 0.5}, {"write": 0.6}),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two stores with two profiled programs: one as profiled, one also trained."""
    folder = tmp_path_factory.mktemp("stores")
    profiled, trained = folder / "profiled.db", folder / "trained.db"
    with Store.open(f"sqlite:///{profiled}") as store:
        store.put_node(builders.node())
        for name, (powers, loads) in PROGRAMS.items():
            store.add_all(
                runs=synthetic.campaign(name, powers),
                signatures=[synthetic.signature(name, loads)],
            )
    shutil.copy(profiled, trained)
    with Store.open(f"sqlite:///{trained}") as store:
        for name in PROGRAMS:
            document = train_application(store.runs(app=name), models=("NNLS", "NNLOG"))
            store.put_model(name, document["identity"], "node-1", "cross-core", document)
    return {"profiled": profiled, "trained": trained}


@pytest.fixture
def profiled(stores: dict[str, Path], store_url: str) -> str:
    shutil.copy(stores["profiled"], store_url.removeprefix("sqlite:///"))
    return store_url


@pytest.fixture
def trained(stores: dict[str, Path], store_url: str) -> str:
    shutil.copy(stores["trained"], store_url.removeprefix("sqlite:///"))
    return store_url


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fingerprint_file(folder: Path, loads: dict[str, float], **changes: Any) -> Path:
    times = synthetic.environment(loads, np.random.default_rng(3))
    path = folder / "fingerprint.json"
    path.write_text(json.dumps(builders.fingerprint(times, **changes).to_dict()))
    return path


@pytest.fixture
def train(
    profiled: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What ``kongming train`` prints, in this process, where there are few kinds of models."""
    monkeypatch.setattr(training, "model_names", lambda: ("MEAN", "NNLS", "CART"))
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments: str) -> str:
        assert run(["train", *arguments, "--jobs", "1", "--store", profiled]) == 0
        return capsys.readouterr().out

    return call


def test_of_several_nodes_the_one_measured_last_goes_into_service(
    profiled: str, train: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(profiled) as store:
        store.put_node(builders.node(id="zz-old", name="old"))
        store.add_all(
            runs=[
                dataclasses.replace(
                    run, node_id="zz-old", id=f"{run.id}-old", started_at="2020-01-01T00:00:00Z"
                )
                for run in synthetic.campaign("chaser", {"memory.random.128M": 0.6}, solo_s=9.0)
            ],
            signatures=[],
        )
    document = json.loads(train("chaser", "--json"))
    assert [model["node_id"] for model in document["models"]] == ["zz-old", "node-1"]
    (note,) = document["notes"]
    assert note.endswith("trained on 2 nodes; version 2 is in service, of node node-1")
    with Store.open(profiled) as store:
        served = store.model(
            "chaser", "cross-core", version=store.in_service("chaser", "cross-core")
        )
        assert served is not None
        assert served["node_id"] == "node-1"


@pytest.mark.thorough
def test_train_trains_every_kind(profiled: str, kongming: Kongming) -> None:
    (model,) = answer(kongming("train", "chaser", "--json"))["models"]
    for variant in model["variants"].values():
        assert set(model_names()) <= set(variant["errors"])


def test_train_tells_errors_beside_mean_and_noise(profiled: str, train: Callable[..., str]) -> None:
    document = json.loads(train("--json"))
    assert [model["app"] for model in document["models"]] == ["chaser", "writer"]
    for model in document["models"]:
        assert model["version"] == 1
        assert set(model["variants"]) == {"full", "quick"}
        full = model["variants"]["full"]
        assert full["noise_floor_pct"] > 0
        assert full["errors"][full["chosen"]]["mean_pct"] < full["errors"]["MEAN"]["mean_pct"]
    table = train("chaser", "--model", "CART", "-v")
    for word in ("MEAN", "CART", "noise floor", "28 runs (6 solo, 22 induced)", "it was requested"):
        assert word in table
    assert "writer" not in table
    with Store.open(profiled) as store:
        newest = store.model("chaser", "cross-core")
        assert newest is not None
        assert newest["chosen"] == "CART"


def test_a_pair_is_answered_in_either_order_where_both_have_a_model(
    trained: str, kongming: Kongming
) -> None:
    """The one is trained at two placements, the other at one of them."""
    with Store.open(trained) as store:
        for name, (_, loads) in PROGRAMS.items():
            document = store.model(name, "cross-core")
            assert document is not None
            del document["checksum"]
            document = seal(document | {"placement": "same-core"})
            store.put_model(name, document["identity"], "node-1", "same-core", document)
            store.add_signature(synthetic.signature(name, loads, placement="same-core"))
        store.delete_model("writer", "cross-core")

    for pair in (("chaser", "writer"), ("writer", "chaser")):
        document = answer(kongming("pair", *pair, "--json"))
        assert document["placement"] == "same-core"
        assert [known["app"] for known in document["predictions"]] == list(pair)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("train", "chasr"), 2, "Did you mean chaser?"),
        (("train", "--model", "CARD"), 2, "Did you mean CART"),
        (("train", "chaser", "--placement", "same-core"), 3, "no runs at same-core"),
        (("predict", "chaser", "--with", "writer"), 3, "kongming train chaser"),
        (("predict", "chasr", "--with", "writer"), 2, "Did you mean chaser?"),
        (("pair", "chaser", "writer"), 3, "kongming train chaser"),
        (("pair", "nothing", "writer"), 2, "named 'nothing'"),
    ],
)
def test_what_cannot_be_done_says_the_way_out(
    profiled: str, kongming: Kongming, arguments: tuple[str, ...], status: int, words: str
) -> None:
    done = kongming(*arguments)
    assert done.returncode == status
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("--stale", ("predict", "chaser", "--stale", "refuse")),
        ("--stale", ("predict", "chaser", "--fingerprint", "-", "--stale", "refuse")),
        ("--stale", ("predict", "chaser", "--with", "writer", "--stale", "widen")),
        (
            "--stale",
            ("predict", "chaser", "--with", "writer", "--node", "node-1", "--stale", "refuse"),
        ),
        ("--stale", ("explain", "chaser", "--stale", "history")),
        ("--dir", ("predict", "chaser", "--with", "writer", "--dir", ".")),
        ("--dir", ("predict", "chaser", "--fingerprint", "-", "--dir", ".")),
    ],
)
def test_an_option_without_an_effect_is_refused(
    trained: str, kongming: Kongming, option: str, arguments: tuple[str, ...]
) -> None:
    done = kongming(*arguments)
    assert done.returncode == 2
    assert f"{option}: has no effect" in done.stderr


def test_a_node_of_the_store_is_answered_with_the_remarks_of_any_other_prediction(
    trained: str, kongming: Kongming
) -> None:
    with Store.open(trained) as store:
        store.put_reference(
            "node-1", "1-0123abcd", 0, synthetic.IDLE, 3, "2026-01-01T00:00:00.000000Z"
        )
        store.put_application("chaser", "another", {"name": "chaser", "command": "c"})
    for arguments in ((), ("--with", "writer")):
        document = answer(kongming("predict", "chaser", *arguments, "--node", "node-1", "--json"))
        (changed,) = [text for text in document["warnings"] if "was profiled again" in text]
        assert changed.startswith("chaser")
    unknown = kongming("predict", "chaser", "--with", "writr", "--node", "node-1")
    assert unknown.returncode == 2
    assert "Did you mean writer?" in unknown.stderr


def test_a_neighbour_of_which_only_a_signature_is_known_is_no_unknown_name(
    trained: str, kongming: Kongming
) -> None:
    """As that of another node, from where it is carried."""
    with Store.open(trained) as store:
        store.put_node(builders.node(id="node-2", name="other-node"))
        store.put_reference(
            "node-2", "1-0123abcd", 0, synthetic.IDLE, 3, "2026-01-01T00:00:00.000000Z"
        )
        store.add_signature(synthetic.signature("bare", {"memory": 0.5}, node_id="node-2"))
    for arguments in ((), ("--node", "node-1")):
        document = answer(kongming("predict", "chaser", "--with", "bare", *arguments, "--json"))
        assert document["slowdown"]["median"] > 1.1
    assert kongming("predict", "chaser", "--with", "bear", "--node", "node-1").returncode == 2


@pytest.mark.parametrize("seed", ["-1", "4294967296"])
def test_a_seed_that_no_model_takes_is_refused(
    profiled: str, kongming: Kongming, seed: str
) -> None:
    for arguments in (["train"], ["evaluate", "--instances", "none.parquet"]):
        done = kongming(*arguments, "--seed", seed)
        assert done.returncode == 2, done.stderr
        assert "'--seed'" in done.stderr


def test_nothing_profiled_is_nothing_to_train(kongming: Kongming) -> None:
    done = kongming("train")
    assert done.returncode == 3
    assert "kongming profile" in done.stderr


def test_training_without_its_extra_names_it(
    profiled: str, kongming: Kongming, tmp_path: Path
) -> None:
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "sklearn.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'sklearn'\", name='sklearn')"
    )
    root = str(Path(__file__).resolve().parents[2])
    path = f"{tmp_path / 'blocked'}:{root}"
    done = kongming("train", env={"PYTHONPATH": path})
    assert done.returncode == 2
    assert "pip install 'kongming[predict]'" in done.stderr


def test_predict_beside_a_neighbour(trained: str, kongming: Kongming) -> None:
    document = answer(kongming("predict", "chaser", "--with", "writer", "--json"))
    assert {
        "app",
        "model",
        "placement",
        "solo_s",
        "runtime_s",
        "slowdown",
        "extrapolating",
        "drivers",
        "neighbours",
    } <= set(document)
    assert document["slowdown"]["median"] == pytest.approx(1.0, abs=0.06)
    # The chaser loads memory, to which the writer is not sensitive.
    (writer,) = document["neighbours"]
    assert writer["app"] == "writer"
    assert writer["slowdown"]["median"] == pytest.approx(1.0, abs=0.06)
    assert document["runtime_s"]["level"] == 0.9


def test_predict_in_an_environment_from_a_file(
    trained: str, kongming: Kongming, tmp_path: Path
) -> None:
    file = fingerprint_file(tmp_path, {"memory": 0.5})
    document = answer(kongming("predict", "chaser", "--fingerprint", file, "--json"))
    assert document["slowdown"]["median"] == pytest.approx(np.exp(0.3), rel=0.05)
    assert document["drivers"][0]["family"] == "memory"
    assert sum(driver["share"] for driver in document["drivers"]) == pytest.approx(1.0)
    both = answer(
        kongming("predict", "writer", "--fingerprint", file, "--with", "writer", "--json")
    )
    assert both["slowdown"]["median"] > 1.2
    shown = kongming("predict", "chaser", "--fingerprint", file).stdout
    words = ("chaser, cross-core", "slowdown", "driven by", "memory", "one run", "median of many")
    for word in (*words, "90 %"):
        assert word in shown


def test_strict_refuses_to_extrapolate(trained: str, kongming: Kongming, tmp_path: Path) -> None:
    file = fingerprint_file(tmp_path, {"memory": 3.0})
    assert answer(kongming("predict", "chaser", "--fingerprint", file, "--json"))["extrapolating"]
    done = kongming("predict", "chaser", "--fingerprint", file, "--strict")
    assert done.returncode == 3
    assert "outside" in done.stderr


def test_a_wrong_fingerprint_file_is_explained(
    trained: str, kongming: Kongming, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    done = kongming("predict", "chaser", "--fingerprint", broken)
    assert done.returncode == 2
    assert "is not JSON" in done.stderr
    other = fingerprint_file(tmp_path, {}, suite_version="1-other")
    done = kongming("predict", "chaser", "--fingerprint", other)
    assert done.returncode == 2
    assert "1-other" in done.stderr
    done = kongming("predict", "chaser", "--now", "--fingerprint", other)
    assert done.returncode == 2


def test_pair_tells_both_ways(trained: str, kongming: Kongming) -> None:
    document = answer(kongming("pair", "chaser", "writer", "--json"))
    assert document["placement"] == "cross-core"
    assert [(p["app"], p["neighbours"][0]["app"]) for p in document["predictions"]] == [
        ("chaser", "writer"),
        ("writer", "chaser"),
    ]
    assert "chaser next to writer, cross-core" in kongming("pair", "chaser", "writer").stdout
    [itself] = answer(kongming("pair", "chaser", "chaser", "--json"))["predictions"]
    assert itself["slowdown"]["median"] > 1.2


def test_a_pair_of_which_one_direction_is_known(trained: str, kongming: Kongming) -> None:
    short = synthetic.signature("brief", {})
    times = short.fingerprint.times()
    half = dict(list(times.items())[: len(times) // 2])
    with Store.open(trained) as store:
        store.put_application("brief", short.identity, {})
        store.add_run(builders.run("brief", 0.1))
        store.add_signature(builders.signature("brief", half))
        document = store.model("chaser", "cross-core")
        assert document is not None
        payload = {key: value for key, value in document.items() if key != "checksum"}
        payload |= {"app": "brief", "identity": builders.identity_of("brief")}
        store.put_model("brief", payload["identity"], "node-1", "cross-core", seal(payload))
    done = kongming("pair", "chaser", "brief", "--json")
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)
    assert [known["app"] for known in report["predictions"]] == ["brief"]
    [refused] = report["refused"]
    assert "brief was profiled with runs of 100 ms, too short to see" in refused["message"]
    assert "--app brief --placement cross-core" in refused["hint"]
    colocated = kongming("predict", "chaser", "--with", "brief")
    assert colocated.returncode == 3
    assert refused["message"] in colocated.stderr


def test_a_neighbour_without_a_signature_is_reported(
    trained: str, store_url: str, kongming: Kongming
) -> None:
    runs = synthetic.campaign("silent", {"os.switch": 0.3})
    with Store.open(store_url) as store:
        store.add_all(runs=runs, signatures=[])
    done = kongming("predict", "chaser", "--with", "silent")
    assert done.returncode == 3
    assert "silent has no signature" in done.stderr
    with Store.open(store_url) as store:
        document = train_application(runs, models=("NNLS",))
        store.put_model("silent", document["identity"], "node-1", "cross-core", document)
    colocated = answer(kongming("predict", "silent", "--with", "chaser", "--json"))
    assert colocated["neighbours"] == [{"app": "chaser", "slowdown": None}]
    assert any("silent has no signature" in warning for warning in colocated["warnings"])


def test_now_measures_only_what_the_model_needs(
    trained: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    requested: dict[str, Any] = {}

    def take_fingerprint(**options: Any) -> Any:
        requested.update(options)
        times = synthetic.environment({"memory": 0.5}, np.random.default_rng(3))
        return builders.fingerprint({name: times[name] for name in options["names"]})

    monkeypatch.setattr("kongming.probes.fingerprinting.take_fingerprint", take_fingerprint)
    monkeypatch.setattr(
        "kongming.probes.suite.load_suite", lambda **_: SimpleNamespace(version="1-0123abcd")
    )
    done = CliRunner().invoke(command, ["chaser", "--store", trained, "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert set(requested["names"]) in (set(synthetic.QUICK), set(synthetic.IDLE))
    assert requested["cpu"] == 0
    assert not requested["shared_core"]
    assert "neighbours" not in document
    assert document["slowdown"]["median"] == pytest.approx(np.exp(0.3), rel=0.1)
    both = CliRunner().invoke(
        command, ["chaser", "--now", "--with", "chaser", "--store", trained, "--json"]
    )
    assert json.loads(both.stdout)["slowdown"]["median"] > 1.2 * document["slowdown"]["median"]
    explained = CliRunner().invoke(explain, ["chaser", "--store", trained, "--json"])
    assert explained.exit_code == 0, explained.output
    parts = json.loads(explained.stdout)["contributions"]
    assert parts[0]["family"] == "memory"
    assert parts[0]["log_slowdown"] > 0.05


def test_now_refuses_a_model_of_another_suite(
    trained: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kongming.probes.suite.load_suite", lambda **_: SimpleNamespace(version="1-other")
    )
    done = CliRunner().invoke(command, ["chaser", "--store", trained])
    assert isinstance(done.exception, IncompatibleError)
    assert "1-other" in str(done.exception)


def test_a_spoiled_profile_is_reported_by_all_that_shows_its_model(
    profiled: str, train: Callable[..., str], kongming: Kongming
) -> None:
    """Of one database all say the same: what training judged, and nothing else."""
    with Store.open(profiled) as store:
        first = store.runs(app="chaser", kind="solo")[0]
        like = {"campaign": first.campaign, "fingerprint": first.fingerprint}
        for seconds in (1.0, 9.0, 2.0, 8.0, 4.0):
            store.add_run(builders.run("chaser", seconds, **like))
    (trained_model,) = json.loads(train("chaser", "--json"))["models"]
    remark = trained_model["warnings"][0]
    assert remark.startswith("The profile of chaser is spoiled: its runs alone differ by")
    assert "--again" in remark
    profile = trained_model["profile"]
    assert (profile["verdict"], profile["reasons"][0]["code"]) == ("spoiled", "solo-spread")
    prediction = answer(kongming("predict", "chaser", "--with", "writer", "--json"))
    assert prediction["profile"] == profile
    assert prediction["warnings"].count(remark) == 1
    pair = answer(kongming("pair", "chaser", "chaser", "--json"))["predictions"]
    assert all(remark in predicted["warnings"] for predicted in pair)
    described = answer(kongming("model", "chaser", "--json"))["profile"]
    assert described == profile | {"text": described["text"], "advice": described["advice"]}
    assert remark == f"The profile of chaser is {described['text']} {described['advice']}"
    (listed,) = answer(kongming("models", "--json"))["models"]
    assert listed["profile"] == described
    rows = {
        entry["app"]: entry["profiles"][0] for entry in answer(kongming("apps", "--json"))["apps"]
    }
    assert rows["chaser"]["judged"] == rows["chaser"]["trained_on"] == described
    assert (rows["writer"]["judged"]["verdict"], rows["writer"]["trained_on"]) == ("good", None)
    for arguments in (("predict", "chaser", "--with", "writer"), ("model", "chaser"), ("apps",)):
        assert "spoiled" in kongming(*arguments).stdout
    # What is measured afterwards is seen by 'apps', and counts from the next training on.
    with Store.open(profiled) as store:
        again = synthetic.campaign("chaser", PROGRAMS["chaser"][0], seed=1, campaign="c2")
        store.add_all(runs=again, signatures=[])
    chaser = answer(kongming("apps", "--json"))["apps"][0]["profiles"][0]
    assert (chaser["judged"]["verdict"], chaser["trained_on"]["verdict"]) == ("good", "spoiled")
    assert "good, its model's spoiled" in " ".join(kongming("apps", "--wide").stdout.split())
    prediction = answer(kongming("predict", "chaser", "--with", "writer", "--json"))
    assert prediction["profile"]["verdict"] == "spoiled"


def test_a_store_that_may_only_be_read_answers_and_is_not_changed(
    trained: str, kongming: Kongming
) -> None:
    store = ("--store", f"{trained}?mode=ro")
    before = Path(trained.removeprefix("sqlite:///")).read_bytes()
    for arguments in (
        ("apps",),
        ("runs", "--limit", "1"),
        ("models",),
        ("model", "chaser"),
        ("predict", "chaser", "--with", "writer"),
        ("pair", "chaser", "writer"),
        ("export", "--out", "runs.parquet"),
    ):
        done = kongming(*arguments, *store)
        assert done.returncode == 0, (arguments, done.stderr)
    for arguments in (
        ("train", "chaser"),
        ("import", "runs.parquet"),
        ("models", "rollback", "chaser", "--version", "1"),
    ):
        done = kongming(*arguments, *store)
        assert done.returncode == 2, (arguments, done.stderr)
        assert "store: is opened with mode=ro, and this changes it." in done.stderr
        assert "Leave out mode=ro" in done.stderr
    assert Path(trained.removeprefix("sqlite:///")).read_bytes() == before


def test_a_model_that_is_no_better_than_no_slowdown_is_reported(
    profiled: str, train: Callable[..., str], kongming: Kongming
) -> None:
    """Of a program that nothing slows every model is as good as saying so: training judges it, and
    all that shows the model says the same."""
    with Store.open(profiled) as store:
        store.add_all(runs=synthetic.campaign("still", {}), signatures=[])
    (trained_model,) = json.loads(train("still", "--json"))["models"]
    (remark,) = trained_model["warnings"]
    assert remark.startswith(f"{trained_model['chosen']} of still is not clearly better than")
    assert "saying that nothing slows it" in remark
    assert answer(kongming("model", "still", "--json"))["remark"] == remark
    rows = {
        entry["app"]: entry["profiles"][0] for entry in answer(kongming("apps", "--json"))["apps"]
    }
    assert rows["still"]["not_better_than"] == ["MEAN", "1"]
    assert "mean, solo time" in kongming("apps", "--wide").stdout
    assert rows["chaser"]["not_better_than"] is None
    with Store.open(profiled) as store:
        document = store.model("still", "cross-core")
    assert document is not None
    file = read(document)
    assert remark in predict_environment(file, idle_times(file.variants["full"])).warnings
    # A document of an earlier version has no such judgement, and reads as it is.
    for variant in document["variants"].values():
        for model in variant["models"].values():
            del model["not_better_than"]
    earlier = {
        key: value for key, value in document.items() if key not in ("checksum", "profile")
    } | {"version": 2}
    old = read({**earlier, "checksum": checksum(earlier)})
    assert old.variants["full"].model().not_better_than is None
    assert old.profile is None
    prediction = predict_environment(old, idle_times(old.variants["full"]))
    assert prediction.profile is None
    assert not any("clearly better" in warning for warning in prediction.warnings)
    with Store.open(profiled) as store:
        store.put_model("still", old.identity, "node-1", "cross-core", seal(earlier))
    assert answer(kongming("model", "still", "--json"))["profile"] is None
    assert "not judged by the version that trained it" in kongming("model", "still").stdout
    (listed,) = answer(kongming("models", "--app", "still", "--json"))["models"]
    assert listed["profile"] == {"verdict": "not-judged"}
