"""Every test of the store runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgresql"])
def new_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that does not exist yet."""
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return f"sqlite:///{tmp_path / 'new.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store of its own, without a record."""
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres_store_url")
        return url
    shutil.copy(request.getfixturevalue("empty_store"), tmp_path / "store.db")
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """For what is of SQLite alone."""
    return f"sqlite:///{tmp_path / 'store.db'}"
