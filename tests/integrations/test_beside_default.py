"""Where a burst of tasks runs by the framework's own placement and by the placer's, on real raylets
and workers under different CPU quotas of this host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.integrations import placed
from tests.integrations.quotas import QuotaNodes, impossible

pytestmark = [pytest.mark.thorough, pytest.mark.alone]

MODULES = {"ray": "ray", "dask": "distributed"}
SECONDS = 0.3


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuotaNodes]:
    folder = tmp_path_factory.mktemp("nodes")
    why = impossible(folder)
    if why is not None:
        pytest.skip(why)
    nodes = QuotaNodes(folder, placed.QUOTAS)
    try:
        nodes.start()
        slowdowns = nodes.slowdowns()
        # Three tasks one after the other on the calm node end sooner than one on the slowest.
        if slowdowns["tenth"] < 4.0 * slowdowns["calm"]:
            pytest.skip("a quota makes no difference here: others take more than it does")
        yield nodes
    finally:
        nodes.close()


@pytest.mark.parametrize("framework", placed.CLUSTERS)
def test_a_burst_avoids_the_slowest_node_beside_default_placement(
    framework: str, nodes: QuotaNodes
) -> None:
    """As many tasks as nodes: by default each node gets one."""
    pytest.importorskip(MODULES[framework])
    slowest_s: dict[str, float] = {}
    ran_on: dict[str, list[str]] = {}
    with placed.CLUSTERS[framework](nodes) as (submits, gather):
        for mode in placed.MODES:
            # Each node has its worker started before anything counts.
            gather([submits["default"](0.01) for _ in placed.QUOTAS])
            tasks = gather([submits[mode](SECONDS) for _ in placed.QUOTAS])
            ran_on[mode] = [nodes.name(pid) for pid, _ in tasks]
            slowest_s[mode] = max(wall_s for _, wall_s in tasks)
    assert set(ran_on["default"]) == set(placed.QUOTAS)
    assert "tenth" not in ran_on["placed"]
    assert ran_on["placed"].count("calm") > ran_on["default"].count("calm")
    assert slowest_s["placed"] < slowest_s["default"]
