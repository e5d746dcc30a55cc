"""A made-up binary, a spool, and a Fleet server for each test."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from kongming_agent.reporting.spool import Spool

from tests import warm_start
from tests.agent.fleet import Fleet, serve
from tests.probes.conftest import fake

__all__ = ["fake"]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name in ("KONGMING_DIR", "KONGMING_STORE", "STATE_DIRECTORY", "NOTIFY_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    path = [str(ROOT / "daemon"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path / "spool.db")
    yield opened
    opened.close()


def refused_records(spool: Spool) -> list[tuple[str, str]]:
    """(id, reason) of the runs and signatures that a server refused, from the spool's file."""
    with closing(sqlite3.connect(spool.path)) as database:
        return database.execute("SELECT id, reason FROM refused ORDER BY refused_at").fetchall()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[tuple[Fleet, str]]:
    """A running server, and its address."""
    servicer = Fleet(tmp_path / "fleet")
    server, port = serve(servicer)
    yield servicer, f"127.0.0.1:{port}"
    server.stop(None).wait()
    servicer.close()


Agent = Callable[..., warm_start.Started]


@pytest.fixture
def agent_process(tmp_path: Path, fake: Path) -> Iterator[Agent]:
    """Starts a real agent: ``agent_process("--server", address)``; it is ended after the test."""
    started: list[warm_start.Started] = []

    def start(*arguments: str, settings: str = "") -> warm_start.Started:
        file = tmp_path / "agent.toml"
        file.write_text(settings)
        with (tmp_path / "agent.log").open("ab") as log:
            process = warm_start.start(
                "kongming_agent.agent_command",
                *("--config", file, "--metrics", "", *arguments),
                cwd=tmp_path,
                stdout=log,
                stderr=log,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_until(holds: Callable[[], object], seconds: float = 90.0, what: str = "it") -> None:
    """Fails when ``holds`` does not hold within so long."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.02)


def log_of(tmp_path: Path) -> Sequence[str]:
    return (tmp_path / "agent.log").read_text().splitlines()


FAST = """
[probing]
signals_s = 0.1
period_s = 0.3
start_s = 0.0
least_gap_s = 0.1
longest_gap_s = 1.0
io_pressure = 1.0
memory_pressure = 1.0
[budget]
cpu_share = 1.0
probe_share = 1.0
[server]
longest_retry_s = 0.5
least_heartbeat_s = 0.1
"""
"""Settings of an agent that probes all the time."""
