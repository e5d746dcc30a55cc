"""``kongming-microbench exec``: what it reports, and that nothing outlives it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from kongming.probes.binary import locate
from tests.profiling.processes import alive, eventually, stubborn_daemon, written_pid

pytestmark = pytest.mark.real


def run_exec(*args: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    read, write = os.pipe()
    try:
        done = subprocess.run(
            [locate(), "exec", "--report", str(write), *args],
            pass_fds=(write,),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        os.close(write)
    with os.fdopen(read, encoding="utf-8") as report:
        return done, [json.loads(line) for line in report]


def start_exec(*args: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [locate(), "exec", *args],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        **options,
    )


def test_reports_start_end_and_usage_of_a_command(tmp_path: Path) -> None:
    done, events = run_exec(
        "--cpus", "0", "--", "sh", "-c", f"head -c 3000000 /dev/zero > {tmp_path}/x; sync; exit 3"
    )
    assert done.returncode == 0
    assert [event["event"] for event in events] == ["started", "iteration"]
    started, ended = events
    assert ended["exit_status"] == 3
    assert ended["signal"] is None
    assert ended["start_ns"] == started["start_ns"]
    assert ended["wall_s"] == pytest.approx((ended["end_ns"] - ended["start_ns"]) / 1e9)
    assert ended["page_faults"] > 0
    assert ended["max_rss_bytes"] > 0
    assert ended["io_source"] in ("proc", "rusage")


def test_pins_the_command_and_gives_it_a_session_and_no_input() -> None:
    done, _ = run_exec(
        "--cpus", "0", "--", sys.executable, "-c",
        "import os, sys; print(os.sched_getaffinity(0), os.getsid(0) == os.getpid(), "
        "repr(sys.stdin.read()))",
    )  # fmt: skip
    assert done.stdout.strip() == "{0} True ''"


def test_the_command_finds_default_signals() -> None:
    done, _ = run_exec("--", "sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status")
    masks = [int(line.split()[1], 16) for line in done.stdout.splitlines()]
    assert len(masks) == 2
    # 32 and 33 are the C library's own: what it starts by posix_spawn (as make does) ignores them.
    own = 1 << 31 | 1 << 32
    assert [mask & ~own for mask in masks] == [0, 0]


def test_enters_cgroups_before_the_command_runs(tmp_path: Path) -> None:
    procs = tmp_path / "cgroup.procs"
    procs.touch()
    done, events = run_exec("--cgroup", str(procs), "--", "cat", str(procs))
    assert int(done.stdout) == events[0]["pid"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_is_pinned_after_it_has_entered_its_cgroups(tmp_path: Path) -> None:
    """A pipe in place of the group holds the command where it is about to enter."""
    procs, cpu = tmp_path / "cgroup.procs", min(os.sched_getaffinity(0))
    os.mkfifo(procs)
    guard = start_exec(f"--cpus={cpu}", "--cgroup", str(procs), "--", "sleep", "100")

    def entering() -> psutil.Process | None:
        below = psutil.Process(guard.pid).children(recursive=True)
        sleeps = len(below) == 2 and below[-1].status() == psutil.STATUS_SLEEPING
        return below[-1] if sleeps else None

    try:
        assert eventually(lambda: entering() is not None)
        command = entering()
        assert command is not None
        assert os.sched_getaffinity(command.pid) == os.sched_getaffinity(0)
        assert int(procs.read_text()) == command.pid
        assert eventually(lambda: command.name() == "sleep")
        assert os.sched_getaffinity(command.pid) == {cpu}
    finally:
        guard.terminate()
        guard.wait()


@pytest.mark.parametrize(
    ("args", "status", "error"),
    [
        (["--", "no-such-command"], 127, "The command no-such-command was not found."),
        (["--", "/"], 126, "The command / cannot be run"),
        (["--cgroup", "/nowhere/tasks", "--", "true"], None, "cannot enter its cgroup"),
        (["--cpus", "1023", "--", "true"], None, "cannot be pinned"),
    ],
)
def test_what_cannot_be_started_is_told_in_a_sentence(
    args: list[str], status: int | None, error: str
) -> None:
    done, events = run_exec(*args)
    assert done.returncode == 1
    assert [event["event"] for event in events] == ["iteration"]
    assert events[0]["exit_status"] == status
    assert error in events[0]["error"]


@pytest.mark.parametrize(
    "args",
    [[], ["--cpus", "3-1", "--", "true"], ["--timeout", "0", "--", "true"],
     ["--report", "999", "--", "true"], ["--lifeline", "x", "--", "true"], ["--what"]],
)  # fmt: skip
def test_wrong_usage_exits_2(args: list[str]) -> None:
    done = subprocess.run([locate(), "exec", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr


def test_timeout_ends_a_command_that_ignores_sigterm() -> None:
    _, events = run_exec("--timeout", "0.1", "--", "sh", "-c", 'trap "" TERM; sleep 60; sleep 60')
    assert events[-1]["timed_out"] is True
    assert events[-1]["exit_status"] is None
    assert events[-1]["signal"] == signal.SIGKILL


def test_a_loop_goes_on_until_an_iteration_fails(tmp_path: Path) -> None:
    count = tmp_path / "count"
    line = f"echo >> {count}; [ $(wc -l < {count}) -lt 4 ]"
    done, events = run_exec("--loop", "--pause", "0.01", "--", "sh", "-c", line)
    ended = [event for event in events if event["event"] == "iteration"]
    assert done.returncode == 0
    assert [event["exit_status"] for event in ended] == [0, 0, 0, 1]
    assert [event["index"] for event in ended] == [0, 1, 2, 3]
    assert all(a["end_ns"] < b["start_ns"] for a, b in itertools.pairwise(ended))


def test_a_daemon_does_not_outlive_its_iteration(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    _, events = run_exec("--", "sh", "-c", stubborn_daemon(str(file)))
    assert events[-1]["exit_status"] == 0
    assert not alive(written_pid(file))


@pytest.mark.parametrize("victim", ["guard", "supervisor", "group"])
def test_nothing_outlives_a_kill_of_exec(tmp_path: Path, victim: str) -> None:
    file = tmp_path / "pid"
    process = start_exec("--", "sh", "-c", stubborn_daemon(str(file)) + "; sleep 60")
    pids = [written_pid(file)]
    (supervisor,) = psutil.Process(process.pid).children()
    pids += [child.pid for child in supervisor.children(recursive=True)]
    if victim == "supervisor":
        supervisor.kill()
    elif victim == "guard":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    assert eventually(lambda: not any(map(alive, [*pids, supervisor.pid])))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, "lifeline"])
def test_ends_everything_on_request(tmp_path: Path, how: signal.Signals | str) -> None:
    file = tmp_path / "pid"
    read, write = os.pipe()
    try:
        process = start_exec(
            "--lifeline", str(read), "--loop", "--", "sh", "-c",
            stubborn_daemon(str(file)) + '; trap "" TERM; sleep 60; sleep 60',
            pass_fds=(read,),
        )  # fmt: skip
        pid = written_pid(file)
        if isinstance(how, signal.Signals):
            process.send_signal(how)
        else:
            os.close(write)
            write = -1
        # By itself it would go on for ever.
        assert process.wait(60) == 0
        assert not alive(pid)
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)


def test_nothing_outlives_a_kill_of_python(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    program = (
        "import sys, time\n"
        "from kongming.profiling.runs.execution import Execution\n"
        "Execution(sys.argv[1]).wait()\n"
    )
    python = subprocess.Popen(
        [sys.executable, "-c", program, stubborn_daemon(str(file)) + "; sleep 60"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    pids = [written_pid(file)]
    pids += [child.pid for child in psutil.Process(python.pid).children(recursive=True)]
    python.kill()
    python.wait(30)
    assert eventually(lambda: not any(map(alive, pids)))
