"""Tasks by default placement and by predictions, turn by turn, on nodes under CPU quotas.

    python -m benchmarks.integrations.placed ray [--rounds 5] [--seconds 0.3] [--batch 12]
    python -m benchmarks.integrations.placed dask

The nodes are raylets or Dask workers of this machine, with one task at a time each: one without a
limit, one under a third of a CPU and one under a tenth. A server knows each by a fingerprint that
the real command took under its quota. Prints one JSON document; as root, for the control groups.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integrations.quotas import QuotaNodes, impossible

QUOTAS = {"calm": None, "third": 0.33, "tenth": 0.1}
MODES = ("default", "placed")

Submit = Callable[[float], Any]
"""Starts one task that computes for so many CPU seconds; what it returns goes to ``Gather``."""
Gather = Callable[[Sequence[Any]], list[tuple[int, float]]]
"""Waits for the tasks; (process, wall seconds) of each."""


def burn(seconds: float) -> tuple[int, float]:
    """Compute for so many CPU seconds; return this process and how long it took."""
    import os
    import time

    began, until = time.perf_counter(), time.process_time() + seconds
    while time.process_time() < until:
        sum(range(1000))
    return os.getpid(), time.perf_counter() - began


@contextmanager
def on_ray(nodes: QuotaNodes) -> Iterator[tuple[dict[str, Submit], Gather]]:
    import ray

    from kongming.integrations.ray import RayPlacer
    from tests.integrations.ray_cluster import ray_cluster

    with ray_cluster(*QUOTAS) as cluster:
        for name in QUOTAS:
            nodes.enter(name, cluster.pid(name))
        task = ray.remote(num_cpus=1)(burn)
        with RayPlacer(nodes.server.grpc, app="burn", strict=True) as placer:
            submits = {
                "default": lambda seconds: task.remote(seconds),
                "placed": lambda seconds: placer.remote(task, seconds),
            }
            yield submits, ray.get


@contextmanager
def on_dask(nodes: QuotaNodes) -> Iterator[tuple[dict[str, Submit], Gather]]:
    from kongming.integrations.dask import DaskPlacer
    from tests.integrations.dask_cluster import dask_cluster

    with dask_cluster(nodes.folder, *QUOTAS, stealing=True) as cluster:
        for name in QUOTAS:
            nodes.enter(name, cluster.workers[name].pid)
        settings: Any = {"client": cluster.client, "allow_other_workers": False}
        with DaskPlacer(nodes.server.grpc, app="burn", strict=True, **settings) as placer:
            submits = {
                "default": lambda seconds: cluster.client.submit(burn, seconds, pure=False),
                "placed": lambda seconds: placer.submit(burn, seconds, pure=False),
            }
            yield submits, cluster.client.gather


CLUSTERS = {"ray": on_ray, "dask": on_dask}


def measure(
    submit: Submit, gather: Gather, seconds: float, batch: int
) -> tuple[list[tuple[int, float]], list[tuple[int, float]], float]:
    """Tasks one after the other, then as many at once; the last is how long these took in all."""
    single = [gather([submit(seconds)])[0] for _ in range(batch)]
    began = time.perf_counter()
    at_once = gather([submit(seconds) for _ in range(batch)])
    return single, at_once, time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cluster", choices=CLUSTERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="CPU seconds of a task")
    parser.add_argument("--batch", type=int, default=12, help="tasks of one turn")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        why = impossible(folder)
        if why is not None:
            print(f"There can be no CPU quotas here: {why}", file=sys.stderr)
            return 1
        nodes = QuotaNodes(folder, QUOTAS)
        try:
            nodes.start()
            with CLUSTERS[arguments.cluster](nodes) as (submits, gather):
                document = compare(submits, gather, arguments)
            document["predicted_slowdowns"] = nodes.slowdowns()
        finally:
            nodes.close()
    print(json.dumps(document, indent=2))
    return 0


def compare(
    submits: dict[str, Submit], gather: Gather, arguments: argparse.Namespace
) -> dict[str, Any]:
    rng = random.Random(0)
    # Both have their workers started before anything counts.
    for mode in MODES:
        gather([submits[mode](0.01) for _ in QUOTAS])
    single_s: dict[str, list[float]] = {mode: [] for mode in MODES}
    batch_s: dict[str, list[float]] = {mode: [] for mode in MODES}
    processes: dict[str, Counter[int]] = {mode: Counter() for mode in MODES}
    for _ in range(arguments.rounds):
        for mode in rng.sample(MODES, len(MODES)):
            single, at_once, took_s = measure(
                submits[mode], gather, arguments.seconds, arguments.batch
            )
            single_s[mode].append(statistics.fmean(wall for _, wall in single))
            batch_s[mode].append(took_s)
            processes[mode].update(pid for pid, _ in single + at_once)
    return {
        "cluster": arguments.cluster,
        "rounds": arguments.rounds,
        "task_cpu_seconds": arguments.seconds,
        "tasks": arguments.batch,
        "load_average": os.getloadavg()[0],
        "single": summary(single_s),
        "batch": summary(batch_s),
        "tasks_by_process": {mode: list(counts.values()) for mode, counts in processes.items()},
    }


def summary(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Medians over rounds; the ratio is the median of the ratios within a round."""
    pairs = zip(seconds["default"], seconds["placed"], strict=True)
    ratios = [default / placed for default, placed in pairs]
    return {f"{mode}_s": statistics.median(seconds[mode]) for mode in MODES} | {
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


if __name__ == "__main__":
    raise SystemExit(main())
