"""Each alert fires on what it is for and on nothing less, as promtool plays it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kongming_agent.agent_config import Metrics as AgentMetrics
from kongming_extender.extender_config import Extender
from kongming_server.configuration.settings import Server

from tests import system
from tests.docs.tables import alerts
from tests.monitoring.stack import DEPLOY, RULES

pytestmark = pytest.mark.skipif("Prometheus" in system.missing(), reason="needs promtool")

Series = Mapping[str, str]
"""Values of each minute by series, as promtool writes them: ``1+2x60`` begins at 1, adds 2."""

SERVER = 'job="kongming-server"'
CASES: Mapping[str, tuple[Series, Series]] = {
    "KongmingServerDown": (
        {f"up{{{SERVER}}}": "1 1 0x60"},
        {f"up{{{SERVER}}}": "1 0 1x60", 'up{job="other"}': "0x60"},
    ),
    "KongmingServerNotReady": (
        {"kongming_server_ready": "0x60"},
        {"kongming_server_ready": "0 1x60"},
    ),
    "KongmingNodesSilent": (
        {'kongming_server_nodes{state="silent"}': "2x40 3x20"},
        # One that was silent all the time, and one that is not ready for another reason.
        {
            'kongming_server_nodes{state="silent"}': "2x60",
            'kongming_server_nodes{state="ready"}': "1x40 9x20",
        },
    ),
    "KongmingNodesSuspect": (
        {'kongming_server_nodes{state="suspect"}': "1x60"},
        {
            'kongming_server_nodes{state="suspect"}': "0x60",
            'kongming_server_nodes{state="ready"}': "9x60",
        },
    ),
    "KongmingIngestFull": (
        {"kongming_server_ingest_waiting": "81x60", "kongming_server_ingest_limit": "100x60"},
        {"kongming_server_ingest_waiting": "79x60", "kongming_server_ingest_limit": "100x60"},
    ),
    "KongmingStoreErrors": (
        {"kongming_server_store_errors_total": "0+1x60"},
        {"kongming_server_store_errors_total": "7x60"},
    ),
    "KongmingMatrixStale": (
        {"kongming_server_matrix_staleness_seconds": "1.1x60"},
        {"kongming_server_matrix_staleness_seconds": "0.9x55 3 0.9x4"},
    ),
    "KongmingFingerprintsOld": (
        {
            "kongming_server_oldest_fingerprint_seconds": "361x60",
            "kongming_server_fingerprint_ttl_seconds": "180x60",
        },
        {
            "kongming_server_oldest_fingerprint_seconds": "359x60",
            "kongming_server_fingerprint_ttl_seconds": "180x60",
        },
    ),
    "KongmingModelDrifted": (
        {'kongming_server_model_drifted{app="a"}': "1x60"},
        {'kongming_server_model_drifted{app="a"}': "0x60"},
    ),
    "KongmingProfileSpoiled": (
        {'kongming_server_model_profile{app="a",placement="same-core",verdict="spoiled"}': "1x60"},
        {
            'kongming_server_model_profile{app="a",placement="same-core",verdict="usable"}': "1x60",
            # Trained again half an hour ago.
            'kongming_server_model_profile{app="b",placement="same-core",verdict="spoiled"}': (
                "1x30 stale"
            ),
        },
    ),
    "KongmingCoverageLow": (
        {
            'kongming_server_realised_coverage_ratio{app="a"}': "0.79x60",
            'kongming_server_realised_runs{app="a"}': "30x60",
        },
        # Of few runs, and of another application.
        {
            'kongming_server_realised_coverage_ratio{app="a"}': "0.5x60",
            'kongming_server_realised_runs{app="a"}': "29x60",
            'kongming_server_realised_coverage_ratio{app="b"}': "0.81x60",
            'kongming_server_realised_runs{app="b"}': "99x60",
        },
    ),
    "KongmingCallsRefused": (
        {'kongming_server_refused_total{job="s",reason="queue"}': "0+12x60"},
        {'kongming_server_refused_total{job="s",reason="queue"}': "0+3x60"},
    ),
    "KongmingSeriesLeftOut": (
        {'kongming_server_series_left_out{kind="node"}': "1x60"},
        {'kongming_server_series_left_out{kind="node"}': "0x60"},
    ),
    "KongmingChangesLate": (
        {"kongming_server_change_lag_seconds": "11x60"},
        {"kongming_server_change_lag_seconds": "9x60"},
    ),
    "KongmingSpoolGrows": (
        {
            'kongming_agent_spool_records{kind="fingerprint"}': "1+2x60",
            'kongming_agent_spool_records{kind="run"}': "1x60",
        },
        # Delivered each time; and much that is being delivered.
        {
            'kongming_agent_spool_records{instance="a",kind="fingerprint"}': "0 1 " + "0 1 " * 30,
            'kongming_agent_spool_records{instance="b",kind="fingerprint"}': "900-10x60",
        },
    ),
    "KongmingProbingHeldBack": (
        {
            "kongming_agent_cost_cpu_ratio": "0.0099x60",
            "kongming_agent_budget_cpu_ratio": "0.01x60",
        },
        {
            "kongming_agent_cost_cpu_ratio": "0.009x60",
            "kongming_agent_budget_cpu_ratio": "0.01x60",
        },
    ),
    "KongmingExtenderOpen": (
        {
            'kongming_extender_requests_total{job="e",verb="prioritize",outcome="open"}': "0+6x60",
            'kongming_extender_requests_total{job="e",verb="prioritize",outcome="ranked"}': (
                "0+5x60"
            ),
            # Pods that name no application are refused nowhere, which takes no ranking.
            'kongming_extender_requests_total{job="e",verb="filter",outcome="ranked"}': "0+11x60",
        },
        {
            'kongming_extender_requests_total{job="e",verb="prioritize",outcome="open"}': "0+5x60",
            'kongming_extender_requests_total{job="e",verb="prioritize",outcome="ranked"}': (
                "0+6x60"
            ),
            'kongming_extender_requests_total{job="e",verb="filter",outcome="open"}': "0+1x60",
            'kongming_extender_requests_total{job="e",verb="filter",outcome="ranked"}': "0+1x60",
        },
    ),
}
"""By alert: series of an hour at whose end it fires, and of one at whose end it does not."""


def promtool(*arguments: object) -> str:
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _series(values: Series) -> list[dict[str, str]]:
    return [{"series": name, "values": each} for name, each in values.items()]


def _of_case(name: str, values: Series) -> Series:
    """The same series with a label that keeps those of alerts apart, since all are played at once:
    promtool makes a database for each play."""
    return {
        re.sub(r"(\w+)(?:\{(.*)\})?$", rf'\1{{case="{name}",\2}}', series): each
        for series, each in values.items()
    }


def _labels(fired: Mapping[str, Any], series: Series) -> dict[str, str]:
    """Those of the first series which the alert keeps."""
    labels = dict(re.findall(r'(\w+)="([^"]*)"', next(iter(series))))
    aggregated = re.match(r"sum (by|without) \((.*?)\)", fired["expr"])
    if aggregated:
        named = aggregated[2].split(", ")
        labels = {k: v for k, v in labels.items() if (k in named) == (aggregated[1] == "by")}
    return labels | fired["labels"]


def test_rules_and_configuration_are_valid(tmp_path: Path) -> None:
    promtool("check", "rules", "--lint-fatal", RULES)
    # It looks for files of certificates and tokens, which the machine of the tests lacks.
    config = (DEPLOY / "prometheus/prometheus.yml").read_text()
    for name in ("ca.crt", "monitor.token"):
        (tmp_path / name).write_text("")
    config = config.replace("/etc/prometheus/kongming", str(tmp_path))
    (tmp_path / "prometheus.yml").write_text(config.replace("kongming.rules.yml", str(RULES)))
    assert "SUCCESS: " in promtool("check", "config", tmp_path / "prometheus.yml")
    ports = {
        job["job_name"]: job["static_configs"][0]["targets"][0].rpartition(":")[2]
        for job in yaml.safe_load(config)["scrape_configs"]
    }
    listening = {
        "kongming-server": Server().http,
        "kongming-agent": AgentMetrics().listen,
        "kongming-extender": Extender().listen,
    }
    assert ports == {name: address.rpartition(":")[2] for name, address in listening.items()}


def test_alerts_fire_on_what_they_are_for_and_not_short_of_it(tmp_path: Path) -> None:
    written = {rule["alert"]: rule for rule in alerts()}
    assert set(written) == set(CASES)
    tests = []
    for fires in (True, False):
        series: dict[str, str] = {}
        expected = []
        for name, (firing, silent) in CASES.items():
            given = _of_case(name, firing if fires else silent)
            series |= given
            rule = written[name]
            alerting = {"exp_labels": _labels(rule, given), "exp_annotations": rule["annotations"]}
            expected.append(
                {
                    "eval_time": "58m",
                    "alertname": name,
                    "exp_alerts": [alerting] if fires else [],
                }
            )
        tests.append(
            {"interval": "1m", "input_series": _series(series), "alert_rule_test": expected}
        )
    file = tmp_path / "alerts.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests})
    )
    promtool("test", "rules", file)


def test_recordings_have_the_names_and_values_that_others_expect(tmp_path: Path) -> None:
    given = {
        'kongming_server_node_slowdown_ratio{node="n1",resource="cpu",instance="s1:7401"}': "2x20",
        # The same store's other server, which has learned of it a moment later.
        'kongming_server_node_slowdown_ratio{node="n1",resource="cpu",instance="s2:7401"}': "1x20",
        'kongming_server_node_slowdown_ratio{node="n1",resource="memory"}': "4x20",
        # Faster than idle.
        'kongming_server_node_slowdown_ratio{node="n2",resource="cpu"}': "0.8x20",
    }
    expected = {
        # For descheduler: one sample a node, 0 to 1.
        'kongming:node_lost:ratio{resource="cpu"}': {
            'kongming:node_lost:ratio{instance="n1",node="n1",resource="cpu"}': 0.5,
            'kongming:node_lost:ratio{instance="n2",node="n2",resource="cpu"}': 0,
        },
        # For Volcano: percent. Of n2's memory nothing is known.
        "cpu_usage_avg_5m": {
            'cpu_usage_avg_5m{instance="n1"}': 50,
            'cpu_usage_avg_5m{instance="n2"}': 0,
        },
        "mem_usage_avg_5m": {'mem_usage_avg_5m{instance="n1"}': 75},
    }
    tests = [
        {
            "interval": "1m",
            "input_series": _series(given),
            "promql_expr_test": [
                {
                    "expr": expression,
                    "eval_time": "10m",
                    "exp_samples": [{"labels": k, "value": v} for k, v in samples.items()],
                }
                for expression, samples in expected.items()
            ],
        }
    ]
    file = tmp_path / "recordings.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests})
    )
    promtool("test", "rules", file)
