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
from tests.monitoring.stack import APP, DEPLOY, KNOWN, ROOT, RULES, Stack, expressions, running
from tests.server.process import eventually
from tests.service_contract.conftest import NODES, trained_store

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
        # However long the tests take, what is fresh at their start is so at their end.
        "fleet.fingerprint_ttl_s": 3600.0,
        "fleet.silent_after_s": 3600.0,
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
    # An alert on a metric that nothing exports would be silent for ever.
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
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
        assert stack.prometheus.query(f'{metric}{{{label}!=""}}'), variable["name"]


def test_what_is_not_known_of_a_node_is_left_out(stack: Stack) -> None:
    slowed = stack.prometheus.query('kongming_server_node_slowdown_ratio{resource="all"}')
    by_name = {labels["node"]: ratio for labels, ratio in slowed}
    assert set(by_name) & set(NODES) == set(KNOWN)
    assert by_name["calm"] == pytest.approx(1.0, abs=0.01)
    assert by_name["calm"] < by_name["busy"] < by_name["wild"]
    ages = stack.prometheus.query('kongming_server_node_fingerprint_age_seconds{node="dozing"}')
    assert ages[0][1] > 7000.0


def test_all_metrics_are_pushed_by_otlp(stack: Stack, receiver: Receiver) -> None:
    page = stack.text("/metrics", "monitor")
    families = [family for family in text_string_to_metric_families(page) if family.samples]
    names = {f"{f.name}_total" if f.type == "counter" else f.name for f in families}
    # Only the page has separate lines for when series began.
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


def test_trimaran_reads_all_nodes_without_a_token(stack: Stack) -> None:
    # Types of paypal/load-watcher's WatcherMetrics. Its reader stops after as many keys of an
    # object as the type has, so there may be no others.
    status, body = stack.anonymous("/watcher")
    assert status == 200
    document = json.loads(body)
    assert set(document) == {"timestamp", "window", "source", "data"}
    window = document["window"]
    assert set(window) == {"duration", "start", "end"}
    assert window["duration"] == "15m"
    assert window["end"] - window["start"] == 900
    assert all(
        type(number) is int for number in (document["timestamp"], window["start"], window["end"])
    )
    assert set(document["data"]) == {"NodeMetricsMap"}
    nodes = document["data"]["NodeMetricsMap"]
    assert set(nodes) & set(NODES) == set(KNOWN)
    for node in nodes.values():
        assert set(node) == {"metrics", "tags", "metadata"}
        for metric in node["metrics"]:
            assert set(metric) == {"name", "type", "operator", "rollup", "value"}
            assert metric["type"] in ("CPU", "Memory")
            assert metric["operator"] in ("AVG", "STD")
            assert 0.0 <= metric["value"] <= 100.0
    memory = {
        name: metric["value"]
        for name, node in nodes.items()
        for metric in node["metrics"]
        if (metric["type"], metric["operator"]) == ("Memory", "AVG")
    }
    assert memory["calm"] < 1.0 < memory["busy"] < memory["wild"]
    # Of one reading there is no deviation.
    operators = {name: {m["operator"] for m in node["metrics"]} for name, node in nodes.items()}
    assert (operators["calm"], operators["wild"]) == ({"AVG"}, {"AVG", "STD"})
    status, filtered = stack.anonymous("/watcher?host=busy")
    assert (status, list(json.loads(filtered)["data"]["NodeMetricsMap"])) == (200, ["busy"])
    assert stack.anonymous("/watcher?host=dozing")[0] == 404
    assert stack.anonymous("/watcher/health")[0] == 200
    assert stack.anonymous("/metrics")[0] == 401


def test_deschedulers_query_has_one_sample_a_node(stack: Stack) -> None:
    page = (ROOT / "docs/other-schedulers.md").read_text()
    (policy,) = (
        yaml.safe_load(block)
        for block in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        if "DeschedulerPolicy" in block
    )
    arguments = policy["profiles"][0]["pluginConfig"][0]["args"]
    for name in ("thresholds", "targetThresholds"):
        assert list(arguments[name]) == ["MetricResource"]
    assert arguments["metricsUtilization"]["source"] == "Prometheus"
    samples = stack.prometheus.query(arguments["metricsUtilization"]["prometheus"]["query"])
    names = [labels["instance"] for labels, _ in samples]
    assert len(names) == len(set(names))
    assert set(names) & set(NODES) == set(KNOWN)
    assert all(0.0 <= value <= 1.0 for _, value in samples)


def test_volcano_asks_for_one_node_after_the_other(stack: Stack) -> None:
    for name in ("cpu", "mem"):
        for node in KNOWN:
            ((_, percent),) = stack.prometheus.query(f'{name}_usage_avg_5m{{instance="{node}"}}')
            assert 0.0 <= percent <= 100.0
        assert stack.prometheus.query(f'{name}_usage_avg_5m{{instance="dozing"}}') == []


@pytest.mark.parametrize("kind", ["rules", "externalRules"])
def test_prometheus_adapter_finds_a_value_for_each_object(stack: Stack, kind: str) -> None:
    # What the adapter does with a rule, by its docs/config.md: discovery by seriesQuery, the name
    # by a pattern, the label by overrides, and a template for the query.
    names = []
    for rule in yaml.safe_load((DEPLOY / "prometheus/adapter.yml").read_text())[kind]:
        series = stack.prometheus.api("series", **{"match[]": rule["seriesQuery"]})
        (metric,) = {labels["__name__"] for labels in series}
        assert re.search(rule["name"]["matches"], metric)
        names.append(rule["name"]["as"])
        resources = rule["resources"]
        if kind == "externalRules":
            assert resources == {"namespaced": False}
            label, objects = "app", [APP]
        else:
            ((label, resource),) = resources["overrides"].items()
            assert resource == {"resource": "node"}
            objects = list(KNOWN)
        assert all(label in labels for labels in series)
        query = rule["metricsQuery"]
        for place, text in (
            ("<<.Series>>", metric),
            ("<<.LabelMatchers>>", f'{label}=~"{"|".join(objects)}"'),
            ("<<.GroupBy>>", label),
        ):
            query = query.replace(place, text)
        samples = stack.prometheus.query(query)
        assert sorted(labels[label] for labels, _ in samples) == sorted(objects)
        assert all(0.0 <= value <= (1.0 if kind == "rules" else 9.0) for _, value in samples)
    expected = {
        "rules": ["kongming_node_lost", "node_cpu_usage_avg", "node_memory_usage_avg"],
        "externalRules": ["kongming_app_slowdown"],
    }
    assert names == expected[kind]
