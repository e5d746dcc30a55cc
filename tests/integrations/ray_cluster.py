"""A Ray cluster of several raylets on this machine, started by a process of its own.

As a program (``python -m tests.integrations.ray_cluster NAME...``) it is that process: Ray starts
what it needs by forks of Python, which a process with threads of gRPC does not always survive.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.server.process import python_path


@dataclass(frozen=True)
class RayCluster:
    """``raylets`` are (Ray's node id, process) by the name of their node."""

    raylets: Mapping[str, tuple[str, int]]

    def pid(self, name: str) -> int:
        return self.raylets[name][1]

    def name(self, node_id: str) -> str:
        return next(name for name, raylet in self.raylets.items() if raylet[0] == node_id)


@contextmanager
def ray_cluster(*names: str) -> Iterator[RayCluster]:
    """A head without CPUs, and a raylet with one CPU for each node, which its label names. This
    process is a driver meanwhile."""
    import ray

    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integrations.ray_cluster", *names],
        env=os.environ | {"PYTHONPATH": python_path(), "RAY_USAGE_STATS_ENABLED": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process, warnings.catch_warnings():
        # Of Ray's making: files that it closes late.
        warnings.simplefilter("ignore")
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        try:
            ray.init(address=started["address"], log_to_driver=False, logging_level="ERROR")
            yield RayCluster({name: tuple(raylet) for name, raylet in started["raylets"].items()})
        finally:
            ray.shutdown()
            # The end of its input ends it.
            process.communicate()


def _start(names: list[str]) -> None:
    from ray.cluster_utils import Cluster

    from kongming.integrations.ray import LABEL

    small = {"object_store_memory": 80 << 20}
    head = {"num_cpus": 0, "include_dashboard": False, **small}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        raylets = {}
        for name in names:
            node = cluster.add_node(num_cpus=1, labels={LABEL: name}, **small)
            (raylet,) = node.all_processes["raylet"]
            raylets[name] = (node.node_id, raylet.process.pid)
        print(json.dumps({"address": cluster.address, "raylets": raylets}), flush=True)  # noqa: T201
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    # A short path: those of sockets below it have a bound.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:
        os.environ["RAY_TMPDIR"] = name
        _start(sys.argv[1:])
