"""Prolog and epilog: what they leave for the agent, and that no job fails or waits for them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from kongming_slurm import bridge_commands, bridge_config, hooks, slurm_commands

from kongming.records.errors import UnavailableError
from kongming.rpc import handover
from kongming.rpc.handover import Report
from tests.server.process import python_path

JOB = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_RESTART_COUNT": "0",
    "SLURM_CLUSTER_NAME": "north",
    "SLURMD_NODENAME": "n3",
    "SLURM_JOB_COMMENT": "kongming:app=xz,limit=1.2",
}


SQUEUE = """#!/bin/sh
test -s "{folder}/lines" || exit 1
head -n 1 "{folder}/lines"
sed -i 1d "{folder}/lines"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    handover.make(tmp_path / "n3" / "inbox")
    file = tmp_path / "slurm.toml"
    file.write_text(
        f'[hooks]\ninbox = "{tmp_path}/%n/inbox"\nstate = "{tmp_path}/%n/state"\n'
        f'[slurm]\ncommands = "{tmp_path}"\n'
    )
    squeue = tmp_path / "squeue"
    squeue.write_text(SQUEUE.format(folder=tmp_path))
    squeue.chmod(0o755)
    return file


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an epilog leaves to another process is done before it returns."""
    monkeypatch.setattr(hooks, "_detach", lambda work: work())
    monkeypatch.setattr(hooks, "_PAUSES_S", (0.0,) * 3)


class _SlowSlurm:
    """A Slurm that never answers, on a clock of its own."""

    now, calls = 0.0, 0

    def __init__(self, *, timeout_s: float, **_: str) -> None:
        self._timeout_s = timeout_s

    def state(self, job: str) -> tuple[str, int | None]:
        _SlowSlurm.now += self._timeout_s
        _SlowSlurm.calls += 1
        raise UnavailableError("squeue did not answer.")

    @classmethod
    def sleep(cls, seconds: float) -> None:
        cls.now += seconds


@pytest.mark.parametrize("timeout_s", [0.1, 10.0, 600.0])
def test_slurm_is_asked_how_a_job_ended_until_a_deadline(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float
) -> None:
    monkeypatch.undo()
    clock = SimpleNamespace(sleep=_SlowSlurm.sleep, monotonic=lambda: _SlowSlurm.now)
    monkeypatch.setattr(hooks, "time", clock)
    monkeypatch.setattr(slurm_commands, "Slurm", _SlowSlurm)
    monkeypatch.setattr(_SlowSlurm, "now", 0.0)
    monkeypatch.setattr(_SlowSlurm, "calls", 0)
    settings = bridge_config.Slurm(timeout_s=timeout_s)
    assert "did not answer" in hooks._error_of_end(settings, "12", 5.0)
    assert 30.0 < _SlowSlurm.now <= 40.0
    assert 1 <= _SlowSlurm.calls <= 5


def squeue_prints(settings: Path, *lines: str) -> None:
    """One line each time that it is called, and then it fails."""
    (settings.parent / "lines").write_text("".join(f"{line}\n" for line in lines))


def reports(settings: Path) -> list[Report | str]:
    return [report for _, report in handover.waiting(settings.parent / "n3" / "inbox")]


def test_a_job_is_reported_when_it_starts_and_when_it_has_run(settings: Path) -> None:
    before = time.time()
    assert hooks.run("prolog", settings, JOB) == 0
    (assigned,) = reports(settings)
    assert isinstance(assigned, Report)
    assert (assigned.kind, assigned.app, assigned.assignment_id) == (
        "assignment",
        "xz",
        "slurm:north:12:0:n3",
    )
    assert before - 1.0 <= assigned.at <= time.time()
    assert hooks.run("epilog", settings, JOB | {"SLURM_JOB_EXIT_CODE": "768"}) == 0
    _, run = reports(settings)
    assert isinstance(run, Report)
    assert (run.kind, run.assignment_id, run.exit_status) == ("run", assigned.assignment_id, 3)
    assert run.at == pytest.approx(assigned.at, abs=0.001)
    assert run.wall_s > 0.0
    assert list((settings.parent / "n3" / "state").iterdir()) == []


@pytest.mark.parametrize(
    ("job", "logs"),
    [
        (JOB | {"SLURM_JOB_COMMENT": ""}, False),
        (JOB | {"SLURM_JOB_COMMENT": "nightly"}, False),
        ({"SLURM_JOB_COMMENT": "kongming:app=xz"}, True),
        (JOB | {"SLURM_JOB_ID": "../../etc"}, True),
        (JOB | {"SLURMD_NODENAME": "elsewhere"}, True),
    ],
)
def test_no_failure_of_a_hook_fails_the_job(
    settings: Path, job: dict[str, str], logs: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    for hook in ("prolog", "epilog"):
        assert hooks.run(hook, settings, job) == 0  # type: ignore[arg-type]
    assert bool(capsys.readouterr().err) is logs
    assert reports(settings) == []


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (["12|COMPLETING|0:00", "12|COMPLETED|0:00"], ""),
        (["13|CANCELLED|0:00", "12|COMPLETED|0:00"], ""),
        (["12|COMPLETING|0:00", "12|CANCELLED|0:00"], "calls it CANCELLED"),
        (["12|TIMEOUT|1:00"], "calls it TIMEOUT"),
        (["12|PENDING|0:00"], "calls it PENDING"),
        (["12|COMPLETING|0:00"] * 3, "it is completing"),
        ([], "squeue"),
    ],
)
def test_status_0_is_no_error_only_where_the_job_ran_to_its_end(
    settings: Path, lines: list[str], error: str
) -> None:
    squeue_prints(settings, *lines)
    assert hooks.run("prolog", settings, JOB) == 0
    assert hooks.run("epilog", settings, JOB | {"SLURM_JOB_EXIT_CODE": "0"}) == 0
    _, run = reports(settings)
    assert isinstance(run, Report)
    assert (run.kind, run.exit_status) == ("run", 0)
    assert error in run.error
    assert bool(run.error) is bool(error)


@pytest.mark.parametrize(
    ("used", "error"),
    [
        ("1:38", ""),
        ("1-00:00:00", ""),
        ("INVALID", ""),
        ("0:30", "It ran for 30 of 100 s: it was suspended, or slow to end."),
    ],
)
def test_time_that_a_job_was_suspended_for_is_no_runtime(
    settings: Path, used: str, error: str
) -> None:
    squeue_prints(settings, f"12|COMPLETED|{used}")
    hooks.run("prolog", settings, JOB)
    (started,) = (settings.parent / "n3" / "state").iterdir()
    started.write_text(f"{time.time() - 100.0:.6f} {time.monotonic() - 100.0:.6f}\n")
    hooks.run("epilog", settings, JOB)
    _, run = reports(settings)
    assert isinstance(run, Report)
    assert run.error == error


@pytest.mark.parametrize(
    ("job", "error"),
    [
        ({"SLURM_JOB_NUM_NODES": "4"}, "on 4 nodes"),
        ({"SLURM_JOB_NODELIST": "n[3-5]"}, "on 3 nodes"),
        ({"SLURM_HET_JOB_ID": "11"}, "heterogeneous"),
        ({"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n3", "SLURM_HET_JOB_ID": "0"}, ""),
    ],
)
def test_the_time_of_a_job_of_several_nodes_is_of_none_of_them(
    settings: Path, job: dict[str, str], error: str
) -> None:
    if not error:
        squeue_prints(settings, "12|COMPLETED|0:00")
    for hook in ("prolog", "epilog"):
        assert hooks.run(hook, settings, JOB | job) == 0  # type: ignore[arg-type]
    _, run = reports(settings)
    assert isinstance(run, Report)
    assert error in run.error
    assert bool(run.error) is bool(error)


def test_the_epilog_does_not_wait_for_how_the_job_ended(settings: Path) -> None:
    from tests.slurm.cluster import eventually

    squeue_prints(settings, "12|COMPLETED|0:00")
    for hook in ("prolog", "epilog"):
        # Its output ends with it: the process that it leaves behind holds none of it.
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "kongming_slurm.bridge_commands",
                hook,
                "--config",
                str(settings),
            ],
            env=os.environ | JOB | {"PYTHONPATH": python_path()},
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert (done.stdout, done.stderr) == (b"", b"")
    eventually(lambda: len(reports(settings)) == 2)
    _, run = reports(settings)
    assert isinstance(run, Report)
    assert (run.kind, run.error) == ("run", "")


def test_an_epilog_without_its_prolog_reports_nothing(settings: Path) -> None:
    assert hooks.run("epilog", settings, JOB) == 0
    assert reports(settings) == []


def test_settings_that_cannot_be_read_are_no_reason_to_fail(tmp_path: Path) -> None:
    assert hooks.run("prolog", tmp_path / "missing.toml", JOB) == 0


def test_a_disk_that_hangs_is_given_up(
    settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hooks, "LONGEST_S", 0.05)
    monkeypatch.setattr(handover, "leave", lambda *_: time.sleep(60.0))
    assert hooks.run("prolog", settings, JOB) == 0
    assert "given up" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "status"), [("0", 0), ("256", 1), ("768", 3), ("9", -9), ("139", -11), ("", 0)]
)
def test_exit_statuses(code: str, status: int) -> None:
    assert hooks.exit_status({"SLURM_JOB_EXIT_CODE": code}) == status


def test_jobs_of_assignments() -> None:
    assert hooks.job_of_assignment("slurm:north:12:0:n3", "north") == ("12", "0")
    assert hooks.job_of_assignment("slurm:south:12:0:n3", "north") is None
    assert hooks.job_of_assignment("pod-7", "north") is None


def test_the_command_loads_nothing_that_is_slow(settings: Path) -> None:
    program = (
        "import sys; from kongming_slurm.bridge_commands import run; status = run(sys.argv[1:]); "
        "heavy = {'grpc', 'click', 'numpy', 'rich'} & set(sys.modules); "
        "print(status, sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "prolog", "--config", str(settings)],
        env=os.environ | JOB | {"PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("0 []\n", "")
    assert len(reports(settings)) == 1


@pytest.mark.parametrize(
    ("options", "reported", "error"),
    [
        (["--config", "FILE"], 1, ""),
        (["--config=FILE"], 1, ""),
        (["--help"], 0, ""),
        (["--confg", "FILE"], 0, "No such option"),
        (["--config"], 0, "requires an argument"),
    ],
)
def test_options_count_however_they_are_written_and_a_wrong_one_drains_no_node(
    settings: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    reported: int,
    error: str,
) -> None:
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    words = [word.replace("FILE", str(settings)) for word in options]
    assert bridge_commands.run(["prolog", *words]) == 0
    assert len(reports(settings)) == reported
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("hook", "comment"),
    [("prolog", JOB["SLURM_JOB_COMMENT"]), ("epilog", "nightly kongming:limit=1.2,app=xz")],
)
def test_the_script_ends_with_0_in_time_whatever_the_command_does(
    hook: str, comment: str, tmp_path: Path
) -> None:
    from tests.slurm.cluster import DEPLOYED

    command = tmp_path / "kongming-slurm"
    script = (DEPLOYED / f"{hook}.sh").read_text().replace("/usr/bin/kongming-slurm", str(command))
    shell = [
        "sh",
        "-c",
        script.replace("timeout --kill-after=0.1 2", "timeout --kill-after=0.1 0.2"),
    ]
    for body, called in (("exit 7", True), ("trap '' TERM; sleep 600", True), (None, False)):
        if body is None:
            command.unlink()
        else:
            command.write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n{body}\n")
            command.chmod(0o755)
        job = os.environ | JOB | {"SLURM_JOB_COMMENT": comment}
        done = subprocess.run(shell, env=job, timeout=30, check=False)
        assert done.returncode == 0
        assert (tmp_path / "called").exists() is called
        (tmp_path / "called").unlink(missing_ok=True)
    quiet = subprocess.run(shell, env=os.environ | {"SLURM_JOB_COMMENT": "x"}, check=False)
    assert quiet.returncode == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "other"},
        {"assignment_id": "a b"},
        {"app": ""},
        {"at": float("nan")},
        {"kind": "run", "wall_s": 0.0},
        {"error": "x" * 501},
    ],
)
def test_reports_that_cannot_be(bad: dict[str, object]) -> None:
    good: dict[str, object] = {"kind": "assignment", "assignment_id": "1", "app": "xz", "at": 1.0}
    with pytest.raises(ValueError, match=r"\S"):
        Report(**(good | bad))  # type: ignore[arg-type]


def test_files_that_are_no_reports_are_errors(tmp_path: Path) -> None:
    (tmp_path / "1.report").write_text("{")
    (tmp_path / "2.report").write_text('{"format": 3}')
    (tmp_path / "3.report").write_text("[" * 3000)
    (tmp_path / "4.report").write_bytes(b"\xff" * 5000)
    (tmp_path / "5.report").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "6.report")
    (tmp_path / "other").write_text("not for the agent")
    waiting = list(handover.waiting(tmp_path))
    assert len(waiting) == 6
    assert all(isinstance(report, str) for _, report in waiting)


def test_a_folder_that_nobody_reads_fills_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "MOST_REPORTS", 3)
    report = Report("assignment", "1", "xz", 1.0)
    for _ in range(3):
        handover.leave(tmp_path, report)
    with pytest.raises(OSError, match="full"):
        handover.leave(tmp_path, report)
    assert [each for _, each in handover.waiting(tmp_path)] == [report] * 3


REPORT = Report("assignment", "1", "xz", 1.0)


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """An agent's folder with an inbox, and a folder that is none of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can make folders of another user")
    (tmp_path / "agent" / "state" / "inbox").mkdir(parents=True)
    (tmp_path / "elsewhere" / "inbox").mkdir(parents=True)
    for path in ("agent", "agent/state", "agent/state/inbox"):
        os.chown(tmp_path / path, 7400, 7400)
    return tmp_path


