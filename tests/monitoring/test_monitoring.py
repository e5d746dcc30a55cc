"""What Prometheus makes of real programs: rules, dashboards, and what others read there."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from prometheus_client.parser import text_string_to_metric_families

from tests import system
from tests.monitoring.receiver import Receiver, receiving
from tests.monitoring.stack import DEPLOY, KNOWN, RULES, Stack, expressions, running
from tests.server.process import eventually
from tests.service_contract.conftest import trained_store

__all__ = ["trained_store"]

pytestmark = pytest.mark.skipif("Prometheus" in system.missing(), reason="needs Prometheus")


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as started:
        yield started


@pytest.fixture(scope="module")
def stack(
    trained_store: Path, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    settings = {
        "otel.endpoint": f"http://{receiver.address}",
        "otel.period_s": 1.0,
        "security.public_watcher": True,
    }
    with running(trained_store, tmp_path_factory.mktemp("stack"), settings) as started:
        yield started


def test_every_rule_is_evaluated_and_every_recording_says_something(stack: Stack) -> None:
    def rules() -> list[dict[str, str]]:
        groups = stack.prometheus.api("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    written = [r for group in yaml.safe_load(RULES.read_text())["groups"] for r in group["rules"]]
    assert len(rules()) == len(written) > 20
    assert [rule for rule in rules() if rule["health"] != "ok"] == []
    for rule in written:
        if "record" in rule:
            assert stack.prometheus.query(rule["record"]), rule["record"]
    # An alert on a metric that nobody has would be silent for ever.
    known = set(stack.prometheus.api("label/__name__/values"))
    for rule in written:
        assert set(re.findall(r"\bkongming_\w+", rule["expr"])) <= known, rule["expr"]


@pytest.mark.parametrize("name", ["fleet", "node", "application", "server"])
def test_every_query_of_a_dashboard_returns_something(stack: Stack, name: str) -> None:
    file = DEPLOY / f"grafana/dashboards/{name}.json"
    text = file.read_text()
    built = runpy.run_path(str(DEPLOY / "grafana/build.py"))
    assert text == built["texts"]()[file.name], "run: python daemon/deploy/grafana/build.py"
    dashboard = json.loads(text)
    queries = list(expressions(dashboard["panels"]))
    assert len(queries) >= 5
    for query in queries:
        eventually(lambda query=query: stack.prometheus.query(query), 20)
    for variable in dashboard["templating"]["list"][1:]:
        metric, label = re.fullmatch(
            r"label_values\((\w+), (\w+)\)", variable["query"]["query"]
        ).groups()  # type: ignore[union-attr]
        assert stack.prometheus.query(f'{metric}{{{label}!=""}}'), variable["name"]


def test_what_is_not_known_of_a_node_is_left_out(stack: Stack) -> None:
    slowed = stack.prometheus.query('kongming_server_node_slowdown_ratio{resource="all"}')
    by_name = {labels["node"]: ratio for labels, ratio in slowed}
    assert set(by_name) & {"calm", "busy", "wild", "dozing"} == set(KNOWN)
    assert by_name["calm"] == pytest.approx(1.0, abs=0.01)
    assert by_name["calm"] < by_name["busy"] < by_name["wild"]
    ages = stack.prometheus.query('kongming_server_node_fingerprint_age_seconds{node="dozing"}')
    assert ages[0][1] > 7000.0


def test_all_metrics_are_pushed_by_otlp(stack: Stack, receiver: Receiver) -> None:
    page = stack.text("/metrics", "monitor")
    families = [one for one in text_string_to_metric_families(page) if one.samples]
    names = {f"{f.name}_total" if f.type == "counter" else f.name for f in families}
    # The page alone tells in lines of their own when series began.
    names = {name for name in names if not name.endswith("_created")}
    assert len(names) > 30
    eventually(lambda: names <= set(receiver.metrics), 20)
    assert receiver.resources[-1]["service.name"] == "kongming-server"

    slowdown = receiver.metrics["kongming_server_node_slowdown_ratio"]
    assert slowdown.unit == "1"
    points = [
        ({a.key: a.value.string_value for a in point.attributes}, point.as_double)
        for point in slowdown.gauge.data_points
    ]
    assert ({"node": "calm", "resource": "cpu"}, 1.0) in [(at, round(v, 2)) for at, v in points]

    calls = receiver.metrics["kongming_server_rpc_total"].sum
    assert calls.is_monotonic
    assert (
        calls.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    assert sum(point.as_double for point in calls.data_points) > 10

    times = receiver.metrics["kongming_server_rpc_seconds"]
    assert times.unit == "s"
    for point in times.histogram.data_points:
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert sum(point.bucket_counts) == point.count
        assert not point.HasField("min")
        assert 0 < point.start_time_unix_nano < point.time_unix_nano
