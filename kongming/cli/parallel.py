"""Work that several processes share, in order, with nothing left behind."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import TypeVar

from kongming.errors import KongmingError

__all__ = ["available_cpus", "in_order"]

_PATIENCE_S = 2.0

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def available_cpus() -> int:
    """How many CPUs this process may run on."""
    return len(os.sched_getaffinity(0))


def in_order(
    function: Callable[[Task], Answer], tasks: Iterable[Task], jobs: int
) -> Generator[tuple[Task, Answer]]:
    """Each task with what ``function`` makes of it, in the order of ``tasks``, by ``jobs``
    processes.

    ``function`` is a module's own, and it, the tasks and the answers can be pickled. Tasks are
    taken from the iterable when a process is about to need them. What ``function`` raises is
    raised here; then, and when the iterator is closed, the processes are ended at once.

    Raises:
        KongmingError: a process was ended from outside.
    """
    pending = iter(tasks)
    first = list(itertools.islice(pending, 2))
    if jobs == 1 or len(first) < 2:
        for task in itertools.chain(first, pending):
            yield task, function(task)
        return
    pending = itertools.chain(first, pending)
    executor = ProcessPoolExecutor(
        max_workers=jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with
    )
    try:
        running: deque[tuple[Task, Future[Answer]]] = deque()
        while True:
            try:
                for task in itertools.islice(pending, 2 * jobs - len(running)):
                    with _interrupts_held():
                        running.append((task, executor.submit(function, task)))
                if not running:
                    break
                done, future = running.popleft()
                answer = future.result()
            except BrokenProcessPool:
                raise KongmingError(
                    "A process that shared the work was ended from outside, perhaps for want of "
                    "memory.",
                    hint="Share it among fewer: --jobs 1",
                ) from None
            yield done, answer
        executor.shutdown()
    finally:
        # A second signal must not stop the ending of the others half-way.
        with _interrupts_held():
            for worker in multiprocessing.active_children():
                worker.kill()
            _end(executor)


def _end(executor: ProcessPoolExecutor) -> None:
    """Wait until the executor has reaped its processes, which were killed.

    Python 3.11's executor holds the end that tasks are read from open itself: a task larger than
    the pipe's buffer is then written for ever, and waited for, unless that end is closed.
    """
    manager = getattr(executor, "_executor_manager_thread", None)
    queue = getattr(executor, "_call_queue", None)
    executor.shutdown(wait=False, cancel_futures=True)
    if manager is not None:
        manager.join(_PATIENCE_S)
        if manager.is_alive() and queue is not None:
            queue._reader.close()
        manager.join()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """A process that is started in here never sees Ctrl-C, which the terminal sends to all of the
    command's: only this one answers it, and ends the others.

    A signal that arrives in here takes effect at the end: half-way through a start it would leave
    a process that nobody knows of, or locks that nobody opens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for missed in came:
            signal.raise_signal(missed)


def _end_with() -> None:
    """In a worker: end when the command does, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
