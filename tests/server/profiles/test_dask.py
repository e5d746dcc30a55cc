"""Training on a Dask cluster: the same function, in processes of another."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from kongming_server.commands import server_config as config
from kongming_server.configuration.settings import Training as Settings
from kongming_server.training.dask_cluster import Cluster, DaskFitting, cluster_of
from kongming_server.training.process import TrainingProcess, WorkerDiedError
from kongming_server.training.queue import Training

from kongming.learning import model_file as persist
from kongming.learning.training import train_application
from kongming.records.errors import InputError, UnavailableError
from kongming.store import Store
from tests.server.profiles.profiled import Engine, campaign, keep

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")


@contextmanager
def running(folder: Path, workers: int) -> Iterator[str]:
    """The address of a scheduler with so many worker processes."""
    with warnings.catch_warnings():
        # Warnings of Dask itself: about sockets and processes that it closes late.
        warnings.simplefilter("ignore")
        with (
            dask.config.set(temporary_directory=str(folder)),
            distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                host="127.0.0.1",
            ) as cluster,
        ):
            yield cluster.scheduler_address


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a scheduler with a worker process: each takes seconds to start."""
    with running(tmp_path_factory.mktemp("dask"), workers=1) as scheduler:
        yield scheduler


@pytest.fixture(scope="module")
def fitting(address: str) -> Iterator[DaskFitting]:
    """What speaks to the cluster, started by a process with credentials."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KONGMING_STORE", "postgresql://kongming:secret@db.example/kongming")
        patch.setenv("PGPASSWORD", "secret")
        patch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials/kongming-server.service")
        speaking = DaskFitting(Cluster(address))
    try:
        yield speaking
    finally:
        speaking.close()


def test_a_cluster_trains_what_one_process_does(address: str, store_url: str) -> None:
    apps = {f"prog{n}": campaign(f"prog{n}", seed=n) for n in range(2)}

    async def inside() -> Engine:
        engine = Engine()
        training = Training(store_url, engine, Settings(dask=address, models="LM,CART"))
        await training.start()
        try:
            operation = await training.submit()
            async for seen in training.watch(operation.id):
                last = seen
            assert last.state == "done", last.message
            assert {outcome.app for outcome in last.trained} == set(apps)
        finally:
            await training.close()
        return engine

    with Store.open(store_url) as store:
        keep(store, [run for runs in apps.values() for run in runs])
        engine = asyncio.run(inside())
        for app, runs in apps.items():
            assert engine.served[app, "cross-core"] == 1
            stored = store.model(app, "cross-core")
            assert stored is not None
            here = train_application(runs, models=("LM", "CART"), trained_at=stored["trained_at"])
            assert persist.read(stored).solo == persist.read(here).solo
            assert stored["variants"] == here["variants"]


@pytest.mark.thorough
def test_both_workers_are_used_at_a_time(tmp_path: Path, store_url: str) -> None:
    async def inside(address: str) -> int:
        worker = await TrainingProcess.start(store_url, Cluster(address))
        try:
            return worker.slots
        finally:
            await worker.end()

    with Store.open(store_url), running(tmp_path, workers=2) as scheduler:
        assert asyncio.run(inside(scheduler)) == 2


@pytest.mark.thorough
def test_a_cluster_that_is_not_there_is_named(store_url: str) -> None:
    async def inside() -> None:
        with pytest.raises(WorkerDiedError, match=r"tcp://127\.0\.0\.1:9 does not answer"):
            await TrainingProcess.start(store_url, Cluster("tcp://127.0.0.1:9"))

    with Store.open(store_url):
        asyncio.run(inside())


class Hostile:
    """Runs code in whatever process unpickles it: the process's id goes into the file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"import os; open({self.path!r}, 'a').write(f'{{os.getpid()}} ')",)


def test_what_speaks_to_the_cluster_unpickles_no_code(tmp_path: Path) -> None:
    """By itself, whatever Dask's own refusals are worth."""
    marker = tmp_path / "ran"
    program = """
import pickle, sys
from kongming_server.training.dask_client import refuse_unpickling
hostile = sys.stdin.buffer.read()
if sys.argv[1] == "guarded":
    refuse_unpickling()
    assert pickle.loads(pickle.dumps([1, "text", b"bytes"])) == [1, "text", b"bytes"]
pickle.loads(hostile)
"""

    def unpickled(how: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-c", program, how],
            input=pickle.dumps(Hostile(str(marker))),
            capture_output=True,
            check=False,
            timeout=60,
        )

    refused = unpickled("guarded")
    assert refused.returncode == 1
    assert b"nothing pickled is read here: builtins.exec" in refused.stderr
    assert not marker.exists()
    unpickled("open")
    assert marker.exists()


