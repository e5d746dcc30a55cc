"""What one agent sends fast waits its turn, and nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
from kongming_server.configuration.limits import Limits
from kongming_server.configuration.settings import Security
from kongming_server.security.addresses import Addresses
from kongming_server.security.pacing import Pacing
from kongming_server.security.tokens import issue

from kongming.rpc.v1 import fleet_pb2
from kongming.store.service_entries import StoredToken
from tests.server.http2 import Http2
from tests.server.process import eventually
from tests.server.stand import Stand, call

REPORT = "/kongming.rpc.v1.Fleet/ReportRuns"


class Clock:
    """Advances by the seconds that are slept."""

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
        # What would wait for longer than callers do is refused at once.
        with pytest.raises(TimeoutError):
            await slow.take_bytes("other", 10)

    paced(test)


@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        ({"agent_rate": 0.001, "agent_burst": 1}, "agent_rate"),
        ({"agent_bytes": 100.0, "message_bytes": 2100}, "agent_bytes"),
    ],
)
def test_an_agent_is_refused_by_its_limit_and_a_scheduler_does_not_wait(
    limits: Any, setting: str
) -> None:
    secrets = {role: issue() for role in ("agent", "scheduler")}
    rows = [
        StoredToken(secret.id, role, secret.digest, created_at=0.0)
        for role, secret in secrets.items()
    ]
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
        with pytest.raises(grpc.RpcError, match=setting) as met:
            call(channel, REPORT, request, token=secrets["agent"].text)
        assert met.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert stand.sample("kongming_server_refused_total", reason=setting) == 1


@pytest.mark.parametrize(("nodes", "addresses"), [((), 4), (("n1",), 1), (("rack-*",), 12)])
def test_many_addresses_give_a_token_no_more_than_its_nodes(
    nodes: tuple[str, ...], addresses: int
) -> None:
    secret = issue()
    rows = [StoredToken(secret.id, "agent", secret.digest, created_at=0.0, nodes=nodes)]
    burst = 2
    limits = Limits(agent_rate=0.001, agent_burst=burst)
    stand = Stand(Security(authenticate="always"), limits, tokens=lambda: rows)
    with stand:
        for number in range(12):
            caller = Http2.to(stand.grpc, source=f"127.0.1.{number + 1}")
            shown = {"authorization": f"Bearer {secret.text}"}
            streams = {caller.ask(REPORT, b"", shown) for _ in range(burst + 1)}
            eventually(lambda c=caller, of=streams: c.read(0.05) is not None and c.ended == of)  # type: ignore[misc]
            caller.close()
        # Each of the allowed addresses has its own allowance, and all others share one.
        assert len(stand.calls) == burst * min(12, addresses + 1)


def test_an_address_that_is_not_in_use_gives_its_place_to_another() -> None:
    known = Addresses()
    counted = [known.counts("token a", address, 2, 0.0) for address in "xyzx"]
    assert counted == [True, True, False, True]
    assert known.counts("token b", "z", 2, 0.0)
    assert known.counts("token a", "x", 2, 50.0)
    # It takes the place of y, and not of x.
    assert known.counts("token a", "z", 2, 70.0)
    assert not known.counts("token a", "y", 2, 70.0)
    assert known.counts("token a", "x", 2, 70.0)


def test_credentials_that_were_quiet_longest_are_forgotten() -> None:
    known = Addresses(identities=2)
    for identity in ("token a", "token b", "token a", "token c"):
        assert known.counts(identity, "x", 1, 0.0)
    assert not known.counts("token a", "y", 1, 0.0)
    assert known.counts("token b", "y", 1, 0.0)
    assert all(known.counts(f"certificate {number}", "x", 1, 0.0) for number in range(100))
    assert len(known) == 2
