"""The production server with a clock at each step of its event loop, for ``holds``.

    python -m benchmarks.service.watched_server OPTIONS...     # as kongming-server

At SIGUSR1 it writes the longest step since the last signal, as JSON to the file that the variable
HOLDS_FILE names, and begins again: ``cpu_ms`` of the thread itself, which other processes and
threads do not change, ``wall_ms`` of the same step, and which it was.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from kongming_server.commands import server_command as main

FILE = "HOLDS_FILE"

_longest: dict[str, Any] = {}


def _watch() -> None:
    run = asyncio.Handle._run

    def timed(handle: Any) -> None:
        begun, cpu = time.perf_counter(), time.thread_time()
        run(handle)
        cpu_ms = 1e3 * (time.thread_time() - cpu)
        if cpu_ms > _longest.get("cpu_ms", 0.0):
            wall_ms = 1e3 * (time.perf_counter() - begun)
            _longest.update(cpu_ms=cpu_ms, wall_ms=wall_ms, step=_step(handle))

    asyncio.Handle._run = timed  # type: ignore[method-assign]


def _step(handle: Any) -> str:
    """The task or the function that was run."""
    task = getattr(handle._callback, "__self__", None)
    return repr(task if isinstance(task, asyncio.Task) else handle)[:300]


def _tell(*_: object) -> None:
    path = Path(os.environ[FILE])
    new = path.with_suffix(".new")
    new.write_text(json.dumps(_longest), encoding="utf-8")
    new.replace(path)
    _longest.clear()


if __name__ == "__main__":
    _watch()
    signal.signal(signal.SIGUSR1, _tell)
    main.main()
