"""What an earlier run of the tests has left is ended, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess

from tests.slurm.cluster import OWNER, end_abandoned


def test_only_processes_of_tests_that_are_no_more_are_ended() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    alive, reused = os.getpid(), f"{os.getpid()}:0"
    start = _start_time(alive)
    owners = (f"{ended.pid}:{start}", reused, f"{alive}:{start}", None)
    left = [
        subprocess.Popen(["sleep", "300"], env=os.environ | ({OWNER: owner} if owner else {}))
        for owner in owners
    ]
    try:
        end_abandoned()
        assert [process.wait(60) for process in left[:2]] == [-signal.SIGKILL] * 2
        assert [process.poll() for process in left[2:]] == [None, None]
    finally:
        for process in left:
            process.kill()
            process.wait()


def _start_time(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
        return stat.read().rpartition(")")[2].split()[19]
