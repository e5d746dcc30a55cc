"""The watch for floods of headers, over real sockets and real memory."""

from __future__ import annotations

import logging
import math
import mmap
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Event
from typing import Any

import pytest
from kongming_server.commands.server_command import log_limits
from kongming_server.security.descriptors import (
    AcceptedConnections,
    PortDescriptors,
    ResidentMemory,
)
from kongming_server.security.flood_watch import FloodWatch
from kongming_server.security.floods import FIRST, HOLD_S
from kongming_server.security.packet_filter import address_filter, admission_filter

from kongming.rpc.connections import Connections
from tests.server.process import eventually
from tests.server.security.test_connections import peer
from tests.server.security.test_floods import BASE, MIB, Flooded


@contextmanager
def listening(family: int, host: str) -> Iterator[socket.socket]:
    with socket.socket(family) as listener:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, 0))
        listener.listen()
        yield listener


def can_connect(port: int, source: str) -> bool:
    """Whether anybody answers there."""
    with socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET) as client:
        client.settimeout(0.3)
        client.bind((source, 0))
        try:
            client.connect((source if ":" in source else "127.0.0.1", port))
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize("held_off", ["127.0.0.2", "::"])
def test_nobody_connects_from_an_address_that_is_held_off(held_off: str) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("There is no IPv6 here.")
    sources = {"127.0.0.1": "127.0.0.1", "127.0.0.2": "127.0.0.2", "::1": "::"}
    with listening(socket.AF_INET6, "::") as listener:
        port = listener.getsockname()[1]
        with closing(PortDescriptors(port)) as sockets:
            many = [f"192.0.2.{number}" for number in range(200)]
            assert sockets.filter(address_filter([*many, "2001:db8::", held_off]))
            for source, address in sources.items():
                assert can_connect(port, source) == (address != held_off)
            assert sockets.filter(address_filter([]))
            for source in sources:
                assert can_connect(port, source)


@pytest.mark.parametrize("admitted", ["127.0.0.2", "::"])
def test_only_admitted_addresses_connect(admitted: str) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("There is no IPv6 here.")
    sources = {"127.0.0.1": "127.0.0.1", "127.0.0.2": "127.0.0.2", "::1": "::"}
    with listening(socket.AF_INET6, "::") as listener:
        port = listener.getsockname()[1]
        with closing(PortDescriptors(port)) as sockets:
            many = [f"198.51.{number}.1" for number in range(120)]
            many += [f"2001:db8:{number:x}::" for number in range(120)]
            assert sockets.filter(admission_filter([*many, admitted]))
            for source, address in sources.items():
                assert can_connect(port, source) == (address == admitted)
            # Too many for a filter: whole networks that they are in.
            crowd = [f"127.0.{number}.9" for number in range(100)]
            crowd += [f"127.0.{number}.7" for number in range(200)]
            assert sockets.filter(admission_filter(crowd))
            for source, expected in {"127.0.3.5": True, "127.1.0.7": False, "::1": False}.items():
                assert can_connect(port, source) == expected


def test_what_came_is_counted_and_dropped_with_its_connection() -> None:
    with (
        listening(socket.AF_INET, "127.0.0.1") as listener,
        listening(socket.AF_INET, "127.0.0.1") as other,
        socket.create_connection(listener.getsockname()) as client,
        socket.create_connection(other.getsockname()) as elsewhere,
        listener.accept()[0] as served,
        other.accept()[0],
        closing(PortDescriptors(listener.getsockname()[1])) as sockets,
    ):
        client.sendall(bytes(1000))
        elsewhere.sendall(bytes(1000))
        name = f"ipv4:127.0.0.1:{client.getsockname()[1]}"
        eventually(lambda: sockets.received() == {name: 1000})
        sockets.abort({name})
        with pytest.raises(ConnectionResetError):
            served.recv(1)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert sockets.received() == {}


