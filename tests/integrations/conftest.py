"""A real server that two nodes report to: one as idle, one three times as slow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from tests.server.fleet import FakeAgent
from tests.server.process import ServerProcess, eventually

SLOWDOWNS = {"calm": 1.0, "busy": 3.0}


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    # Its agents say what they measured once, and nothing after.
    settings = {"fleet.silent_after_s": 3600.0}
    server = ServerProcess(tmp_path_factory.mktemp("fleet"), settings=settings)
    try:
        server.start()
        for name, slowdown in SLOWDOWNS.items():
            agent = FakeAgent(server.channel(), name)
            agent.register(references=[agent.idle()])
            assert agent.report(agent.fingerprint(slowdown)).accepted
        with RemoteService(Connection(server.grpc, timeout_s=60.0)) as service:
            eventually(lambda: all(node.general_slowdown for node in service.nodes()))
        yield server
    finally:
        server.close()


@pytest.fixture
def service(fleet: ServerProcess) -> Iterator[RemoteService]:
    with RemoteService(Connection(fleet.grpc, timeout_s=60.0)) as service:
        yield service
