"""What the tests fork ends with them, even when they are killed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm_start
from tests.conftest import ROOT
from tests.server.process import python_path

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.server.process import ServerProcess

print(ServerProcess(Path(sys.argv[1])).start().pid, flush=True)
sys.stdin.read(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.thorough
def test_a_forked_server_ends_with_tests_that_are_killed(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != warm_start.COLD}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        cwd=ROOT,
        env=env | {"PYTHONPATH": python_path()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as tests:
        assert tests.stdout is not None
        server = os.pidfd_open(int(tests.stdout.readline()))
        tests.communicate(b".")
    assert tests.returncode == -signal.SIGKILL
    try:
        assert select.select([server], [], [], 100.0)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(server, signal.SIGKILL)
        os.close(server)


def test_a_group_exists_as_soon_as_its_leader_is_known() -> None:
    """Else who ends the group at once ends nothing, and waits for it without end."""
    nothing, silent = os.pipe()
    with os.fdopen(nothing) as stdin, os.fdopen(silent, "w"):
        for _ in range(10):
            # It reads its input until that ends.
            process = warm_start.start(
                "kongming_server.training.process", stdin=stdin, new_session=True
            )
            try:
                os.killpg(process.pid, signal.SIGKILL)
            finally:
                process.kill()
                process.wait(60.0)
            assert process.returncode == -signal.SIGKILL
