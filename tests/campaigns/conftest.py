"""Real campaigns on tiny programs: one good campaign for all tests, and hasty surrogates."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kongming.learning.training import train_application
from kongming.probes.binary import locate
from kongming.store import Store
from tests import warm_start
from tests.conftest import ROOT

PROGRAMS = Path(__file__).parent / "programs"
NEEDED_BYTES = 6 << 30
"""Free space: a file of 2 GiB, and the reserve that the surrogates leave alone."""

QUICK = ("--levels", "2", "--suite", "quick")
"""Six steps for each application: three solo runs, two load levels, a signature."""

LOADED = f"{sys.executable} -IS {PROGRAMS}/loaded.py $IO"
"""A shell condition: an inducer is at work in the I/O folder that IO names."""

COUNT = """
[apps.count]
command = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
"""
RATE = f"""
[apps.rate] # half as fast under load
command = "sleep 0.1; if {LOADED}; then echo rate 50; else echo rate 100; fi"
metric = {{ pattern = 'rate (\\d+)', unit = "ops/s", better = "higher" }}
"""
LINES = f"""
[apps.lines]
kind = "service"
command = ["{sys.executable}", "{PROGRAMS}/server.py", "{{dir}}"]
ready = ["{sys.executable}", "{PROGRAMS}/client.py", "{{dir}}", "1"]
load = ["{sys.executable}", "{PROGRAMS}/client.py", "{{dir}}", "1000"]
metric = {{ pattern = '([0-9.]+) lines/s', unit = "lines/s", better = "higher" }}
"""


@dataclass(frozen=True)
class Profiled:
    """A finished campaign: where it is kept, and what the command printed."""

    folder: Path
    env: dict[str, str]
    document: dict[str, Any]

    @property
    def file(self) -> Path:
        return self.folder / "apps.toml"

    def run(self, *args: str | Path) -> subprocess.CompletedProcess[str]:
        return warm_start.run(
            "kongming.cli.main", *args, cwd=self.folder, env=self.env, timeout=150
        )

    def json(self, *args: str | Path) -> Any:
        done = self.run(*args, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def train(self, *apps: str) -> None:
        """Two kinds of models, of each program; what the command trains is tested elsewhere."""
        with Store.open(self.env["KONGMING_STORE"]) as store:
            for app in apps:
                runs = store.runs(app=app)
                document = train_application(runs, placement="cross-core", models=("NNLS",))
                version = (document["identity"], runs[0].node_id, "cross-core")
                store.put_model(app, *version, document)

    def copied_to(self, folder: Path) -> Profiled:
        """The same with a store of its own, that a test may add to."""
        own = folder / "profiled"
        own.mkdir()
        for name in ("apps.toml", "store.db"):
            shutil.copy(self.folder / name, own)
        store = {"KONGMING_STORE": f"sqlite:///{own / 'store.db'}"}
        return Profiled(own, self.env | store, self.document)


def steps(store_url: str) -> list[int]:
    """The step of every run and signature in a store, in ascending order."""
    with Store.open(store_url) as store:
        return sorted(record.step for record in (*store.runs(), *store.signatures()))


@pytest.fixture(scope="session")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Profiled]:
    """One campaign over three good applications, with hasty surrogates."""
    folder = tmp_path_factory.mktemp("profiled")
    yield _campaign(folder, COUNT + RATE + LINES, _hasty(folder / "io"))
    shutil.rmtree(folder / "io")


@pytest.fixture
def profiled_at_full_size(tmp_path: Path) -> Iterator[Profiled]:
    """A campaign over one of them with the real binary, as users have it."""
    free = shutil.disk_usage(tmp_path).free
    if free < NEEDED_BYTES:
        pytest.skip(f"{tmp_path} has {free >> 30} GiB free, and {NEEDED_BYTES >> 30} are needed")
    yield _campaign(tmp_path, COUNT, {})
    shutil.rmtree(tmp_path / "io")


def _campaign(folder: Path, apps: str, surrogates: Mapping[str, str]) -> Profiled:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("cross-core needs two CPUs")
    (folder / "apps.toml").write_text(apps)
    io = folder / "io"
    io.mkdir()
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "KONGMING_STORE": f"sqlite:///{folder / 'store.db'}",
        "KONGMING_DIR": str(io),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "COLUMNS": "160",
        "IO": str(io),
        **surrogates,
    }
    empty = Profiled(folder, env, {})
    return Profiled(folder, env, empty.json("profile", empty.file, *QUICK))


@pytest.fixture
def hasty(tmp_path: Path, kongming_env: dict[str, str]) -> Path:
    """Hasty surrogates for ``kongming``, with their own small I/O folder, which is returned."""
    folder = tmp_path / "io"
    folder.mkdir()
    kongming_env.update(_hasty(folder))
    return folder


def hasty_surrogates() -> dict[str, str]:
    """Variables with which all surrogates and inducers take little memory and small files."""
    return {
        "KONGMING_MICROBENCH": str(PROGRAMS / "hasty-microbench"),
        "REAL_MICROBENCH": str(locate()),
    }


def _hasty(folder: Path) -> dict[str, str]:
    return {**hasty_surrogates(), "KONGMING_DIR": str(folder), "IO": str(folder)}
