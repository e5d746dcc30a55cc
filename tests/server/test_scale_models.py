"""Scale models on a real server: they come by the store, change there, and go."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

import pytest

from kongming.records.errors import UntrainedError
from kongming.records.questions import Question
from kongming.records.scaling import Scaling
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.model_file import seal
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.terms import read_terms
from kongming.store import Store
from kongming.store.models import SCALE
from tests.scale.shapes import grid, measured
from tests.server.conftest import StartServer
from tests.server.fleet import FakeAgent
from tests.server.process import ServerProcess, eventually

QUESTION = Question("sort", scaling=Scaling(4), nodes=("node-1",))


def keep(store: Store, seconds: float, name: str = "sort") -> None:
    """A model of ``seconds`` of parallel work."""
    runs = measured(lambda m, s: seconds * s / m, grid((1, 2, 4), (0.5, 1.0)))
    model = fit_runs(runs, Settings(read_terms("default", items=None), kind="ernest-relative"))
    document = seal(ScaleFile(name, "2026-01-01T00:00:00Z", (model,)))
    store.put_model(f"scale:{name}", SCALE, "", SCALE, document)


def test_scale_models_follow_the_store(start_server: StartServer) -> None:
    server = start_server()
    agent = FakeAgent(server.channel())
    agent.register(references=[agent.idle()])
    agent.report(agent.idle())
    with (
        RemoteService(Connection(server.grpc, timeout_s=100.0)) as service,
        Store.open(server.store_url) as store,
    ):

        def predicted() -> Any:
            (answer,) = service.predict([QUESTION])
            return answer

        assert isinstance(predicted(), UntrainedError)
        keep(store, 40.0, name="other")
        keep(store, 80.0)
        eventually(lambda: not isinstance(predicted(), UntrainedError))
        assert predicted().solo_s == pytest.approx(20.0, rel=1e-3)
        keep(store, 120.0)
        eventually(lambda: predicted().solo_s == pytest.approx(30.0, rel=1e-3))
        assert predicted().scaled.model == "sort"
        server.restart()
        eventually(lambda: predicted().solo_s == pytest.approx(30.0, rel=1e-3))
        store.delete_model("scale:sort", SCALE)
        eventually(lambda: isinstance(predicted(), UntrainedError))
        assert "left out" not in server.log.read_text()


def post(server: ServerProcess, path: str, body: Any) -> Any:
    request = Request(
        f"http://{server.http}{path}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urlopen(request, timeout=100) as answer:
        return json.loads(answer.read())


def test_the_json_mirror_has_jobs_too(start_server: StartServer) -> None:
    server = start_server()
    agent = FakeAgent(server.channel())
    agent.register(references=[agent.idle()])
    agent.report(agent.idle())
    with Store.open(server.store_url) as store:
        keep(store, 80.0)
    job = {"app": "sort", "nodes": ["node-1"], "scaling": {"machines": 4, "scale": 0.5}}

    def predicted() -> Any:
        (answer,) = post(server, "/v1/predict", {"questions": [job]})["answers"]
        return answer.get("prediction")

    prediction = eventually(predicted)
    assert prediction["runtime"]["median"] == pytest.approx(10.0, rel=0.2)
    assert prediction["scaled"]["idle"]["median"] == pytest.approx(10.0, rel=1e-3)
    ranking = post(server, "/v1/rank", {"app": "sort", "scaling": {"machines": 1}})
    (best,) = ranking["sets"]
    assert best["scaled"]["slowest"] == "node-1"
    document = server.get("/openapi.json")
    assert any("Scaled" in name for name in document["components"]["schemas"])
