"""Agent, server and what measures are killed at random: no run is lost, none is doubled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.conftest import ROOT


@pytest.mark.parametrize("kills", [4, pytest.param(10, marks=pytest.mark.thorough)])
def test_kills_lose_no_run_and_double_none(kills: int, fake: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            *("-m", "benchmarks.soak.kill"),
            *("--kills", str(kills), "--seed", "7", "--folder", str(tmp_path / "soak")),
            *("--server", f"{sys.executable} {ROOT / 'tests/agent/fleet.py'} {{folder}} {{port}}"),
            "--check",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["kills"] == kills
    assert document["lost"] == []
    assert document["doubled"] == []
    assert document["unacknowledged"] == []
    assert document["runs"] > kills
