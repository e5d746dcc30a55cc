"""Questions to a real server, from what agents report to what a scheduler reads."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import grpc
import psutil
import pytest

from kongming.rpc.v1 import assignments_pb2, predictor_pb2, predictor_pb2_grpc
from kongming.store import Store
from tests import builders
from tests.server.conftest import StartServer
from tests.server.core import worlds
from tests.server.fleet import FakeAgent, moment
from tests.server.process import ServerProcess, eventually

BUSY = {"stream.triad": 0.4, "memory.random.8M": 0.2}


class Node(FakeAgent):
    """A node of the worlds of the engine's tests: its suite and its surrogates."""

    def taken(self, logs: dict[str, float], *, age_s: float = 1.0, cpu: int = 0) -> Any:
        return builders.fingerprint(
            worlds.slowed(logs),
            node=self.facts,
            suite_version=worlds.SUITE,
            started_at=moment(age_s),
            elapsed_s=0.5,
            cpu=cpu,
        )

    def enter(self, logs: dict[str, float]) -> None:
        """Register with a reference, and report an environment."""
        self.register(references=[self.taken({}, age_s=60.0)])
        taken = self.taken(logs)
        assert list(self.report(taken).accepted) == [taken.id]


class Asking:
    def __init__(self, channel: grpc.Channel) -> None:
        self._stub = predictor_pb2_grpc.PredictorStub(channel)  # type: ignore[no-untyped-call]

    def predict(self, app: str, node: str = "node-1", **fields: Any) -> Any:
        question = predictor_pb2.PredictQuestion(app=app, node=node, **fields)
        request = predictor_pb2.PredictRequest(questions=[question])
        (answer,) = self._stub.Predict(request, timeout=100).answers
        assert answer.HasField("prediction"), answer
        return answer.prediction

    def best(self, app: str, **fields: Any) -> str:
        request = predictor_pb2.RankNodesRequest(app=app, seed=1, **fields)
        return str(self._stub.RankNodes(request, timeout=100).nodes[0].node_id)


def wait_for_busy_node(channel: grpc.Channel) -> None:
    """Wait until rankings have what node-1 reported: their matrix lags where the server is short of
    time."""
    stub = predictor_pb2_grpc.PredictorStub(channel)  # type: ignore[no-untyped-call]

    def is_there() -> bool:
        ranking = stub.RankNodes(predictor_pb2.RankNodesRequest(app="memory"), timeout=100)
        return any(n.node_id == "node-1" and n.slowdown.median > 1.1 for n in ranking.nodes)

    eventually(is_there)


def put_models(url: str) -> None:
    """What was profiled and trained elsewhere."""
    with Store.open(url) as store:
        for app, sensitivity, pressure in worlds.APPS:
            document = worlds.document(app, sensitivity)
            identity = builders.identity_of(app)
            store.put_model(app, identity, "trainer", "cross-core", document)
            store.add_signature(worlds.signature(app, pressure))


@pytest.fixture
def trained(tmp_path: Path, start_server: StartServer) -> ServerProcess:
    """A server on a store with three models, a busy node and an idle one."""
    url = f"sqlite:///{tmp_path / 'trained.db'}"
    put_models(url)
    server = start_server(store_url=url)
    channel = server.channel()
    Node(channel, "node-1").enter(BUSY)
    Node(channel, "node-2").enter({})
    wait_for_busy_node(channel)
    return server


def test_the_prediction_follows_what_the_agent_reported(trained: ServerProcess) -> None:
    asking = Asking(trained.channel())
    began = psutil.Process().create_time()
    prediction = asking.predict("memory")
    assert prediction.basis == predictor_pb2.BASIS_MODEL
    assert prediction.model_version == 1
    expected = worlds.expected("memory", BUSY)
    assert math.log(prediction.slowdown.median) == pytest.approx(expected, abs=0.02)
    assert prediction.slowdown.lower < prediction.slowdown.median < prediction.slowdown.upper
    assert not prediction.stale
    assert 0 <= prediction.fingerprint_age.ToSeconds() <= time.time() - began
    assert asking.best("memory") == "node-2"


def test_an_unknown_application_is_judged_by_the_node_alone(trained: ServerProcess) -> None:
    asking = Asking(trained.channel())
    busy, idle = (asking.predict("never-seen", node) for node in ("node-1", "node-2"))
    assert busy.basis == idle.basis == predictor_pb2.BASIS_NODE_ONLY
    assert busy.slowdown.median > idle.slowdown.median
    with urlopen(f"http://{trained.http}/metrics", timeout=10.0) as page:
        counted = page.read().decode()
    assert 'kongming_server_predictions_doubtful_total{reason="uncalibrated"} 2.0' in counted
    assert 'kongming_server_predictions_doubtful_total{reason="at_least"} 0.0' in counted