def test_root_leaves_reports_in_the_agents_folder_and_as_its_own(agents: Path) -> None:
    inbox = agents / "agent/state/inbox"
    handover.leave(inbox, REPORT)
    (left,) = inbox.iterdir()
    assert left.stat().st_uid == 7400
    # A link of root's own, such as /var/lib/kongming of a dynamic user, is followed.
    (agents / "link").symlink_to("agent/state")
    handover.leave(agents / "link/inbox", REPORT)
    assert [each for _, each in handover.waiting(inbox)] == [REPORT] * 2


@pytest.mark.parametrize("replaced", ["inbox", "state"])
def test_root_follows_no_link_of_an_agent_that_was_taken_over(agents: Path, replaced: str) -> None:
    state = agents / "agent/state"
    link, target = {
        "inbox": (state / "inbox", agents / "elsewhere/inbox"),
        "state": (state, agents / "elsewhere"),
    }[replaced]
    link.rename(agents / "agent/away")
    link.symlink_to(target)
    os.chown(link, 7400, 7400, follow_symlinks=False)
    with pytest.raises(PermissionError, match="link"):
        handover.leave(state / "inbox", REPORT)
    assert list((agents / "elsewhere/inbox").iterdir()) == []


def test_root_leaves_nothing_in_another_users_part_of_an_agents_folder(agents: Path) -> None:
    os.chown(agents / "agent/state/inbox", 7401, 7401)
    with pytest.raises(PermissionError, match="not of the user"):
        handover.leave(agents / "agent/state/inbox", REPORT)
