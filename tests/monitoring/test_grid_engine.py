"""The load sensor under a real execd, and the requests of jobs under a real scheduler."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests import system
from tests.monitoring.grid_engine import HOST, running
from tests.monitoring.stack import DEPLOY, ROOT
from tests.monitoring.test_sensors import NO_CREDENTIALS
from tests.server.process import eventually
from tests.service_contract.conftest import local_url, trained_store

__all__ = ["local_url", "trained_store"]

SENSOR = DEPLOY / "gridengine/kongming-load-sensor"
NAMES = ("kongming_slowdown", "kongming_lost", "kongming_chaser")

pytestmark = [
    pytest.mark.skipif("Grid Engine" in system.missing(), reason="needs Grid Engine"),
    pytest.mark.skipif(os.geteuid() != 0, reason="Grid Engine is started as root"),
]


def test_jobs_go_where_the_sensor_says_that_their_limit_is_kept(
    local_url: str, tmp_path: Path
) -> None:
    store = tmp_path / "store.db"
    shutil.copy(local_url.removeprefix("sqlite:///"), store)
    program = tmp_path / "kongming"
    program.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m kongming.cli.main "$@" --store "sqlite:///{store}" '
        f"--node busy --app chaser --host {HOST}\n"
    )
    program.chmod(0o755)
    env = {"KONGMING": str(program), "PYTHONPATH": str(ROOT)} | NO_CREDENTIALS
    complexes = re.findall(r"^#   (kongming_.*)$", SENSOR.read_text(), re.MULTILINE)
    complexes = [line.replace("sort", "chaser") for line in complexes]
    assert [line.split()[0] for line in complexes] == list(NAMES)

    with running(tmp_path / "engine", SENSOR, complexes, env) as engine:
        reported = eventually(lambda: engine.loads(*NAMES))
        assert set(reported) == set(NAMES)
        slowdown = reported["kongming_slowdown"]
        assert reported["kongming_lost"] == pytest.approx(1.0 - 1.0 / slowdown, abs=1e-3)

        engine.submit("strict", f"kongming_slowdown={slowdown - 0.05}")
        engine.submit("lax", f"kongming_slowdown={slowdown + 0.05},kongming_chaser=9")
        eventually(lambda: engine.done("lax"))
        eventually(lambda: "it offers only hl:kongming_slowdown" in engine.reason("strict"))
        assert not engine.done("strict")

        # No question is answered any more: earlier reports are forgotten, and jobs wait.
        store.unlink()
        eventually(lambda: not engine.loads(*NAMES))
        engine.submit("unknown", "kongming_slowdown=9")
        eventually(lambda: "unknown resource (kongming_slowdown)" in engine.reason("unknown"))
        assert not engine.done("unknown")
