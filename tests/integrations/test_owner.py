"""Which assignments are of processes that have ended."""

from __future__ import annotations

import os
import subprocess

import psutil
import pytest

from kongming.integrations import owner


def test_a_step_of_the_clock_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    id_ = owner.new_id("ray")
    assert len(id_) <= 128
    created = psutil.Process().create_time()
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: created + 3.0)
    assert owner.left_over([id_], "ray") == []
    assert owner.left_over([id_], "dask") == []


def test_processes_that_ended_are_known_by_their_start() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        started = owner._started(process.pid)
        id_ = f"{owner._host('ray')}{process.pid}.{started}.{owner._namespace()}:1"
        reused = id_.replace(started, f"{started}0")
        assert owner.left_over([id_, reused], "ray") == [reused]
        process.kill()
    assert owner.left_over([id_], "ray") == [id_]


def test_ids_of_earlier_versions_are_read() -> None:
    host, created = owner._host("ray"), round(psutil.Process().create_time())
    ids = [
        f"{host}{os.getpid()}.{moment}.{owner._namespace()}:1" for moment in (created, created - 90)
    ]
    assert owner.left_over(ids, "ray") == ids[1:]
    elsewhere = f"{host}{os.getpid()}.{created - 90}.7:1"
    assert owner.left_over([elsewhere, f"{host}x:1"], "ray") == []


def test_a_process_that_is_hidden_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hidepid /proc shows no process of another user."""

    def no_such_process(pid: int) -> str:
        raise psutil.NoSuchProcess(pid)

    def not_permitted(pid: int, signal: int) -> None:
        raise PermissionError

    id_ = owner.new_id("ray")
    monkeypatch.setattr(owner, "_started", no_such_process)
    assert owner.left_over([id_], "ray") == [id_]
    monkeypatch.setattr(os, "kill", not_permitted)
    assert owner.left_over([id_], "ray") == []
