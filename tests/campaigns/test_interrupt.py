"""Ctrl-C and kill -9 in the middle of a campaign: nothing is left behind, and it resumes."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kongming.store import Store
from tests import warm_start
from tests.campaigns.conftest import QUICK, steps
from tests.conftest import Kongming
from tests.profiling.processes import eventually

pytestmark = pytest.mark.real

STUBBORN = """
[apps.stubborn]
command = "trap '' INT TERM HUP; sleep 0.3; true"
"""
# With this seed the plan is: solo, load, signature, solo, load, solo.
COMMAND = ("profile", "apps.toml", *QUICK, "--placement", "same-core", "--seed", "0")
MARK = "KONGMING_TEST_MARK"

Phase = Callable[[list[str]], bool]
PHASES: dict[str, Phase] = {
    "the suite is timed": lambda words: "probe" in words,
    "the program is run": lambda words: "exec" in words,
    "a load is induced": lambda words: "induce" in words,
    "the program loops": lambda words: "exec" in words and "--loop" in words,
}


class Campaign:
    """The command as a terminal runs it, and every process that it started."""

    def __init__(self, folder: Path, env: dict[str, str], command: tuple[str, ...]) -> None:
        self.mark = uuid.uuid4().hex
        self.errors = folder / f"errors-{self.mark}"
        with self.errors.open("wb") as errors:
            self.process = warm_start.start(
                "kongming.cli.main",
                *command,
                cwd=folder,
                env=env | {MARK: self.mark},
                stderr=errors,
                new_session=True,
            )

    def left(self) -> list[psutil.Process]:
        """What still runs and is in this campaign's session, or has its mark in its environment."""
        processes = []
        for process in psutil.process_iter():
            try:
                if self._started(process) and process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
            except (psutil.Error, ProcessLookupError):
                continue
        return processes

    def _started(self, process: psutil.Process) -> bool:
        return (
            os.getsid(process.pid) == self.process.pid or process.environ().get(MARK) == self.mark
        )

    def wait_until(self, reached: Phase) -> None:
        def seen() -> bool:
            assert self.process.poll() is None, self.errors.read_text()
            return any(reached(_words(process)) for process in self.left())

        assert eventually(seen, 60.0)

    def ctrl_c(self) -> str:
        """As a terminal does: to the whole foreground group. Returns stderr once it has ended."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(60)
        return self.errors.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(100)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def scratch_folders(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("kongming-app-*")]


def test_ctrl_c_leaves_nothing_and_the_same_command_resumes(
    kongming: Kongming, kongming_env: dict[str, str], store_url: str, tmp_path: Path, hasty: Path
) -> None:
    (tmp_path / "apps.toml").write_text(STUBBORN)
    before: list[int] = []
    for name, phase in PHASES.items():
        campaign = Campaign(tmp_path, kongming_env, COMMAND)
        campaign.wait_until(phase)
        err = campaign.ctrl_c()
        assert campaign.process.returncode == 130, (name, err)
        assert "Interrupted" in err
        assert "Traceback" not in err
        assert campaign.left() == [], name
        assert scratch_folders(hasty) == [], name
        completed = steps(store_url)
        assert set(before) <= set(completed), name
        before = completed
    assert 0 < len(before) < 6

    done = kongming(*COMMAND, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["apps"]["stubborn"]["runs"] == 5
    assert steps(store_url) == list(range(6))
    with Store.open(store_url) as store:
        (only,) = store.campaigns()
        assert only.finished_at is not None


def test_after_kill_9_nothing_runs_and_the_next_start_sweeps_and_resumes(
    kongming: Kongming, kongming_env: dict[str, str], store_url: str, tmp_path: Path, hasty: Path
) -> None:
    (tmp_path / "apps.toml").write_text(STUBBORN)
    for name in ("the program is run", "a load is induced", "the program loops"):
        campaign = Campaign(tmp_path, kongming_env, COMMAND)
        campaign.wait_until(PHASES[name])
        campaign.kill()
        assert eventually(lambda campaign=campaign: campaign.left() == []), name  # type: ignore[misc]
    part = steps(store_url)
    assert 0 < len(part) < 6

    assert scratch_folders(hasty) != []
    for scratch in hasty.glob("kongming-app-*"):
        os.utime(scratch, (0, 0))  # younger ones might belong to one that is just starting
    done = kongming(*COMMAND, "--json")
    assert done.returncode == 0, done.stderr
    assert scratch_folders(hasty) == []
    assert steps(store_url) == list(range(6))


def test_ctrl_c_during_a_co_run_leaves_nothing(
    kongming_env: dict[str, str], store_url: str, tmp_path: Path, hasty: Path
) -> None:
    (tmp_path / "apps.toml").write_text(STUBBORN)
    command = ("corun", "stubborn", "stubborn", "--apps", "apps.toml", "--placement", "same-core")
    campaign = Campaign(tmp_path, kongming_env, (*command, "--repeats", "50"))
    campaign.wait_until(PHASES["the program loops"])
    assert eventually(lambda: len(steps(store_url)) > 0, 60.0)
    err = campaign.ctrl_c()
    assert campaign.process.returncode == 130, err
    assert campaign.left() == []
    assert scratch_folders(hasty) == []
