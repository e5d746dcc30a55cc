"""How loaded nodes are: what is known, what is not, and which of several domains counts."""

from __future__ import annotations

import asyncio
import http.client
import math
from typing import Any

import pytest
from kongming_server.configuration.limits import Limits
from kongming_server.configuration.settings import Security, Series
from kongming_server.monitoring.metrics import Metrics
from kongming_server.monitoring.node_loads import NodeLoads

from kongming.engine.engine import Engine
from kongming.records.judgement import Judgement, Reason
from kongming.records.node_load import NodeLoad, lost_share
from kongming.steps import finish
from tests import builders
from tests.server.core.worlds import IDLE, NOW, fingerprint, model, slowed
from tests.server.stand import Stand

MEMORY = {"memory.random.128M": 0.4, "stream.triad": 0.8}


def put(
    engine: Engine, node_id: str, logs: dict[str, float], age_s: float = 10.0, **of: Any
) -> None:
    """A node's newest fingerprint, slowed by these logs."""
    domain = of.pop("domain", 0)
    engine.put_fingerprint(
        node_id, domain, fingerprint(slowed(logs), NOW - age_s, node_id, **of), now=NOW
    )


@pytest.fixture
def engine() -> Engine:
    engine = Engine()
    for node_id, domains in (("n1", 1), ("n2", 2), ("n3", 1), ("n4", 1), ("n5", 1)):
        cpus = tuple((cpu,) for cpu in range(domains))
        facts = builders.node(id=node_id, name=f"name-{node_id}", llc_cpus=cpus)
        engine.put_node(facts, NOW)
        for domain in range(domains if node_id != "n5" else 0):
            engine.put_reference(node_id, domain, IDLE)
    put(engine, "n1", MEMORY)
    put(engine, "n2", {}, domain=0)
    put(engine, "n2", {"compute.int": 0.5}, domain=1)
    put(engine, "n3", MEMORY, age_s=7200.0)
    put(engine, "n4", {name: -0.3 for name in IDLE})
    engine.refresh(NOW, 10.0)
    return engine


def loads(engine: Engine, window_s: float = 0.0) -> dict[str, NodeLoad]:
    return {load.node_id: load for load in finish(engine.node_loads(NOW, window_s))}


def test_a_resource_is_the_mean_of_its_surrogates_and_the_worst_of_its_domains(
    engine: Engine,
) -> None:
    by_node = loads(engine)
    n1, n2 = by_node["n1"].slowdown, by_node["n2"].slowdown
    families = {name: builders.family_of(name) for name in IDLE}
    memory = [name for name in IDLE if families[name] in ("cache", "memory")]
    expected = math.exp(sum(MEMORY.get(name, 0.0) for name in memory) / len(memory))
    assert n1["memory"] == pytest.approx(expected)
    assert n1["cpu"] == pytest.approx(1.0)
    assert n1["all"] == pytest.approx(math.exp(sum(MEMORY.values()) / len(IDLE)))
    assert "network" not in n1
    assert n2["cpu"] > 1.2
    assert n2["memory"] == pytest.approx(1.0)
    assert by_node["n4"].slowdown["all"] == pytest.approx(math.exp(-0.3))
    assert lost_share(by_node["n4"].slowdown["all"]) == 0.0


def test_what_is_old_silent_or_without_reference_is_not_known(engine: Engine) -> None:
    by_node = loads(engine, 900.0)
    assert by_node["n3"].slowdown == by_node["n3"].windows == {}
    assert by_node["n3"].fingerprint_age_s == pytest.approx(7200.0)
    assert (by_node["n5"].slowdown, by_node["n5"].fingerprint_age_s) == ({}, None)
    engine.mark_suspect("n1", "It cannot be.")
    assert loads(engine)["n1"].slowdown == {}
    later = finish(engine.node_loads(NOW + 1000.0))
    assert [load.slowdown for load in later] == [{}] * 5


