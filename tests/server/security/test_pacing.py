"""What one agent sends fast waits its turn, and nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
from kongming_server.security.pacing import Pacing
from kongming_server.security.tokens import issue
from kongming_server.settings import Limits, Security

from kongming.rpc.v1 import fleet_pb2
from kongming.store.service_entries import StoredToken
from tests.server.stand import Stand, call

REPORT = "/kongming.rpc.v1.Fleet/ReportRuns"


class Clock:
    """Goes on by what is waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.waited: list[float] = []
        goes_on = asyncio.sleep

        async def sleep(seconds: float) -> None:
            self.waited.append(seconds)
            self.now += seconds
            await goes_on(0)

        monkeypatch.setattr("kongming_server.security.pacing.asyncio.sleep", sleep)

    def __call__(self) -> float:
        return self.now


def paced(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_calls_wait_for_those_of_the_same_agent_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pacing = Pacing(Limits(agent_rate=2.0, agent_burst=3), clock)

    async def test() -> None:
        async def turn(who: str) -> None:
            async with pacing.turn(who):
                pass

        for _ in range(3):
            await turn("thief")
        assert not clock.waited
        await turn("honest")
        assert not clock.waited
        for _ in range(4):
            await turn("thief")
        assert sum(clock.waited) == pytest.approx(4 / 2.0)

    paced(test)


def test_one_message_of_an_agent_is_read_at_a_time() -> None:
    pacing = Pacing(Limits(agent_rate=1e6, agent_burst=1000))
    at_once, most = 0, 0

    async def read() -> None:
        nonlocal at_once, most
        async with pacing.turn("thief"):
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1

    async def test() -> None:
        await asyncio.gather(*(read() for _ in range(20)))

    paced(test)
    assert most == 1


def test_bytes_are_paced_and_the_greatest_message_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    most = 4 << 20
    pacing = Pacing(Limits(message_bytes=most, agent_bytes=1 << 20), clock)

    async def test() -> None:
        await pacing.take_bytes("thief", most)
        assert not clock.waited
        await pacing.take_bytes("thief", 2 << 20)
        assert sum(clock.waited) == pytest.approx(2.0)
        # What is too large is for the decoder to refuse.
        slow = Pacing(Limits(message_bytes=most, agent_bytes=1.0), clock)
        await slow.take_bytes("other", 2 * most)
        assert sum(clock.waited) == pytest.approx(2.0)
        # What would wait for longer than callers do is told so at once.
        with pytest.raises(TimeoutError):
            await slow.take_bytes("other", 10)

    paced(test)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"agent_rate": 0.001, "agent_burst": 1}, "agent_rate"),
        ({"agent_bytes": 100.0, "message_bytes": 2100}, "agent_bytes"),
    ],
)
def test_an_agent_is_told_and_a_scheduler_does_not_wait(limits: Any, told: str) -> None:
    secrets = {role: issue() for role in ("agent", "scheduler")}
    rows = [StoredToken(one.id, role, one.digest, created_at=0.0) for role, one in secrets.items()]
    request = fleet_pb2.ReportRunsRequest(runs=[fleet_pb2.ReportedRun()] * 1000)

    async def nothing(request: Any, context: Any) -> Any:
        return fleet_pb2.ReportRunsResponse()

    stand = Stand(
        Security(authenticate="always"),
        Limits(**limits),
        tokens=lambda: rows,
        behaviours={"ReportRuns": nothing},
    )
    with stand, stand.channel() as channel:
        for role, most in (("scheduler", 5), ("agent", 1)):
            for _ in range(most):
                call(channel, REPORT, request, token=secrets[role].text)
        with pytest.raises(grpc.RpcError, match=told) as met:
            call(channel, REPORT, request, token=secrets["agent"].text)
        assert met.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert stand.sample("kongming_server_refused_total", reason=told) == 1
