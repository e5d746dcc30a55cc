"""The serving process's end of a worker process that trains (``training_worker``)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any

from kongming.errors import ServiceError
from kongming_server.training_records import Task
from kongming_server.training_worker import THREADS

NICE = 10
"""Priority of what trains: the serving process goes first on a CPU that both want."""

_LINE_BYTES = 16 << 20
"""The longest line that a worker may write."""

Event = Mapping[str, Any]


class WorkerDiedError(ServiceError):
    """A worker ended before its work did."""


class TrainingProcess:
    """One worker: started, told of tasks, listened to, and ended for certain."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._last_words: deque[str] = deque(maxlen=20)
        self._listening = asyncio.create_task(self._listen())
        self.slots = 1
        self.blas_threads = 0

    @classmethod
    async def start(cls, store_url: str | None, dask: str) -> TrainingProcess:
        """Raises WorkerDiedError where it cannot start to work."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", "kongming_server.training_worker"),
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
        """It is gone when this returns, whatever it was doing."""
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
        said = f": {self._last_words[-1]}" if self._last_words else ""
        return WorkerDiedError(f"The training process ended with status {status}{said}.")

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
