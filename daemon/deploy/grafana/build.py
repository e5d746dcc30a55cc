"""Writes the dashboards of this folder again: ``python daemon/deploy/grafana/build.py``.

A dashboard is a list of panels, each of them its title, unit and queries; Grafana's JSON of them
is long and all the same. Tests hold the files to this program, and run every query.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "dashboards"

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_NODE = ("node", "kongming_server_node_fingerprint_age_seconds", "node")
_AGENT = ("agent", "kongming_agent_server_connected", "instance")
_APP = ("app", "kongming_server_app_slowdown_ratio", "app")

Queries = Mapping[str, str]
"""PromQL by the legend of its lines."""

Panel = tuple[str, str, Queries]
"""Title, unit as Grafana calls it, queries."""

DASHBOARDS: Mapping[str, tuple[str, tuple[tuple[str, str, str], ...], tuple[Panel, ...]]] = {
    "fleet": (
        "KONGMING: fleet",
        (),
        (
            ("Nodes by state", "short", {"{{state}}": "max by (state) (kongming_server_nodes)"}),
            (
                "Slowdown of the nodes",
                "short",
                {
                    "median": 'quantile(0.5, kongming:node_slowdown:ratio{resource="all"})',
                    "95 %": 'quantile(0.95, kongming:node_slowdown:ratio{resource="all"})',
                    "worst": 'max(kongming:node_slowdown:ratio{resource="all"})',
                },
            ),
            (
                "The ten slowest nodes",
                "short",
                {"{{node}}": 'topk(10, kongming:node_slowdown:ratio{resource="all"})'},
            ),
            (
                "Lost time by resource, mean of the nodes",
                "percentunit",
                {"{{resource}}": "avg by (resource) (kongming:node_lost:ratio)"},
            ),
            (
                "Assignments",
                "short",
                {"{{state}}": "max by (state) (kongming_server_assignments)"},
            ),
            (
                "Oldest fingerprint, in times to live of its node",
                "short",
                {
                    "oldest": "max(kongming_server_oldest_fingerprint_seconds"
                    " / kongming_server_fingerprint_ttl_seconds)",
                },
            ),
            (
                "Applications: median slowdown over the fleet",
                "short",
                {"{{app}} {{placement}}": "kongming:app_slowdown:median"},
            ),
            (
                "Without series of their own",
                "short",
                {"{{kind}}": "max by (kind) (kongming_server_series_left_out)"},
            ),
        ),
    ),
    "node": (
        "KONGMING: node",
        (_NODE, _AGENT),
        (
            (
                "Slowdown over the idle node",
                "short",
                {"{{resource}}": 'kongming:node_slowdown:ratio{node=~"$node"}'},
            ),
            (
                "Age of the fingerprint",
                "s",
                {"{{node}}": 'kongming_server_node_fingerprint_age_seconds{node=~"$node"}'},
            ),
            (
                "Assignments",
                "short",
                {"{{node}}": 'kongming_server_node_assignments{node=~"$node"}'},
            ),
            (
                "Surrogates, as the agent reads them",
                "s",
                {"{{surrogate}}": 'kongming_agent_surrogate_seconds{instance=~"$agent"}'},
            ),
            (
                "Cost of the agent",
                "percentunit",
                {
                    "CPU": 'kongming_agent_cost_cpu_ratio{instance=~"$agent"}',
                    "its limit": 'kongming_agent_budget_cpu_ratio{instance=~"$agent"}',
                    "probing": 'kongming_agent_cost_probe_ratio{instance=~"$agent"}',
                },
            ),
            (
                "Spool",
                "short",
                {"{{kind}}": 'kongming_agent_spool_records{instance=~"$agent"}'},
            ),
            (
                "Connected, backing off",
                "bool",
                {
                    "connected": 'kongming_agent_server_connected{instance=~"$agent"}',
                    "backing off": 'kongming_agent_backing_off{instance=~"$agent"}',
                },
            ),
            (
                "Fingerprints",
                "ops",
                {
                    "{{suite}}": 'rate(kongming_agent_probes_total{instance=~"$agent"}'
                    "[$__rate_interval])"
                },
            ),
        ),
    ),
    "application": (
        "KONGMING: application",
        (_APP,),
        (
            (
                "Predicted slowdown over the fleet",
                "short",
                {
                    "{{placement}} {{of}}": "max by (placement, of) "
                    '(kongming_server_app_slowdown_ratio{app=~"$app"})'
                },
            ),
            (
                "Median error of the predictions",
                "percentunit",
                {"{{app}}": 'max by (app) (kongming_server_realised_error_ratio{app=~"$app"})'},
            ),
            (
                "Runs within their interval",
                "percentunit",
                {"{{app}}": 'max by (app) (kongming_server_realised_coverage_ratio{app=~"$app"})'},
            ),
            (
                "Runs compared",
                "short",
                {"{{app}}": 'max by (app) (kongming_server_realised_runs{app=~"$app"})'},
            ),
            (
                "Drifted",
                "bool",
                {"{{app}}": 'max by (app) (kongming_server_model_drifted{app=~"$app"})'},
            ),
        ),
    ),
    "server": (
        "KONGMING: server",
        (),
        (
            ("Ready", "bool", {"{{instance}}": "kongming_server_ready"}),
            (
                "Calls",
                "ops",
                {
                    "{{method}}": "sum by (method) "
                    "(rate(kongming_server_rpc_total[$__rate_interval]))"
                },
            ),
            ("Time of calls, 99 %", "s", {"{{method}}": "kongming:rpc_seconds:p99_5m"}),
            ("Calls that failed", "percentunit", {"{{job}}": "kongming:rpc_errors:ratio_rate5m"}),
            (
                "Calls refused",
                "ops",
                {
                    "{{reason}}": "sum by (reason) "
                    "(rate(kongming_server_refused_total[$__rate_interval]))"
                },
            ),
            (
                "Records",
                "ops",
                {
                    "accepted {{kind}}": "sum by (kind) "
                    "(rate(kongming_server_records_accepted_total[$__rate_interval]))",
                    "waiting": "sum(kongming_server_ingest_waiting)",
                    "may wait": "sum(kongming_server_ingest_limit)",
                },
            ),
            (
                "Predictions",
                "ops",
                {
                    "{{basis}}": "sum by (basis) "
                    "(rate(kongming_server_predictions_total[$__rate_interval]))"
                },
            ),
            (
                "How far predictions lag",
                "s",
                {"{{instance}}": "kongming_server_matrix_staleness_seconds"},
            ),
            (
                "Time of the store, mean",
                "s",
                {
                    "{{work}}": "sum by (work) "
                    "(rate(kongming_server_store_seconds_sum[$__rate_interval]))"
                    " / sum by (work) (rate(kongming_server_store_seconds_count[$__rate_interval]))"
                },
            ),
            (
                "Errors of the store",
                "ops",
                {"{{instance}}": "rate(kongming_server_store_errors_total[$__rate_interval])"},
            ),
            (
                "Memory",
                "bytes",
                {"{{instance}}": 'process_resident_memory_bytes{job="kongming-server"}'},
            ),
            (
                "CPUs",
                "short",
                {
                    "{{instance}}": 'rate(process_cpu_seconds_total{job="kongming-server"}'
                    "[$__rate_interval])",
                },
            ),
            (
                "Models in service, predictions held",
                "short",
                {
                    "models": "max(kongming_server_models_in_service)",
                    "predictions": "max(kongming_server_matrix_cells)",
                },
            ),
            (
                "Extender: requests",
                "ops",
                {
                    "{{verb}} {{outcome}}": "sum by (verb, outcome) "
                    "(rate(kongming_extender_requests_total[$__rate_interval]))",
                    "open: {{reason}}": "sum by (reason) "
                    "(rate(kongming_extender_failed_open_total[$__rate_interval]))",
                },
            ),
        ),
    ),
}


def texts() -> dict[str, str]:
    """The content of each file by its name."""
    return {
        f"{name}.json": json.dumps(_dashboard(name, *parts), indent=1) + "\n"
        for name, parts in DASHBOARDS.items()
    }


def _dashboard(
    name: str, title: str, variables: Iterable[tuple[str, str, str]], panels: Iterable[Panel]
) -> dict[str, Any]:
    datasource = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"kongming-{name}",
        "title": title,
        "tags": ["kongming"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [datasource, *(_variable(*variable) for variable in variables)]},
        "panels": [_panel(number, *panel) for number, panel in enumerate(panels)],
    }


def _variable(name: str, metric: str, label: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": f"label_values({metric}, {label})",
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
    }


def _panel(number: int, title: str, unit: str, queries: Queries) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": _DATASOURCE,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "options": {
            "legend": {
                "showLegend": True,
                "displayMode": "table",
                "placement": "bottom",
                "calcs": ["last"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _DATASOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for place, (legend, expression) in enumerate(queries.items())
        ],
    }


if __name__ == "__main__":
    for file, text in texts().items():
        (FOLDER / file).write_text(text, encoding="utf-8")
