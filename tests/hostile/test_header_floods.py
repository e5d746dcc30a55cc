"""Calls whose headers are few bytes and much memory: a real server stays small, and answers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from kongming_server.security.floods import MOST_CLOSED_S

from kongming.rpc import record_codec as records
from kongming.rpc.v1 import fleet_pb2
from tests import builders
from tests.hostile.fleet import Answers, Fleet, serving
from tests.server.core import worlds
from tests.server.credentials import Shows, code_of
from tests.server.fleet import moment
from tests.server.http2 import Http2
from tests.server.process import eventually
from tests.server.security.test_real_server import token_command

PREDICT = "/kongming.rpc.v1.Predictor/Predict"
REPORT = "/kongming.rpc.v1.Fleet/Report"
CONNECTIONS, CALLS, NAMED = 20, 30, 16_000
UNCHECKED_BYTES = CONNECTIONS * CALLS * NAMED * 150
"""What such a flood takes of a server that does nothing about it: 150 bytes a header."""
MOST_BYTES = 256 << 20
"""What floods take, but for the moment until a server notices, which is as long as it waits for a
CPU: of that moment it is half of UNCHECKED_BYTES."""

_sources = (f"127.0.1.{number}" for number in range(1, 255))
"""One for each flood: an address that sent one cannot connect for a while."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with serving(tmp_path_factory.mktemp("floods")) as running:
        yield running


@pytest.fixture(scope="module")
def before(fleet: Fleet) -> Answers:
    return fleet.answers()


