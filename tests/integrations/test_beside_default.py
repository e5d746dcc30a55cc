"""Where a burst of tasks runs by the framework's own placement and by the placer's, on real raylets
and workers under different CPU quotas of this host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.integrations import placed
from tests.integrations.quotas import QuotaNodes, different_nodes

pytestmark = [pytest.mark.thorough, pytest.mark.alone]

MODULES = {"ray": "ray", "dask": "distributed"}
SECONDS = 1.0
"""Of a task: a raylet under a tenth of a CPU takes a part of a second to accept one, in which a
node that has ended its own would take it."""


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuotaNodes]:
    # Three tasks one after the other on the calm node end sooner than one on the slowest.
    with different_nodes(tmp_path_factory.mktemp("nodes"), placed.QUOTAS, "tenth", 4.0) as nodes:
        yield nodes


@pytest.mark.parametrize("framework", placed.CLUSTERS)
def test_a_burst_avoids_the_slowest_node_beside_default_placement(
    framework: str, nodes: QuotaNodes
) -> None:
    """As many tasks as nodes: by default each node gets one."""
    pytest.importorskip(MODULES[framework])
    slowest_s: dict[str, float] = {}
    ran_on: dict[str, list[str]] = {}
    with placed.CLUSTERS[framework](nodes) as (submits, gather):
        # Each node has its worker started before anything counts; what ends sooner than that goes
        # to the others.
        seconds, started = SECONDS, set[str]()
        while started != set(placed.QUOTAS) and seconds < 20.0 * SECONDS:
            tasks = gather([submits["default"](seconds) for _ in placed.QUOTAS])
            started = {nodes.name(pid) for pid, _ in tasks}
            seconds *= 2.0
        for mode in placed.MODES:
            tasks = gather([submits[mode](SECONDS) for _ in placed.QUOTAS])
            ran_on[mode] = [nodes.name(pid) for pid, _ in tasks]
            slowest_s[mode] = max(wall_s for _, wall_s in tasks)
    assert set(ran_on["default"]) == set(placed.QUOTAS)
    assert "tenth" not in ran_on["placed"]
    assert ran_on["placed"].count("calm") > ran_on["default"].count("calm")
    assert slowest_s["placed"] < slowest_s["default"]
