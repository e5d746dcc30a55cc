"""The drivers' benchmark: how it judges, and that it runs from a program to a judgement.

Whether the right resource comes first on a real machine is the benchmark's own to say: ``--check``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drivers.drivers import PREFIX, SLOWED, Program, judged, scratch
from kongming.learning.training import train_application
from kongming.store import Store
from tests.conftest import ROOT
from tests.models import synthetic


@contextmanager
def trained(folder: Path, loadings: dict[str, float]) -> Iterator[Store]:
    """A store with the model of a made-up program of these sensitivities."""
    document = train_application(synthetic.campaign("made", loadings), models=("NNLS",))
    with Store.open(f"sqlite:///{folder / 'store.db'}") as store:
        store.put_model("made", document["identity"], "node-1", "cross-core", document)
        yield store


def judge(store: Store, *expected: str) -> dict[str, Any]:
    return judged(store, "made", Program("", expected), "cross-core")


def test_the_resource_that_slows_a_program_is_met_and_another_is_not(tmp_path: Path) -> None:
    with trained(tmp_path, {"iobench.read.4M": 0.5}) as store:
        right, wrong = judge(store, "read"), judge(store, "write", "memory")
    assert (right["first"], right["met"]) == ("read", True)
    assert right["slowdown"] > SLOWED
    assert (wrong["first"], wrong["met"]) == ("read", False)
    assert wrong["drivers"] == right["drivers"]


def test_a_program_that_nothing_slows_counts_neither_way(tmp_path: Path) -> None:
    with trained(tmp_path, {}) as store:
        calm = judge(store, "memory")
    assert (calm["first"], calm["met"]) == (None, None)
    assert calm["slowdown"] < SLOWED


def test_a_program_without_a_model_is_missed(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        assert judged(store, "absent", Program("", ("write",)), "cross-core")["met"] is False


def test_what_a_killed_run_left_is_removed_and_a_folder_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / "store.db").touch()
    with scratch() as first:
        assert list(tmp_path.iterdir()) == [first]
        with scratch() as second:
            assert set(tmp_path.iterdir()) == {first, second}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
@pytest.mark.alone
@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_it_profiles_trains_and_judges_real_programs(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    script = ROOT / "benchmarks" / "drivers" / "drivers.py"
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "TMPDIR": str(tmp_path),
    }
    few = ["--only", "stream", "--only", "log", "--levels", "6", "--suite", "quick"]
    done = subprocess.run(
        [sys.executable, script, *few, "--dir", str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1100,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["levels"], set(document["programs"])) == (6, {"stream", "log"})
    for name, report in document["programs"].items():
        # Each load level at least once, and runs without a load.
        assert report["runs"] > 6, name
        assert (report["first"] is None) == (report["slowdown"] < SLOWED or not report["drivers"])
        if report["first"] is None:
            assert report["met"] is None
            continue
        assert report["met"] == (report["first"] in report["expected"])
        assert report["drivers"][report["first"]] == max(report["drivers"].values())
        assert sum(report["drivers"].values()) == pytest.approx(
            1.0, abs=0.001 * len(report["drivers"])
        )
