"""The server that the other tests rely on."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import sqlalchemy as sa

from kongming.store import Store
from tests import builders
from tests.postgres.server import PREFIX, PostgresServer, clear_ended


def test_it_runs_as_no_root_and_listens_on_loopback_alone(postgres_server: PostgresServer) -> None:
    assert Path(f"/proc/{postgres_server.pid}").stat().st_uid != 0
    engine = sa.create_engine(postgres_server.url().replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SHOW listen_addresses")) == "127.0.0.1"
        assert connection.scalar(sa.text("SHOW synchronous_commit")) == "on"
    engine.dispose()


def test_databases_are_apart(postgres_server: PostgresServer, postgres_url: str) -> None:
    with Store.open(postgres_url) as store:
        store.put_node(builders.node())
        assert len(store.nodes()) == 1


def test_what_was_committed_survives_a_crash_of_the_server(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    run = builders.run("sort", 1.0, {"stream.triad": 1e-9})
    with Store.open(postgres_url) as store:
        store.add_run(run)
        postgres_server.stop(signal.SIGQUIT)
        postgres_server.start()
        # The connection that died with the server is replaced without an error.
        assert store.runs() == [run]


def test_clusters_of_killed_runs_are_cleared(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f"{PREFIX}{ended.pid}-abc"
    running = tmp_path / f"{PREFIX}{os.getpid()}-abc"
    other = tmp_path / f"{PREFIX}-by-hand"
    for folder in (left, running, other):
        (folder / "data").mkdir(parents=True)
    clear_ended(tmp_path)
    assert (left.exists(), running.exists(), other.exists()) == (False, True, True)
