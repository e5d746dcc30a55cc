"""Five jobs of the kinds that clusters run, on machines that are control groups.

    cluster.py shuffle|join|solver|waves|allreduce MACHINES SCALE

shuffle: every worker sends a part of its keys to every other, and sorts what it received.
join: two tables are partitioned by key over the network, and joined by a hash table.
solver: conjugate gradients on a matrix, whose blocks beyond ``MEMORY_BLOCKS`` a machine are read
back from a compressed file in each iteration: few machines are far slower.
waves: ``TASKS`` tasks of one size, of which each machine runs one at a time.
allreduce: little work between many rounds in which a long vector is summed around a ring.

Workers enter their machines as in ``parallel.py``; they talk to each other by pipes.
"""

from __future__ import annotations

import sys
import tempfile
import zlib
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection

import numpy as np
from parallel import enter

KEYS = 12_000_000
ROWS = 1_200_000
BLOCKS, BLOCK_ROWS, COLUMNS = 24, 1_800, 160
MEMORY_BLOCKS = 8
ITERATIONS = 12
TASKS, TASK_WORK = 24, 260_000
VECTOR, ROUNDS, STEP_ROWS = 500_000, 24, 600_000

Mesh = list[list[tuple[Connection, Connection]]]
Work = Callable[["Worker"], None]


class Worker:
    """A worker with a pipe to every other and one to the driver."""

    def __init__(self, mesh: Mesh, driver: Connection, rank: int, scale: float) -> None:
        self.rank, self.count, self.scale = rank, len(mesh), scale
        self.driver = driver
        self.random = np.random.default_rng(rank)
        self._mesh = mesh

    def send(self, to: int, values: np.ndarray) -> None:
        self._mesh[self.rank][to][0].send_bytes(np.ascontiguousarray(values).tobytes())

    def receive(self, source: int, kind: str) -> np.ndarray:
        return np.frombuffer(self._mesh[source][self.rank][1].recv_bytes(), dtype=kind)

    def exchange(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        """All to all: in each step a worker sends to one and receives from another. Sends go by a
        child thread, since a pipe holds little."""
        from threading import Thread

        received = [parts[self.rank]]
        for step in range(1, self.count):
            to, source = (self.rank + step) % self.count, (self.rank - step) % self.count
            sender = Thread(target=self.send, args=(to, parts[to]))
            sender.start()
            received.append(self.receive(source, parts[to].dtype.str))
            sender.join()
        return received


def run(work: Work, machines: int, scale: float) -> None:
    """Start a worker on each machine and wait for their answers."""
    context = get_context("fork")
    mesh: Mesh = [[context.Pipe()[::-1] for _ in range(machines)] for _ in range(machines)]
    pipes = []
    for rank in range(machines):
        ours, theirs = context.Pipe()
        context.Process(target=_worker, args=(work, mesh, theirs, rank, scale), daemon=True).start()
        theirs.close()
        pipes.append(ours)
    answers = [pipe.recv() for pipe in pipes]
    assert all(np.isfinite(answers))


def _worker(work: Work, mesh: Mesh, driver: Connection, rank: int, scale: float) -> None:
    enter(rank)
    work(Worker(mesh, driver, rank, scale))


def shuffle(worker: Worker) -> None:
    keys = worker.random.random(int(KEYS * worker.scale / worker.count))
    owner = (keys * worker.count).astype(np.intp)
    parts = [keys[owner == i] for i in range(worker.count)]
    own = np.concatenate(worker.exchange(parts))
    own.sort(kind="stable")
    worker.driver.send(float(own.sum()))


def join(worker: Worker) -> None:
    rows = int(ROWS * worker.scale / worker.count)
    tables = []
    for _ in range(2):
        keys = worker.random.integers(0, max(int(ROWS * worker.scale), 1), rows)
        parts = [keys[keys % worker.count == i] for i in range(worker.count)]
        tables.append(np.concatenate(worker.exchange(parts)).tolist())
    counts: dict[int, int] = {}
    for key in tables[0]:
        counts[key] = counts.get(key, 0) + 1
    worker.driver.send(float(sum(counts.get(key, 0) for key in tables[1])))


def solver(worker: Worker) -> None:
    mine = range(worker.rank, int(np.ceil(BLOCKS * worker.scale)), worker.count)
    in_memory: list[np.ndarray] = []
    with tempfile.TemporaryFile() as file:
        spilled: list[tuple[int, int]] = []
        for number, _ in enumerate(mine):
            block = worker.random.integers(0, 64, (BLOCK_ROWS, COLUMNS)).astype(np.float32)
            if number < MEMORY_BLOCKS:
                in_memory.append(block)
            else:
                packed = zlib.compress(block.tobytes(), 1)
                spilled.append((file.tell(), len(packed)))
                file.write(packed)

        def apply(x: np.ndarray) -> np.ndarray:
            total = sum((block.T @ (block @ x) for block in in_memory), np.zeros(COLUMNS))
            for place, size in spilled:
                file.seek(place)
                packed = zlib.decompress(file.read(size))
                block = np.frombuffer(packed, dtype=np.float32).reshape(BLOCK_ROWS, COLUMNS)
                total = total + block.T @ (block @ x)
            return ring_sum(worker, total) + x

        x = np.zeros(COLUMNS)
        residual = np.ones(COLUMNS)
        direction, size = residual.copy(), float(residual @ residual)
        for _ in range(ITERATIONS):
            product = apply(direction)
            step = size / max(float(direction @ product), 1e-30)
            x = x + step * direction
            residual = residual - step * product
            size, before = float(residual @ residual), size
            direction = residual + size / max(before, 1e-30) * direction
    worker.driver.send(float(x.sum()))


def waves(worker: Worker) -> None:
    total = 0.0
    for task in range(worker.rank, int(np.ceil(TASKS * worker.scale)), worker.count):
        values = np.random.default_rng(task).random(TASK_WORK).tolist()
        values.sort()
        total += values[0]
    worker.driver.send(total)


def allreduce(worker: Worker) -> None:
    rows = int(STEP_ROWS * worker.scale / worker.count)
    own = worker.random.random((rows, 16))
    vector = np.zeros(int(VECTOR * worker.scale))
    for _ in range(ROUNDS):
        vector[:16] += own.T @ (own @ vector[:16]) * 1e-9 + 1.0
        vector = ring_sum(worker, vector) / worker.count
    worker.driver.send(float(vector[:16].sum()))


def ring_sum(worker: Worker, vector: np.ndarray) -> np.ndarray:
    """Sum over all workers: every vector goes once around the ring."""
    from threading import Thread

    total, passed = vector.copy(), vector
    after, before = (worker.rank + 1) % worker.count, (worker.rank - 1) % worker.count
    for _ in range(worker.count - 1):
        sender = Thread(target=worker.send, args=(after, passed))
        sender.start()
        passed = worker.receive(before, vector.dtype.str)
        sender.join()
        total = total + passed
    return total


JOBS: dict[str, Work] = {each.__name__: each for each in (shuffle, join, solver, waves, allreduce)}

if __name__ == "__main__":
    enter(0)
    run(JOBS[sys.argv[1]], int(sys.argv[2]), float(sys.argv[3]))
