"""The order of a command's output and its end, as whoever waits for its end sees them."""

from __future__ import annotations

import array
import fcntl
import os
import select
import selectors
import termios
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from kongming.profiling.runs import execution
from kongming.profiling.runs.execution import PIPE_BYTES, Execution
from kongming.profiling.runs.load_loop import loop
from kongming.profiling.runs.runner import open_runner
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError

pytestmark = pytest.mark.real

TEXT = b"no luck\n"
SCRIPT = f"echo {TEXT.decode().strip()}; exit 3"


def pending_bytes(fd: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


class ReportFirst(selectors.DefaultSelector):
    """Says that the report is ready, and not yet that the output is, once both hold all that
    they ever will; then nothing at all until ``released``."""

    released: threading.Event
    calls = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.calls += 1
        if self.calls > 1:
            self.released.wait()
            return super().select(timeout)
        ended = select.poll()
        for fd in self.get_map():
            ended.register(fd, 0)  # hang-up alone: nobody is left that could write
        while len(ended.poll()) < len(self.get_map()):
            time.sleep(0.001)
        ready = super().select(0)
        assert len(ready) == len(self.get_map())
        return [(key, mask) for key, mask in ready if pending_bytes(key.fd) != len(TEXT)]


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    event = threading.Event()
    held = type("Held", (ReportFirst,), {"released": event})
    replaced = SimpleNamespace(DefaultSelector=held, EVENT_READ=selectors.EVENT_READ)
    monkeypatch.setattr(execution, "selectors", replaced)
    return event


def test_output_is_there_once_the_iteration_is(released: threading.Event) -> None:
    with Execution(SCRIPT) as running:
        try:
            assert running.wait(20.0, iterations=1)
            assert running.output.text() == TEXT.decode()
        finally:
            released.set()
        assert running.result().exit_status == 3
        assert running.output.text() == TEXT.decode()


def test_a_failed_loop_is_described_with_what_it_printed(
    released: threading.Event, tmp_path: Path
) -> None:
    app = Application(name="bad", command=SCRIPT)
    with open_runner(app, tmp_path) as runner, loop(runner, (0,)) as running:
        try:
            with pytest.raises(ApplicationRunError, match=r"(?s)exit status 3.*no luck"):
                running.wait_warm(20.0)
        finally:
            released.set()


def test_a_drain_reads_no_more_than_a_pipe_holds() -> None:
    with Execution("true") as running:
        running.result()
        # It never ends, never blocks and is never empty: as a program that prints for ever.
        endless = os.open("/dev/zero", os.O_RDONLY)
        try:
            assert not running._drain(endless)
        finally:
            os.close(endless)
        assert running.output.total_bytes == PIPE_BYTES