def test_the_mirror_answers_as_grpc_does(trained: ServerProcess) -> None:
    body = json.dumps({"questions": [{"app": "memory", "node": "node-1"}]}).encode()
    request = Request(
        f"http://{trained.http}/v1/predict", body, {"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=100) as answer:
        (mirrored,) = json.load(answer)["answers"]
    prediction = Asking(trained.channel()).predict("memory")
    assert mirrored["prediction"]["slowdown"]["median"] == pytest.approx(prediction.slowdown.median)


def test_assignments_that_were_reserved_count(trained: ServerProcess) -> None:
    channel = trained.channel()
    asking, node = Asking(channel), Node(channel, "node-2")
    before = asking.predict("memory", "node-2").slowdown.median
    for number in range(3):
        node.assignments.Reserve(
            assignments_pb2.ReserveRequest(assignment_id=f"{number}", app="memory", node="node-2")
        )
    assert asking.predict("memory", "node-2").slowdown.median > before * 1.2
    assert asking.best("memory") == "node-1"


def test_each_cache_domain_is_predicted_by_its_own_fingerprint(trained: ServerProcess) -> None:
    channel = trained.channel()
    node = Node(channel, "wide", llc_cpus=((0,), (1,)))
    idle = [node.taken({}, age_s=60.0, cpu=cpu) for cpu in (0, 1)]
    node.register(references=idle)
    node.report(node.taken(BUSY, cpu=0), node.taken({}, cpu=1))
    asking = Asking(channel)
    busy, free = (asking.predict("memory", "wide", domain=domain) for domain in (0, 1))
    assert (busy.domain, free.domain) == (0, 1)
    assert busy.slowdown.median > free.slowdown.median * 1.1
    assert asking.predict("memory", "wide").domain == 1


def test_a_silent_or_suspect_node_is_not_ranked(trained: ServerProcess) -> None:
    channel = trained.channel()
    node = Node(channel, "node-2")
    node.send([node.request(node.taken({}), readings={"compute.int": -1.0})])
    assert Asking(channel).best("memory") == "node-1"


def test_the_answers_survive_a_restart(trained: ServerProcess) -> None:
    asking = Asking(trained.channel())
    before = [asking.predict("memory", node).slowdown.median for node in ("node-1", "node-2")]
    trained.kill()
    trained.start()
    after = [asking.predict("memory", node).slowdown.median for node in ("node-1", "node-2")]
    assert after == pytest.approx(before, rel=1e-6)


def test_what_was_expected_of_an_assignment_is_kept(trained: ServerProcess) -> None:
    channel = trained.channel()
    node = Node(channel, "node-1")
    expected = Asking(channel).predict("memory").runtime.median
    node.assignments.Reserve(
        assignments_pb2.ReserveRequest(assignment_id="job-1", app="memory", node="node-1")
    )
    node.assignments.Bind(assignments_pb2.BindRequest(assignment_id="job-1"))
    with Store.open(trained.store_url) as store:
        stored = store.forecast("job-1")
    assert stored is not None
    assert (stored.app, stored.node_id, stored.model_version) == ("memory", "node-1", 1)
    assert stored.document["runtime"]["median"] == pytest.approx(expected)


def test_a_model_that_another_program_stores_is_served_soon(trained: ServerProcess) -> None:
    asking = Asking(trained.channel())
    assert asking.predict("memory").model_version == 1
    put_models(trained.store_url)
    eventually(lambda: asking.predict("memory").model_version == 2)
    # The one before can still be asked for.
    assert asking.predict("memory", model_version=1).model_version == 1
    with Store.open(trained.store_url) as store:
        store.delete_model("memory", "cross-core", 2)
        store.promote("disk", "cross-core", 1, "a test")
    eventually(lambda: asking.predict("memory").model_version == 1)


def test_servers_on_one_postgresql_give_the_same_answers(
    start_server: StartServer, postgres_store_url: str
) -> None:
    put_models(postgres_store_url)
    first, second = (
        start_server(store_url=postgres_store_url),
        start_server(store_url=postgres_store_url),
    )
    Node(first.channel(), "node-1").enter(BUSY)
    Node(second.channel(), "node-2").enter({})
    askings = [Asking(server.channel()) for server in (first, second)]

    def answers(asking: Asking) -> list[float]:
        try:
            return [
                asking.predict(app, node).slowdown.median
                for app in ("memory", "disk", "unknown")
                for node in ("node-1", "node-2")
            ]
        except AssertionError:
            return []

    eventually(lambda: answers(askings[0]) and answers(askings[1]))
    first_answers, second_answers = map(answers, askings)
    assert len(first_answers) == 6
    assert first_answers == pytest.approx(second_answers, rel=1e-9)
