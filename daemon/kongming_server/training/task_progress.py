"""Progress of the tasks of an operation, and the worker that has each."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from kongming_server.operations.tasks import Task
from kongming_server.training.process import TrainingProcess


class TaskProgress:
    """The tasks of one operation, dealt out to its workers."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.waiting = deque(enumerate(tasks))
        self.total = len(tasks)
        self.ended = 0
        self.fraction: dict[int, float] = {}
        self._under_way: dict[int, tuple[TrainingProcess, Task, float]] = {}

    @property
    def progress(self) -> float:
        """0 to 1."""
        return (self.ended + sum(self.fraction.values())) / max(1, self.total)

    def of(self, worker: TrainingProcess) -> list[int]:
        """Numbers of the tasks that this worker has."""
        return [number for number, (whose, _, _) in self._under_way.items() if whose is worker]

    def begin(self, worker: TrainingProcess) -> tuple[int, Task]:
        number, task = self.waiting.popleft()
        self._under_way[number] = (worker, task, time.monotonic())
        return number, task

    def end(self, number: int) -> tuple[Task, float]:
        """The task, and the seconds that it took."""
        _, task, began = self._under_way.pop(number)
        self.fraction.pop(number, None)
        self.ended += 1
        return task, time.monotonic() - began