def _turn_hostile(path: str) -> int:
    """Makes a worker answer with an exception that is hostile where it is unpickled, as are the
    warnings that it also sends."""
    from kongming_server.training import fitting

    def error(_: object) -> tuple[Any, ...]:
        return Hostile(path).__reduce__()

    def hostile(text: bytes) -> bytes:
        worker = distributed.get_worker()
        pickled = pickle.dumps(Hostile(path))
        worker.log_event("warn", {"category": pickled, "message": pickled})
        raise type("HostileError", (Exception,), {"__reduce__": error})("no model")

    fitting.fit_bytes = hostile
    return os.getpid()


def _turn_honest() -> int:
    import importlib

    from kongming_server.training import fitting

    importlib.reload(fitting)
    return os.getpid()


def on_each_worker(address: str, function: Callable[..., int], *arguments: Any) -> set[int]:
    """What the function returns. The client is closed afterwards: it unpickles what it receives."""
    with distributed.Client(address, set_as_default=False) as client:
        return set(client.run(function, *arguments).values())


def test_a_hostile_worker_runs_nothing_outside_of_the_cluster(
    address: str, fitting: DaskFitting
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        # Whoever unpickles it, the user nobody too, could write there.
        Path(folder).chmod(0o777)
        marker = Path(folder) / "ran"
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        try:
            workers = on_each_worker(address, _turn_hostile, str(marker))
            for _ in range(2):  # it goes on to serve
                with pytest.raises(UnavailableError, match="did not train it"):
                    fitting.fit("{}")
        finally:
            on_each_worker(address, _turn_honest)
            cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        # The workers themselves check that what they send can be unpickled.
        ran = {int(pid) for pid in marker.read_text().split()}
    assert ran
    assert ran <= workers


def test_what_speaks_to_the_cluster_has_no_credentials(fitting: DaskFitting) -> None:
    process = psutil.Process(fitting.pid)
    environment = Path(f"/proc/{fitting.pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"secret" not in environment
    assert b"CREDENTIALS" not in environment
    assert not any("secret" in argument for argument in process.cmdline())
    assert process.uids().effective != 0
    fitting.close()
    with pytest.raises(UnavailableError, match="has ended"):
        fitting.fit("{}")


@pytest.mark.thorough
def test_a_cluster_behind_tls(tmp_path: Path) -> None:
    security = distributed.Security.temporary()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            dask.config.set(temporary_directory=str(tmp_path)),
            distributed.LocalCluster(
                n_workers=1,
                threads_per_worker=1,
                processes=False,
                dashboard_address=None,
                protocol="tls://",
                security=security,
                host="127.0.0.1",
            ) as cluster,
        ):
            files = {}
            for name, text in (
                ("dask_ca", security.tls_ca_file),
                ("dask_cert", security.tls_client_cert),
                ("dask_key", security.tls_client_key),
            ):
                (tmp_path / name).write_text(text)
                files[name] = str(tmp_path / name)
            named = cluster_of(Settings(dask=cluster.scheduler_address, **files))
            assert named is not None
            fitting = DaskFitting(named)
            try:
                assert fitting.threads() == 1
                assert "no run to learn from" in fitting.fit(
                    '{"runs": [], "placement": "", "model": "auto", "models": null, '
                    '"random_state": 0}'
                )
            finally:
                fitting.close()


@pytest.mark.parametrize(
    ("named", "field"),
    [
        ({"dask": "tcp://192.0.2.1:8786"}, "training.dask"),
        ({"dask": "192.0.2.1:8786"}, "training.dask"),
        ({"dask": "http://127.0.0.1:8786"}, "training.dask"),
        ({"dask": "tls://192.0.2.1:8786"}, "training.dask_ca"),
        ({"dask": "tls://192.0.2.1:8786", "dask_ca": "a", "dask_cert": "b"}, "training.dask_key"),
    ],
)
def test_another_machine_is_reached_by_tls_alone(named: dict[str, str], field: str) -> None:
    with pytest.raises(InputError) as refused:
        config.load(options={f"training.{name}": value for name, value in named.items()})
    assert refused.value.field == field
