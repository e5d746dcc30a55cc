"""A real server and real agents, whose programs really run and whose readings are made up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kongming.probes.binary import locate
from tests.agent.conftest import ROOT, agent_process, own_folders
from tests.server.conftest import start_server

__all__ = ["agent_process", "own_folders", "start_server"]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A binary that runs programs as the real one does; what it reads and loads is made up."""
    real = locate()
    path = tmp_path / "kongming-microbench"
    path.write_text(
        "#!/bin/sh\n"
        f'case "$1" in exec) exec "{real}" "$@" ;; esac\n'
        f'exec "{sys.executable}" -SE "{ROOT / "tests/together/made_up.py"}" "$@"\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("KONGMING_MICROBENCH", str(path))
    load = tmp_path / "load"
    load.mkdir()
    monkeypatch.setenv("MADE_UP_LOAD", str(load))
    return path
