"""Real loads: nothing of them survives, however they end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kongming.inducers import induce
from kongming.probes.binary import GRACE_S, locate
from kongming.probes.suite import load_suite
from kongming.records.errors import InducerError, ProbeError
from tests.campaigns.conftest import hasty_surrogates

pytestmark = pytest.mark.real

FILE_LOADS = ["metadata.create", "iobench.fsync", "iobench.write.4M"]


@pytest.fixture(autouse=True)
def binary() -> Path:
    try:
        return locate()
    except ProbeError as error:
        pytest.skip(str(error))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def in_time(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@pytest.fixture(params=["hasty", pytest.param("full size", marks=pytest.mark.thorough)])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Little memory and a small file, or what users have."""
    if request.param == "hasty":
        for name, value in hasty_surrogates().items():
            monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("sizes")
def test_every_inducer_starts_works_and_leaves_nothing(tmp_path: Path) -> None:
    for name in load_suite(directory=tmp_path).inducers():
        with induce(name, directory=tmp_path, intensity=0.5) as inducer:
            time.sleep(0.05)
            inducer.check()
            assert all(alive(pid) for pid in inducer.pids)
        assert inducer.result is not None, name
        assert not any(alive(pid) for pid in inducer.pids)
        assert list(tmp_path.iterdir()) == [], name


def go_on(worker: int) -> None:
    # It may be gone by now: the binary, too, waits for its workers for two seconds only.
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGCONT)


def test_an_end_that_the_machine_delays_is_waited_for(tmp_path: Path) -> None:
    with induce("compute.int", directory=tmp_path) as inducer:
        (worker,) = inducer.pids
        os.kill(worker, signal.SIGSTOP)
        # Longer than an interrupted inducer is waited for.
        going_on = threading.Timer(1.3 * GRACE_S, go_on, (worker,))
        going_on.start()
    going_on.join()
    assert inducer.result is not None


def test_copies_are_processes_of_their_own(tmp_path: Path) -> None:
    with induce("compute.int", copies=3, intensity=0.1, directory=tmp_path) as inducer:
        assert len(set(inducer.pids)) == 3


@pytest.mark.parametrize("name", ["compute.int", *FILE_LOADS])
def test_nothing_survives_the_parents_kill_9(tmp_path: Path, name: str) -> None:
    program = (
        "import sys, time\n"
        "from kongming.inducers import induce\n"
        f"with induce({name!r}, copies=2, directory={str(tmp_path)!r}) as inducer:\n"
        "    print(*inducer.pids, flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.1)
        parent.send_signal(signal.SIGKILL)
    assert in_time(lambda: not any(alive(pid) for pid in pids))
    assert in_time(lambda: list(tmp_path.iterdir()) == [])


@pytest.mark.parametrize("name", ["compute.int", "metadata.create"])
def test_ctrl_c_ends_the_command_and_leaves_no_file(
    kongming_env: dict[str, str], tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    command = [sys.executable, "-m", "kongming.cli.main", "induce", name, "--dir", str(folder)]
    process = subprocess.Popen(
        command, env=kongming_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        assert name in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "duty" in out
    assert list(folder.iterdir()) == []


def test_it_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    inducer = induce("compute.int", intensity=0.1, directory=tmp_path)
    starting = threading.Thread(target=inducer.start)
    starting.start()
    starting.join()
    try:
        # What the kernel ends with a thread is gone before the thread is.
        assert inducer.wait(0.1) is None
        inducer.check()
        assert all(alive(pid) for pid in inducer.pids)
    finally:
        result = inducer.stop()
    assert result is not None


def test_a_deadline_ends_it(tmp_path: Path) -> None:
    began = time.monotonic()
    with induce("metadata.delete", seconds=0.3, directory=tmp_path) as inducer:
        result = inducer.wait(60.0)
        assert result is not None
        # All of its own time, within that of the whole.
        assert 0.3 <= result.elapsed_s <= time.monotonic() - began
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", FILE_LOADS)
def test_a_disk_that_would_be_filled_is_refused(small_disk: Path, name: str) -> None:
    # Sizes follow from the file system, so the name of the block may be another one here.
    suite = load_suite(directory=small_disk)
    wanted = name if name in suite.inducers() else None
    for known in suite.surrogates:
        wanted = known.name if known.instead_of == name else wanted
    assert wanted is not None
    with pytest.raises(InducerError, match="free"), induce(wanted, directory=small_disk):
        pytest.fail("it was entered")
    assert list(small_disk.iterdir()) == []
