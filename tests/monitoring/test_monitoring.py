"""What Prometheus makes of real programs: rules, dashboards, and what others read there."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import system
from tests.monitoring.stack import DEPLOY, KNOWN, RULES, Stack, expressions, running
from tests.server.process import eventually
from tests.service_contract.conftest import trained_store

__all__ = ["trained_store"]

pytestmark = pytest.mark.skipif("Prometheus" in system.missing(), reason="needs Prometheus")


@pytest.fixture(scope="module")
def stack(trained_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(trained_store, tmp_path_factory.mktemp("stack"), {}) as started:
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
