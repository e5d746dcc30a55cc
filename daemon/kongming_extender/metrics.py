"""Every metric of the extender, declared in one table. Nothing is labelled by node or pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector

from kongming import __version__

PREFIX = "kongming_extender_"
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A row of the table: its attribute of Metrics, and the exported name without the prefix."""

    attribute: str
    kind: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = _BUCKETS_S


DECLARED = tuple(
    Declaration(*row)
    for row in (
        ("build", "gauge", "build_info", "1; the version.", ("version",)),
        (
            *("request_seconds", "histogram", "request_seconds"),
            "Time from a complete request to its response, by verb: filter or prioritize.",
            ("verb",),
        ),
        (
            *("requests", "counter", "requests_total"),
            "Requests by outcome: ranked, open (nodes passed of which too little is known), closed "
            "(all were refused, since nothing is known of any) or refused (no valid request).",
            ("verb", "outcome"),
        ),
        (
            *("failed_open", "counter", "failed_open_total"),
            "Requests that all nodes passed with equal scores, by reason: server, late, "
            "untrained, unknown (none of the nodes) or fault; and residents, where the only nodes "
            "that passed were some whose residents could not be looked up.",
            ("reason",),
        ),
        (
            *("refused", "counter", "nodes_refused_total"),
            "Nodes that were refused, by reason: limit (the pod's own), resident (another's) or "
            "unknown (nothing is known of the node, or only a least slowdown).",
            ("reason",),
        ),
        (
            *("over_limit", "histogram", "best_slowdown_over_limit"),
            "Filtering for a pod with a limit: its slowdown on the best node that is known, over "
            "the limit; above 1 no known node keeps it.",
            (),
            (0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0),
        ),
        (
            *("share", "histogram", "known_nodes_share"),
            "Share of the known nodes that a request to filter named; far below 1 where the "
            "scheduler shows only some of them.",
            (),
            (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        ),
        (
            *("annotations", "counter", "wrong_annotations_total"),
            "Requests for pods with an annotation that is not valid and was ignored.",
        ),
        ("rankings", "gauge", "rankings", "Rankings in the cache."),
        (
            *("ranking_age", "gauge", "ranking_age_seconds"),
            "Age of the ranking that the last response used.",
        ),
        ("nodes", "gauge", "nodes", "Nodes of the server that are ready."),
        (
            *("server_seconds", "histogram", "server_call_seconds"),
            "Duration of calls of the server, by call.",
            ("call",),
        ),
        (
            *("server_errors", "counter", "server_errors_total"),
            "Calls of the server that failed, by call.",
            ("call",),
        ),
        ("watching", "gauge", "watch_connected", "1 while pods are watched."),
        (
            *("relists", "counter", "watch_lists_total"),
            "Times that all pods were listed, by cause: start, gone (410), error or recheck.",
            ("cause",),
        ),
        ("events", "counter", "watch_events_total", "Events of the watch, by type.", ("type",)),
        ("pods", "gauge", "pods", "Pods that name their application and are bound to a node."),
        (
            "waiting",
            "gauge",
            "assignments_waiting",
            "Assignments that the server has not acknowledged.",
        ),
        (
            *("assignments", "counter", "assignments_total"),
            "Updates of assignments that were sent to the server, by action (guess, reserve, bind, "
            "release) and outcome (done, refused).",
            ("action", "outcome"),
        ),
        (
            *("guesses", "counter", "guesses_total"),
            "Nodes that were held before a pod was bound: right, wrong or expired.",
            ("outcome",),
        ),
        (
            *("runs", "counter", "runs_total"),
            "Finished runs: reported, refused, or not reported as short, failed or unknown.",
            ("outcome",),
        ),
    )
)


class Metrics:
    """Every metric as an attribute, in a registry of its own."""

    build: Gauge
    request_seconds: Histogram
    requests: Counter
    failed_open: Counter
    refused: Counter
    over_limit: Histogram
    share: Histogram
    annotations: Counter
    rankings: Gauge
    ranking_age: Gauge
    nodes: Gauge
    server_seconds: Histogram
    server_errors: Counter
    watching: Gauge
    relists: Counter
    events: Counter
    pods: Gauge
    waiting: Gauge
    assignments: Counter
    guesses: Counter
    runs: Counter

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        for declaration in DECLARED:
            setattr(self, declaration.attribute, self._create(declaration))
        self.build.labels(__version__).set(1)

    def text(self) -> tuple[bytes, str]:
        """The body and the content type of /metrics."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def observe_call(self, method: str, seconds: float | None) -> None:
        """Count a call of the server; ``seconds`` None for one that failed."""
        if seconds is None:
            self.server_errors.labels(method).inc()
        else:
            self.server_seconds.labels(method).observe(seconds)

    def _create(self, declaration: Declaration) -> Any:
        name, text, labels = PREFIX + declaration.name, declaration.help, declaration.labels
        if declaration.kind == "histogram":
            return Histogram(
                name, text, labels, buckets=declaration.buckets, registry=self.registry
            )
        kind = Counter if declaration.kind == "counter" else Gauge
        return kind(name, text, labels, registry=self.registry)
