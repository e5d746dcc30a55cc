"""Fixtures for all tests: a store of one's own, and the real command."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Matrices are small here: threads of numerical libraries would wait for each other, on CPUs that
# other tests want. Read when such a library is loaded, which the imports below do.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

from kongming.probes import measuring
from kongming.store import Store
from tests import system, warm_start
from tests.order import GroupScheduling, is_alone, longest_first, write_groups
from tests.postgres.fixtures import (
    postgres_server,
    postgres_store_url,
    postgres_template,
    postgres_url,
)
from tests.turns import Turn

__all__ = ["postgres_server", "postgres_store_url", "postgres_template", "postgres_url"]

ROOT = Path(__file__).resolve().parent.parent

# A shell starts what it puts in the background with SIGINT ignored, and nohup does so with SIGHUP;
# the commands under test would inherit that, and tests of Ctrl-C would test the shell.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The same examples each time, so that a change is judged by itself; more of them with
# HYPOTHESIS_PROFILE=many, as in `make thorough`, and others with HYPOTHESIS_PROFILE=explore. How
# long one takes is not tested: machines are slow, or busy.
_UNTIMED: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, max_examples=15, **_UNTIMED)
settings.register_profile("many", derandomize=True, **_UNTIMED)
settings.register_profile("explore", derandomize=False, **_UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# What follows up to the fixtures is about tests in several processes (-n): which of them come when
# (order.py), and which of them have the machine to themselves (turns.py).
_turn = Turn()


def _folder(config: pytest.Config) -> Path:
    """This process's own temporary folder of the session; the fixture that has it is no hook's."""
    folder: Path = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    return folder


def _shared_folder(config: pytest.Config) -> Path:
    """Workers have a folder each, below one that they share."""
    return _folder(config).parent


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Wait for the test's turn, around all of it: neither its time limit nor its fixtures may begin
    before."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    alone = is_alone(item)
    _turn.take(_shared_folder(item.config), alone=alone)
    try:
        return (yield)
    finally:
        # Tests that want to be alone follow each other: then nobody comes between.
        if not (alone and nextitem is not None and is_alone(nextitem)):
            _turn.give_back()


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run where programs are missing that are to be there."""
    line = system.left_out()
    if line is not None and os.environ.get(system.REQUIRE):
        raise pytest.UsageError(line)


def pytest_sessionstart(session: pytest.Session) -> None:
    # Measurements of one user wait for each other by locks. Here workers measure at the same time,
    # so each has locks of its own.
    os.environ[measuring.FOLDER] = str(_folder(session.config) / "locks")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without looking for garbage: what is made by it lives to the end, and is never looked
    at again."""
    gc.disable()
    try:
        _import_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_share(config: pytest.Config) -> None:
    """Import some test modules before all others, each worker different ones: what is not compiled
    yet, as in a fresh clone, is then compiled once, and not by all workers at the same time."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    files = sorted(file for folder in config.args for file in Path(folder).rglob("test_*.py"))
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    for file in files[number::workers]:
        # Whoever collects it says what is wrong with it.
        with suppress(Exception, pytest.skip.Exception):
            name = file.resolve().relative_to(ROOT).with_suffix("")
            importlib.import_module(".".join(name.parts))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = longest_first(items)
        write_groups(items, _shared_folder(config))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    return GroupScheduling(config, log, _folder(config))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    """Write what was left out as the last line, below pytest's list of skips and its counts."""
    try:
        return (yield)
    finally:
        line = system.left_out()
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if line is not None and reporter is not None:
            reporter.write_line(line)


@contextmanager
def on_one_cpu() -> Generator[None]:
    """This process, and those that it starts, on one CPU: then no other processes share the
    training, and to start them takes longer than to train small models."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@pytest.fixture
def one_cpu() -> Generator[None]:
    """The whole test ``on_one_cpu``."""
    with on_one_cpu():
        yield


Kongming = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite store without a record, to be copied: to make its tables takes longer."""
    path = tmp_path_factory.mktemp("empty-store") / "store.db"
    Store.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def new_store_url(tmp_path: Path) -> str:
    """The URL of a store that does not exist yet."""
    return f"sqlite:///{tmp_path / 'new.db'}"


@pytest.fixture
def store_url(empty_store: Path, tmp_path: Path) -> str:
    """The URL of a store of its own, without a record."""
    shutil.copy(empty_store, tmp_path / "store.db")
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
    ``timeout=`` is in seconds, and anything else goes to ``subprocess.run``, for which the command
    is started cold.
    """

    def call(
        *args: str | Path,
        env: dict[str, str] | None = None,
        timeout: float = 120.0,
        **options: object,
    ) -> subprocess.CompletedProcess[str]:
        variables = kongming_env | (env or {})
        if not options:
            return warm_start.run(
                "kongming.cli.main", *args, env=variables, cwd=tmp_path, timeout=timeout
            )
        settings: dict[str, object] = {"cwd": tmp_path, "timeout": timeout} | options
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [sys.executable, "-m", "kongming.cli.main", *map(str, args)],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            **settings,
        )

    return call
