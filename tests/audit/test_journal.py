"""The journal of a recording: what survives, and what it costs those who measure."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kongming.audit.assembling import assemble, reopen, steps_in
from kongming.audit.journal import Header, Journal, Progress, steps_of
from kongming.audit.readings import read_observations
from kongming.audit.steps import Reading, Step, unit_of
from kongming.records.errors import IncompatibleError, InputError
from tests.audit.sessions import session

HEADER = Header("s1", 7, {"suite": "quick"}, session())


def step(position: int) -> Step:
    readings = (
        Reading("surrogate", "chase", 1e-9, "s", 1e-9, 2e-9, 30),
        Reading("surrogate", "blocks", None, "s", reason="it failed"),
        Reading("passive", "load1", 0.5, "1"),
    )
    at = f"2026-03-01T12:{position // 60:02d}:{position % 60:02d}.250Z"
    return Step(at, position, position // 4, 1, 1.5 * (position + 1), readings)


def filled(path: Path, count: int) -> Path:
    with Journal(path) as journal:
        journal.begin(HEADER)
        for position in range(count):
            journal.add(step(position))
    return path


@pytest.mark.parametrize("cut", [1, 2, 10, 60, 140])
def test_a_torn_line_costs_its_step_alone(tmp_path: Path, cut: int) -> None:
    path = filled(tmp_path / "j", 6)
    path.write_bytes(path.read_bytes()[:-cut])
    assert [recorded.position for recorded in steps_of(path)] == list(range(5))
    with Journal(path) as journal:
        assert journal.resume() == (HEADER, Progress(5, 2, 7.5))
        journal.add(step(5))
    assert list(steps_of(path)) == [step(k) for k in range(6)]


def test_a_torn_first_line_begins_anew(tmp_path: Path) -> None:
    path = filled(tmp_path / "j", 0)
    path.write_bytes(path.read_bytes()[:-30])
    with Journal(path) as journal:
        assert journal.resume() is None
        journal.begin(HEADER)
        assert journal.resume() == (HEADER, Progress())


def test_damage_before_the_end_is_named(tmp_path: Path) -> None:
    path = filled(tmp_path / "j", 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"{}\n", *lines[2:]]))
    with Journal(path) as journal, pytest.raises(InputError, match="line 3"):
        journal.resume()
    path.write_bytes(lines[0].replace(b'"observation":1', b'"observation":2'))
    with Journal(path) as journal, pytest.raises(IncompatibleError, match="has format 2"):
        journal.resume()


def test_an_observation_file_becomes_the_journal_that_it_came_from(tmp_path: Path) -> None:
    path = filled(tmp_path / "j", 9)
    out = tmp_path / "o.parquet"
    assert assemble(path, out) == 27
    observations = read_observations([out])
    assert observations.table["value"].to_pylist()[:3] == [1e-9, None, 0.5]
    assert observations.sessions["s1"]["observed_s"] == 13.5
    with Journal(tmp_path / "again") as journal:
        reopen(out, journal)
        header, progress = journal.resume() or (None, None)
    assert header is not None
    assert (header.session, header.seed, header.key) == ("s1", 7, HEADER.key)
    assert progress == Progress(9, 3, 13.5)
    readings = [recorded.readings for recorded in steps_of(tmp_path / "again")]
    assert readings == [recorded.readings for recorded in steps_of(path)]
    assert assemble(tmp_path / "again", tmp_path / "again.parquet") == 27
    assert read_observations([tmp_path / "again.parquet"]).table.equals(observations.table)


def test_a_file_that_is_reopened_in_part_is_no_shorter_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "o.parquet"
    assemble(filled(tmp_path / "j", 9), out)
    added = 0
    add = Journal.add

    def interrupted(self: Journal, step: Step) -> None:
        nonlocal added
        added += 1
        if added == 4:
            raise KeyboardInterrupt
        add(self, step)

    with monkeypatch.context() as patch, Journal(tmp_path / "again") as journal:
        patch.setattr(Journal, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reopen(out, journal)
        assert journal.resume() is None
    with Journal(tmp_path / "again") as journal:
        reopen(out, journal)
        resumed = journal.resume()
        assert resumed is not None
        assert resumed[1] == Progress(9, 3, 13.5)
        assert steps_in(out, resumed[0]) == 9
        assert steps_in(out, replace(resumed[0], session="another")) == 0
    assert steps_in(tmp_path / "j", resumed[0]) == 0


def test_two_cannot_write_to_one(tmp_path: Path) -> None:
    path = filled(tmp_path / "j", 1)
    with Journal(path), pytest.raises(InputError, match="Another command"):
        Journal(path)


def test_keeping_steps_loads_nothing_heavy() -> None:
    code = "import sys, kongming.audit.journal, kongming.audit.steps, kongming.profiling.observing"
    heavy = "numpy pyarrow sklearn pandas rich sqlalchemy"
    code += f"; print([m for m in {heavy.split()} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_units_of_signals() -> None:
    assert unit_of("psi_cpu_some") == "share"
    assert unit_of("disk_read_bytes_per_s") == "bytes/s"
    assert unit_of("dirty_bytes") == "bytes"
    assert unit_of("load1") == "1"
