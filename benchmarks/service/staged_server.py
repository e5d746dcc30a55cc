"""The production server with a clock at each stage of a report, for ``ingest_account``.

    python -m benchmarks.service.staged_server OPTIONS...     # as kongming-server

What it does is what ``kongming-server`` does. At SIGUSR1 it writes the CPU seconds that each stage
has taken so far, without those of the stages within it, and the number of calls, as JSON to the
file that the variable STAGES_FILE names.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from kongming_server.calls import interceptors
from kongming_server.calls.decoding import Decoder
from kongming_server.commands import server_command as main
from kongming_server.ingest.write import Ingest
from kongming_server.services import fleet
from kongming_server.state import SharedState

from kongming.engine.engine import Engine
from kongming.store import Store

FILE = "STAGES_FILE"

_seconds: Counter[str] = Counter()
_calls: Counter[str] = Counter()
_threads = threading.local()


class _Stage:
    """A stretch of one thread's time; what is within another one is that one's alone."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        stack = _threads.__dict__.setdefault("stack", [])
        stack.append([time.thread_time(), 0.0])

    def __exit__(self, *error: object) -> None:
        begun, within = _threads.stack.pop()
        taken = time.thread_time() - begun
        _seconds[self._name] += taken - within
        if _threads.stack:
            _threads.stack[-1][1] += taken


class _Stepped:
    """A coroutine whose steps are timed, and not what it waits for."""

    def __init__(self, coroutine: Any, stage: _Stage) -> None:
        self._coroutine, self._stage = coroutine, stage

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._coroutine.__await__()
        step: Callable[[], Any] = lambda: next(steps)  # noqa: E731  # it changes
        while True:
            with self._stage:
                try:
                    waited = step()
                except StopIteration as end:
                    return end.value
            try:
                sent = yield waited
            except BaseException as error:
                step = functools.partial(steps.throw, error)
            else:
                step = functools.partial(steps.send, sent)


def _timed(owner: Any, method: str, name: str, *, coroutine: bool = False) -> None:
    inner, stage = getattr(owner, method), _Stage(name)

    @functools.wraps(inner)
    def call(*arguments: Any, **named: Any) -> Any:
        _calls[f"{name}.{method}"] += 1
        if coroutine:
            return _Stepped(inner(*arguments, **named), stage)
        with stage:
            return inner(*arguments, **named)

    setattr(owner, method, call)


def _time_all() -> None:
    for method in ("_admit", "_begin", "_left"):
        _timed(interceptors._Method, method, "admission")
    _timed(Decoder, "at_once", "decode")
    _timed(Decoder, "message", "decode", coroutine=True)
    _timed(fleet.FleetService, "Report", "service", coroutine=True)
    _timed(fleet.reports, "fingerprint_of", "checks")
    _timed(SharedState, "alive", "state")
    _timed(SharedState, "count_plausible", "state", coroutine=True)
    _timed(SharedState, "use_fingerprint", "state")
    _timed(Engine, "refresh", "refresh")
    _timed(Ingest, "enqueue", "queue", coroutine=True)
    _timed(Ingest, "_write", "queue", coroutine=True)
    _timed(Store, "add_reported", "store")


def _tell(*_: object) -> None:
    path = Path(os.environ[FILE])
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"seconds": _seconds, "calls": _calls}), encoding="utf-8")
    new.replace(path)


if __name__ == "__main__":
    _time_all()
    signal.signal(signal.SIGUSR1, _tell)
    main.main()
