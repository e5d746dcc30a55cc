"""Programs that ours start by ``asyncio.create_subprocess_exec``, forked as by ``warm_start``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

from tests import warm_start

__all__ = ["STARTED", "Subprocess", "warm_subprocesses"]

STARTED: set[int] = set()
"""Ids of the processes that were forked: their command lines are not those of their programs."""


class Subprocess:
    """As ``asyncio.subprocess.Process``, as far as programs of ours need it."""

    def __init__(
        self,
        process: warm_start.Process,
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
    ) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self._process = process
        # Waited for once, however many want to know.
        self._ended = asyncio.create_task(self._reap())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def _reap(self) -> int:
        status = await asyncio.to_thread(self._process.wait)
        self.stdin.close()
        return status


@contextmanager
def warm_subprocesses() -> Iterator[None]:
    """Meanwhile ``python -P -m MODULE`` is forked from a process that has imported everything, with
    pipes for all three streams; nothing is where programs are to be started cold."""
    if os.environ.get(warm_start.COLD):
        yield
        return
    with mock.patch.object(asyncio, "create_subprocess_exec", _start):
        yield


async def _start(
    program: str,
    *args: str,
    env: Mapping[str, str],
    start_new_session: bool,
    limit: int,
    **streams: Any,
) -> Subprocess:
    option, of_module, module, *words = args
    assert (option, of_module) == ("-P", "-m")
    assert set(streams.values()) == {asyncio.subprocess.PIPE}
    loop = asyncio.get_running_loop()
    with ExitStack() as theirs, ExitStack() as ours:
        pipes = []
        for _ in range(3):
            read, write = os.pipe()
            pipes.append((os.fdopen(read, "rb", buffering=0), os.fdopen(write, "wb", buffering=0)))
        stdin, stdout, stderr = (
            theirs.enter_context(end) for end in (pipes[0][0], pipes[1][1], pipes[2][1])
        )
        mine = [pipes[0][1], pipes[1][0], pipes[2][0]]
        for pipe in mine:
            ours.callback(pipe.close)
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, mine[0]
        )
        ours.callback(transport.close)
        readers = []
        for pipe in mine[1:]:
            reader = asyncio.StreamReader(limit=limit)
            reading, _ = await loop.connect_read_pipe(
                partial(asyncio.StreamReaderProtocol, reader), pipe
            )
            ours.callback(reading.close)
            readers.append(reader)
        # Nothing is waited for from here on: whoever is cancelled has either no process or all.
        process = warm_start.start(
            module,
            *words,
            env=env,
            new_session=start_new_session,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
        ours.pop_all()
    assert isinstance(process, warm_start.Process)
    STARTED.add(process.pid)
    return Subprocess(process, asyncio.StreamWriter(transport, protocol, None, loop), *readers)
