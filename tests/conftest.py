"""Fixtures for all tests: a store of one's own, and the real command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.postgres.fixtures import postgres_server, postgres_url
from tests.turns import turn

__all__ = ["postgres_server", "postgres_url"]

ROOT = Path(__file__).resolve().parent.parent

# A shell starts what it puts in the background with SIGINT ignored, and nohup does so with SIGHUP;
# the commands under test would inherit that, and tests of Ctrl-C would test the shell.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The same examples each time, so that a change is judged by itself; others are tried with
# HYPOTHESIS_PROFILE=explore.
settings.register_profile("same", derandomize=True)
settings.register_profile("explore", settings.get_profile("default"))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Around the whole test, so that neither its time limit nor its fixtures begin too early."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    alone = any(item.get_closest_marker(mark) for mark in ("real", "alone"))
    # Workers have a folder each, below one that they share.
    folder = item.config._tmp_path_factory.getbasetemp().parent  # type: ignore[attr-defined]
    with turn(folder, alone=alone):
        return (yield)


Kongming = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """The URL of a store that does not exist yet."""
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def kongming_env(tmp_path: Path, store_url: str) -> dict[str, str]:
    """An environment in which the command keeps everything below ``tmp_path``."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {
        "PYTHONPATH": path,
        "KONGMING_STORE": store_url,
        "KONGMING_DIR": str(tmp_path / "io"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "COLUMNS": "160",
    }


@pytest.fixture
def kongming(tmp_path: Path, kongming_env: dict[str, str]) -> Kongming:
    """Run the real command: ``kongming("runs", "--json").stdout``.

    It runs in ``tmp_path`` with ``KONGMING_STORE`` set to ``store_url``; ``env=`` adds variables,
    anything else goes to ``subprocess.run``.
    """

    def call(
        *args: str | Path, env: dict[str, str] | None = None, **options: object
    ) -> subprocess.CompletedProcess[str]:
        settings: dict[str, object] = {"cwd": tmp_path, "timeout": 120} | options
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [sys.executable, "-m", "kongming.cli.main", *map(str, args)],
            env=kongming_env | (env or {}),
            capture_output=True,
            text=True,
            check=False,
            **settings,
        )

    return call
