"""A server that is started on a store of an older version: it upgrades it and answers from it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kongming.learning.training import train_application
from kongming.records.answers import Forecast
from kongming.records.questions import Question
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from tests import builders
from tests.models import synthetic
from tests.server.conftest import StartServer
from tests.server.fleet import FakeAgent
from tests.server.profiles.profiled import SENSITIVE, campaign, iso

FIXTURES = Path(__file__).resolve().parents[1] / "store/fixtures"
REVISIONS = ("0001", "0002")


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    return train_application(campaign("prog"), models=("LM", "CART"))


@pytest.mark.parametrize("revision", REVISIONS)
def test_it_is_upgraded_and_its_model_answers(
    revision: str, trained: dict[str, Any], start_server: StartServer, tmp_path: Path
) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    shutil.copyfile(FIXTURES / f"{revision}.db", folder / "server.db")
    held = json.loads((FIXTURES / f"{revision}.json").read_text())
    with sqlite3.connect(folder / "server.db") as old:
        old.execute(
            "INSERT INTO model VALUES ('prog', 'cross-core', 3, ?, 'node-1', ?, ?)",
            (trained["identity"], "2025-01-02 03:04:05.000000", json.dumps(trained)),
        )
    old.close()

    server = start_server(folder=folder)
    for _ in range(2):
        agent = FakeAgent(server.channel(), "node-1")
        times = synthetic.environment({"memory": 0.5}, np.random.default_rng(1))
        agent.register(references=[_print(agent, synthetic.IDLE)])
        agent.report(_print(agent, times))
        with RemoteService(Connection(server.grpc)) as service:
            (prediction,) = service.predict([Question("prog", "node-1")])
            assert isinstance(prediction, Forecast), prediction
            assert (prediction.basis, prediction.model_version) == ("model", 3)
            true = synthetic.slowdown(SENSITIVE, times)
            assert prediction.slowdown.median == pytest.approx(true, rel=0.1)
            assert {node.facts.id for node in service.nodes()} == {n["id"] for n in held["nodes"]}
            runs = {application.name: application.runs for application in service.applications()}
            assert sum(runs.values()) == len(held["runs"])
            in_service = {
                model.app: model.version for model in service.models() if model.in_service
            }
            assert in_service["prog"] == 3
        # What cannot be read any more is logged, and does no harm to the rest.
        assert "model of sort at cross-core is left out" in server.log.read_text()
        server.restart()


def _print(agent: FakeAgent, times: dict[str, float]) -> Any:
    moment = iso(time.time() - 1.0)
    return builders.fingerprint(times, node=agent.facts, suite="quick", started_at=moment)
