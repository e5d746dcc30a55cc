"""FAIR pools against a scheduler that looks at every stage for every task."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from kongming.spark.model.cluster import Cluster
from kongming.spark.model.replay import replay
from kongming.spark.model.workload import Workload, workload_of
from tests.spark.programs import Part, Program, Stage, run


def _ends(jobs: list[tuple[float, str, list[float]]], slots: int) -> list[float]:
    """When each job of (submission, pool, tasks) ends: the pool with the fewest running tasks gets
    the next slot, of several its first job."""
    free, running = [0.0] * slots, []
    left = [list(lengths) for _, _, lengths in jobs]
    ends = [0.0] * len(jobs)
    now = 0.0
    while any(left):
        slot = min(range(slots), key=free.__getitem__)
        now = max(now, free[slot])
        waiting = [k for k, (submitted, _, _) in enumerate(jobs) if left[k] and submitted <= now]
        if not waiting:
            now = min(submitted for k, (submitted, _, _) in enumerate(jobs) if left[k])
            continue
        running = [(end, pool) for end, pool in running if end > now]
        counts = {pool: sum(other == pool for _, other in running) for _, pool, _ in jobs}
        job = min(waiting, key=lambda k: (counts[jobs[k][1]], k))
        free[slot] = now + left[job].pop(0)
        running.append((free[slot], jobs[job][1]))
        ends[job] = max(ends[job], free[slot])
    return ends


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("pools", [1, 3, 12])
def test_the_pool_with_the_fewest_running_tasks_is_served(seed: int, pools: int) -> None:
    random = np.random.default_rng(seed)
    jobs = []
    for k in range(12):
        lengths = random.lognormal(0.0, 0.5, int(random.integers(1, 30))).tolist()
        jobs.append((0.01 * k + float(random.uniform(0.0, 0.01)), f"pool{k % pools}", lengths))
    parts = tuple(Part((Stage(tuple(lengths)),), gap=submitted) for submitted, _, lengths in jobs)
    # On so many slots that none waits: lengths and gaps as they are.
    settings = {"spark.scheduler.mode": "FAIR"}
    application = run(Program(parts, end=0.0, settings=settings), 400)
    application = replace(
        application,
        jobs=tuple(
            replace(job, pool=pool)
            for job, (_, pool, _) in zip(application.jobs, jobs, strict=True)
        ),
    )
    for slots in (1, 4, 9):
        replayed = replay(workload_of(application), Cluster(slots, 1))
        assert replayed.job_spans[:, 1] == pytest.approx(_ends(jobs, slots))


def _waiting(jobs: int, tasks: int) -> Workload:
    """Jobs that all wait at once."""
    parts = tuple(Part((Stage((1.0,) * tasks),), gap=0.001) for _ in range(jobs))
    settings = {"spark.scheduler.mode": "FAIR"}
    application = run(Program(parts, settings=settings), jobs * tasks)
    pools = tuple(replace(job, pool=f"pool{job.id}") for job in application.jobs)
    return workload_of(replace(application, jobs=pools))


def _cpu_s(workload: Workload) -> float:
    """CPU time of this thread: what else the machine does is not in it."""
    begun = time.thread_time()
    replay(workload, Cluster(16, 1))
    return time.thread_time() - begun


@pytest.mark.thorough
def test_a_task_costs_about_the_same_however_many_stages_wait() -> None:
    """As many tasks in two hundred jobs as in four. A search through all stages took eleven times
    as long."""
    many, few = _waiting(200, 10), _waiting(4, 500)
    seconds = [(_cpu_s(many), _cpu_s(few)) for _ in range(5)]
    of_many, of_few = map(min, zip(*seconds, strict=True))
    assert of_many < 5.0 * of_few
