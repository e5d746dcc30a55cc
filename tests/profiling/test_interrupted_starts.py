"""Ctrl-C at any moment of a start: what was started has ended before the exception goes on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from kongming.probes.binary import Microbench
from kongming.profiling.runs.execution import Execution

pytestmark = pytest.mark.real

MOMENTS = 20


@pytest.fixture(autouse=True)
def _ctrl_c_raises() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("kind", ["program", "inducer"])
def test_ctrl_c_during_a_start_leaves_no_process(kind: str, tmp_path: Path) -> None:
    starts: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "program": lambda: Execution("sleep 100", loop=True),
        "inducer": lambda: Microbench(["induce", "--dir", str(tmp_path), "memory.streaming.1M"]),
    }
    start = starts[kind]
    began = time.monotonic()
    with start():
        start_s = time.monotonic() - began
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    interrupted = 0
    for moment in range(MOMENTS):
        before = set(psutil.Process().children())
        args = (main_thread, signal.SIGINT)
        ctrl_c = threading.Timer(1.5 * start_s * moment / MOMENTS, signal.pthread_kill, args)
        try:
            ctrl_c.start()
            with start():
                # Not in one piece: a signal right before the system's call is handled after it.
                for _ in range(600):
                    time.sleep(0.1)
        except KeyboardInterrupt:
            interrupted += 1
        # Children alone: a PostgreSQL server of other tests starts processes of its own meanwhile.
        assert set(psutil.Process().children()) <= before, moment
    assert interrupted == MOMENTS
