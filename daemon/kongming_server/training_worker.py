"""A process that trains, beside the serving one: ``python -m kongming_server.training_worker``.

It reads JSON lines and writes JSON lines. The first line in says how (``store``, ``dask``,
``nice``); it answers ``ready`` with its ``slots``, how many tasks it takes at a time. Each further
line is a task; of each it tells ``progress`` and then ``done`` or ``failed``. It ends at once when
its input does, and so when the server dies.

It is a program of its own, not a fork or a ``multiprocessing`` child: the server has threads of
gRPC that no fork survives, and nothing but JSON passes between the two.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kongming_server.training_records import Task
    from kongming_server.training_task import Fit

THREADS = {
    f"{library}_NUM_THREADS": "1"
    for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")
}
"""The environment in which numerical libraries use one thread: read when they are loaded."""

MOST_SLOTS = 64
"""Tasks that one worker hands to a Dask cluster at a time."""


def main() -> int:
    answers = _private_output()
    first = sys.stdin.readline()
    if not first:
        return 0
    setup = json.loads(first)
    # Before anything heavy is loaded: loading is work too.
    os.nice(max(0, int(setup["nice"]) - os.nice(0)))
    tasks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(tasks,), daemon=True).start()
    telling = threading.Lock()

    def tell(event: str, **more: Any) -> None:
        line = json.dumps({"event": event, **more}, allow_nan=False)
        with telling:
            answers.write(line + "\n")
            answers.flush()

    try:
        fit, slots = _fitting(setup)
        worker = _Worker(setup, fit, tell)
    except Exception as error:
        tell("refused", error=f"{error}")
        return 1
    for _ in range(slots - 1):
        threading.Thread(target=worker.serve, args=(tasks,), daemon=True).start()
    tell("ready", slots=slots, pid=os.getpid(), nice=os.nice(0), blas_threads=_blas_threads())
    worker.serve(tasks)
    return 0


class _Worker:
    """Takes tasks from a queue for ever."""

    def __init__(self, setup: Mapping[str, Any], fit: Fit, tell: Any) -> None:
        from kongming.store import Store

        self._store = Store.open(setup["store"])
        self._fit = fit
        self._tell = tell

    def serve(self, tasks: queue.SimpleQueue[dict[str, Any]]) -> None:
        from kongming.errors import KongmingError
        from kongming_server.training_records import Task

        while True:
            message = tasks.get()
            number = message["task"]
            try:
                self._train(number, Task.from_dict(message["asked"]))
            except KongmingError as error:
                self._tell("failed", task=number, error=str(error))
            except Exception as error:
                # One application must not take the others with it.
                self._tell("failed", task=number, error=f"Unforeseen: {error!r}")

    def _train(self, number: int, task: Task) -> None:
        from kongming_server.training_task import train

        def report(fraction: float, doing: str) -> None:
            self._tell("progress", task=number, fraction=fraction, message=doing)

        outcomes = train(self._store, task, self._fit, report)
        self._tell("done", task=number, trained=[outcome.to_dict() for outcome in outcomes])


def _fitting(setup: Mapping[str, Any]) -> tuple[Fit, int]:
    """What fits a model, and how many it fits at a time."""
    from kongming_server.training_task import fit_text

    if not setup["dask"]:
        return fit_text, 1
    from kongming_server.dask_fitting import DaskFitting

    cluster = DaskFitting(setup["dask"])
    return cluster.fit, min(MOST_SLOTS, cluster.threads())


def _private_output() -> IO[str]:
    """The real standard output; whatever else prints goes to stderr."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "w", encoding="utf-8")


def _read(tasks: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        tasks.put(json.loads(line))
    # The server has ended, or wants this to.
    os._exit(0)


def _blas_threads() -> int:
    """The most threads that a numerical library here would use."""
    from threadpoolctl import threadpool_info

    return max((int(pool["num_threads"]) for pool in threadpool_info()), default=1)


if __name__ == "__main__":
    sys.exit(main())
