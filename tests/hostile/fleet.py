"""A real server with three honest agents and a thief, each with a token of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kongming import Fingerprint
from kongming.rpc.v1 import fleet_pb2, predictor_pb2, predictor_pb2_grpc
from kongming.store import Store
from tests import builders
from tests.server.core import worlds
from tests.server.credentials import agent_with
from tests.server.fleet import FakeAgent, moment
from tests.server.process import ServerProcess, eventually

HONEST = ("node-1", "node-2", "node-3")
APPS = ("memory", "disk", "unknown")
SETTINGS = {
    "security.authenticate": "always",
    "security.tokens_period_s": 0.05,
    # Nothing ages while a test runs, however long it takes.
    "fleet.fingerprint_ttl_s": 86400,
    "fleet.silent_after_s": 86400,
    "closed_loop.check_period_s": 0.05,
}
UNHURRIED = {"limits.agent_rate": 1e6, "limits.agent_bytes": 1e12}
"""Added by tests that make an agent's calls one after another, so that none is delayed."""

Answers = Mapping[str, Any]


class Fleet:
    """``answers()``: all that the server says of the honest nodes; ``thief`` may do what it can."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.operator, _ = agent_with(server, "operator")
        channel = self.operator.channel
        self.predictor = predictor_pb2_grpc.PredictorStub(channel)  # type: ignore[no-untyped-call]
        self.honest = []
        for number, node_id in enumerate(HONEST):
            agent, _ = agent_with(server)
            agent.facts = builders.node(id=node_id, name=node_id)
            agent.register(references=[fingerprint(agent, {})])
            agent.report(self.live(number, agent))
            self.honest.append(agent)
        self.thief, _ = agent_with(server)
        self.thief.facts = builders.node(id="thief", name="thief")
        self.thief.register(references=[fingerprint(self.thief, {})])
        self.thief.report(fingerprint(self.thief, {}))

    def live(self, number: int, agent: FakeAgent) -> Fingerprint:
        """What an honest agent measures: a new fingerprint each time."""
        return fingerprint(agent, {"stream.triad": 0.1 * number})

    def ingest(self) -> bool:
        """Whether each honest agent's next reports are taken."""
        taken = []
        for number, agent in enumerate(self.honest):
            live = self.live(number, agent)
            run = builders.run("sort", 1.0, node_id=agent.facts.id)
            taken.append(list(agent.report(live).accepted) == [live.id])
            taken.append(list(agent.report_runs([run]).accepted) == [run.id])
        return all(taken)

    def answers(self) -> Answers:
        answers: dict[str, Any] = {}
        listed = self.operator.fleet.ListNodes(fleet_pb2.ListNodesRequest(), timeout=60).nodes
        for node in listed:
            if node.facts.id in HONEST:
                answers[f"{node.facts.id} listed"] = (
                    node.facts.name,
                    node.state,
                    node.general_slowdown,
                    dict(node.slowdown),
                    [
                        (assignment.assignment_id, assignment.app, assignment.state)
                        for assignment in node.assignments
                    ],
                )
        for app in APPS:
            questions = [predictor_pb2.PredictQuestion(app=app, node=node) for node in HONEST]
            request = predictor_pb2.PredictRequest(questions=questions)
            for node, answer in zip(
                HONEST, self.predictor.Predict(request, timeout=60).answers, strict=True
            ):
                answers[f"{node} {app}"] = _figures(answer.prediction)
            rank = predictor_pb2.RankNodesRequest(app=app, nodes=[*HONEST, "thief"], seed=1)
            for place in self._up_to_date(rank).nodes:
                if place.node_id in HONEST:
                    answers[f"{place.node_id} {app} ranked"] = (place.score, place.slowdown.median)
        return answers

    def _up_to_date(
        self, request: predictor_pb2.RankNodesRequest
    ) -> predictor_pb2.RankNodesResponse:
        """A ranking into which all reports have come: a server says for how long some have not."""

        def ask() -> predictor_pb2.RankNodesResponse | None:
            response = self.predictor.RankNodes(request, timeout=60)
            return response if response.staleness_seconds == 0.0 else None

        response: predictor_pb2.RankNodesResponse = eventually(ask)
        return response


def _figures(prediction: predictor_pb2.Prediction) -> tuple[float, ...]:
    slowdown = prediction.slowdown
    return (
        slowdown.median,
        slowdown.lower,
        slowdown.upper,
        prediction.runtime.median,
        prediction.solo,
    )


def fingerprint(agent: FakeAgent, logs: Mapping[str, float], age_s: float = 1.0) -> Fingerprint:
    """Surrogates of the models' suite, slowed by these logs, of an agent's node."""
    return builders.fingerprint(
        worlds.slowed(logs),
        node=agent.facts,
        suite="quick",
        suite_version=worlds.SUITE,
        started_at=moment(age_s),
        elapsed_s=0.5,
    )


def fill(store_url: str) -> None:
    """Store models and signatures of two applications, as an operator would import them."""
    with Store.open(store_url) as store:
        for app, sensitivity, pressure in worlds.APPS[:2]:
            document = worlds.document(app, sensitivity, trained_at="2026-01-01T00:00:00Z")
            store.put_model(app, document["identity"], "trainer", "cross-core", document)
            store.add_signature(worlds.signature(app, pressure))


@contextmanager
def serving(folder: Path, settings: Mapping[str, Any] = UNHURRIED) -> Iterator[Fleet]:
    server = ServerProcess(folder, settings=SETTINGS | dict(settings))
    fill(server.store_url)
    server.start()
    try:
        yield Fleet(server)
    finally:
        server.close()
