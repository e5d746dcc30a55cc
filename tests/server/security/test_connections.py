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
    kept = Connections(idle_s=IDLE_S, clock=clock)
    for port in (1, 2, 3):
        kept.add(peer(1, port))
    clock.now = IDLE_S - 1
    kept.begin(peer(1, 2))
    kept.begin(peer(1, 3))
    kept.end(peer(1, 3))
    assert kept.to_end() == []
    clock.now = IDLE_S
    assert kept.to_end() == [peer(1, 1)]
    clock.now = 10 * IDLE_S
    # A call is at work on the second, however long it takes.
    assert set(kept.to_end()) == {peer(1, 1), peer(1, 3)}
    kept.end(peer(1, 2))
    assert peer(1, 2) not in kept.to_end()


def test_callers_that_are_known_may_be_silent() -> None:
    clock = Clock()
    kept = Connections(idle_s=IDLE_S, spare_trusted=True, clock=clock)
    for port, trusted in ((1, True), (2, False)):
        kept.begin(peer(1, port))
        if trusted:
            kept.trust(peer(1, port))
        kept.end(peer(1, port))
    clock.now = 100 * IDLE_S
    assert kept.to_end() == [peer(1, 2)]


def test_who_comes_takes_the_place_of_the_stranger_that_was_idle_longest() -> None:
    clock = Clock()
    kept = Connections(most=3, clock=clock)
    for port in (1, 2, 3):
        clock.now += 1.0
        kept.add(peer(port, port))
    kept.begin(peer(1, 1))
    kept.trust(peer(1, 1))
    kept.end(peer(1, 1))
    assert not kept.has_room(peer(9, 9))
    assert kept.to_end(joining=peer(9, 9)) == [peer(2, 2)]
    # Where all are in use nobody is ended: who comes is refused.
    for port in (1, 2, 3):
        kept.begin(peer(port, port))
    assert kept.to_end(joining=peer(9, 9)) == []
    assert not kept.has_room(peer(9, 9))


def test_no_address_takes_the_places_of_another() -> None:
    kept = Connections(most=100, per_address=2, clock=Clock())
    for port in (1, 2):
        kept.add(peer(1, port))
    kept.add(peer(2, 1))
    assert not kept.has_room(peer(1, 3))
    assert kept.to_end(joining=peer(1, 3)) == [peer(1, 1)]
    assert kept.has_room(peer(2, 2))


def test_a_host_is_one_however_it_is_written() -> None:
    kept = Connections(per_address=1)
    kept.add("ipv6:[::ffff:192.0.2.1]:5")
    kept.begin("ipv4:192.0.2.1:5")
    kept.end("ipv6:%5B::ffff:192.0.2.1%5D:5")
    assert len(kept) == 1
    # Hosts commonly have 64 bits of addresses.
    assert address_of("ipv6:[2001:db8::1]:1") == address_of("ipv6:%5B2001:db8::2%5D:9")


def test_what_is_gone_is_forgotten_but_not_what_has_just_begun() -> None:
    clock = Clock()
    kept = Connections(clock=clock)
    kept.add(peer(1, 1))
    clock.now = 1.0
    kept.begin(peer(1, 2))
    kept.end(peer(1, 2))
    kept.keep([peer(1, 3)], before=0.5)
    assert set(kept) == {peer(1, 2), peer(1, 3)}


@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), max_size=30),
    st.integers(1, 8),
    st.integers(1, 4),
)
def test_limits_hold_wherever_enough_are_idle(
    made: list[tuple[int, bool, bool]], most: int, per_address: int
) -> None:
    kept = Connections(most=most, per_address=per_address, clock=Clock())
    busy = set()
    for port, (host, calls, trusted) in enumerate(made):
        name = peer(host, port)
        kept.add(name)
        if calls or trusted:
            kept.begin(name)
        if trusted:
            kept.trust(name)
        if calls:
            busy.add(name)
        elif trusted:
            kept.end(name)
    ending = kept.to_end()
    assert not busy & set(ending)
    assert len(ending) == len(set(ending))
    for name in ending:
        kept.remove(name)
    left = set(kept)
    assert len(left) <= most or left == busy
    for host in range(1, 5):
        of_host = {name for name in left if address_of(name) == f"192.0.2.{host}"}
        assert len(of_host) <= per_address or of_host <= busy
    # No more are ended than a limit asks for.
    if len(made) <= min(most, per_address):
        assert not ending


def test_a_known_caller_is_known_at_every_step_of_a_call() -> None:
    """To whoever looks from another thread, which may have its turn between any two of them."""
    kept = Connections(clock=Clock())
    known = peer(1, 1)
    kept.begin(known)
    kept.trust(known, "token 1")
    kept.end(known)
    seen: set[bool] = set()

    def look(frame: FrameType, event: str, argument: object) -> Callable[..., object]:
        frame.f_trace_opcodes = True
        if frame.f_code is not Connections.use.__code__:
            use = kept.use(known)
            seen.add(use is not None and use.trusted)
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        kept.begin(known)
        kept.trust(known, "token 1")
        kept.take(known, 100)
        kept.end(known)
    finally:
        sys.settrace(before)
    assert seen == {True}
