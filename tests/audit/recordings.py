"""``kongming observe`` on tiny programs: real runs, made-up surrogates that take no time."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from kongming.audit.readings import Observations, read_observations
from kongming.probes.binary import locate
from tests import warm_start
from tests.profiling.processes import eventually

FAKE = Path(__file__).parent.parent / "probes" / "fake_microbench.py"
MARK = "KONGMING_TEST_MARK"

APPS = """
[apps.nap]
command = "sleep 0.05"

[apps.rate]
command = "sleep 0.02; echo rate 100"
metric = { pattern = 'rate (\\d+)', unit = "ops/s", better = "higher" }
"""

OBSERVE = ("observe", "apps.toml", "--out", "o.parquet", "--no-metadata", "--suite", "quick")


def microbench(folder: Path) -> Path:
    """The real binary for running programs, the fake one for all else."""
    path = folder / "microbench"
    path.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = exec ] && exec "{locate()}" "$@"\n'
        f'exec "{sys.executable}" -SE "{FAKE}" "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


class Going:
    """The command under way, in the foreground of a terminal of its own."""

    def __init__(self, process: warm_start.Started, err: Path) -> None:
        self._process = process
        self._err = err

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> str:
        """What it wrote to stderr, once it has ended."""
        self._process.wait(60.0)
        return self._err.read_text(encoding="utf-8")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(100.0)

    def ctrl_c(self) -> str:
        """As a terminal does, to the whole foreground group; then ``wait``."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self.wait()


class Recording:
    """The command in a folder of its own."""

    def __init__(self, folder: Path, env: dict[str, str], apps: str = APPS) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.env = env | {"KONGMING_MICROBENCH": str(microbench(folder)), MARK: self.mark}
        (folder / "apps.toml").write_text(apps, encoding="utf-8")
        self.out = folder / "o.parquet"
        self.journal = folder / "o.parquet.part"

    def start(self, *more: str) -> Going:
        """It goes on until it is ended."""
        err = self.folder / "stderr"
        with err.open("wb") as file:
            process = warm_start.start(
                "kongming.cli.main",
                *OBSERVE,
                *more,
                env=self.env,
                cwd=self.folder,
                stderr=file,
                new_session=True,
            )
        return Going(process, err)

    def run(
        self, *more: str, args: Sequence[str] = OBSERVE, file_bytes: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """With ``file_bytes`` no file can grow larger, as on a disk that is full."""
        if file_bytes is None:
            command = ("kongming.cli.main", *args, *more)
            return warm_start.run(*command, env=self.env, cwd=self.folder, timeout=60)
        process = subprocess.Popen(
            [sys.executable, "-m", "kongming.cli.main", *args, *more],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # Started cold, this is long before it writes. Nothing may run between fork and exec:
        # threads of gRPC, which other tests have started here, may abort it.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def steps(self) -> int:
        """How many steps are kept so far."""
        return max(0, self.journal.read_bytes().count(b"\n") - 1) if self.journal.exists() else 0

    def after_steps(self, count: int, going: Going) -> None:
        """Wait until so many are."""
        assert eventually(lambda: self.steps() >= count or going.has_ended(), 60)
        assert not going.has_ended(), going.wait()

    def left(self) -> list[int]:
        """What still runs of all that the command started."""
        pids = []
        for process in psutil.process_iter():
            try:
                mine = process.environ().get(MARK) == self.mark
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    pids.append(process.pid)
            except psutil.Error:
                continue
        return pids

    def read(self) -> Observations:
        return read_observations([self.out])


def begins_with(longer: Observations, first: Observations) -> bool:
    """True if the rows of ``longer`` begin with those of ``first``: by their values, since a name
    that came later is in the dictionary of one of them alone."""
    return longer.table.slice(0, first.table.num_rows).to_pylist() == first.table.to_pylist()


def rows(observations: Observations, kind: str) -> list[dict[str, Any]]:
    """All rows of one kind, failed ones as well."""
    selected: list[dict[str, Any]] = observations.select(kind, failed=True).to_pylist()
    return selected
