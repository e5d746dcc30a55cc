"""Waiting for the disk is bounded, whatever the disk does."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from kongming.profiling.runs import settle as module
from kongming.profiling.runs.settle import SETTLED_BYTES, dirty_bytes, settle
from tests.profiling.processes import alive, eventually, written_pid

MIB = 1 << 20


def test_dirty_and_written_back_memory_add_up(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(
        "MemTotal:  100 kB\nDirty:      12 kB\nWriteback:   3 kB\nWritebackTmp: 50 kB\n"
    )
    assert dirty_bytes(meminfo) == 15 * 1024
    meminfo.write_text("MemTotal:  100 kB\n")
    assert dirty_bytes(meminfo) is None
    assert dirty_bytes(tmp_path / "none") is None
    assert dirty_bytes() is not None


def sync_that(folder: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """Put a ``sync`` of our own first in PATH."""
    file = folder / "sync"
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_quiet_system_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync_that(tmp_path, monkeypatch, f"touch {tmp_path}/called")
    monkeypatch.setattr(module, "dirty_bytes", lambda: SETTLED_BYTES - 1)
    assert settle() == 0.0
    assert not (tmp_path / "called").exists()


def test_it_waits_until_little_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([900 * MIB, 900 * MIB, 300 * MIB, 100 * MIB])
    readings = []

    def dirty() -> int:
        readings.append(next(left, MIB))
        return readings[-1]

    sync_that(tmp_path, monkeypatch, "exit 0")
    monkeypatch.setattr(module, "dirty_bytes", dirty)
    # What ends it is the little that is left: its limit is far away.
    assert settle(limit_s=1e6) > 0.0
    assert readings[-1] == MIB


def test_it_writes_back_where_nothing_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_that(tmp_path, monkeypatch, f"touch {tmp_path}/called")
    monkeypatch.setattr(module, "dirty_bytes", lambda: None)
    assert settle(limit_s=1e6) > 0.0
    assert (tmp_path / "called").exists()


def test_a_write_back_that_never_ends_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    sync_that(tmp_path, monkeypatch, f"echo $$ > {pid_file}; exec sleep 10000")
    monkeypatch.setattr(module, "dirty_bytes", lambda: 900 * MIB)
    assert settle(limit_s=0.5) >= 0.5
    # It was ended, and did not come to its end.
    pid = written_pid(pid_file)
    assert eventually(lambda: not alive(pid))
    assert pid not in [child.pid for child in psutil.Process().children()]


def test_memory_that_stays_dirty_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_that(tmp_path, monkeypatch, "exit 0")
    monkeypatch.setattr(module, "dirty_bytes", lambda: 900 * MIB)
    # It never becomes less, so only the limit can end it.
    assert settle(limit_s=0.2) >= 0.2
