"""A program whose input is really evicted from the page cache is timed again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kongming.probes.node import node_facts
from kongming.probes.suite import load_suite
from kongming.profiling.events import Doing
from kongming.profiling.runs.corun import corun
from kongming.profiling.runs.execution import Execution
from kongming.records import control, eviction
from kongming.records.application import Application
from kongming.records.run import Run

pytestmark = pytest.mark.real

MIB = 1 << 20
INPUT_BYTES = 96 * MIB
EVICTED_RUN = 5
"""Of the reader, counted from 1: late enough for its usual bytes to be known."""

EVICT = """
import os
fd = os.open("input", os.O_RDONLY)
os.fdatasync(fd)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
"""

# The eviction is part of the program, so that it is between its runs whatever runs when.
READ = f"""
import pathlib
count = pathlib.Path("count")
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
if number == {EVICTED_RUN}:
{"".join("    " + line + chr(10) for line in EVICT.strip().splitlines())}
with open("input", "rb") as file:
    while file.read({MIB}):
        pass
"""


@pytest.fixture
def input_dir(tmp_path: Path) -> Path:
    """A folder with an input on a device, in the page cache.

    Skips where what was evicted is read without a device, as in tmpfs.
    """
    path = tmp_path / "input"
    with path.open("wb") as file:
        file.writelines(os.urandom(MIB) for _ in range(INPUT_BYTES // MIB))
        os.fsync(file.fileno())
    for script, evicts in ((EVICT, True), ("", False)):
        read = f'{script}\nwith open("input", "rb") as file:\n    while file.read(1 << 20): pass'
        with Execution((sys.executable, "-c", read), cwd=tmp_path, timeout_s=60.0) as running:
            taken = running.result().usage.read_bytes
        if evicts and taken < INPUT_BYTES // 2:
            pytest.skip("What was evicted here is not read from a device.")
        if not evicts and taken > INPUT_BYTES // 10:
            pytest.skip("The input does not stay in the page cache here.")
    return tmp_path


def test_an_evicted_run_of_a_pair_is_taken_again(input_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "read.py").write_text(READ, encoding="utf-8")
    (tmp_path / "work").mkdir()
    reader = Application(
        name="reader",
        command=f"cd {input_dir} && exec {sys.executable} read.py",
    )
    sleeper = Application(name="sleeper", command="sleep 0.2")
    node = node_facts()
    events = list(
        corun(
            [("reader", "sleeper")],
            {"reader": reader, "sleeper": sleeper},
            placement="same-core",
            node=node,
            suite=load_suite(node, tmp_path),
            work_dir=tmp_path / "work",
            io_dir=tmp_path,
            repeats=4,
            fingerprints=False,
        )
    )
    runs = [event for event in events if isinstance(event, Run) and event.app == "reader"]
    assert len(runs) == 8
    assert all(run.ok for run in runs)
    again = [event for event in events if isinstance(event, Doing) and control.AGAIN in event.text]
    # Other work on the machine may be a reason to take further runs again.
    taken = [event.app for event in again].count("reader")
    assert taken >= 1
    assert int((input_dir / "count").read_text()) == 8 + taken
    assert max(run.usage.read_bytes for run in runs) < INPUT_BYTES // 2
    # What the first ones read, as the interpreter's own files, can be judged by later ones alone.
    judged = {run.id for run in runs[eviction.FEWEST_OTHERS :]}
    assert not control.evicted(runs) & judged
