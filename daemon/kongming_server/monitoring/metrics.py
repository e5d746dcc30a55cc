"""All metrics of the server, in one table with unit and meaning.

Times are in seconds, sizes in bytes; names end in their unit. What is labelled by node or by
application is bounded by the section ``series`` of the settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from kongming import __version__

_RPC_BUCKETS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 60.0),
)
_STORE_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Declared:
    """A line of the table. ``attribute`` of Metrics, ``name`` as it is exported."""

    attribute: str
    kind: Literal["counter", "gauge", "histogram"]
    name: str
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


FLEET_FAMILIES: tuple[Declared, ...] = tuple(
    Declared("", "gauge", *line)
    for line in (
        (
            *("kongming_server_node_slowdown_ratio", "ratio"),
            "Slowdown of the surrogates over the idle node, by resource: all, cpu, memory, io or "
            "network. Not there while it is not known: without a reference, or where the node is "
            "not ready or its fingerprint too old.",
            ("node", "resource"),
        ),
        (
            *("kongming_server_node_fingerprint_age_seconds", "s"),
            "Age of the newest fingerprint.",
            ("node",),
        ),
        (
            *("kongming_server_node_assignments", "assignments"),
            "Assignments that are reserved or bound there.",
            ("node",),
        ),
        (
            *("kongming_server_app_slowdown_ratio", "ratio"),
            "Predicted slowdown over the nodes that are ready: least, median or greatest.",
            ("app", "placement", "of"),
        ),
        (
            *("kongming_server_model_profile", ""),
            "1; the verdict on the profile that the model in service was trained on: good, usable, "
            "spoiled or not-judged (by an earlier version).",
            ("app", "placement", "verdict"),
        ),
        (
            *("kongming_server_series_left_out", "nodes, apps"),
            "Nodes and applications without series of their own, beyond series.nodes and "
            "series.apps.",
            ("kind",),
        ),
    )
)
"""Those by node and by application, which ``node_loads`` makes for each scrape."""

DECLARED: tuple[Declared, ...] = tuple(
    Declared(*line)
    for line in (
        ("build", "gauge", "kongming_server_build_info", "", "1; the version.", ("version",)),
        (
            *("ready", "gauge", "kongming_server_ready", ""),
            "1 where /readyz answers 200, else 0.",
        ),
        # Calls.
        (
            *("rpc_seconds", "histogram", "kongming_server_rpc_seconds", "s"),
            "Time that calls took, gRPC and HTTP; of a stream, how long it was open.",
            ("method",),
            _RPC_BUCKETS_S,
        ),
        (
            *("rpcs", "counter", "kongming_server_rpc_total", "calls"),
            "Calls that ended, by their status code.",
            ("method", "code"),
        ),
        (
            *("refused", "counter", "kongming_server_refused_total", "calls"),
            "Calls refused at the gate: unauthenticated, forbidden, or the limit that was reached.",
            ("reason",),
        ),
        (
            *("calls_at_work", "gauge", "kongming_server_calls_at_work", "calls"),
            "Unary calls being answered now; the limit is limits.queue.",
        ),
        (
            *("streams_open", "gauge", "kongming_server_streams_open", "streams"),
            "Streams open now; the limit is limits.streams.",
        ),
        # Nodes and what they report.
        (
            *("nodes", "gauge", "kongming_server_nodes", "nodes"),
            "Nodes by state: ready (with or without an idle reference), silent, suspect, stored.",
            ("state",),
        ),
        (
            *("assignments", "gauge", "kongming_server_assignments", "assignments"),
            "Assignments by state: reserved or bound.",
            ("state",),
        ),
        (
            *("accepted", "counter", "kongming_server_records_accepted_total", "records"),
            "Reported records that were kept, by kind: fingerprint, run or signature.",
            ("kind",),
        ),
        (
            *("duplicates", "counter", "kongming_server_records_duplicate_total", "records"),
            "Reported records that were known before, by kind.",
            ("kind",),
        ),
        (
            *("rejected", "counter", "kongming_server_records_rejected_total", "records"),
            "Reported records that are implausible or malformed, by kind.",
            ("kind",),
        ),
        (
            *("ingest_waiting", "gauge", "kongming_server_ingest_waiting", "records"),
            "Reported records that wait for the store.",
        ),
        (
            *("ingest_limit", "gauge", "kongming_server_ingest_limit", "records"),
            "Those that may wait: ingest.queue_records.",
        ),
        (
            *("oldest_fingerprint", "gauge", "kongming_server_oldest_fingerprint_seconds", "s"),
            "Age of the fingerprint of a ready node that is oldest for its time to live.",
        ),
        (
            *("fingerprint_ttl", "gauge", "kongming_server_fingerprint_ttl_seconds", "s"),
            "Time to live of that fingerprint, which is learned from how its node changes.",
        ),
        # Predictions.
        (
            *("matrix_staleness", "gauge", "kongming_server_matrix_staleness_seconds", "s"),
            "How far the matrix of predictions may lag behind the newest fingerprint.",
        ),
        (
            *("matrix_refresh", "histogram", "kongming_server_matrix_refresh_seconds", "s"),
            "Time of one turn of refreshing the matrix.",
            (),
            _RPC_BUCKETS_S,
        ),
        (
            *("matrix_cells", "gauge", "kongming_server_matrix_cells", "predictions"),
            "Predictions held in the matrix: applications by domains.",
        ),
        (
            *("predictions", "counter", "kongming_server_predictions_total", "predictions"),
            "Predictions given, by basis: model or node-only.",
            ("basis",),
        ),
        (
            *("doubtful", "counter", "kongming_server_predictions_doubtful_total", "predictions"),
            "Predictions given outside the training runs (extrapolating), at their edge (at_least) "
            "or with an interval that is not calibrated (uncalibrated).",
            ("reason",),
        ),
        (
            *("models", "gauge", "kongming_server_models_in_service", "models"),
            "Models in service, one for each application and placement.",
        ),
        # The closed loop, by application.
        (
            *("realised_runs", "gauge", "kongming_server_realised_runs", "runs"),
            "Finished runs that were compared with what had been predicted for them.",
            ("app",),
        ),
        (
            *("realised_error", "gauge", "kongming_server_realised_error_ratio", "ratio"),
            "Median of |predicted - measured| / measured over finished runs.",
            ("app",),
        ),
        (
            *("realised_coverage", "gauge", "kongming_server_realised_coverage_ratio", "ratio"),
            "Share of finished runs within their interval.",
            ("app",),
        ),
        (
            *("drifted", "gauge", "kongming_server_model_drifted", ""),
            "1 where recent errors differ from the model's validation beyond chance.",
            ("app",),
        ),
        # Training.
        (
            *("training", "gauge", "kongming_server_training_operations", "operations"),
            "Trainings by state: queued or running.",
            ("state",),
        ),
        (
            *("trained", "counter", "kongming_server_trained_total", "models"),
            "Trainings of one application, by outcome: promoted, kept or failed.",
            ("outcome",),
        ),
        (
            *("training_seconds", "histogram", "kongming_server_training_seconds", "s"),
            "Time of training one application.",
            (),
            (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0),
        ),
        # The store.
        (
            *("store_seconds", "histogram", "kongming_server_store_seconds", "s"),
            "Time of one piece of work on the store, waiting included, by what it was.",
            ("work",),
            _STORE_BUCKETS_S,
        ),
        (
            *("store_errors", "counter", "kongming_server_store_errors_total", "errors"),
            "Pieces of work that the store refused or was away for.",
        ),
        (
            *("change_lag", "gauge", "kongming_server_change_lag_seconds", "s"),
            "How old the newest change was when it was taken over from another server.",
        ),
        (
            *("retired", "counter", "kongming_server_fingerprints_retired_total", "fingerprints"),
            "Fingerprints deleted by retention, after their rollup was kept.",
        ),
        (
            *("retention_lag", "gauge", "kongming_server_retention_lag_seconds", "s"),
            "How far retention is behind: on some nodes rows may be older than its settings say by "
            "so much.",
        ),
    )
)
"""All others, in the order in which the manual lists them."""


class Metrics:
    """The metrics of one server, in a registry of their own.

    The attributes are those of the table above; each is the client's Counter, Gauge or Histogram.
    """

    build: Gauge
    ready: Gauge
    rpc_seconds: Histogram
    rpcs: Counter
    refused: Counter
    calls_at_work: Gauge
    streams_open: Gauge
    nodes: Gauge
    assignments: Gauge
    accepted: Counter
    duplicates: Counter
    rejected: Counter
    ingest_waiting: Gauge
    ingest_limit: Gauge
    oldest_fingerprint: Gauge
    fingerprint_ttl: Gauge
    matrix_staleness: Gauge
    matrix_refresh: Histogram
    matrix_cells: Gauge
    predictions: Counter
    doubtful: Counter
    models: Gauge
    realised_runs: Gauge
    realised_error: Gauge
    realised_coverage: Gauge
    drifted: Gauge
    training: Gauge
    trained: Counter
    training_seconds: Histogram
    store_seconds: Histogram
    store_errors: Counter
    change_lag: Gauge
    retired: Counter
    retention_lag: Gauge

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        # Of the process: CPU seconds, memory, open files, garbage collections, the Python version.
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        for metric in DECLARED:
            setattr(self, metric.attribute, self._register(metric))
        self.build.labels(__version__).set(1)

    def _register(self, metric: Declared) -> Counter | Gauge | Histogram:
        if metric.kind == "histogram":
            return Histogram(
                metric.name,
                metric.help,
                metric.labels,
                buckets=metric.buckets,
                registry=self.registry,
            )
        kind = Counter if metric.kind == "counter" else Gauge
        return kind(metric.name, metric.help, metric.labels, registry=self.registry)

    async def text(self) -> tuple[bytes, str]:
        """All of them in Prometheus' text format, and its content type. They are read at once, and
        written in a thread: those of a large fleet are thousands of lines."""
        read = CollectorRegistry()
        read.register(_Read(list(self.registry.collect())))
        return await asyncio.to_thread(generate_latest, read), CONTENT_TYPE_LATEST


class _Read(Collector):
    """Readings of a registry."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
