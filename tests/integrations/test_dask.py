"""Tasks on real Dask workers, placed by a real server and held there until they end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kongming.rpc.client import RemoteService
from tests.conftest import Kongming
from tests.server.process import ServerProcess, eventually

pytest.importorskip("distributed")

from kongming.integrations.dask import DaskPlacer
from tests.integrations.dask_cluster import DaskCluster, dask_cluster
from tests.integrations.examples import EXPECTED, run_example


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path_factory.mktemp("dask"), "calm", "busy") as cluster:
        yield cluster


def test_the_example_of_the_page_runs(
    fleet: ServerProcess, cluster: DaskCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses = {
        '"127.0.0.1:7400"': repr(fleet.grpc),
        'Client("127.0.0.1:8786")': f"Client({cluster.client.scheduler.address!r})",
    }
    run_example("dask", addresses)
    assert capsys.readouterr().out == f"{EXPECTED}\n"


def until(path: str, fails: bool = False) -> int:
    """Wait for the file; return the process that did."""
    while not os.path.exists(path):  # noqa: PTH110  # in a worker, which gets plain values
        time.sleep(0.01)
    if fails:
        raise RuntimeError("as asked")
    return os.getpid()


def test_tasks_go_to_the_unloaded_worker_and_hold_their_place_until_they_end(
    fleet: ServerProcess,
    service: RemoteService,
    cluster: DaskCluster,
    kongming: Kongming,
    tmp_path: Path,
) -> None:
    def assignments() -> list[dict[str, Any]]:
        shown = kongming("assignments", "--json", "--server", fleet.grpc).stdout
        listed: list[dict[str, Any]] = json.loads(shown)["assignments"]
        return listed

    with DaskPlacer(fleet.grpc, app="sort", limit=1.5, client=cluster.client) as placer:
        files = [tmp_path / name for name in "abc"]
        # Without a timeout Dask may take those first that were submitted a moment later.
        options = {"fifo_timeout": "0 ms"}
        futures = [placer.submit(until, str(file), file.name == "b", **options) for file in files]
        # Each in turn: they wait for each other on the calm node's one thread.
        for future, file in zip(futures, files, strict=True):
            (held,) = eventually(assignments)
            assert (held["app"], held["node_id"], held["state"]) == ("sort", "calm", "reserved")
            file.touch()
            failed = future.exception(timeout=100)
            assert (failed is not None) == (file.name == "b")
            eventually(
                lambda ended=held["assignment_id"]: (
                    ended not in {each.assignment_id for each in service.assignments()}
                )
            )
        on = {future.result() for future in futures if future.status == "finished"}
        assert on == {cluster.workers["calm"].pid}
        assert list(service.assignments()) == []

        cancelled = placer.submit(until, str(tmp_path / "never"))
        eventually(service.assignments)
        cancelled.cancel()
        eventually(lambda: not service.assignments())
        (tmp_path / "never").touch()

        # A worker that dies: its task goes to the other one, and still ends.
        moved = placer.submit(until, str(tmp_path / "moved"))
        eventually(service.assignments)
        cluster.workers["calm"].kill()
        (tmp_path / "moved").touch()
        assert moved.result(timeout=100) == cluster.workers["busy"].pid
        eventually(lambda: not service.assignments())


class _Cluster:
    """A client of a version whose ``scheduler_info`` tells of five workers by default."""

    asynchronous = False

    def scheduler_info(self, n_workers: int = 5) -> dict[str, Any]:
        names = [f"tcp://worker-{number}" for number in range(8)]
        shown = names if n_workers < 0 else names[:n_workers]
        return {"workers": {name: {"name": name, "nthreads": 1} for name in shown}}

    def run(self, *_: object, workers: list[str], on_error: str) -> dict[str, str]:
        return {}


def test_all_workers_of_a_large_cluster_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KONGMING_SERVER", raising=False)
    with DaskPlacer(app="sort", client=_Cluster()) as placer:
        assert len(tuple(placer._members())) == 8
