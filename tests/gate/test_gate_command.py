"""``kongming audit gate`` as it is called, with the real micro-benchmarks and a real neighbour."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from click.testing import CliRunner

from kongming.cli.audit import gate
from kongming.cli.extras import EXTRAS
from kongming.gate.fitness import decide
from kongming.gate.noise import Goal
from kongming.gate.session import Settings, ask
from kongming.probes.measuring import BusyError, Holder
from kongming.records.application import Command
from kongming.records.errors import InputError
from tests import builders
from tests.conftest import ROOT, Kongming
from tests.gate.test_disturbance import QUIET, TIMES, turns


@pytest.fixture
def neighbour() -> Generator[None]:
    """A process of somebody else: busy for as long as the test lasts."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    busy.kill()
    busy.wait()


@pytest.mark.thorough
@pytest.mark.usefixtures("neighbour")
def test_beside_a_neighbour_and_without_extras(kongming: Kongming, tmp_path: Path) -> None:
    """Not fit, for the reason that is there; with none of the modules that extras bring."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    lines = "".join(f"sys.modules[{name!r}] = None\n" for name in EXTRAS)
    (hidden / "sitecustomize.py").write_text(f"import sys\n{lines}")
    done = kongming(
        "audit", "gate", "--command", "true", "--budget", "3s", "--json",
        env={"PYTHONPATH": f"{hidden}:{ROOT}"},
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    document = json.loads(done.stdout)
    assert not document["fit"]
    (reason,) = (r for r in document["reasons"] if r["resource"] == "processes")
    assert reason["since"]
    assert reason["or_earlier"]
    assert document["signals"]["other_cpus"] > 0.1
    assert document["signals"]["processes"]
    (subject,) = document["subjects"]
    assert subject["name"] == "command"
    assert subject["runs"] >= 6
    assert subject["repetitions_at_most"] >= subject["repetitions"]


def test_what_it_cannot_do_is_reported(kongming: Kongming, tmp_path: Path) -> None:
    failed = kongming("audit", "gate", "--command", "echo so; exit 3", "--budget", "1s")
    assert failed.returncode == 1
    assert "exit status 3" in failed.stderr
    assert "so" in failed.stderr
    slow = kongming("audit", "gate", "--command", "sleep 0.4", "--budget", "1s")
    assert slow.returncode == 2
    assert "or more" in slow.stderr
    # The run that warms up ends, the next does not.
    later = f"test -e {tmp_path}/ran && sleep 60; touch {tmp_path}/ran"
    hung = kongming("audit", "gate", "--command", later, "--budget", "3s")
    assert hung.returncode == 1
    assert "within 3 s" in hung.stderr
    empty = kongming("audit", "gate", "--command", " ", "--json")
    assert empty.returncode == 2
    error = json.loads(empty.stdout)["error"]
    assert error["message"] == "--command: has no program. Found ' '. Allowed: a shell line."
    assert "Leave it out" in error["hint"]


def test_both_programs_run_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each first in every other turn, as often as can be afforded; times decide the exit status."""
    calls: list[str] = []

    def run(settings: Settings, line: Command) -> float:
        calls.append(str(line))
        return {"old": 0.01, "new": 0.011}[str(line)] * (1.0 + 0.001 * (len(calls) % 3))

    fingerprints = SimpleNamespace(times=lambda: TIMES)
    watcher = SimpleNamespace(node=builders.node(), fingerprint=lambda: fingerprints)
    monkeypatch.setattr("kongming.gate.session.Watcher", lambda *_: watcher)
    monkeypatch.setattr("kongming.gate.session.between", lambda *_: QUIET)
    monkeypatch.setattr("kongming.gate.session._run", run)
    monkeypatch.setattr("kongming.gate.session.measuring", lambda _: nullcontext())

    def status(*args: str) -> int:
        options = ("--effect", "5%", "--most", "20", *args)
        return int(CliRunner().invoke(gate.command, options, standalone_mode=False).return_value)

    assert status("--command", "new", "--baseline", "old") == 4
    assert calls[:2] == ["new", "old"]
    pairs = list(zip(calls[2::2], calls[3::2], strict=True))
    assert len(pairs) == 20
    assert pairs.count(("new", "old")) == pairs.count(("old", "new")) == 10
    assert status("--command", "old", "--baseline", "new") == 0
    # Effects that so few turns do not show.
    assert status("--effect", "0.01%", "--command", "old", "--baseline", "old") == 3


def test_a_baseline_is_of_a_command() -> None:
    for args in (("--baseline", "true"), ("--command", "true", "--baseline", " ")):
        refused = CliRunner().invoke(gate.command, args, standalone_mode=False)
        assert isinstance(refused.exception, InputError)
        assert refused.exception.field == "--baseline"


def test_one_measurement_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(command: str) -> NoReturn:
        raise BusyError(Holder(1, 7, "kongming profile", "2026-01-31T12:00:00Z"), avoidable=False)

    monkeypatch.setattr("kongming.gate.session.measuring", busy)
    (reason,) = ask(Settings()).reasons
    assert reason.resource == "lock"
    assert "kongming profile (process 7" in reason.text
    assert str(reason).count("2026-01-31") == 1


def test_ctrl_c_ends_the_command_too(kongming_env: dict[str, str], tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    line = f"echo $$ > {mark}; exec sleep 60"
    process = subprocess.Popen(
        [sys.executable, "-m", "kongming.cli.main", "audit", "gate", "--command", line],
        env=kongming_env,
        stderr=subprocess.PIPE,
    )
    while not (mark.exists() and mark.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()
    process.communicate()


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_what_is_printed_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    answer = decide(turns(*[1.0, 1.2, 1.5] * 4), QUIET, Goal(0.02))
    monkeypatch.setattr("kongming.gate.session.ask", lambda *_: answer)
    done = CliRunner().invoke(gate.command, [], standalone_mode=False)
    assert done.return_value == 4
    assert max(map(len, done.output.splitlines())) <= width
    for name in ("compute.float", "repetitions", "Not fit"):
        assert name in done.output
    assert re.search(r"- compute: Arithmetic", done.output)
