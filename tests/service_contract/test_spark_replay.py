"""A replay of a Spark log in the store, answered by a local store and by a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kongming.records.questions import Question
from kongming.records.scaling import Scaling
from kongming.rpc.protocol import PredictionService
from tests.conftest import Kongming
from tests.server.process import ServerProcess, eventually
from tests.service_contract.conftest import NODES, expected
from tests.service_contract.test_commands import answer, ask
from tests.service_contract.test_prediction_service import forecast
from tests.spark.event_logs import write
from tests.spark.programs import Part, Program, Stage, run

__all__ = ["ask"]

PROGRAM = Program((Part((Stage((3.0,) * 240), Stage((2.0,) * 120, (0,)))),))


def _store(kongming: Kongming, folder: Path, url: str) -> dict[int, dict[str, float]]:
    """Store a replay as the trained program's scale model; return its estimates by executors."""
    log = write(run(PROGRAM, 3), folder / "app-1")
    executors = ("--executors", "1..8", "--name", "chaser", "--store", url, "--json")
    report = answer(kongming("spark", "estimate", log, *executors))
    assert (report["name"], report["version"]) == ("chaser", 2)
    return {each["executors"]: each["runtime_s"] for each in report["estimates"]}


@pytest.fixture(scope="module")
def stored() -> dict[str, dict[int, dict[str, float]]]:
    """The estimates by the store that has them."""
    return {}


@pytest.fixture
def estimates(
    kongming: Kongming,
    local_url: str,
    tmp_path: Path,
    stored: dict[str, dict[int, dict[str, float]]],
) -> dict[int, dict[str, float]]:
    """What the local store's replay says."""
    if local_url not in stored:
        stored[local_url] = _store(kongming, tmp_path, local_url)
    return stored[local_url]


@pytest.fixture
def server_with_replay(
    kongming: Kongming,
    server_process: ServerProcess,
    remote: PredictionService,
    tmp_path: Path,
    stored: dict[str, dict[int, dict[str, float]]],
) -> None:
    """Wait until the server answers of the replay, not of the scale model that it began with."""
    url = server_process.store_url
    if url not in stored:
        stored[url] = _store(kongming, tmp_path, url)
    idle_s = pytest.approx(stored[url][2]["median"], rel=1e-6)
    eventually(lambda: forecast(remote, JOB).solo_s == idle_s)


JOB = Question("chaser", scaling=Scaling(2), nodes=("calm", "busy"))


def test_scale_predict_answers_from_the_store(
    kongming: Kongming, local_url: str, estimates: dict[int, dict[str, float]]
) -> None:
    for executors in (2, 6):
        machines = ("--machines", str(executors), "--store", local_url, "--json")
        document = answer(kongming("scale", "predict", "chaser", *machines))
        assert document["model"] == "spark-replay"
        for end in ("lower", "median", "upper"):
            assert document["runtime_s"][end] == pytest.approx(estimates[executors][end], rel=1e-3)


@pytest.mark.usefixtures("server_with_replay")
def test_a_job_on_loaded_nodes(ask: Kongming, estimates: dict[int, dict[str, float]]) -> None:
    """Of a store, and of a server over RPC."""

    def predicted(nodes: str) -> dict[str, Any]:
        arguments = ("predict", "chaser", "--machines", "2", "--nodes", nodes, "--json")
        document = answer(ask(*arguments))
        assert isinstance(document, dict)
        return document

    slow = predicted("calm,busy")
    assert slow["solo_s"] == pytest.approx(estimates[2]["median"], rel=1e-6)
    assert slow["scaled"]["model"] == "chaser"
    assert slow["scaled"]["slowest"] == NODES["busy"][0]
    # Free slots take more tasks: two nodes do the work of 1 + 1/slowdown, and wait for none.
    factor = expected("busy")
    shared = 2.0 / (1.0 + 1.0 / factor)
    assert slow["slowdown"]["median"] == pytest.approx(shared, rel=0.06)
    assert slow["slowdown"]["median"] < 0.95 * factor


@pytest.mark.usefixtures("server_with_replay")
def test_the_library_asks_a_server(
    remote: PredictionService, local: PredictionService, estimates: dict[int, dict[str, float]]
) -> None:
    here, there = (forecast(service, JOB) for service in (local, remote))
    assert there.solo_s == pytest.approx(estimates[2]["median"], rel=1e-6)
    assert here.runtime_s is not None
    assert there.runtime_s is not None
    for end in ("lower", "median", "upper"):
        assert getattr(there.runtime_s, end) == pytest.approx(
            getattr(here.runtime_s, end), rel=1e-2
        )
