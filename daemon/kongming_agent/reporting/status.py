"""The agent's costs and state as a view for /metrics, with little I/O."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.moments import unix
from kongming_agent.agent_config import Settings
from kongming_agent.probing import references as idle
from kongming_agent.probing.budget import Cost
from kongming_agent.probing.estimate import Errors
from kongming_agent.probing.schedule import Schedule
from kongming_agent.reporting.metrics import Value, View

_COUNTERS = ("nr_periods", "nr_throttled", "throttled_us")


@dataclass(slots=True)
class Totals:
    """Sums since the agent started."""

    own: Cost = field(default_factory=Cost)
    probes: Cost = field(default_factory=Cost)
    taken: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    unspooled: int = 0
    peak_bytes: int | None = None

    def probed(self, suite: str) -> None:
        self.taken[suite] = self.taken.get(suite, 0) + 1

    def used(self, peak_bytes: int | None) -> None:
        """Count the memory of a probe, None if it is not known: it is no larger than that of an
        earlier child then."""
        if peak_bytes is not None:
            self.peak_bytes = max(self.peak_bytes or 0, peak_bytes)


def view(
    *,
    settings: Settings,
    schedule: Schedule,
    totals: Totals,
    now: float,
    latest: Mapping[int, Fingerprint],
    references: Mapping[int, Fingerprint],
    estimates: Mapping[int, Mapping[str, float]],
    errors: Mapping[int, Mapping[str, Errors]],
    passive: Mapping[str, float],
    pss: float,
    held: bool,
) -> View:
    """Return the values of the agent itself; the link and the spool add theirs."""
    values: dict[str, list[Value]] = {}

    def add(name: str, value: float, *labels: str) -> None:
        values.setdefault(name, []).append((labels, value))

    for domain, fingerprint in latest.items():
        times = fingerprint.times()
        for name, seconds in times.items():
            add("surrogate_seconds", seconds, name, str(domain))
        add("fingerprint_timestamp_seconds", unix(fingerprint.started_at), str(domain))
        if domain in references:
            ratios = idle.slowdowns(times, references[domain].times())
            for name, ratio in ratios.items():
                add("surrogate_slowdown_ratio", ratio, name, str(domain))
            general = idle.general(ratios)
            if general is not None:
                add("general_slowdown_ratio", general, str(domain))
    for domain, estimated in estimates.items():
        for name, seconds in estimated.items():
            add("surrogate_estimate_seconds", seconds, name, str(domain))
    for domain, known in errors.items():
        for name, error in known.items():
            add("surrogate_estimate_log_error", error.estimate, name, str(domain), "estimate")
            add("surrogate_estimate_log_error", error.repeat, name, str(domain), "repeat")
    for suite in ("quick", "standard"):
        add("probes_total", totals.taken.get(suite, 0), suite)
    add("probe_failures_total", totals.failures)
    add("probe_cpu_seconds_total", totals.probes.cpu_s)
    add("probe_wall_seconds_total", totals.probes.wall_s)
    add("probe_written_bytes_total", totals.probes.written_bytes)
    add("cpu_seconds_total", totals.own.cpu_s)
    add("cost_cpu_ratio", schedule.recent_cpu.rate(now))
    add("cost_probe_ratio", schedule.recent_probing.rate(now))
    add("cost_written_bytes", schedule.recent_bytes.total(now))
    add("budget_cpu_ratio", settings.budget.cpu_share)
    add("budget_probe_ratio", settings.budget.probe_share)
    add("budget_written_bytes", settings.budget.bytes_per_day)
    add("memory_pss_bytes", pss)
    if totals.peak_bytes is not None:
        add("probe_peak_memory_bytes", totals.peak_bytes)
    add("backing_off", float(held))
    add("spool_failures_total", totals.unspooled)
    for name, value in passive.items():
        add("passive", value, name)
    return values


def pss_bytes() -> float:
    """Return this process's proportional set size; 0 if unknown."""
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as lines:  # noqa: PTH123
            for line in lines:
                if line.startswith("Pss:"):
                    return float(line.split()[1]) * 1024.0
    except OSError:
        pass
    return 0.0


def without_counters(node: NodeFacts) -> dict[str, Any]:
    """Return the facts that do not change by themselves."""
    document = node.to_dict()
    document["cgroup"] = {k: v for k, v in node.cgroup.items() if k not in _COUNTERS}
    return document


def age_s(moment: str) -> float:
    """Return the seconds since a time in ISO 8601; 0 if it is in the future."""
    return max(0.0, time.time() - unix(moment))