def memory(fleet: Fleet, name: str) -> int:
    status = Path(f"/proc/{fleet.server.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(name))


def calm_memory(fleet: Fleet) -> int:
    """What the server takes now; the most that it takes is counted from here on."""
    Path(f"/proc/{fleet.server.pid}/clear_refs").write_text("5", encoding="ascii")
    return memory(fleet, "VmRSS")


def agents_token(fleet: Fleet) -> dict[str, str]:
    created = token_command("add", "--role", "agent", "--store", fleet.server.store_url)
    return {"authorization": f"Bearer {created['token']}"}


def was_ended(fleet: Fleet, source: str) -> bool:
    """Whether the log says that connections from this address were ended; it names a few."""
    return f"were ended, one of them of ipv4:{source}:" in fleet.server.log.read_text()


def test_a_call_may_have_as_many_headers_as_any_honest_caller_sends(fleet: Fleet) -> None:
    source = next(_sources)
    connection = Http2.to(fleet.server.grpc, source=source)
    connection.flood(PREDICT, 100)
    eventually(lambda: connection.read(0.02) and connection.ended)
    assert not connection.closed()
    assert not was_ended(fleet, source)
    connection.flood(PREDICT, 200)
    eventually(connection.closed)
    eventually(lambda: was_ended(fleet, source))
    connection.close()
    # A few of them hold nobody off.
    Http2.to(fleet.server.grpc, source=source).close()


def test_agents_that_come_back_all_at_once_are_no_flood(fleet: Fleet) -> None:
    """Each sends a first message many times larger than what is read before the agent is known."""
    created = token_command("add", "--role", "agent", "--store", fleet.server.store_url)
    channels = [fleet.server.channel() for _ in range(40)]
    waiting = []
    for number, channel in enumerate(channels):
        shown = grpc.intercept_channel(channel, Shows(created["token"]))
        node = builders.node(id=f"back-{number}", name=f"back-{number}")
        times = {f"back.{place}": 1e-9 for place in range(100)}
        references = [
            builders.fingerprint(
                times, node=node, suite_version=f"{worlds.SUITE}-{suite}", started_at=moment(9.0)
            )
            for suite in range(15)
        ]
        request = fleet_pb2.RegisterRequest(
            node=records.node_to_message(node),
            references=[records.fingerprint_to_message(reference) for reference in references],
        )
        assert request.ByteSize() > 100_000
        register = shown.unary_unary(
            "/kongming.rpc.v1.Fleet/Register",
            request_serializer=fleet_pb2.RegisterRequest.SerializeToString,
            response_deserializer=fleet_pb2.RegisterResponse.FromString,
        )
        waiting.append(register.future(request, timeout=100))
    assert grpc.StatusCode.UNAVAILABLE not in {code_of(future.result) for future in waiting}
    assert not was_ended(fleet, "127.0.0.1")


def is_let_in(connection: Http2, token: dict[str, str]) -> bool:
    """Whether a call is answered, which makes the caller known; a new token takes a moment."""
    stream = connection.ask(REPORT, b"", token)
    content = b""
    while stream not in connection.ended:
        assert not connection.over
        content += b"".join(frame.content for frame in connection.read(0.02))
    return b"grpc-status\x010" in content


def separate_blocks(connection: Http2, token: dict[str, str]) -> None:
    for _ in range(CALLS):
        connection.flood(PREDICT, NAMED, token)


def one_block_without_an_end(connection: Http2, token: dict[str, str]) -> None:
    connection.flood(PREDICT, CALLS * NAMED, token, end=False)


def one_block_with_an_end(connection: Http2, token: dict[str, str]) -> None:
    connection.flood(PREDICT, CALLS * NAMED, token)


SENDING = (separate_blocks, one_block_without_an_end, one_block_with_an_end)


@pytest.mark.parametrize("who", ["stranger", "thief"])
@pytest.mark.parametrize("send", SENDING, ids=lambda send: send.__name__)
def test_a_flood_takes_little_memory_and_changes_no_answer(
    fleet: Fleet, before: Answers, who: str, send: Callable[[Http2, dict[str, str]], None]
) -> None:
    calm = calm_memory(fleet)
    token: dict[str, str] = {}
    if who == "thief":
        token = agents_token(fleet)
    floods, source = [], next(_sources)
    for _ in range(CONNECTIONS):
        # Whoever is new waits where the flood before was large enough to close the server to them.
        connection = Http2.to(fleet.server.grpc, source=source, timeout=1.5 * MOST_CLOSED_S)
        if token:
            eventually(lambda connection=connection: is_let_in(connection, token))
        floods.append(connection)
    for connection in floods:
        with suppress(OSError):
            send(connection, token)
    assert fleet.answers() == before
    # All of them were ended by the server.
    for connection in floods:
        eventually(connection.closed)
        connection.close()
    assert memory(fleet, "VmHWM") - calm < UNCHECKED_BYTES // 2
    eventually(lambda: memory(fleet, "VmRSS") - calm < MOST_BYTES // 2)


def come_and_go(address: str, source: str, until: float) -> None:
    """Connect, send, leave, and again."""
    while time.monotonic() < until:
        with suppress(OSError):
            connection = Http2.to(address, source=source, timeout=1)
            with suppress(OSError):
                for _ in range(CALLS):
                    connection.flood(PREDICT, NAMED)
            connection.close()


def test_who_comes_and_goes_from_many_addresses_takes_no_more(
    fleet: Fleet, before: Answers
) -> None:
    calm = calm_memory(fleet)
    until = time.monotonic() + 4.0
    with ThreadPoolExecutor(40) as pool:
        sending = [
            pool.submit(come_and_go, fleet.server.grpc, f"127.0.3.{number}", until)
            for number in range(1, 41)
        ]
        # Who is connected is answered, and who was may come back.
        while not all(future.done() for future in sending):
            assert fleet.answers() == before
    with fleet.server.channel() as channel:
        health = health_pb2_grpc.HealthStub(channel)
        health.Check(health_pb2.HealthCheckRequest(), timeout=60, wait_for_ready=True)
    assert memory(fleet, "VmHWM") - calm < 2 * MOST_BYTES
    eventually(lambda: memory(fleet, "VmRSS") - calm < MOST_BYTES)


ENOUGH_HITS = 6
"""Of each part of an attack: few, since once the server is closed nobody connects."""


def hit_and_run(address: str, sources: Iterator[str], until: float) -> int:
    """Connect from one address after the other, send one flood and reset; returns how often that
    succeeded. Goes on until that moment, and on a busy machine until there are enough of them."""
    hits = 0
    given_up_at = until + 120.0
    while time.monotonic() < (until if hits >= ENOUGH_HITS else given_up_at):
        with suppress(OSError):
            connection = Http2.to(address, source=next(sources), timeout=0.2)
            with suppress(OSError):
                connection.flood(PREDICT, NAMED)
                hits += 1
            time.sleep(0.004)
            connection.reset()
    return hits


@pytest.fixture
def never_flooded(tmp_path: Path) -> Iterator[Fleet]:
    """One that no other test has made wary, or closed."""
    with serving(tmp_path) as running:
        yield running


@pytest.mark.thorough
def test_who_leaves_before_anybody_looks_takes_no_more(never_flooded: Fleet) -> None:
    fleet, before = never_flooded, never_flooded.answers()
    calm = calm_memory(fleet)
    until = time.monotonic() + 8.0
    with ThreadPoolExecutor(4) as pool:
        hits = [
            pool.submit(hit_and_run, fleet.server.grpc, new_addresses(40 * part), until)
            for part in range(1, 5)
        ]
        while not all(future.done() for future in hits):
            assert fleet.answers() == before
    assert all(future.result() >= ENOUGH_HITS for future in hits)
    assert memory(fleet, "VmHWM") - calm < MOST_BYTES
    eventually(lambda: memory(fleet, "VmRSS") - calm < MOST_BYTES // 2)


def opened(fleet: Fleet, connections: int, source: str) -> list[Http2]:
    return [Http2.to(fleet.server.grpc, source=source) for _ in range(connections)]


def junk_of_strangers(fleet: Fleet) -> list[Http2]:
    connections = opened(fleet, 200, "127.0.9.1")
    for connection in connections:
        connection.junk(500 << 10)
    time.sleep(1.0)
    return connections


def junk_after_public_calls(fleet: Fleet) -> list[Http2]:
    connections = opened(fleet, 4, "127.0.9.1")
    for connection in connections:
        with suppress(OSError):
            for _ in range(200):
                connection.ask("/grpc.health.v1.Health/Check", b"")
                connection.junk(170 << 10)
    return connections


def idle_connections(fleet: Fleet) -> list[Http2]:
    return opened(fleet, 400, "127.0.9.1")


def junk_of_a_thief(fleet: Fleet) -> list[Http2]:
    connection = Http2.to(fleet.server.grpc, source="127.0.9.9")
    token = agents_token(fleet)
    eventually(lambda: is_let_in(connection, token))
    with suppress(OSError):
        connection.junk(200 << 20)
    return [connection]


PREPARATIONS = (junk_of_strangers, junk_after_public_calls, idle_connections, junk_of_a_thief)


# How much a machine parses between two looks depends on what else it does.
@pytest.mark.thorough
@pytest.mark.parametrize("prepare", PREPARATIONS, ids=lambda prepare: prepare.__name__)
def test_bytes_and_connections_that_take_nothing_explain_no_flood(
    never_flooded: Fleet, prepare: Callable[[Fleet], list[Http2]]
) -> None:
    fleet, before = never_flooded, never_flooded.answers()
    calm = calm_memory(fleet)
    floods = [Http2.to(fleet.server.grpc, source="127.0.9.2") for _ in range(CONNECTIONS)]
    prepared = prepare(fleet)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        sending = [pool.submit(one_block_without_an_end, flood, {}) for flood in floods]
    assert any(future.exception() is None for future in sending)
    assert fleet.answers() == before
    for connection in floods:
        eventually(connection.closed)
    for connection in [*floods, *prepared]:
        connection.close()
    assert memory(fleet, "VmHWM") - calm < MOST_BYTES


@pytest.mark.thorough
def test_strangers_at_addresses_of_known_callers_cannot_go_on_for_ever(
    never_flooded: Fleet,
) -> None:
    """They pass where the port is closed to all but known addresses."""
    fleet, before = never_flooded, never_flooded.answers()
    token = agents_token(fleet)
    addresses = [f"127.5.5.{number}" for number in range(1, 41)]
    for address in addresses:
        connection = Http2.to(fleet.server.grpc, source=address)
        eventually(lambda connection=connection: is_let_in(connection, token))
        connection.close()
    calm = calm_memory(fleet)
    until = time.monotonic() + 6.0
    with ThreadPoolExecutor(4) as pool:
        hits = [
            pool.submit(hit_and_run, fleet.server.grpc, itertools.cycle(addresses[part::4]), until)
            for part in range(4)
        ]
        while not all(future.done() for future in hits):
            assert fleet.answers() == before
    assert all(future.result() >= ENOUGH_HITS for future in hits)
    assert memory(fleet, "VmHWM") - calm < 2 * MOST_BYTES


def new_addresses(first: int) -> Iterator[str]:
    """Each in another network, as far as that goes."""
    for low in range(1, 255):
        for high in range(256):
            yield from (f"127.{number}.{high}.{low}" for number in range(first, first + 40))
