"""``kongming simulate`` as people run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kongming.store import Store
from tests.cli import evaluated
from tests.conftest import Kongming
from tests.simulate.tables import SLOWDOWN, SOLO_S


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.csv"
    rows = [f"{a},{b},{s},{SOLO_S[a]},{s * 1.02:.4f}" for (a, b), s in SLOWDOWN.items()]
    path.write_text("\n".join(["app,neighbour,slowdown,solo_s,predicted", *rows]) + "\n")
    return path


def test_a_study_compared_with_random_and_oracle(
    kongming: Kongming, pairs: Path, tmp_path: Path
) -> None:
    arguments = (
        "simulate",
        "--pairs",
        pairs,
        "--jobs",
        "2000",
        "--nodes",
        "20",
        "--quality",
        "0.9",
    )
    out = tmp_path / "study.json"
    done = kongming(*arguments, "--json", "--out", out)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert json.loads(out.read_text()) == document
    assert list(document["policies"]) == ["random", "least-loaded", "slurm", "kongming", "oracle"]
    for own in document["policies"].values():
        assert set(own["over"]) == {"random", "oracle"}
    assert document["predictions"]["made_up"] is False
    assert document["predictions"]["error_pct"] == pytest.approx(2.0, abs=0.1)
    assert document["trace"]["jobs"] == 2000
    assert document["quality"][0]["target"] == 0.9
    shown = kongming(*arguments)
    assert shown.returncode == 0
    for word in ("kongming", "oracle", "median error 2.0 %", "stretch"):
        assert word in shown.stdout


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_document_in_another_process(
    kongming: Kongming, pairs: Path
) -> None:
    arguments = ("simulate", "--pairs", pairs, "--jobs", "1000", "--nodes", "9", "--json")
    first, second, other = (
        kongming(*arguments, "--seed", seed, env={"PYTHONHASHSEED": hashes}).stdout
        for seed, hashes in (("4", "1"), ("4", "2"), ("5", "1"))
    )
    assert first == second
    assert first != other


def test_made_up_errors_are_named_in_the_output(kongming: Kongming, pairs: Path) -> None:
    done = kongming(
        "simulate", "--pairs", pairs, "--jobs", "100", "--nodes", "5", "--prediction-error", "0.2"
    )
    assert "made up" in done.stdout
    assert "hypothetical" in done.stdout


def test_a_trace(kongming: Kongming, pairs: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,app\n0,victim\n10,hog\n")
    arguments = ("simulate", "--pairs", pairs, "--trace", trace, "--nodes", "1", "--limit", "inf")
    document = json.loads(kongming(*arguments, "--policy", "slurm", "--json").stdout)
    assert document["policies"]["slurm"]["makespan_s"] == pytest.approx(41.0)
    assert document["settings"]["limit"] is None
    trace.write_text("arrival_s,app\n0,victim\n10,hgo\n")
    done = kongming(*arguments)
    assert done.returncode == 2
    assert "row 2 (line 3), column 'app'" in done.stderr
    assert "hog" in done.stderr


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (("--policy", "oracel"), 2, "oracle"),
        (("--quality", "2"), 2, "--quality"),
        (("--plot", "figure.txt"), 2, ".svg or .png"),
        (("--predicted", "table", "--prediction-error", "0.1"), 2, "one of them"),
        (("--app", "nobody"), 2, "nobody"),
        (("--nodes", "0"), 2, "--nodes"),
        (("--fleet", "none.csv"), 2, "none.csv"),
        (("--fleet", "none.csv", "--slots", "2"), 2, "--slots"),
        (("--trace", "none.csv"), 2, "--jobs"),
        (("--prediction-error", "nan"), 2, "--prediction-error"),
        (("--prediction-error", "inf"), 2, "--prediction-error"),
        (("--patience", "nan"), 2, "--patience"),
        (("--out", "none/out.json", "--app", "nobody"), 2, "--out"),
        (("--plot", "none/figure.svg", "--app", "nobody"), 2, "--plot"),
    ],
)
def test_wrong_usage(
    kongming: Kongming, pairs: Path, args: tuple[str, ...], status: int, message: str
) -> None:
    done = kongming("simulate", "--pairs", pairs, "--jobs", "10", *args)
    assert done.returncode == status
    assert message in done.stderr


def test_a_metric_that_is_no_time_is_refused(kongming: Kongming, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.json"
    metrics = {"web": {"unit": "ops/s", "better": "higher"}}
    pairs.write_text(json.dumps({"kind": "pairs", "scored": "raw", "metrics": metrics}))
    done = kongming("simulate", "--pairs", pairs)
    assert done.returncode == 2
    for word in ("metric of web", "ops/s", "--scored bracketed"):
        assert word in done.stderr


def test_without_predictions(kongming: Kongming, pairs: Path) -> None:
    lines = [line.rpartition(",")[0] for line in pairs.read_text().splitlines()]
    pairs.write_text("\n".join(lines) + "\n")
    arguments = ("simulate", "--pairs", pairs, "--jobs", "50", "--nodes", "3")
    done = kongming(*arguments, "--json")
    assert "kongming" not in json.loads(done.stdout)["policies"]
    assert "--prediction-error" in done.stderr
    assert kongming(*arguments, "--policy", "kongming").returncode == 3
    assert kongming(*arguments, "--predicted", "table").returncode == 2


def test_pairs_of_the_store(kongming: Kongming, store_url: str, tmp_path: Path) -> None:
    with Store.open(store_url) as store:
        evaluated.fill_pairs(store, evaluated.applications_file(tmp_path))
    arguments = ("simulate", "--jobs", "300", "--nodes", "4", "--json")
    document = json.loads(kongming(*arguments).stdout)
    programs = sorted(evaluated.PROGRAMS)
    assert sorted(document["trace"]["apps"]) == programs
    assert document["pairs"]["placement"] == "cross-core"
    assert [a for a, b in document["pairs"]["estimated"] if a == b] == programs
    slowdown = document["pairs"]["slowdown"]["chaser"]["sums"]
    assert slowdown == pytest.approx(evaluated.slowdown("chaser", "sums"), rel=0.1)
    # Nothing was trained yet.
    assert kongming(*arguments, "--predicted", "store").returncode == 3


def test_an_empty_store_says_what_to_do(kongming: Kongming) -> None:
    done = kongming("simulate")
    assert done.returncode == 3
    assert "kongming evaluate" in done.stderr


def test_a_plot(kongming: Kongming, pairs: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "study.svg"
    arguments = ("simulate", "--pairs", pairs, "--jobs", "300", "--nodes", "5", "--plot", path)
    assert kongming(*arguments).returncode == 0
    assert "slowdown" in path.read_text()


def test_a_plot_of_a_fleet_that_is_too_slow_for_the_usual_targets(
    kongming: Kongming, pairs: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    path, fleet = tmp_path / "study.svg", tmp_path / "fleet.csv"
    fleet.write_text("name,nodes,slots,speed,weight\nold,5,2,0.5,1\n")
    done = kongming(
        *("simulate", "--pairs", pairs, "--jobs", "50", "--fleet", fleet),
        *("--policy", "random,oracle", "--plot", path),
    )
    assert done.returncode == 0, done.stderr
    assert path.exists()


LONG = """
import pathlib
from kongming.cli.main import main
from kongming.simulate import Study
run = Study.run
def begun(*args, **options):
    pathlib.Path("begun").touch()
    return run(*args, **options)
Study.run = begun
main()
"""


def test_ctrl_c_ends_a_long_study(
    kongming_env: dict[str, str], pairs: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", LONG, "simulate", "--pairs", str(pairs)]
    command += ["--jobs", "1000000", "--nodes", "2000", "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=kongming_env, stdout=subprocess.PIPE, text=True
    ) as process:
        while not (tmp_path / "begun").exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=100)
    assert process.returncode == 130
    assert json.loads(out)["error"]["kind"] == "KeyboardInterrupt"
