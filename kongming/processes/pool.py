"""Share work among processes, keep its order, and leave no process behind.

The pool is loky's: it notices killed workers, and ends workers that are busy, whatever is being
written to them. Its workers outlive a parent that is killed, and show a traceback on Ctrl-C: what
prevents both is here.
"""

from __future__ import annotations

import itertools
import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from kongming.processes.deferred_signals import signals_deferred
from kongming.records.errors import KongmingError

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def available_cpus() -> int:
    """Return how many CPUs this process may run on."""
    return len(os.sched_getaffinity(0))


def in_order(
    function: Callable[[Task], Answer], tasks: Iterable[Task], jobs: int
) -> Generator[tuple[Task, Answer]]:
    """Yield each task with its result, in the order of ``tasks``, computed by ``jobs`` processes.

    ``function`` is a module's own, and it, the tasks and the results can be pickled. Tasks are
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
    from loky import ProcessPoolExecutor

    pending = itertools.chain(first, pending)
    # Started later, among the workers, it would unblock Ctrl-C for those that start after it.
    resource_tracker.ensure_running()
    executor: Any = ProcessPoolExecutor(
        max_workers=jobs, initializer=_end_with, initargs=(os.getpid(),)
    )
    try:
        running: deque[tuple[Task, Future[Answer]]] = deque()
        while True:
            try:
                for task in itertools.islice(pending, 2 * jobs - len(running)):
                    with signals_deferred(), _ctrl_c_blocked():
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
    finally:
        # A second signal must not stop the ending of the others half-way.
        with signals_deferred():
            executor.shutdown(wait=True, kill_workers=True)


@contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Start processes with Ctrl-C blocked.

    A terminal sends it to every process of the command: only this one handles it, and ends the
    others.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with(parent: int) -> None:
    """End this worker when the command does, even if that was killed, and not at Ctrl-C, which the
    command handles."""
    # It came here blocked, and whatever starts a process may unblock it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = os.pidfd_open(parent)
    except ProcessLookupError:
        os._exit(1)
    # Its number may be another process's by now.
    if os.getppid() != parent:
        os._exit(1)

    def watch() -> None:
        select.select([process], [], [])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
