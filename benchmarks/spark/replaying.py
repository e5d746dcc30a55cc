"""How fast an application of a million tasks is estimated at 32 sizes.

    python -m benchmarks.spark.replaying [--tasks N] [--sizes N] [NAME...]

Prints one JSON document: for each of three made-up applications (one stage; a thousand jobs of two
to six stages, one after the other; the same jobs in eight threads that share the slots) the seconds
on the clock and of the CPU, those of the processes that it starts with them, from the records in
memory to the estimates at 1 to 32 times two executors of four cores, with every correction. Target:
30 s on two cores, hence 60 s of the CPU where other work shares the machine.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import time
from collections.abc import Callable, Sequence

import numpy as np

from kongming.spark.application import (
    SUCCEEDED,
    TASK,
    Application,
    Executor,
    Job,
    Rdd,
    StageAttempt,
)
from kongming.spark.estimation import Estimator, Size

EXECUTORS, CORES = 16, 4

TARGET_S, TARGET_CORES = 30.0, 2

Plan = list[list[tuple[int, tuple[int, ...]]]]
"""The stages of each job: tasks, and the places of the parents in the job."""


class _Clock:
    """Free slots of a cluster; tasks go to the slot that is free first."""

    def __init__(self) -> None:
        self.slots = [(0.0, slot % EXECUTORS) for slot in range(EXECUTORS * CORES)]

    def run(self, ready_s: float, lengths: Sequence[float]) -> np.ndarray:
        rows = np.zeros(len(lengths), TASK)
        launches, executors = [], []
        for length in lengths:
            free, executor = self.slots[0]
            launch = max(free, ready_s)
            heapq.heapreplace(self.slots, (launch + length, executor))
            launches.append(launch)
            executors.append(executor)
        rows["launch_s"], rows["executor"] = launches, executors
        rows["finish_s"] = rows["launch_s"] + lengths
        rows["partition"] = np.arange(len(rows))
        rows["status"] = SUCCEEDED
        span = rows["finish_s"] - rows["launch_s"]
        rows["deserialize_s"], rows["gc_s"] = 0.02 * span, 0.05 * span
        rows["compute_s"] = span - rows["deserialize_s"] - rows["gc_s"]
        return rows


def application(name: str, plan: Plan, threads: int, seed: int = 0) -> Application:
    """Run a plan: a thread's jobs start a tenth of a second after each other."""
    random = np.random.default_rng(seed)
    clock = _Clock()
    jobs: list[Job] = []
    stages: list[StageAttempt] = []
    free = [0.5] * threads
    for number, shape in enumerate(plan):
        thread = number % threads
        begin = free[thread] + 0.1
        own: list[StageAttempt] = []
        for place, (count, parents) in enumerate(shape):
            ends = [own[parent].completed_s or 0.0 for parent in parents]
            ready = max([begin, *ends])
            lengths = random.lognormal(-1.0, 0.4, count)
            tasks = clock.run(ready, lengths.tolist())
            tasks["input_bytes" if not parents else "shuffle_remote_bytes"] = 1e6 * lengths
            own.append(
                StageAttempt(
                    stage=len(stages) + place,
                    attempt=0,
                    name=f"stage {place}",
                    parents=tuple(len(stages) + parent for parent in parents),
                    task_count=count,
                    submitted_s=ready,
                    completed_s=float(tasks["finish_s"].max()),
                    tasks=tasks,
                    rdds=(Rdd(len(stages) + place, "MapPartitionsRDD", count),),
                )
            )
        stages += own
        free[thread] = max(stage.completed_s or 0.0 for stage in own)
        jobs.append(
            Job(
                id=number,
                stages=tuple(stage.stage for stage in own),
                submitted_s=begin,
                completed_s=free[thread],
                succeeded=True,
            )
        )
    end = max(free) + 0.5
    return Application(
        id=f"app-{name}",
        attempt=None,
        name=name,
        user="someone",
        spark_version="4.0.0",
        started_ms=0,
        ended_s=end,
        last_s=end,
        settings={},
        executors=tuple(
            Executor(str(k), f"host{k}", CORES, 0.0, storage_bytes=1e9) for k in range(EXECUTORS)
        ),
        jobs=tuple(jobs),
        stages=tuple(stages),
        executions=(),
    )


def many_stages(tasks: int, jobs: int = 1000) -> Plan:
    """Jobs of two to six stages, each with one or two parents among those before it."""
    random = np.random.default_rng(1)
    sizes = [int(random.integers(2, 7)) for _ in range(jobs)]
    each = max(tasks // sum(sizes), 1)
    return [
        [
            (each, tuple({int(random.integers(place)), place - 1}) if place else ())
            for place in range(count)
        ]
        for count in sizes
    ]


APPLICATIONS: dict[str, Callable[[int], Application]] = {
    "one stage": lambda tasks: application("one stage", [[(tasks, ())]], 1),
    "many stages": lambda tasks: application("many stages", many_stages(tasks), 1),
    "threads": lambda tasks: application("threads", many_stages(tasks), 8),
}


def cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measured(run: Application, sizes: Sequence[int]) -> dict[str, object]:
    wall, cpu = time.monotonic(), cpu_seconds()
    estimator = Estimator(run)
    estimator.self_check()
    learned = cpu_seconds()
    estimates = estimator.estimates([Size(size) for size in sizes])
    wall, done = time.monotonic() - wall, cpu_seconds()
    assert len(estimates) == len(sizes)
    return {
        "tasks": sum(len(stage.tasks) for stage in run.stages),
        "stages": len(run.stages),
        "wall_s": wall,
        "cpu_s": {"learning": learned - cpu, "estimates": done - learned},
        "target": {"wall_s": TARGET_S, "cpu_s": TARGET_S * TARGET_CORES},
        "met": {"wall_s": wall <= TARGET_S, "cpu_s": done - cpu <= TARGET_S * TARGET_CORES},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark.replaying", description=__doc__
    )
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--sizes", type=int, default=32)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of " + ", ".join(APPLICATIONS))
    options = parser.parse_args()
    sizes = [2 * (k + 1) for k in range(options.sizes)]
    document = {
        name: measured(APPLICATIONS[name](options.tasks), sizes)
        for name in options.names or APPLICATIONS
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
