"""All metrics by OpenTelemetry's protocol (OTLP): those of /metrics, pushed instead of scraped.

It needs the extra ``otel``. Headers and authorities are those of OpenTelemetry's own variables
(``OTEL_EXPORTER_OTLP_HEADERS``, ``OTEL_EXPORTER_OTLP_CERTIFICATE``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

from kongming import __version__
from kongming.records.errors import InputError
from kongming_server.configuration.settings import Otel
from kongming_server.monitoring.metrics import DECLARED, FLEET_FAMILIES, Metrics

__all__ = ["Pusher", "metrics_data"]

log = logging.getLogger(__name__)

_POINTS = 2000
"""Points of one message: gRPC receivers take 4 MiB."""

_UNITS = {metric.name: metric.unit for metric in (*DECLARED, *FLEET_FAMILIES)}
_UCUM = {"s": "s", "ratio": "1", "": "1"}
"""Units that UCUM has a word for; it has things that are counted in braces."""


class Pusher:
    """Pushes every ``otel.period_s`` until it is closed; what fails is pushed again the next time,
    since all values are cumulative.

    Raises:
        InputError: the packages are not installed.
    """

    def __init__(
        self, settings: Otel, metrics: Metrics, refresh: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        except ImportError as error:
            raise InputError(
                "needs packages that are not installed.",
                field="otel.endpoint",
                value=settings.endpoint,
                hint="Install them: pip install 'kongming[server,otel]'",
            ) from error
        # It says so itself each time, and goes on.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter = OTLPMetricExporter(
            endpoint=settings.endpoint, max_export_batch_size=_POINTS
        )
        self._settings = settings
        self._metrics = metrics
        self._refresh = refresh
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kongming-otel")
        self._started_at = time.time_ns()
        self._failed = False

    async def push(self) -> None:
        """Push once, and say in the log when that begins or ceases to fail."""
        await self._refresh()
        families = list(self._metrics.registry.collect())
        loop = asyncio.get_running_loop()
        failed = not await loop.run_in_executor(self._executor, self._export, families)
        if failed and not self._failed:
            log.warning("Metrics cannot be pushed to %s; going on.", self._settings.endpoint)
        elif self._failed and not failed:
            log.info("Metrics are pushed to %s again.", self._settings.endpoint)
        self._failed = failed

    def _export(self, families: Sequence[Family]) -> bool:
        """Export in the executor's thread: a large fleet has thousands of points."""
        data = metrics_data(families, self._started_at, time.time_ns())
        return bool(self._exporter.export(data).name == "SUCCESS")

    async def close(self) -> None:
        await asyncio.to_thread(self._exporter.shutdown)
        self._executor.shutdown(wait=False)


def metrics_data(families: Iterable[Family], started_ns: int, now_ns: int) -> Any:
    """Metrics of Prometheus as an ``opentelemetry.sdk.metrics.export.MetricsData``.

    Counters become monotonic cumulative sums, histograms explicit ones, all others gauges. Names
    stay as they are at /metrics, so that rules and dashboards hold for both.
    """
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = []
    for family in families:
        name, data = family.name, _data(family, started_ns, now_ns)
        if isinstance(data, export.Sum):
            name += "_total"
        if data.data_points:
            metrics.append(export.Metric(name, family.documentation, _unit(name), data))
    resource = Resource({"service.name": "kongming-server", "service.version": __version__})
    scope = export.ScopeMetrics(InstrumentationScope("kongming", __version__), metrics, "")
    return export.MetricsData([export.ResourceMetrics(resource, [scope], "")])


def _data(family: Family, started_ns: int, now_ns: int) -> Any:
    from opentelemetry.sdk.metrics import export

    cumulative = export.AggregationTemporality.CUMULATIVE
    if family.type == "histogram":
        histograms = _histograms(family.samples, started_ns, now_ns)
        return export.Histogram(
            [export.HistogramDataPoint(**point) for point in histograms], cumulative
        )
    numbers = [
        export.NumberDataPoint(
            attributes=sample.labels,
            start_time_unix_nano=started_ns,
            time_unix_nano=now_ns,
            value=float(sample.value),
        )
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    return (
        export.Sum(numbers, cumulative, True) if family.type == "counter" else export.Gauge(numbers)
    )


def _histograms(
    samples: Sequence[Sample], started_ns: int, now_ns: int
) -> Iterable[Mapping[str, Any]]:
    """Prometheus counts all up to a bound, OpenTelemetry those between two bounds."""
    series: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        held = series.setdefault(tuple(labels.items()), {"labels": labels, "buckets": []})
        if sample.name.endswith("_bucket"):
            held["buckets"].append((float(sample.labels["le"]), int(sample.value)))
        else:
            held[sample.name.rpartition("_")[2]] = sample.value
    for held in series.values():
        buckets = sorted(held["buckets"])
        counts = [0, *(count for _, count in buckets)]
        yield {
            "attributes": held["labels"],
            "start_time_unix_nano": started_ns,
            "time_unix_nano": now_ns,
            "count": int(held["count"]),
            "sum": float(held["sum"]),
            "bucket_counts": [later - earlier for earlier, later in pairwise(counts)],
            "explicit_bounds": [bound for bound, _ in buckets[:-1]],
            # Prometheus does not know them.
            "min": None,
            "max": None,
        }


def _unit(name: str) -> str:
    unit = _UNITS.get(name, "")
    if name not in _UNITS and name.endswith(("_seconds", "_seconds_total")):
        unit = "s"
    return "By" if name.endswith("_bytes") else _UCUM.get(unit, f"{{{unit}}}")
