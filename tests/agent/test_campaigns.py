"""Campaigns that a server asked for: carried out one by one, and not forgotten."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from kongming_agent.profile_orders import STARTS, Campaigns
from kongming_agent.reporting.spool import Spool

from tests.agent.conftest import wait_until

WRITES = "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + chr(10))"
DIES = f"{WRITES}; import os; os.kill(os.getpid(), 9)"
SLEEPS = f"{WRITES}; import time; time.sleep(60)"


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """A file that campaigns write their names to."""
    path = tmp_path / "done"
    path.touch()
    return path


def campaigns(spool: Spool, done: Path, script: str = WRITES) -> Campaigns:
    command = [sys.executable, "-SE", "-c", script, str(done)]
    return Campaigns(("sort", "scan"), done.parent / "state", spool, command)


def names(done: Path) -> list[str]:
    return done.read_text().split()


def until_idle(runner: Campaigns) -> None:
    wait_until(lambda: not runner.watch()[0])


def test_each_is_carried_out_once_and_only_what_is_allowed(spool: Spool, done: Path) -> None:
    runner = campaigns(spool, done)
    runner.ask(["scan", "rm", "sort"])
    runner.ask(["scan"])
    until_idle(runner)
    assert names(done) == ["scan", "sort"]
    runner.ask(["scan"])
    until_idle(runner)
    assert names(done) == ["scan", "sort", "scan"]


def test_one_that_has_ended_is_not_begun_again_at_once(spool: Spool, done: Path) -> None:
    """A malicious server requests it with every answer."""
    command = [sys.executable, "-SE", "-c", WRITES, str(done)]
    runner = Campaigns(("sort", "scan"), done.parent / "state", spool, command, pause_s=3600.0)
    for _ in range(3):
        runner.ask(["sort"])
        until_idle(runner)
    runner.ask(["scan"])
    until_idle(runner)
    assert names(done) == ["sort", "scan"]


def test_what_was_asked_for_outlives_the_agent(spool: Spool, done: Path) -> None:
    before = campaigns(spool, done, SLEEPS)
    before.ask(["sort", "scan"])
    assert before.watch() == (True, False)
    wait_until(lambda: names(done) == ["sort"])
    # As at the end of an agent, of which a kill leaves the same behind.
    before.end()

    after = campaigns(spool, done)
    until_idle(after)
    assert names(done) == ["sort", "sort", "scan"]
    again = campaigns(spool, done)
    assert again.watch() == (False, False)


def test_a_campaign_is_told_the_id_that_its_runs_are_wanted_under(spool: Spool, done: Path) -> None:
    tells = "import sys; open(sys.argv[1], 'a').write('/'.join(sys.argv[2:]) + chr(10))"
    before = campaigns(spool, done, tells)
    before.ask(["sort", "scan"], {"sort": "id-1"})
    # Also by an agent that comes after the one that was asked.
    after = campaigns(spool, done, tells)
    until_idle(after)
    assert sorted(names(done)) == ["--campaign/id-1/sort", "scan"]


def test_one_that_is_killed_again_and_again_is_given_up(spool: Spool, done: Path) -> None:
    runner = campaigns(spool, done, DIES)
    runner.ask(["sort", "scan"])
    until_idle(runner)
    assert sorted(names(done)) == ["scan"] * 5 + ["sort"] * 5
    assert campaigns(spool, done).watch() == (False, False)


def test_one_that_could_not_be_measured_now_is_begun_later(
    spool: Spool, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than one that is killed: nothing of it went wrong."""
    monkeypatch.setattr("kongming_agent.profile_orders._LATER_S", 0.0)
    later = f"{WRITES}; sys.exit(75 if len(open(sys.argv[1]).readlines()) < 8 else 0)"
    command = [sys.executable, "-SE", "-c", later, str(done)]
    runner = Campaigns(("sort",), done.parent / "state", spool, command, pause_s=3600.0)
    runner.ask(["sort"])
    wait_until(lambda: not runner.watch()[0] and len(names(done)) == 8)
    assert runner.watch() == (False, False)


def test_one_that_cannot_be_started_is_tried_again(
    spool: Spool, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = done.parent / "python"
    runner = Campaigns(
        ("sort",), done.parent / "state", spool, [str(program), "-SE", "-c", WRITES, str(done)]
    )
    runner.ask(["sort"])
    assert runner.watch() == (False, False)
    assert spool.get(STARTS) == {"sort": 0}
    program.symlink_to(sys.executable)
    assert runner.watch() == (False, False)
    now = time.monotonic() + 700.0
    monkeypatch.setattr("kongming_agent.profile_orders.time.monotonic", lambda: now)
    assert runner.watch() == (True, False)
    monkeypatch.undo()
    until_idle(runner)
    assert names(done) == ["sort"]


def test_what_the_node_no_longer_allows_is_forgotten(spool: Spool, done: Path) -> None:
    campaigns(spool, done, SLEEPS).ask(["sort"])
    runner = Campaigns(("scan",), done.parent / "state", spool, [sys.executable])
    assert runner.watch() == (False, False)


def test_the_end_of_a_campaign_is_reported(spool: Spool, done: Path) -> None:
    runner = campaigns(spool, done)
    runner.ask(["sort"])
    assert runner.watch() == (True, False)
    deadline = time.monotonic() + 60.0
    while runner.watch() != (False, True):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_refused_is_one_line_of_the_log(
    spool: Spool, done: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner = campaigns(spool, done)
    for _ in range(3):
        runner.ask([f"evil\n{number}" for number in range(2000)])
    (line,) = [text for text in caplog.messages if "not profiled" in text]
    assert line.endswith("and 1995 more")
    assert "\n" not in line
    assert len(line) < 200
