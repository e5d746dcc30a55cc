"""``runs``, ``apps``, ``models``, ``export`` and ``import``, by the real command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kongming.store import Store
from tests import builders
from tests.conftest import Kongming

TIMES = {"memory.random.1K": 1.2e-9, "stream.triad": 3e-9}


@pytest.fixture
def filled(store_url: str) -> str:
    with Store.open(store_url) as store:
        for metric in (1.0, 1.1, 0.9):
            store.add_run(builders.run("sort", metric, TIMES))
        store.add_run(builders.run("sort", 2.0, TIMES, levels=(builders.level(),)))
        store.add_run(builders.run("sort", None, levels=(builders.level("os.switch"),)))
        store.add_run(
            builders.run("serve", 500.0, metric_unit="ops/s", better="higher", wall_s=3.0)
        )
        store.add_signature(builders.signature("sort", TIMES))
        variant = {
            "chosen": "GBM",
            "columns": ["stream.triad"],
            "noise_floor_pct": 1.5,
            "models": {"GBM": {"scores": {"median_pct": 4.2, "mean_pct": 5.3}}},
        }
        for _ in range(2):
            store.put_model(
                "sort",
                builders.identity_of("sort"),
                "node-1",
                "cross-core",
                {"schema": 1, "runs": {"total": 4}, "variants": {"full": variant}},
            )
    return store_url


def listed(kongming: Kongming, *args: str | Path) -> dict[str, Any]:
    done = kongming(*args, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.usefixtures("filled")
def test_runs_with_filters(kongming: Kongming) -> None:
    everything = listed(kongming, "runs")
    assert everything["total"] == len(everything["runs"]) == 6
    [failed] = listed(kongming, "runs", "--failed")["runs"]
    assert (failed["ok"], failed["error"], failed["slowdown"]) == (False, "exit status 1", None)
    loaded = listed(kongming, "runs", "--app", "sort", "--kind", "induced")["runs"]
    assert [run["slowdown"] for run in loaded] == [2.0, None]
    assert listed(kongming, "runs", "--placement", "same-core") == {"total": 0, "runs": []}
    newest = listed(kongming, "runs", "--limit", "1", "--fingerprints")
    assert newest["total"] == 6
    assert [run["app"] for run in newest["runs"]] == ["serve"]
    complete = listed(kongming, "runs", "--app", "sort", "--fingerprints")["runs"][0]
    assert complete["fingerprint"]["surrogates"].keys() == TIMES.keys()


@pytest.mark.usefixtures("filled")
def test_tables_for_people(kongming: Kongming) -> None:
    runs = kongming("runs").stdout
    assert "memory.streaming.8M@1" in runs
    assert "500 ops/s" in runs
    assert "exit status 1" in runs
    assert "The newest 2 of 6 runs" in kongming("runs", "--limit", "2").stdout
    apps = kongming("apps").stdout
    assert "sort" in apps
    assert "500 ops/s" in apps
    models = kongming("models").stdout
    assert "5.3 %" in models
    assert "4.2 %" not in models
    assert "1 (all)" in models


@pytest.mark.usefixtures("filled")
def test_apps(kongming: Kongming) -> None:
    serve, sort = listed(kongming, "apps")["apps"]
    assert (serve["app"], serve["metric_unit"]) == ("serve", "ops/s")
    assert serve["profiles"][0]["solo"] == pytest.approx(500.0)
    [profile] = sort["profiles"]
    assert (profile["solo"], profile["runs"], profile["failed"]) == (1.0, 5, 1)
    assert profile["judged"]["verdict"] == "good"
    assert profile["signature"]
    assert profile["node"] == "example"


def test_apps_say_of_a_profile_what_profiling_said(kongming: Kongming, store_url: str) -> None:
    """That somebody else slowed the processor is seen in the fingerprints alone."""
    with Store.open(store_url) as store:
        for seconds in (1e-9, 1e-9, 2e-9, 2e-9):
            before = builders.fingerprint({"compute.int": seconds})
            store.add_run(builders.run("sort", 1.0, TIMES, before=before))
        store.add_run(builders.run("sort", 2.0, TIMES, levels=(builders.level(),)))
    [sort] = listed(kongming, "apps")["apps"]
    judged = sort["profiles"][0]["judged"]
    assert judged["verdict"] == "usable"
    codes = {reason["code"]: reason["figures"] for reason in judged["reasons"]}
    assert codes["slowed-by-others"] == {"runs": 2, "of": 5}
    assert "during 2 of 5 runs" in judged["text"]
    assert "--again" in judged["advice"]


@pytest.mark.usefixtures("filled")
def test_models(kongming: Kongming) -> None:
    [model] = listed(kongming, "models")["models"]
    assert model["version"] == 2
    assert model["variants"]["full"] == {
        "model": "GBM",
        "columns": 1,
        "mean_error_pct": 5.3,
        "median_error_pct": 4.2,
        "noise_floor_pct": 1.5,
    }
    assert len(listed(kongming, "models", "--all")["models"]) == 2
    unknown = kongming("models", "--app", "sord")
    assert unknown.returncode == 2
    assert "Did you mean sort?" in unknown.stderr


def test_empty_store_is_no_error(kongming: Kongming) -> None:
    assert "No runs in the store sqlite:///" in kongming("runs").stdout
    assert "kongming profile" in kongming("apps").stdout
    assert "kongming train" in kongming("models").stdout
    assert listed(kongming, "runs") == {"total": 0, "runs": []}


def test_reading_makes_no_store(kongming: Kongming, tmp_path: Path) -> None:
    for command in (("apps",), ("models",), ("train",), ("nodes",), ("model", "sort")):
        assert kongming(*command, "--store", "sqlite:///new.db").returncode == 2
    assert not (tmp_path / "new.db").exists()
    # Nobody named the store of one's own: it is empty before the first profile.
    own = kongming("apps", env={"KONGMING_STORE": ""})
    assert own.returncode == 0
    assert str(tmp_path / "data" / "kongming" / "kongming.db") in " ".join(own.stdout.split())
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("filled")
def test_export_and_import(kongming: Kongming, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    other = {"KONGMING_STORE": f"sqlite:///{tmp_path / 'other.db'}"}
    written = listed(kongming, "export", "--out", "x.parquet", "--app", "sort")
    assert written["records"]["run"] == 5
    assert written["bytes"] == (tmp_path / "x.parquet").stat().st_size
    before = (tmp_path / "x.parquet").read_bytes()
    again = kongming("export", "--out", "x.parquet")
    assert again.returncode == 2
    assert "x.parquet" in again.stderr
    assert "--force" in again.stderr
    assert (tmp_path / "x.parquet").read_bytes() == before
    replaced = listed(kongming, "export", "--out", "x.parquet", "--app", "sort", "--force")
    assert replaced["records"] == written["records"]
    first, second = (kongming("import", "x.parquet", "--json", env=other) for _ in range(2))
    assert json.loads(first.stdout)["new"]["run"] == 5
    assert json.loads(second.stdout)["new"]["run"] == 0
    there = json.loads(kongming("runs", "--json", env=other).stdout)
    assert there == listed(kongming, "runs", "--app", "sort")


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["runs", "--app", "srot"], 2, "Did you mean sort?"),
        (["runs", "--kind", "slo"], 2, "--kind"),
        (["export"], 2, "--out"),
        (["export", "--out", "x.csv"], 2, "a name such as x.parquet"),
        (["rank", "sort", "--slowdown-limit", "20%"], 2, "is not a number (as 1.2)"),
        (["predict", "sort", "zip"], 2, "kongming predict sort --with zip"),
        (["export", "--out", "x.parquet", "--app", "srot"], 2, "Did you mean sort?"),
        (["export", "--out", "nowhere/x.parquet"], 2, "in a folder that does not exist"),
        (["runs", "--store", "sqlite:///lost.sqlite"], 2, "is there and empty"),
        (["models", "rollback", "srot"], 2, "Did you mean sort?"),
        (["train", "sort", "--placement", "smt-sibling"], 3, "--placement smt-sibling"),
        (["import", "nothing.parquet"], 2, "There is no file"),
        (["profile", "sort"], 2, "--app sort"),
        (["profile", "app.toml"], 2, "Did you mean apps.toml?"),
        (["import", "store.db"], 2, "is not a Parquet file"),
        (["runs", "--store", "store.db"], 2, "not a database URL"),
        (["runs", "--store", "mongodb://host/x"], 2, "unknown kind"),
        (["runs", "--store", "sqlite:///letter.txt"], 2, "is not a database"),
        (["runs", "--store", "sqlite:////proc/x.db"], 2, "does not exist"),
        (["runs", "--store", "sqlite:///nowhere/x.db"], 2, "does not exist"),
        (["runs", "--store", "sqlite:///stroe.db"], 2, "Did you mean store.db?"),
        (["train", "--store", "sqlite:///stroe.db"], 2, "Did you mean store.db?"),
    ],
)
def test_bad_input_gets_a_sentence(
    kongming: Kongming, tmp_path: Path, args: list[str], status: int, message: str
) -> None:
    (tmp_path / "letter.txt").write_text("Dear reader, " * 100)
    (tmp_path / "apps.toml").touch()
    (tmp_path / "lost.sqlite").touch()
    done = kongming(*args)
    assert done.returncode == status, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert not list(tmp_path.glob("*.parquet"))
    assert not (tmp_path / "lost.sqlite").stat().st_size


@pytest.mark.parametrize(
    "args", [("import", "nothing.parquet"), ("import", "apps.toml"), ("corun", "sort", "zip")]
)
def test_a_mistake_makes_no_store(
    kongming: Kongming, tmp_path: Path, args: tuple[str, ...]
) -> None:
    (tmp_path / "apps.toml").touch()
    assert kongming(*args, "--store", "sqlite:///new.db").returncode == 2
    assert not list(tmp_path.glob("new.db*"))


@pytest.mark.usefixtures("filled")
def test_the_noise_of_apps_is_that_of_the_runs_that_training_learns_from(
    kongming: Kongming, store_url: str
) -> None:
    """Those alone between co-runs have no fingerprint, and are left out by training."""
    before = noise(kongming)
    assert before is not None
    with Store.open(store_url) as store:
        for metric in (2.0, 3.0, 4.0):
            store.add_run(builders.run("sort", metric, campaign="corun-1"))
    assert noise(kongming) == before


def noise(kongming: Kongming) -> float | None:
    listed_apps = listed(kongming, "apps")["apps"]
    (profile,) = next(app["profiles"] for app in listed_apps if app["app"] == "sort")
    noise_pct: float | None = profile["noise_pct"]
    return noise_pct


def test_export_without_pyarrow_names_the_extra(kongming: Kongming, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys; sys.modules['pyarrow'] = None\n")
    path = f"{hidden}:{Path(__file__).resolve().parent.parent.parent}"
    done = kongming("export", "--out", "x.parquet", env={"PYTHONPATH": path})
    assert done.returncode == 2
    assert "pip install 'kongming[predict]'" in done.stderr


def test_rank_before_anything_was_measured_is_no_answer(kongming: Kongming, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'new.db'}") as store:
        store.put_node(builders.node())
    done = kongming("rank", "sort", "--store", "sqlite:///new.db")
    assert (done.returncode, done.stderr) == (3, "")
    assert "was not measured yet (on it: kongming fingerprint" in " ".join(done.stdout.split())
