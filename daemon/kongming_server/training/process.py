"""A process that trains: the serving process's handle of it, and its main loop.

The process is ``python -m kongming_server.training.process``. It reads JSON lines and writes JSON
lines. The first line in says how (``store``, ``dask``, ``nice``); it answers ``ready`` with its
``slots``, how many tasks it takes at a time. Each further line is a task; of each it reports
``progress`` and then ``done`` or ``failed``. It ends at once when its input does, and so when the
server dies.

It is a program of its own and no worker of a process pool: it lowers its priority and limits the
threads of numerical libraries before they are loaded, is in a session of its own, reports progress
while it works, and nothing but JSON passes between it and a server that others can reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

from kongming.records.errors import KongmingError, ServiceError
from kongming_server.operations.tasks import Task

if TYPE_CHECKING:
    from kongming_server.training.dask_cluster import Cluster
    from kongming_server.training.task import Fit

NICE = 10
"""Priority of what trains: the serving process goes first on a CPU that both want."""

THREADS = {
    f"{library}_NUM_THREADS": "1"
    for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")
}
"""The environment in which numerical libraries use one thread: read when they are loaded."""

MOST_SLOTS = 64
"""Tasks that one worker hands to a Dask cluster at a time."""

_LINE_BYTES = 16 << 20
"""The longest line that a worker may write."""

Event = Mapping[str, Any]


class WorkerDiedError(ServiceError):
    """A worker ended before its work did."""


class TrainingProcess:
    """One worker: started, given tasks, listened to, and ended for certain."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._last_words: deque[str] = deque(maxlen=20)
        self._listening = asyncio.create_task(self._listen())
        self.slots = 1
        self.blas_threads = 0

    @classmethod
    async def start(cls, store_url: str | None, cluster: Cluster | None) -> TrainingProcess:
        """Raises WorkerDiedError where it cannot start to work."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", "kongming_server.training.process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **THREADS},
            # Ctrl-C in the terminal is for the server, which ends its workers.
            start_new_session=True,
            limit=_LINE_BYTES,
        )
        worker = cls(process)
        try:
            # By its input, not its arguments, which everybody on the machine can read.
            dask = None if cluster is None else cluster.texts()
            await worker._send({"store": store_url, "dask": dask, "nice": NICE})
            event = await worker.receive()
            if event["event"] == "refused":
                raise WorkerDiedError(f"The training process cannot work: {event['error']}")
            worker.slots = int(event["slots"])
            worker.blas_threads = int(event["blas_threads"])
        except BaseException:
            await worker.end()
            raise
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, number: int, task: Task) -> None:
        """Raises WorkerDiedError."""
        await self._send({"task": number, "asked": task.to_dict()})

    async def end(self) -> None:
        """End the process, whatever it is doing; it is gone when this returns."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        # Being cancelled now must not leave a zombie.
        await asyncio.shield(asyncio.gather(self._process.wait(), self._listening))

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise await self._died() from None

    async def receive(self) -> Event:
        """The next that it tells. Raises WorkerDiedError."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise await self._died()
        event: Event = json.loads(line)
        return event

    async def _died(self) -> WorkerDiedError:
        await asyncio.gather(self._process.wait(), self._listening)
        status = self._process.returncode or 0
        if status < 0:
            try:
                name = signal.Signals(-status).name
            except ValueError:
                name = f"signal {-status}"
            more = ", perhaps for want of memory" if name == "SIGKILL" else ""
            return WorkerDiedError(f"The training process was ended by {name}{more}.")
        detail = f": {self._last_words[-1]}" if self._last_words else ""
        return WorkerDiedError(f"The training process ended with status {status}{detail}.")

    async def _listen(self) -> None:
        """Keep the last of what it writes to stderr: it may say why it died."""
        assert self._process.stderr is not None
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:
                continue
            if not line:
                return
            text = line.decode(errors="replace").strip()
            if text:
                self._last_words.append(text[:500])


def main() -> int:
    """Run the worker: tasks from standard input, events to standard output."""
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
    """Consumes tasks from a queue until the input ends."""

    def __init__(self, setup: Mapping[str, Any], fit: Fit, tell: Any) -> None:
        from kongming.store import Store

        self._store = Store.open(setup["store"])
        self._fit = fit
        self._tell = tell

    def serve(self, tasks: queue.SimpleQueue[dict[str, Any]]) -> None:
        while True:
            message = tasks.get()
            number = message["task"]
            try:
                self._train(number, Task.from_dict(message["asked"]))
            except KongmingError as error:
                self._tell("failed", task=number, error=str(error))
            except Exception as error:
                # One application must not take the others with it.
                self._tell("failed", task=number, error=f"Unexpected error: {error!r}")

    def _train(self, number: int, task: Task) -> None:
        from kongming_server.training.task import train

        def report(fraction: float, doing: str) -> None:
            self._tell("progress", task=number, fraction=fraction, message=doing)

        outcomes = train(self._store, task, self._fit, report)
        self._tell("done", task=number, trained=[outcome.to_dict() for outcome in outcomes])


def _fitting(setup: Mapping[str, Any]) -> tuple[Fit, int]:
    """Return what fits a model, and how many it fits at a time."""
    if not setup["dask"]:
        from kongming_server.training.fitting import fit_text

        return fit_text, 1
    from kongming_server.training.dask_cluster import Cluster, DaskFitting, hide_memory

    hide_memory()
    cluster = DaskFitting(Cluster(**setup["dask"]))
    return cluster.fit, min(MOST_SLOTS, cluster.threads())


def _private_output() -> IO[str]:
    """The real standard output; whatever else prints goes to stderr."""
    output = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(output, "w", encoding="utf-8")


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