def reusable() -> socket.socket:
    """A socket whose port can be bound again once it is closed: at once, and with a reset."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
    return client


def test_a_descriptor_that_was_another_ports_is_looked_at_anew() -> None:
    """A peer that left HTTP, and came to gRPC from the same port of its own.

    The port is bound, not merely given out at connect: one of those is shared with whoever else
    connects elsewhere, and could not be bound afterwards.
    """
    with (
        listening(socket.AF_INET, "127.0.0.1") as listener,
        listening(socket.AF_INET, "127.0.0.1") as other,
        closing(PortDescriptors(listener.getsockname()[1])) as sockets,
    ):
        with closing(reusable()) as client:
            client.bind(("127.0.0.1", 0))
            client.connect(other.getsockname())
            own = client.getsockname()
            number = other.accept()[0].detach()
            assert sockets.received() == {}
        with closing(reusable()) as client:
            client.bind(own)
            client.connect(listener.getsockname())
            with listener.accept()[0] as served:
                os.dup2(served.fileno(), number)
            with socket.socket(fileno=number):
                assert list(sockets.received()) == [f"ipv4:127.0.0.1:{own[1]}"]


def test_whoever_takes_over_a_number_while_it_is_looked_at_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        listening(socket.AF_INET, "127.0.0.1") as listener,
        socket.create_connection(listener.getsockname()) as client,
        listener.accept()[0] as served,
        closing(PortDescriptors(listener.getsockname()[1])) as sockets,
    ):
        (name,) = sockets.received()
        look = sockets._number
        with (
            socket.create_connection(listener.getsockname()) as honest,
            listener.accept()[0] as newcomer,
        ):

            def replaced_afterwards(descriptor: int) -> int:
                number = look(descriptor)
                # As gRPC's threads do, which close one connection and accept the next.
                os.dup2(newcomer.fileno(), served.fileno())
                return number

            monkeypatch.setattr(sockets, "_number", replaced_afterwards)
            sockets.abort({name})
            newcomer.sendall(b"answer")
            assert honest.recv(6) == b"answer"
        with pytest.raises(ConnectionResetError):
            client.recv(1)


@pytest.mark.parametrize("seen", [True, False])
def test_what_a_peer_left_that_reset_its_connection_is_counted_and_dropped(seen: bool) -> None:
    with (
        listening(socket.AF_INET, "127.0.0.1") as listener,
        closing(PortDescriptors(listener.getsockname()[1])) as sockets,
        closing(reusable()) as client,
    ):
        client.connect(listener.getsockname())
        name = f"ipv4:127.0.0.1:{client.getsockname()[1]}"
        with listener.accept()[0] as served:
            client.sendall(bytes(1000))
            if seen:
                eventually(lambda: sockets.received() == {name: 1000})
            client.close()
            # Its address is known only if a look came before the reset.
            assert sockets.received() == ({name: 1000} if seen else {})
            sockets.abort(set())
            with pytest.raises(OSError, match=r"reset|not connected"):
                served.recv(1)
            assert sockets.received() == {}


def test_memory_is_that_of_the_process() -> None:
    with closing(ResidentMemory()) as memory:
        before = memory.bytes()
        # Not of the heap, where as much may be free.
        with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
            held.write(bytes(64 * MIB))
            assert memory.bytes() - before > 60 * MIB


def test_a_look_that_fails_is_made_again_and_one_that_hangs_is_noticed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kongming_server.security.flood_watch.AGAIN_S", 0.01)
    failed, looking, going_on = Event(), Event(), Event()
    at_work: list[str] = []

    @contextmanager
    def working(name: str) -> Iterator[None]:
        at_work.append(name)
        try:
            yield
        finally:
            at_work.remove(name)

    def look(*_: object) -> None:
        if not failed.is_set():
            failed.set()
            raise OSError("no descriptor is left")
        looking.set()
        going_on.wait(60.0)

    watch = FloodWatch(Connections(), working)
    monkeypatch.setattr(watch, "_look", look)
    watch.start(port=9)
    assert looking.wait(60.0)
    assert at_work == ["Looking for floods of headers"]
    assert "no descriptor is left" in caplog.text
    going_on.set()
    watch.close()
    assert at_work == []


def test_the_interpreter_is_given_up_sooner_while_memory_grows_and_no_longer() -> None:
    usual = sys.getswitchinterval()
    with closing(FloodWatch(Connections())) as watch, socket.create_server(("127.0.0.1", 0)) as own:
        watch.start(own.getsockname()[1])
        # No flood is the reason of this growth, so each step of it is soon taken as usual.
        grown = []
        eventually(lambda: grown.append(os.urandom(64 * MIB)) or sys.getswitchinterval() < usual)
        grown.clear()
        eventually(lambda: sys.getswitchinterval() == usual)
    assert sys.getswitchinterval() == usual


@pytest.mark.parametrize(
    ("first", "second", "hurried"),
    [
        (0, 0, False),
        (0, 3 * MIB, False),
        # Long before it is a flood.
        (0, 5 * MIB, True),
        # It was there at the first look.
        (FIRST - MIB, FIRST - MIB, False),
        (FIRST + MIB, FIRST + MIB, True),
    ],
)
def test_only_growth_hurries_not_who_sends_too_many_headers(
    first: int, second: int, hurried: bool
) -> None:
    """One address could have that for as long as it likes."""
    usual, flooded = sys.getswitchinterval(), Flooded()
    watch = FloodWatch(flooded.connections)
    with closing(PortDescriptors(9)) as sockets, closing(AcceptedConnections()) as accepted:
        for growth in (first, second):
            for _ in range(5):
                watch.report(peer(1, 1))
            watch._look(flooded.floods, sockets, BASE + growth, accepted)
        lowered = sys.getswitchinterval() < usual
        watch._hurry(False)
    assert lowered is hurried
    assert sys.getswitchinterval() == usual


def test_what_has_grown_and_grows_no_more_is_not_looked_at_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fleet of ten thousand that has come back: a seventh of a core until all was calm again."""
    flooded = Flooded()
    looks = counted_looks(monkeypatch, flooded)
    with watched(flooded, port=9) as look:
        for growth in (MIB, MIB, 2 * MIB, MIB):
            look(FIRST + growth)
        assert looks == [BASE + FIRST + MIB]
        for growth in (6 * MIB, 6 * MIB):
            look(FIRST + growth)
        assert looks[1:] == [BASE + FIRST + 6 * MIB]
        # What was freed, and is taken again.
        for growth in (2 * MIB, 7 * MIB):
            look(FIRST + growth)
        assert looks[2:] == [BASE + FIRST + 7 * MIB]


