"""A store that takes nothing is logged once, and once more when it takes records again."""

from __future__ import annotations

import logging

import grpc
import psycopg
import pytest
from kongming_server.commands.server_command import log_limits
from kongming_server.running.outage import Outage

from kongming.records.errors import InputError, StoreError
from tests import builders
from tests.server.conftest import StartServer
from tests.server.credentials import code_of
from tests.server.fleet import FakeAgent


def test_one_line_when_it_begins_and_one_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    with caplog.at_level(logging.INFO):
        outage.succeeded()
        # What is wrong with a record says nothing of the store.
        outage.failed(InputError("is no record.", field="run"))
        assert outage.reason is None
        for _ in range(20):
            outage.failed(StoreError("database or disk is full"))
        assert outage.reason is not None
        assert "disk is full" in outage.reason
        for _ in range(5):
            outage.succeeded()
        assert outage.reason is None
        outage.failed(StoreError("database or disk is full"))
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "ERROR"]
    assert "20 writes" in caplog.messages[1]


def test_a_store_that_takes_some_writes_and_refuses_others_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage()
    with caplog.filtering(log_limits()):
        for _ in range(500):
            outage.failed(StoreError("database or disk is full"))
            outage.succeeded()
    assert len(caplog.records) == 20


def test_callers_are_told_when_postgresql_does_not_get_on(
    start_server: StartServer, postgres_store_url: str
) -> None:
    server = start_server(
        store_url=postgres_store_url,
        settings={"server.lock_timeout_s": 0.3, "server.statement_timeout_s": 5.0},
    )
    agent = FakeAgent(server.channel())
    agent.register()
    run = builders.run("sort", 1.0, node_id="node-1")
    with psycopg.connect(postgres_store_url) as other:
        other.execute("LOCK TABLE run IN ACCESS EXCLUSIVE MODE")
        assert code_of(lambda: agent.report_runs([run])) is grpc.StatusCode.UNAVAILABLE
        assert "degraded" in str(server.get("/readyz"))
        other.rollback()
        assert list(agent.report_runs([run]).accepted) == [run.id]