def test_a_window_is_of_the_readings_within_it(engine: Engine) -> None:
    assert loads(engine, 900.0)["n1"].windows["memory"].deviation is None
    put(engine, "n1", {name: 0.3 for name in IDLE}, age_s=800.0)
    put(engine, "n1", {name: 3.0 for name in IDLE}, age_s=1000.0)
    engine.refresh(NOW, 10.0)
    window = loads(engine, 900.0)["n1"].windows["memory"]
    shares = [1.0 - 1.0 / loads(engine)["n1"].slowdown["memory"], 1.0 - math.exp(-0.3)]
    assert window.mean == pytest.approx(sum(shares) / 2, rel=1e-4)
    spread = abs(shares[0] - shares[1]) / math.sqrt(2)
    assert window.deviation == pytest.approx(spread, rel=1e-4)


def test_nodes_of_one_name_are_told_apart(engine: Engine) -> None:
    engine.put_node(builders.node(id="n6", name="name-n1"), NOW)
    names = [load.name for load in finish(engine.node_loads(NOW))]
    assert sorted(names) == ["n1", "n6", "name-n2", "name-n3", "name-n4", "name-n5"]


def test_a_name_is_that_of_the_only_node_that_is_not_silent(engine: Engine) -> None:
    def names(now: float) -> tuple[str, str]:
        of = {load.node_id: load.name for load in finish(engine.node_loads(now))}
        return of["n1"], of["n6"]

    later = NOW + 3600.0
    engine.put_node(builders.node(id="n6", name="name-n1"), later)
    assert names(NOW) == ("n1", "n6")
    assert names(later) == ("n1", "name-n1")
    # A machine in quarantine may be installed anew, too.
    engine.mark_suspect("n1", "0 cycles")
    assert names(later) == ("n1", "name-n1")
    assert names(later + 3600.0) == ("n1", "n6")


def test_series_are_bounded_and_what_is_left_out_is_counted(engine: Engine) -> None:
    for app in ("a", "b"):
        engine.put_model(model(app, {"memory.random.128M": 1.0}), 1)
    engine.refresh(NOW, 10.0)
    metrics = Metrics()
    asyncio.run(NodeLoads(engine, lambda: NOW, metrics, Series(nodes=2, apps=1)).refresh())
    text = asyncio.run(metrics.text())[0].decode()
    of_nodes = [line for line in text.splitlines() if line.startswith("kongming_server_node_")]
    assert {line.split('node="')[1].split('"')[0] for line in of_nodes} == {"name-n1", "name-n2"}
    value = metrics.registry.get_sample_value
    assert value("kongming_server_series_left_out", {"kind": "node"}) == 3.0
    assert value("kongming_server_series_left_out", {"kind": "app"}) == 1.0
    labels = {"app": "a", "placement": "cross-core"}
    reported = [
        value("kongming_server_app_slowdown_ratio", labels | {"of": of})
        for of in ("least", "median", "greatest")
    ]
    # Of n1, where memory is slowed, and n2 (two domains) and n4, where it is not.
    assert reported == pytest.approx([1.0, 1.0, math.exp(0.4)], rel=1e-5)
    assert 'kongming_server_app_slowdown_ratio{app="b"' not in text
    unjudged = {"app": "a", "placement": "cross-core", "verdict": "not-judged"}
    assert value("kongming_server_model_profile", unjudged) == 1.0
    assert 'kongming_server_model_profile{app="b"' not in text


def test_the_verdict_on_the_profile_of_each_model_is_a_series(engine: Engine) -> None:
    spoiled = Judgement("spoiled", (Reason("no-solo-run", "spoiled"),))
    engine.put_model(model("a", {"memory.random.128M": 1.0}, profile=spoiled.to_dict()), 1)
    metrics = Metrics()
    asyncio.run(NodeLoads(engine, lambda: NOW, metrics, Series()).refresh())
    labels = {"app": "a", "placement": "cross-core", "verdict": "spoiled"}
    assert metrics.registry.get_sample_value("kongming_server_model_profile", labels) == 1.0


@pytest.mark.parametrize(("public", "status"), [(False, 401), (True, 200)])
def test_the_watcher_asks_for_a_token_unless_it_is_public(public: bool, status: int) -> None:
    security = Security(authenticate="always", public_watcher=public)
    with Stand(security, Limits()) as stand:
        connection = http.client.HTTPConnection(stand.http, timeout=20)
        connection.request("GET", "/watcher")
        assert connection.getresponse().status == status
        connection.close()
