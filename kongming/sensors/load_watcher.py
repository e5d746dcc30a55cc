"""The document of Trimaran's load watcher: what ``GET /watcher`` answers.

Shape: paypal/load-watcher, pkg/watcher/watcher.go (WatcherMetrics). Its reader decodes as many keys
of an object as it knows and no more, so an object here has exactly those of its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kongming.records.node_load import NodeLoad, Window

__all__ = ["document"]

_TYPES = {"cpu": "CPU", "memory": "Memory"}
"""Types of metrics that plugins of Trimaran look for, by our resource."""


def document(loads: Iterable[NodeLoad], now: float, window_s: float) -> Mapping[str, Any]:
    """Build the answer about nodes read in the last ``window_s`` (seconds) before ``now`` (unix
    seconds).

    A value is a percentage: the share of its time that a program loses to its neighbours by what
    they do to that resource.
    """
    nodes: dict[str, Any] = {}
    for load in loads:
        metrics = [
            metric
            for resource, kind in _TYPES.items()
            if resource in load.windows
            for metric in _metrics(resource, kind, load.windows[resource])
        ]
        if metrics:
            nodes[load.name] = {"metrics": metrics, "tags": {}, "metadata": {}}
    end = int(now)
    window = {"duration": f"{window_s / 60:.0f}m", "start": end - int(window_s), "end": end}
    return {
        "timestamp": end,
        "window": window,
        "source": "kongming",
        "data": {"NodeMetricsMap": nodes},
    }


def _metrics(resource: str, kind: str, window: Window) -> list[dict[str, Any]]:
    values = {"AVG": window.mean, "STD": window.deviation}
    return [
        {
            "name": f"kongming.{resource}.lost_share",
            "type": kind,
            "operator": operator,
            "rollup": operator,
            "value": round(100.0 * value, 3),
        }
        for operator, value in values.items()
        if value is not None
    ]
