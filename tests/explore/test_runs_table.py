"""The table that ``kongming explore run`` appends to."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from kongming.explore import Space
from kongming.explore.runs_table import PointRun, RunsTable
from kongming.line_file import LineFile


def test_ctrl_c_while_a_run_is_written_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = Space.from_dict({"n": [1, 2, 3]})
    table = RunsTable(tmp_path / "runs.csv", space, "wall_s", identity="a program")
    sync = LineFile.sync

    def interrupted(file: LineFile) -> None:
        signal.raise_signal(signal.SIGINT)
        sync(file)

    monkeypatch.setattr(LineFile, "sync", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            table.add(PointRun({"n": 1}, 0.5))
    finally:
        signal.signal(signal.SIGINT, before)
        table.close()
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 2
    assert len(table.runs) == 1
