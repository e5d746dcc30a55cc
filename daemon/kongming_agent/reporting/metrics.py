"""The agent's metrics for Prometheus: over HTTP, or as a file for node_exporter. Every metric is
declared in METRICS; only declared values of a view are exported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kongming.files.atomic_file import replacing
from kongming.records.errors import InputError
from kongming_agent.reporting.metrics_server import MetricsServer

_log = logging.getLogger(__name__)

PREFIX = "kongming_agent_"

Value = tuple[tuple[str, ...], float]
View = Mapping[str, list[Value]]
"""The samples by metric: label values and a number each."""


class Declared(NamedTuple):
    """One metric: its name without the prefix, kind, meaning with unit, and labels."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...] = ()


_SURROGATE = ("surrogate", "domain")

METRICS = (
    Declared("surrogate_seconds", "gauge", "Seconds per operation, last probe.", _SURROGATE),
    Declared(
        "surrogate_slowdown_ratio",
        "gauge",
        "Slowdown of the last probe over the idle node.",
        _SURROGATE,
    ),
    Declared(
        "general_slowdown_ratio",
        "gauge",
        "Geometric mean of the slowdowns over the idle node.",
        ("domain",),
    ),
    Declared(
        "surrogate_estimate_seconds",
        "gauge",
        "Seconds per operation now, estimated from passive signals where that beats repeating.",
        _SURROGATE,
    ),
    Declared(
        "surrogate_estimate_log_error",
        "gauge",
        "Mean absolute log error on probes not yet learned from, of the estimate and of repeating.",
        (*_SURROGATE, "of"),
    ),
    Declared(
        "fingerprint_timestamp_seconds", "gauge", "Unix time of the last fingerprint.", ("domain",)
    ),
    Declared("probes_total", "counter", "Fingerprints taken.", ("suite",)),
    Declared("probe_failures_total", "counter", "Fingerprints that failed."),
    Declared("probe_cpu_seconds_total", "counter", "CPU seconds of probes."),
    Declared("probe_wall_seconds_total", "counter", "Seconds with a running probe."),
    Declared("probe_written_bytes_total", "counter", "Bytes written by probes."),
    Declared("cpu_seconds_total", "counter", "CPU seconds of the agent without its probes."),
    Declared("cost_cpu_ratio", "gauge", "Share of one core over the last hour, probes included."),
    Declared("cost_probe_ratio", "gauge", "Share of the last hour with a running probe."),
    Declared("cost_written_bytes", "gauge", "Bytes written in the last day, probes included."),
    Declared("budget_cpu_ratio", "gauge", "Limit of cost_cpu_ratio: budget.cpu_share."),
    Declared("budget_probe_ratio", "gauge", "Limit of cost_probe_ratio."),
    Declared("budget_written_bytes", "gauge", "Limit of the bytes written in a day."),
    Declared("memory_pss_bytes", "gauge", "Proportional set size of the agent, in bytes."),
    Declared(
        "probe_peak_memory_bytes",
        "gauge",
        "Largest resident size of a probe, in bytes; of those before a campaign that used more.",
    ),
    Declared("backing_off", "gauge", "1 while probing backs off or may not start."),
    Declared("spool_records", "gauge", "Records in the spool.", ("kind",)),
    Declared("spool_bytes", "gauge", "Bytes of the records in the spool."),
    Declared("spool_thinned_total", "counter", "Fingerprints that were thinned out."),
    Declared("spool_failures_total", "counter", "Fingerprints that could not be spooled."),
    Declared("delivered_total", "counter", "Records that the server has committed.", ("kind",)),
    Declared("refused_total", "counter", "Records that the server refused."),
    Declared(
        "other_node_total",
        "counter",
        "Records that were not delivered, since they were measured under another node id.",
    ),
    Declared("server_connected", "gauge", "1 while the server answers."),
    Declared("server_failures_total", "counter", "Failed attempts to reach the server."),
    Declared("passive", "gauge", "The system's own signals, in the unit of the name.", ("signal",)),
)


class Exported(Collector):
    """Converts a view to metric families on collection."""

    def __init__(self, view: Callable[[], View]) -> None:
        self._view = view

    def describe(self) -> Iterator[Metric]:
        """Collect nothing at registration: the agent may not have started."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        view = self._view()
        for declared in METRICS:
            name = PREFIX + declared.name
            family: GaugeMetricFamily | CounterMetricFamily
            if declared.kind == "counter":
                family = CounterMetricFamily(name, declared.help, labels=declared.labels)
            else:
                family = GaugeMetricFamily(name, declared.help, labels=declared.labels)
            for labels, value in view.get(declared.name, []):
                family.add_metric(list(labels), value)
            yield family


class Exporter:
    """Serves ``/metrics`` at ``listen`` (HOST:PORT) if set; ``write`` writes the file."""

    def __init__(self, view: Callable[[], View], *, listen: str = "", textfile: str = "") -> None:
        self._registry = CollectorRegistry()
        self._registry.register(Exported(view))
        self._textfile = Path(textfile) if textfile else None
        self._unwritten = False
        self._server: MetricsServer | None = None
        self.port: int | None = None
        if listen:
            host, _, port = listen.rpartition(":")
            try:
                self._server = MetricsServer(host.strip("[]"), int(port), self._registry)
            except OSError as error:
                raise InputError(
                    f"no program can listen there: {error.strerror or error}.",
                    field="metrics.listen",
                    value=listen,
                    hint="Is another agent there? Choose another port: --metrics; '' for none.",
                ) from error
            self.port = self._server.server_port

    def write(self) -> None:
        """Replace the file; where that fails the next call tries again."""
        if self._textfile is None:
            return
        try:
            text = generate_latest(self._registry)
            self._textfile.parent.mkdir(parents=True, exist_ok=True)
            # prometheus_client's own writer takes a name that others in this folder know, and
            # follows a link or waits for a pipe there.
            with replacing(self._textfile, durable=False) as file:
                file.write(text)
        except OSError as error:
            # Once for each outage, which may last for days.
            if not self._unwritten:
                _log.warning("%s cannot be written, and is tried again: %s", self._textfile, error)
            self._unwritten = True
        except Exception:
            _log.exception("The metrics cannot be read.")
        else:
            if self._unwritten:
                _log.warning("%s is written again.", self._textfile)
            self._unwritten = False

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
