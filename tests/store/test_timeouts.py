"""A PostgreSQL that does not get on ends in an error, and not in a thread that waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import psycopg
import pytest

from kongming.records.errors import StoreError
from kongming.store import Store
from kongming.store.connection import MIGRATION_LOCK
from tests.server.process import eventually


@contextmanager
def held(url: str) -> Iterator[None]:
    """Another program has locked what every server writes and reads."""
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE agent, run IN ACCESS EXCLUSIVE MODE")
        yield


@pytest.mark.parametrize(
    ("limits", "message"),
    [({"lock_s": 0.2}, "is locked by another"), ({"statement_s": 0.2}, "did not answer in time")],
)
def test_a_statement_that_waits_too_long_is_an_error(
    postgres_store_url: str, limits: dict[str, float], message: str
) -> None:
    with Store.open(postgres_store_url, **limits) as store:
        with held(postgres_store_url):
            for work in (store.agents, lambda: store.put_agent("node-1", {})):
                with pytest.raises(StoreError, match=message) as met:
                    work()
                # It has nothing to do with what was to be written.
                assert met.value.away
        store.put_agent("node-1", {})
        assert [row.node_id for row in store.agents()] == ["node-1"]


def test_a_session_that_is_ended_is_an_error_of_the_server(postgres_store_url: str) -> None:
    with (
        Store.open(postgres_store_url) as store,
        held(postgres_store_url),
        psycopg.connect(postgres_store_url, autocommit=True) as operator,
        ThreadPoolExecutor(1) as executor,
    ):
        waiting = executor.submit(store.agents)
        eventually(
            lambda: operator.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE"
                " datname = current_database() AND wait_event_type = 'Lock'"
            ).fetchone()
        )
        with pytest.raises(StoreError, match="ended the connection") as met:
            waiting.result(timeout=60)
        assert met.value.away


def test_tables_are_made_however_long_another_program_does_so(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as other, ThreadPoolExecutor(1) as executor:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        opening = executor.submit(Store.open, postgres_url, statement_s=0.3, lock_s=0.1)
        # Several times as long as any other statement may wait.
        assert not wait([opening], timeout=1.0).done
        other.commit()
        with opening.result(timeout=60) as store:
            assert store.is_new


def _execute(store: Store, statements: list[str]) -> None:
    with store._writing() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def test_what_no_other_write_could_do_either_is_reported_as_the_stores_fault(
    postgres_store_url: str,
) -> None:
    with Store.open(postgres_store_url) as store:
        for statements, message in (
            (["SET TRANSACTION READ ONLY", "DELETE FROM run"], "cannot be written"),
            (["SELECT * FROM gone"], "lacks a table"),
            (["CREATE ROLE stranger", "SET LOCAL ROLE stranger", "DELETE FROM run"], "not let"),
        ):
            with pytest.raises(StoreError, match=message) as met:
                _execute(store, statements)
            assert met.value.away
            assert met.value.hint
