"""The file of metrics, in a folder that others write into, and as a sign of life."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from kongming_agent import agent_command as main
from kongming_agent.reporting.metrics import Exporter

from tests.server.process import eventually


def test_it_follows_no_link_and_waits_for_no_pipe(tmp_path: Path) -> None:
    text, victim = tmp_path / "shared" / "kongming.prom", tmp_path / "victim"
    text.parent.mkdir()
    victim.write_text("precious")
    exporter = Exporter(dict, textfile=str(text))
    # What a neighbour in the folder sees to be written first, and what is there in the end.
    planted = text.with_name(f"{text.name}.{os.getpid()}.{threading.get_ident()}")
    planted.symlink_to(victim)
    text.symlink_to(victim)
    exporter.write()
    assert victim.read_text() == "precious"
    assert not text.is_symlink()
    assert "kongming_agent_probes_total" in text.read_text()
    text.unlink()
    os.mkfifo(text)
    planted.unlink()
    os.mkfifo(planted)
    writer = threading.Thread(target=exporter.write, daemon=True)
    writer.start()
    writer.join(timeout=30)
    assert text.is_file()
    # Nothing of its own is left over.
    assert set(text.parent.iterdir()) == {text, planted}


def test_what_cannot_be_read_or_written_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = tmp_path / "kongming.prom"
    failures = [RuntimeError("dictionary changed size during iteration")]

    def view() -> dict[str, list[tuple[tuple[str, ...], float]]]:
        if failures:
            raise failures.pop()
        return {}

    exporter = Exporter(view, textfile=str(text))
    exporter.write()
    assert "cannot be read" in caplog.text
    assert not text.exists()
    text.mkdir()
    exporter.write()
    assert "cannot be written" in caplog.text
    text.rmdir()
    exporter.write()
    assert text.is_file()


def test_an_agent_that_is_stuck_has_an_old_file(tmp_path: Path) -> None:
    text, ending = tmp_path / "kongming.prom", threading.Event()
    alive_at = [time.monotonic() - 3600.0]
    returned: list[float] = []

    def alive() -> float:
        returned.append(alive_at[0])
        return alive_at[0]

    exporter = Exporter(dict, textfile=str(text))
    stuck_s = main._stuck_s(2.0)
    writer = threading.Thread(target=main._write, args=(exporter, ending, 0.01, alive, stuck_s))
    writer.start()
    eventually(lambda: len(returned) > 3)
    assert not text.exists()
    alive_at[0] = time.monotonic()
    eventually(text.exists)
    ending.set()
    writer.join()


def test_an_agent_that_seldom_reads_signals_is_not_stuck() -> None:
    """It gives a sign of life as often: `probing.signals_s` has no maximum."""
    assert main._stuck_s(1000.0) > 1000.0
    assert main._stuck_s(2.0) == main._STUCK_S


def test_a_file_that_cannot_be_written_is_logged_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "collector"
    # No folder can be made where a file is.
    folder.touch()
    exporter = Exporter(dict, textfile=str(folder / "kongming.prom"))
    for _ in range(5):
        exporter.write()
    folder.unlink()
    for _ in range(5):
        exporter.write()
    assert (folder / "kongming.prom").exists()
    assert len(caplog.messages) == 2
    assert "cannot be written" in caplog.messages[0]
    assert "written again" in caplog.messages[1]
