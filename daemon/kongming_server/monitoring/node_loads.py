"""Loads of nodes, for monitoring and for schedulers that have a place for such numbers.

They are worked out when they are asked for, and then for all who ask within a moment: a server that
is not watched spends nothing on it, and one that many watch little more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric

from kongming.engine.engine import Engine
from kongming.records.judgement import NOT_JUDGED, Verdict
from kongming.records.node_load import AppSlowdown, NodeLoad
from kongming_server.configuration.settings import Series
from kongming_server.monitoring.metrics import FLEET_FAMILIES, Declared, Metrics
from kongming_server.running.pauses import with_pauses

__all__ = ["WINDOW_S", "FleetSeries", "NodeLoads", "Watched"]

WINDOW_S = 900.0
"""What is averaged is of so many seconds: the longest window of Trimaran's load watcher."""

_KEPT_S = 5.0


class Watched(Protocol):
    """Parts that the HTTP side needs to know of the fleet."""

    async def refresh(self) -> None: ...

    async def windows(self) -> Sequence[NodeLoad]: ...


class NodeLoads:
    """Asks the engine, and remembers the answer for a moment."""

    def __init__(
        self, engine: Engine, now: Callable[[], float], metrics: Metrics, bounds: Series
    ) -> None:
        self._engine = engine
        self._now = now
        self._bounds = bounds
        self._series = FleetSeries()
        self._windows: tuple[float, Sequence[NodeLoad]] | None = None
        self._asking, self._refreshing = asyncio.Lock(), asyncio.Lock()
        self._refreshed_at = -_KEPT_S
        metrics.registry.register(self._series)

    async def refresh(self) -> None:
        """Bring the series by node and by application up to date."""
        # Whoever asks at the same time waits for the same answer.
        async with self._refreshing:
            now = self._now()
            if now - self._refreshed_at < _KEPT_S:
                return
            engine, series, bounds = self._engine, self._series, self._bounds
            nodes = await with_pauses(engine.node_loads(now, most=bounds.nodes))
            apps = await with_pauses(engine.app_slowdowns(now, bounds.apps))
            series.nodes, series.apps = nodes, apps
            series.profiles = engine.profile_verdicts(bounds.apps)
            series.left_out = {
                "node": max(0, engine.node_count - bounds.nodes),
                "app": max(0, engine.models_in_service - bounds.apps),
            }
            self._refreshed_at = now

    async def windows(self) -> Sequence[NodeLoad]:
        """All nodes, with what was read in the last ``WINDOW_S``."""
        async with self._asking:
            now = self._now()
            if self._windows is None or now - self._windows[0] >= _KEPT_S:
                self._windows = (now, await with_pauses(self._engine.node_loads(now, WINDOW_S)))
            return self._windows[1]


class FleetSeries:
    """A collector of Prometheus: the series by node and by application, of so many of each. Those
    are the first by name, so that they stay the same ones; ``left_out`` counts the others."""

    def __init__(self) -> None:
        self.left_out = {"node": 0, "app": 0}
        self.nodes: Sequence[NodeLoad] = ()
        self.apps: Sequence[AppSlowdown] = ()
        self.profiles: Sequence[tuple[str, str, Verdict | None]] = ()

    def collect(self) -> Iterator[Metric]:
        families = list(map(_family, FLEET_FAMILIES))
        slowdown, age, assignments, app_slowdown, profile, left_out = families
        for node in self.nodes:
            for resource, ratio in node.slowdown.items():
                slowdown.add_metric((node.name, resource), ratio)
            if node.fingerprint_age_s is not None:
                age.add_metric((node.name,), node.fingerprint_age_s)
            assignments.add_metric((node.name,), node.assignments)
        for app in self.apps:
            for of in ("least", "median", "greatest"):
                app_slowdown.add_metric((app.app, app.placement, of), getattr(app, of))
        for name, placement, verdict in self.profiles:
            profile.add_metric((name, placement, verdict or NOT_JUDGED), 1)
        for kind, count in self.left_out.items():
            left_out.add_metric((kind,), count)
        yield from families


def _family(declared: Declared) -> GaugeMetricFamily:
    return GaugeMetricFamily(declared.name, declared.help, labels=declared.labels)
