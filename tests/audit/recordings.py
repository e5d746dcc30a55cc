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


class Recording:
    """The command in a folder of its own, as a terminal runs it."""

    def __init__(self, folder: Path, env: dict[str, str], apps: str = APPS) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.env = env | {"KONGMING_MICROBENCH": str(microbench(folder)), MARK: self.mark}
        (folder / "apps.toml").write_text(apps, encoding="utf-8")
        self.out = folder / "o.parquet"
        self.journal = folder / "o.parquet.part"

    def start(
        self, *more: str, args: Sequence[str] = OBSERVE, file_bytes: int | None = None
    ) -> subprocess.Popen[str]:
        """With ``file_bytes`` no file can grow larger, as on a disk that is full."""
        process = subprocess.Popen(
            [sys.executable, "-m", "kongming.cli.main", *args, *more],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if file_bytes is not None:
            # Long before it writes. Nothing may run between fork and exec: threads of gRPC, which
            # other tests have started here, may abort it.
            limits = (file_bytes, file_bytes)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
        return process

    def run(
        self, *more: str, args: Sequence[str] = OBSERVE, file_bytes: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        if file_bytes is None:
            command = ("kongming.cli.main", *args, *more)
            return warm_start.run(*command, env=self.env, cwd=self.folder, timeout=60)
        process = self.start(*more, args=args, file_bytes=file_bytes)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def steps(self) -> int:
        """How many steps are kept so far."""
        return max(0, self.journal.read_bytes().count(b"\n") - 1) if self.journal.exists() else 0

    def after_steps(self, count: int, process: subprocess.Popen[str]) -> None:
        """Wait until so many are."""
        assert eventually(lambda: self.steps() >= count or process.poll() is not None, 60)
        assert process.poll() is None, process.communicate()

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


def ctrl_c(process: subprocess.Popen[str]) -> str:
    """As a terminal does, to the whole foreground group: stderr once it has ended."""
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return err


def begins_with(longer: Observations, first: Observations) -> bool:
    """True if the rows of ``longer`` begin with those of ``first``: by their values, since a name
    that came later is in the dictionary of one of them alone."""
    return longer.table.slice(0, first.table.num_rows).to_pylist() == first.table.to_pylist()


def rows(observations: Observations, kind: str) -> list[dict[str, Any]]:
    """All rows of one kind, failed ones as well."""
    selected: list[dict[str, Any]] = observations.select(kind, failed=True).to_pylist()
    return selected
