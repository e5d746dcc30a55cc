"""Two services: the library over a store, and a real server over a copy of it.

Both know the same nodes and one trained program, ``chaser``, which suffers in memory.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kongming import Fingerprint, NodeFacts
from kongming.learning.model_file import seal as seal_model
from kongming.learning.training import train_application
from kongming.local_service import LocalService
from kongming.records.judgement import Judgement, Reason
from kongming.records.questions import RankQuestion
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from kongming.rpc.protocol import PredictionService
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.model_file import seal
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.terms import read_terms
from kongming.store import Store
from kongming.store.models import SCALE
from tests import builders
from tests.models import synthetic
from tests.scale.shapes import grid, measured
from tests.server.fleet import FakeAgent, moment
from tests.server.process import ServerProcess

NODES = {
    "calm": ("node-1", {}, 5.0),
    "busy": ("node-2", {"memory": 0.6}, 5.0),
    "wild": ("node-3", {"memory": 4.0}, 5.0),
    "dozing": ("node-4", {"memory": 0.3}, 2 * 3600.0),
}
"""By name: id, log slowdown of each family by its load, age of the newest fingerprint (s)."""

SOLO_S = 3.0


PROFILE = Judgement(
    "spoiled",
    (
        Reason("solo-spread", "spoiled", {"ratio": 2.0, "runs": 3, "shortest": 2, "longest": 4}),
        Reason("unfelt-loads", "usable", {"runs": 1, "of": 4}, ("compute.float@1",)),
    ),
    left_out_runs=2,
).to_dict()
"""What the program's model keeps of its profile."""


def facts(name: str) -> NodeFacts:
    return builders.node(id=NODES[name][0], name=name)


def present(name: str) -> Fingerprint:
    """The node's newest fingerprint."""
    _, loads, age_s = NODES[name]
    times = synthetic.environment(loads, np.random.default_rng(9), noise=0.0)
    return builders.fingerprint(
        times, node=facts(name), started_at=moment(age_s), elapsed_s=0.0, id=f"now-of-{name}"
    )


def idle(name: str) -> Fingerprint:
    """Taken on the idle node, some days ago."""
    return builders.fingerprint(
        synthetic.IDLE, node=facts(name), started_at=moment(3e5), id=f"idle-of-{name}"
    )


def job(machines: Any, scale: Any) -> Any:
    """Seconds of the program on idle machines: serial work of 2 s, and 8 s to share out."""
    return 2.0 + 8.0 * scale / machines


@cache
def scale_document() -> dict[str, Any]:
    """A scale model of ``job``, as it is stored."""
    runs = measured(job, grid((1, 2, 3, 4, 8), (0.25, 0.5, 1.0), repeats=2), 0.01)
    model = fit_runs(runs, Settings(read_terms("default", items=None), kind="ernest-relative"))
    return seal(ScaleFile("chaser", "2026-01-01T00:00:00Z", (model,)))


@pytest.fixture(scope="session")
def trained_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds the program's model alone."""
    path = tmp_path_factory.mktemp("trained") / "store.db"
    with Store.open(f"sqlite:///{path}") as store:
        store.put_node(facts("calm"))
        runs = synthetic.campaign("chaser", {"memory.random.128M": 0.6}, solo_s=SOLO_S)
        store.add_all(runs=runs, signatures=[synthetic.signature("chaser", {"memory": 0.5})])
        document = train_application(runs, models=("NNLS",))
        del document["checksum"]
        document = seal_model(document | {"profile": PROFILE})
        store.put_model("chaser", document["identity"], "node-1", "cross-core", document)
        store.put_application("chaser", document["identity"], {"name": "chaser", "command": "c"})
        store.put_model("scale:chaser", SCALE, "", SCALE, scale_document())
    return path


@pytest.fixture(scope="module")
def local_url(trained_store: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store that knows the nodes as well."""
    path = tmp_path_factory.mktemp("local") / "store.db"
    shutil.copy(trained_store, path)
    url = f"sqlite:///{path}"
    with Store.open(url) as store:
        for name in NODES:
            reference = idle(name)
            store.put_reference(
                reference.node.id,
                reference.suite_version,
                reference.cpu,
                reference.times(),
                1,
                reference.started_at,
            )
            store.add_fingerprint(present(name), purpose="live")
    return url


@pytest.fixture(scope="module")
def local(local_url: str) -> Iterator[PredictionService]:
    with Store.open(local_url) as store:
        yield LocalService(store)


@pytest.fixture(scope="module")
def server_process(
    trained_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A real server to which the nodes have reported."""
    folder = tmp_path_factory.mktemp("remote")
    shutil.copy(trained_store, folder / "server.db")
    server = ServerProcess(folder, settings={"training.models": "NNLS"})
    try:
        server.start()
        for name, (node_id, _, _) in NODES.items():
            agent = FakeAgent(server.channel(), node_id, name=name)
            agent.register(references=[idle(name)])
            assert agent.send([agent.request(present(name))]).accepted == [f"now-of-{name}"]
        with RemoteService(Connection(server.grpc, timeout_s=100.0)) as service:
            _settle(service)
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def remote(server_process: ServerProcess) -> Iterator[RemoteService]:
    with RemoteService(Connection(server_process.grpc, timeout_s=100.0)) as service:
        yield service


def _settle(service: RemoteService) -> None:
    """Wait until the ranking includes all that was reported: it says how far it lags behind."""
    deadline = time.monotonic() + 60.0
    while (
        any(node.last_fingerprint_at is None for node in service.nodes())
        or service.rank(RankQuestion("chaser")).staleness_s > 0.0
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(params=["local", "remote"])
def service(request: pytest.FixtureRequest) -> PredictionService:
    """Each of the two services in turn."""
    selected: PredictionService = request.getfixturevalue(request.param)
    return selected


def expected(name: str) -> float:
    """The program's true slowdown on a node."""
    return math.exp(0.6 * NODES[name][1].get("memory", 0.0))
