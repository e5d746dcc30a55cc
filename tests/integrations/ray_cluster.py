"""A Ray cluster of several raylets on this machine."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.cluster_utils import Cluster

from kongming.integrations.ray import LABEL


@dataclass(frozen=True)
class RayCluster:
    """``nodes`` are raylets by the name of their node."""

    nodes: Mapping[str, Any]

    def pid(self, name: str) -> int:
        (started,) = self.nodes[name].all_processes["raylet"]
        pid: int = started.process.pid
        return pid

    def name(self, node_id: str) -> str:
        return next(name for name, node in self.nodes.items() if node.node_id == node_id)


@contextmanager
def ray_cluster(*names: str) -> Iterator[RayCluster]:
    """A head without CPUs, and a raylet with one CPU for each node, which its label names."""
    with warnings.catch_warnings():
        # Of its own making: files and processes that it closes late.
        warnings.simplefilter("ignore")
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20}
        cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        try:
            nodes = {
                name: cluster.add_node(
                    num_cpus=1, labels={LABEL: name}, object_store_memory=80 << 20
                )
                for name in names
            }
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            yield RayCluster(nodes)
        finally:
            ray.shutdown()
            cluster.shutdown()