def test_once_the_kernel_keeps_an_address_out_it_is_not_looked_at_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flooded = Flooded()
    looks = counted_looks(monkeypatch, flooded)
    with listening(socket.AF_INET, "127.0.0.1") as own:
        port = own.getsockname()[1]
        with watched(flooded, port) as look:
            for _ in range(4):
                look(0, offender="ipv4:127.0.0.2:1")
            assert not can_connect(port, "127.0.0.2")
            # Whoever came between the filter and the look before it is ended by another.
            looks.clear()
            for _ in range(5):
                look(0)
            assert len(looks) == 1
            flooded.clock.now += HOLD_S
            look(0)
            assert can_connect(port, "127.0.0.2")
            assert len(looks) == 1


def counted_looks(monkeypatch: pytest.MonkeyPatch, flooded: Flooded) -> list[int]:
    """The memory at each look at all connections."""
    looks: list[int] = []
    to_end = flooded.floods.to_end

    def counted(received: dict[str, int], resident: int, *rest: Any) -> set[str]:
        looks.append(resident)
        return to_end(received, resident, *rest)

    monkeypatch.setattr(flooded.floods, "to_end", counted)
    return looks


@contextmanager
def watched(flooded: Flooded, port: int) -> Iterator[Callable[..., None]]:
    """A watch whose looks are made by hand, as soon as they are due; all but the first has a
    reason."""
    watch = FloodWatch(flooded.connections)
    with closing(PortDescriptors(port)) as sockets, closing(AcceptedConnections()) as accepted:

        def look(grown: int, offender: str = "") -> None:
            if offender:
                watch.report(offender)
            watch._next_look = 0.0
            watch._look(flooded.floods, sockets, BASE + grown, accepted)
            watch._next_calm_look = math.inf

        yield look
    watch._hurry(False)


def test_floods_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.filtering(log_limits()):
        for _ in range(500):
            logging.getLogger(FloodWatch.__module__).warning("%d were ended.", 3)
    assert len(caplog.records) == 10


def test_connections_of_the_machine_are_counted() -> None:
    with closing(AcceptedConnections()) as accepted, listening(socket.AF_INET, "127.0.0.1") as own:
        before = accepted.count()
        for _ in range(20):
            assert can_connect(own.getsockname()[1], "127.0.0.1")
        assert 20 <= accepted.count() - before < 10_000
