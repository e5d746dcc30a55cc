"""Fixtures for tests against a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.process import ServerProcess

StartServer = Callable[..., ServerProcess]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start a server: ``start_server(settings={"fleet.silent_after_s": 1.0})``.

    Each has a folder of its own unless ``folder`` says otherwise; all end with the test.
    """
    started: list[ServerProcess] = []

    def start(folder: Path | None = None, **options: Any) -> ServerProcess:
        if folder is None:
            folder = tmp_path / f"server-{len(started)}"
        folder.mkdir(exist_ok=True)
        server = ServerProcess(folder, **options)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.close()


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    """A server with default settings and a store of its own."""
    return start_server()
