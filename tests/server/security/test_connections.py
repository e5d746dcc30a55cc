"""Which connections end: idle ones, and those above a limit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from hypothesis import given
from hypothesis import strategies as st

from kongming.rpc.connections import Connections, address_of

IDLE_S = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def peer(host: int, port: int) -> str:
    return f"ipv4:192.0.2.{host}:{port}"


def test_what_asks_nothing_ends_and_what_is_in_use_stays() -> None:
    clock = Clock()
    connections = Connections(idle_s=IDLE_S, clock=clock)
    for port in (1, 2, 3):
        connections.add(peer(1, port))
    clock.now = IDLE_S - 1
    connections.begin(peer(1, 2))
    connections.begin(peer(1, 3))
    connections.end(peer(1, 3))
    assert connections.to_end() == []
    clock.now = IDLE_S
    assert connections.to_end() == [peer(1, 1)]
    clock.now = 10 * IDLE_S
    # A call is at work on the second, however long it takes.
    assert set(connections.to_end()) == {peer(1, 1), peer(1, 3)}
    connections.end(peer(1, 2))
    assert peer(1, 2) not in connections.to_end()


def test_callers_that_are_known_may_be_silent() -> None:
    clock = Clock()
    connections = Connections(idle_s=IDLE_S, spare_trusted=True, clock=clock)
    for port, trusted in ((1, True), (2, False)):
        connections.begin(peer(1, port))
        if trusted:
            connections.trust(peer(1, port))
        connections.end(peer(1, port))
    clock.now = 100 * IDLE_S
    assert connections.to_end() == [peer(1, 2)]


def test_who_comes_takes_the_place_of_the_stranger_that_was_idle_longest() -> None:
    clock = Clock()
    connections = Connections(most=3, clock=clock)
    for port in (1, 2, 3):
        clock.now += 1.0
        connections.add(peer(port, port))
    connections.begin(peer(1, 1))
    connections.trust(peer(1, 1))
    connections.end(peer(1, 1))
    assert not connections.has_room(peer(9, 9))
    assert connections.to_end(joining=peer(9, 9)) == [peer(2, 2)]
    # Where all are in use none is ended: a new one is refused.
    for port in (1, 2, 3):
        connections.begin(peer(port, port))
    assert connections.to_end(joining=peer(9, 9)) == []
    assert not connections.has_room(peer(9, 9))


def test_no_address_takes_the_places_of_another() -> None:
    connections = Connections(most=100, per_address=2, clock=Clock())
    for port in (1, 2):
        connections.add(peer(1, port))
    connections.add(peer(2, 1))
    assert not connections.has_room(peer(1, 3))
    assert connections.to_end(joining=peer(1, 3)) == [peer(1, 1)]
    assert connections.has_room(peer(2, 2))


def test_a_host_is_one_however_it_is_written() -> None:
    connections = Connections(per_address=1)
    connections.add("ipv6:[::ffff:192.0.2.1]:5")
    connections.begin("ipv4:192.0.2.1:5")
    connections.end("ipv6:%5B::ffff:192.0.2.1%5D:5")
    assert len(connections) == 1
    # Hosts commonly have 64 bits of addresses.
    assert address_of("ipv6:[2001:db8::1]:1") == address_of("ipv6:%5B2001:db8::2%5D:9")


def test_what_is_gone_is_forgotten_but_not_what_has_just_begun() -> None:
    clock = Clock()
    connections = Connections(clock=clock)
    connections.add(peer(1, 1))
    clock.now = 1.0
    connections.begin(peer(1, 2))
    connections.end(peer(1, 2))
    connections.keep([peer(1, 3)], before=0.5)
    assert set(connections) == {peer(1, 2), peer(1, 3)}


@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), max_size=30),
    st.integers(1, 8),
    st.integers(1, 4),
)
def test_limits_hold_wherever_enough_are_idle(
    opened: list[tuple[int, bool, bool]], most: int, per_address: int
) -> None:
    connections = Connections(most=most, per_address=per_address, clock=Clock())
    busy = set()
    for port, (host, calls, trusted) in enumerate(opened):
        name = peer(host, port)
        connections.add(name)
        if calls or trusted:
            connections.begin(name)
        if trusted:
            connections.trust(name)
        if calls:
            busy.add(name)
        elif trusted:
            connections.end(name)
    ending = connections.to_end()
    assert not busy & set(ending)
    assert len(ending) == len(set(ending))
    for name in ending:
        connections.remove(name)
    left = set(connections)
    assert len(left) <= most or left == busy
    for host in range(1, 5):
        of_host = {name for name in left if address_of(name) == f"192.0.2.{host}"}
        assert len(of_host) <= per_address or of_host <= busy
    # No more are ended than a limit asks for.
    if len(opened) <= min(most, per_address):
        assert not ending


def test_a_known_caller_is_known_at_every_step_of_a_call() -> None:
    """As seen from another thread, which may run between any two steps."""
    connections = Connections(clock=Clock())
    known = peer(1, 1)
    connections.begin(known)
    connections.trust(known, "token 1")
    connections.end(known)
    seen: set[bool] = set()

    def look(frame: FrameType, event: str, argument: object) -> Callable[..., object]:
        frame.f_trace_opcodes = True
        if frame.f_code is not Connections.use.__code__:
            use = connections.use(known)
            seen.add(use is not None and use.trusted)
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        connections.begin(known)
        connections.trust(known, "token 1")
        connections.take(known, 100)
        connections.end(known)
    finally:
        sys.settrace(before)
    assert seen == {True}
