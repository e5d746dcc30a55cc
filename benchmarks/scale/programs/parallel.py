"""Parallel programs on machines that are control groups: a worker process in each.

    parallel.py sort|kmeans|gradient MACHINES SCALE

A worker enters its machine by the file that KONGMING_MACHINE_PROCS names for it (without the
variable it is a process like any other). The driver runs on the first machine.
"""

from __future__ import annotations

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
    whole = np.concatenate(parts)
    whole.sort(kind="stable")
    assert bool((np.diff(whole[:1000]) >= 0).all())


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


if __name__ == "__main__":
    enter(0)
    {"sort": sort, "kmeans": kmeans, "gradient": gradient}[sys.argv[1]](
        int(sys.argv[2]), float(sys.argv[3])
    )
