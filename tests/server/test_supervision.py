"""Work of the server that fails is begun again, and readiness says so meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from kongming_server.running.supervision import Supervisor

from tests.server.fleet import FakeAgent
from tests.server.process import ServerProcess, eventually


def test_what_fails_is_reported_and_begun_again() -> None:
    async def test() -> None:
        supervisor = Supervisor(again_s=0.01)
        tries = 0
        seen: list[str | None] = []
        well = asyncio.Event()

        async def work() -> None:
            nonlocal tries
            tries += 1
            seen.append(supervisor.failing)
            if tries < 3:
                raise OverflowError
            while supervisor.failing is not None:
                await asyncio.sleep(0.001)
            well.set()
            await asyncio.Event().wait()

        task = supervisor.keep("Writing reports", work)
        async with asyncio.timeout(30):
            await well.wait()
        assert seen == [None, *2 * ["Writing reports failed: OverflowError"]]
        assert supervisor.failing is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(test())


def test_what_a_thread_does_has_a_time_that_the_event_loop_counts() -> None:
    supervisor = Supervisor(stuck_s=3.0)
    with supervisor.working("Writing reports"):
        # However long ago it began: a machine that stood still has not counted.
        assert supervisor.stuck is None
        for _ in range(3):
            supervisor.tick()
        assert supervisor.stuck is None
        with supervisor.working("Reading tokens"):
            supervisor.tick()
            assert supervisor.stuck == "Writing reports has not ended for 4 s."
    assert supervisor.stuck is None


@contextmanager
def hung_store(path: Path) -> Iterator[None]:
    """Whoever writes to the store waits for as long as this lasts."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def fetch(server: ServerProcess, path: str) -> tuple[int, Any]:
    try:
        return 200, server.get(path)
    except HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_thread_that_hangs_is_reported_until_it_goes_on(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, ThreadPoolExecutor() as pool:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60.0)
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "180000000"}
        server = ServerProcess(tmp_path, settings={"server.stuck_s": 1}, env=env)
        try:
            server.start()
            assert {systemd.recv(100) for _ in range(2)} == {b"READY=1", b"WATCHDOG=1"}
            agent = FakeAgent(server.channel())
            agent.register()
            health = health_pb2_grpc.HealthStub(server.channel())
            serving = health_pb2.HealthCheckResponse.SERVING
            with hung_store(tmp_path / "server.db"):
                waiting = pool.submit(agent.report, agent.fingerprint())
                status, body = eventually(lambda: (a := fetch(server, "/healthz"))[0] == 503 and a)
                assert (status, body["alive"]) == (503, False)
                assert "Writing reports has not ended" in body["reason"]
                assert fetch(server, "/readyz")[0] == 503
                eventually(lambda: check(health) != serving)
                with suppress(BlockingIOError):
                    systemd.setblocking(False)
                    while systemd.recv(100) == b"WATCHDOG=1":
                        # What was sent before.
                        pass
                systemd.settimeout(2.5)
                with pytest.raises(TimeoutError):
                    systemd.recv(100)
            assert len(waiting.result(60).accepted) == 1
            eventually(lambda: fetch(server, "/healthz") == (200, {"alive": True}))
            eventually(lambda: check(health) == serving)
            systemd.settimeout(60.0)
            assert systemd.recv(100) == b"WATCHDOG=1"
        finally:
            server.close()


def check(health: Any) -> int:
    return int(health.Check(health_pb2.HealthCheckRequest(), timeout=60).status)
