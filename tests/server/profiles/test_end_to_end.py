"""A program changes its behaviour: a real server flags it, trains it again and promotes."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable

import grpc
import numpy as np
import pytest

from kongming.records.run import Run
from kongming.rpc import record_codec as records
from kongming.rpc.v1 import (
    assignments_pb2,
    fleet_pb2,
    predictor_pb2,
    predictor_pb2_grpc,
    profiles_pb2,
    profiles_pb2_grpc,
)
from tests import builders
from tests.models import synthetic
from tests.server.conftest import StartServer
from tests.server.fleet import FakeAgent
from tests.server.process import eventually
from tests.server.profiles.profiled import SENSITIVE, campaign, iso

SETTINGS = {
    "training.models": "LM,CART",
    "closed_loop.check_period_s": 0.05,
    "closed_loop.retrain_pause_s": 0.0,
}


class Cluster:
    """One node and a scheduler that runs a program on it, whatever the program is by now."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.profiles = profiles_pb2_grpc.ProfilesStub(channel)  # type: ignore[no-untyped-call]
        self.predictor = predictor_pb2_grpc.PredictorStub(channel)  # type: ignore[no-untyped-call]
        self.agent = FakeAgent(channel, "node-1")
        self.random = np.random.default_rng(1)
        self.solo_s = 3.0
        self._jobs = 0
        reference = builders.fingerprint(
            synthetic.IDLE, node=self.agent.facts, started_at=iso(time.time() - 60.0)
        )
        self.agent.register(references=[reference])

    def profile(self) -> list[Run]:
        """Profile the program as it is now, and import that."""
        self._jobs += 1
        runs = campaign(
            "prog", began_at=time.time() - 0.4, solo_s=self.solo_s, seed=100 + self._jobs
        )
        answer = self.profiles.ImportRuns(self._messages(runs), timeout=60)
        assert answer.runs == len(runs)
        return runs

    @staticmethod
    def _messages(runs: Iterable[Run]) -> Iterable[profiles_pb2.ImportRunsRequest]:
        return (profiles_pb2.ImportRunsRequest(run=records.run_to_message(run)) for run in runs)

    def train(self) -> profiles_pb2.Operation:
        operation = self.profiles.Train(profiles_pb2.TrainRequest(apps=["prog"]), timeout=100)
        request = profiles_pb2.WatchOperationRequest(id=operation.operation.id)
        *_, last = self.profiles.WatchOperation(request, timeout=120)
        return last.operation

    def run_once(self) -> float:
        """Place the program under some load and report its run; returns the seconds it took."""
        self._jobs += 1
        job = f"job-{self._jobs}"
        loads = {str(self.random.choice(("cache", "read", "memory"))): self.random.uniform(0, 0.8)}
        times = synthetic.environment(loads, self.random)
        seen = builders.fingerprint(times, node=self.agent.facts, started_at=iso(time.time()))
        self.agent.send([self.agent.request(seen)])
        self.agent.assignments.Bind(
            assignments_pb2.BindRequest(assignment_id=job, app="prog", node="node-1"), timeout=100
        )
        noise = math.exp(0.01 * self.random.standard_normal())
        seconds = self.solo_s * synthetic.slowdown(SENSITIVE, times) * noise
        run = builders.run(
            "prog", seconds, kind="environment", started_at=iso(time.time() - seconds)
        )
        self.agent.sequence += 1
        reported = fleet_pb2.ReportedRun(
            sequence=self.agent.sequence, run=records.run_to_message(run), assignment_id=job
        )
        request = fleet_pb2.ReportRunsRequest(node_id="node-1", runs=[reported])
        for _ in range(2):  # The second is a repeated delivery.
            answer = self.agent.fleet.ReportRuns(request, timeout=100)
            assert list(answer.accepted) == [run.id]
        return seconds

    def application(self) -> profiles_pb2.Application:
        request = profiles_pb2.GetApplicationRequest(name="prog")
        return self.profiles.GetApplication(request, timeout=100).application

    def models(self) -> dict[int, bool]:
        """Whether it is in service, by version."""
        listed = self.profiles.ListModels(profiles_pb2.ListModelsRequest(app="prog"), timeout=100)
        return {model.version: model.in_service for model in listed.models}

    def predicted_solo(self, version: int = 0) -> float:
        question = predictor_pb2.PredictQuestion(app="prog", node="node-1", model_version=version)
        request = predictor_pb2.PredictRequest(questions=[question])
        answer = self.predictor.Predict(request, timeout=100).answers[0]
        assert answer.WhichOneof("answer") == "prediction", answer
        return answer.prediction.solo


@pytest.mark.thorough
def test_a_changed_program_is_flagged_trained_again_and_promoted(
    start_server: StartServer,
) -> None:
    server = start_server(settings=SETTINGS)
    cluster = Cluster(server.channel())
    cluster.profile()
    first = cluster.train()
    assert first.trained[0].promoted, first

    for _ in range(15):
        cluster.run_once()
    calm = cluster.application().realised
    # Each was delivered twice and counts once.
    assert calm.runs == 15
    assert not calm.drifted
    assert calm.median_error_pct < 10.0
    assert calm.coverage >= 0.7
    assert calm.level == 0.9

    # The program does twice as much from now on; its identity does not show that.
    cluster.solo_s *= 2.0
    late = 0
    while not cluster.application().realised.drifted:
        cluster.run_once()
        late += 1
        assert late <= 25
    flagged = cluster.application().realised
    assert "slower" in flagged.reason
    assert "version 1" in flagged.reason
    assert flagged.coverage < calm.coverage
    metrics = server.get("/metrics")
    assert 'kongming_server_model_drifted{app="prog"} 1.0' in metrics
    # Nobody has profiled the program as it is now: there is nothing to learn it from.
    assert cluster.models() == {1: True}

    # A restarted server flags it as well.
    server.restart()
    cluster = Cluster(server.channel())
    cluster.solo_s = 6.0
    cluster._jobs = 1000
    assert cluster.application().realised.drifted

    cluster.profile()
    eventually(lambda: cluster.models() == {1: False, 2: True}, timeout_s=60.0)
    # The engine that answers learns of it from the store.
    eventually(lambda: 5.5 < cluster.predicted_solo() < 6.5)
    # The old one can still be asked.
    assert 2.7 < cluster.predicted_solo(version=1) < 3.3

    for _ in range(10):
        cluster.run_once()
    after = cluster.application().realised
    assert not after.drifted
    assert after.runs == 10
    assert after.median_error_pct < 10.0
    assert cluster.models() == {1: False, 2: True}

    cluster.profiles.PromoteModel(profiles_pb2.PromoteModelRequest(app="prog"), timeout=100)
    assert cluster.models() == {1: True, 2: False}
    log = server.log.read_text(encoding="utf-8")
    # Who put which version into service, by whose runs.
    by_whom = r"trained on \d+ runs of the node node-1 because "
    assert re.search(rf"Version 1 of prog .* in service: .*{by_whom}a caller asked for it", log)
    assert re.search(rf"Version 2 of prog .* in service: .*{by_whom}.*slower", log)
    assert "Version 1 of prog at cross-core is in service: a caller said so." in log
