"""Parallel programs on machines that are control groups: a worker process in each.

    parallel.py sort|kmeans|gradient|compress|pagerank|stencil MACHINES SCALE

A worker enters its machine by the file that KONGMING_MACHINE_PROCS names for it (without the
variable it is a process like any other). The driver runs on the first machine.
"""

from __future__ import annotations

import lzma
import os
import sys
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

WORDS = 1_500_000
POINTS = 60_000
ROWS = 240_000
ROUNDS = 6
LETTERS = 3_600_000
PAGES, LINKS = 400_000, 9_000_000
SIDE = 2_400

Work = Callable[[Connection, int, int, float], None]


def enter(machine: int) -> None:
    """Move this process to its machine."""
    files = os.environ.get("KONGMING_MACHINE_PROCS", "").split(":")
    if files != [""]:
        Path(files[machine]).write_text(f"{os.getpid()}\n")


def start(work: Work, machines: int, scale: float) -> list[Connection]:
    """A worker on each machine, and the pipes to them."""
    context = get_context("fork")
    pipes = []
    for machine in range(machines):
        ours, theirs = context.Pipe()
        context.Process(
            target=_worker, args=(work, theirs, machine, machines, scale), daemon=True
        ).start()
        pipes.append(ours)
    return pipes


def _worker(work: Work, pipe: Connection, machine: int, machines: int, scale: float) -> None:
    enter(machine)
    work(pipe, machine, machines, scale)


def sort(machines: int, scale: float) -> None:
    """Each worker sorts its part; the driver merges."""
    parts = [pipe.recv() for pipe in start(_sort_part, machines, scale)]
    merged = np.concatenate(parts)
    merged.sort(kind="stable")
    assert bool((np.diff(merged[:1000]) >= 0).all())


def _sort_part(pipe: Connection, machine: int, machines: int, scale: float) -> None:
    random = np.random.default_rng(machine)
    keys = random.random(int(WORDS * scale / machines))
    order = sorted(keys.tolist())
    pipe.send(np.array(order))


def kmeans(machines: int, scale: float) -> None:
    """Workers assign their points to centres; the driver averages, some rounds long."""
    centres = np.random.default_rng(0).random((12, 16))
    pipes = start(_kmeans_part, machines, scale)
    for _ in range(ROUNDS):
        for pipe in pipes:
            pipe.send(centres)
        sums, counts = zip(*(pipe.recv() for pipe in pipes), strict=True)
        centres = np.sum(sums, axis=0) / np.maximum(np.sum(counts, axis=0), 1)[:, None]


def _kmeans_part(pipe: Connection, machine: int, machines: int, scale: float) -> None:
    points = np.random.default_rng(machine).random((int(POINTS * scale / machines), 16))
    for _ in range(ROUNDS):
        centres = pipe.recv()
        far = ((points[:, None, :] - centres[None]) ** 2).sum(axis=2)
        nearest = far.argmin(axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        pipe.send((sums, np.bincount(nearest, minlength=len(centres))))


def gradient(machines: int, scale: float) -> None:
    """Least squares by gradient descent; the gradients are summed by the driver."""
    weights = np.zeros(64)
    pipes = start(_gradient_part, machines, scale)
    for _ in range(4 * ROUNDS):
        for pipe in pipes:
            pipe.send(weights)
        weights = weights - 0.1 * sum(pipe.recv() for pipe in pipes) / machines


def _gradient_part(pipe: Connection, machine: int, machines: int, scale: float) -> None:
    random = np.random.default_rng(machine)
    A = random.random((int(ROWS * scale / machines), 64))
    y = A @ random.random(64)
    for _ in range(4 * ROUNDS):
        weights = pipe.recv()
        pipe.send(2.0 * (A.T @ (A @ weights - y)) / max(len(A), 1))


def compress(machines: int, scale: float) -> None:
    """Each worker compresses its part of a text, as xz does; the driver gathers the results."""
    for pipe in start(_compress_part, machines, scale):
        assert lzma.decompress(pipe.recv()[:], format=lzma.FORMAT_XZ)


def _compress_part(pipe: Connection, machine: int, machines: int, scale: float) -> None:
    random = np.random.default_rng(machine)
    letters = random.integers(97, 123, (20_000, 8), dtype=np.uint8)
    letters[:, 7] = 32
    words = np.minimum(random.zipf(1.3, int(LETTERS * scale / machines / 8)), len(letters)) - 1
    pipe.send(lzma.compress(letters[words].tobytes(), preset=6))


def pagerank(machines: int, scale: float) -> None:
    """Workers follow their links from page to page; the driver adds up the ranks."""
    ranks = np.full(PAGES, 1.0 / PAGES)
    pipes = start(_pagerank_part, machines, scale)
    for _ in range(2 * ROUNDS):
        for pipe in pipes:
            pipe.send_bytes(ranks.tobytes())
        received = sum(np.frombuffer(pipe.recv_bytes()) for pipe in pipes)
        ranks = 0.15 / PAGES + 0.85 * received / max(float(np.sum(received)), 1e-12)


def _pagerank_part(pipe: Connection, machine: int, machines: int, scale: float) -> None:
    random = np.random.default_rng(machine)
    links = int(LINKS * scale / machines)
    source, target = random.integers(0, PAGES, (2, links), dtype=np.int32)
    for _ in range(2 * ROUNDS):
        ranks = np.frombuffer(pipe.recv_bytes())
        pipe.send_bytes(np.bincount(target, weights=ranks[source], minlength=PAGES).tobytes())


def stencil(machines: int, scale: float) -> None:
    """Heat on a plate that is cut into strips; neighbours' edges go by the driver."""
    pipes = start(_stencil_part, machines, scale)
    for _ in range(4 * ROUNDS):
        edges = [pipe.recv() for pipe in pipes]
        for i, pipe in enumerate(pipes):
            above = edges[i - 1][1] if i else edges[i][0]
            below = edges[i + 1][0] if i + 1 < machines else edges[i][1]
            pipe.send((above, below))


def _stencil_part(pipe: Connection, machine: int, machines: int, scale: float) -> None:
    heat = np.random.default_rng(machine).random((int(SIDE * scale / machines) + 2, SIDE))
    for _ in range(4 * ROUNDS):
        pipe.send((heat[1].copy(), heat[-2].copy()))
        heat[0], heat[-1] = pipe.recv()
        heat[1:-1, 1:-1] = 0.25 * (
            heat[:-2, 1:-1] + heat[2:, 1:-1] + heat[1:-1, :-2] + heat[1:-1, 2:]
        )


JOBS = {each.__name__: each for each in (sort, kmeans, gradient, compress, pagerank, stencil)}

if __name__ == "__main__":
    enter(0)
    JOBS[sys.argv[1]](int(sys.argv[2]), float(sys.argv[3]))
