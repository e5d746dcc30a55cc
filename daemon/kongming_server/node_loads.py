"""How loaded nodes are, for monitoring and for schedulers that have a place for such numbers.

They are worked out when they are asked for, and then for all who ask within a moment: a server that
nobody watches spends nothing on it, and one that many watch little more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric

from kongming.engine.engine import Engine
from kongming.records.node_load import AppSlowdown, NodeLoad
from kongming_server.metrics import FLEET_FAMILIES, Declared, Metrics
from kongming_server.services.pauses import with_pauses
from kongming_server.settings import Series

__all__ = ["WINDOW_S", "FleetSeries", "NodeLoads", "Watched"]

WINDOW_S = 900.0
"""What is averaged is of so many seconds: the longest window of Trimaran's load watcher."""

_KEPT_S = 5.0


class Watched(Protocol):
    """What the HTTP side needs to know of the fleet."""

    async def refresh(self) -> None: ...

    async def windows(self) -> Sequence[NodeLoad]: ...


class NodeLoads:
    """Asks the engine, and remembers the answer for a moment."""

    def __init__(
        self, engine: Engine, now: Callable[[], float], metrics: Metrics, bounds: Series
    ) -> None:
        self._engine = engine
        self._now = now
        self._series = FleetSeries(bounds)
        self._windows: tuple[float, Sequence[NodeLoad]] | None = None
        self._refreshed_at = -_KEPT_S
        metrics.registry.register(self._series)

    async def refresh(self) -> None:
        """Bring the series by node and by application up to date."""
        now = self._now()
        if now - self._refreshed_at >= _KEPT_S:
            self._refreshed_at = now
            nodes = await with_pauses(self._engine.node_loads(now))
            self._series.put(nodes, self._engine.app_slowdowns(now))

    async def windows(self) -> Sequence[NodeLoad]:
        """All nodes, with what was read in the last ``WINDOW_S``."""
        now = self._now()
        if self._windows is None or now - self._windows[0] >= _KEPT_S:
            self._windows = (now, await with_pauses(self._engine.node_loads(now, WINDOW_S)))
        return self._windows[1]


class FleetSeries:
    """A collector of Prometheus: the series by node and by application, of so many of each. Those
    are the first by name, so that they stay the same ones; how many are left out is told."""

    def __init__(self, bounds: Series) -> None:
        self._bounds = bounds
        self._nodes: Sequence[NodeLoad] = ()
        self._apps: Sequence[AppSlowdown] = ()

    def put(self, nodes: Sequence[NodeLoad], apps: Sequence[AppSlowdown]) -> None:
        self._nodes, self._apps = nodes, apps

    def collect(self) -> Iterator[Metric]:
        slowdown, age, assignments, app_slowdown, left_out = map(_family, FLEET_FAMILIES)
        nodes, apps = self._nodes[: self._bounds.nodes], self._apps[: self._bounds.apps]
        for node in nodes:
            for resource, ratio in node.slowdown.items():
                slowdown.add_metric((node.name, resource), ratio)
            if node.fingerprint_age_s is not None:
                age.add_metric((node.name,), node.fingerprint_age_s)
            assignments.add_metric((node.name,), node.assignments)
        for app in apps:
            for of in ("least", "median", "greatest"):
                app_slowdown.add_metric((app.app, app.placement, of), getattr(app, of))
        left_out.add_metric(("node",), len(self._nodes) - len(nodes))
        left_out.add_metric(("app",), len(self._apps) - len(apps))
        yield from (slowdown, age, assignments, app_slowdown, left_out)


def _family(declared: Declared) -> GaugeMetricFamily:
    return GaugeMetricFamily(declared.name, declared.help, labels=declared.labels)
