"""Which connections end in a flood of headers, and which addresses cannot connect."""

from __future__ import annotations

import pytest
from kongming_server.security.floods import (
    CLOSED_S,
    EXPLAINED_S,
    FIRST,
    HOLD_S,
    MOST_CLOSED_S,
    SECOND,
    THIRD,
    Floods,
)

from kongming.rpc.connections import Connections
from tests.server.security.test_connections import Clock, peer

BASE = 200 << 20
BLOCK = 16 << 10
KIB, MIB = 1 << 10, 1 << 20


class Flooded:
    """``Floods`` with a clock, and connections that have or have not a known caller."""

    def __init__(self, *, tls: bool = True) -> None:
        self.clock = Clock()
        self.connections = Connections(clock=self.clock)
        self.floods = Floods(self.connections, BASE, self.clock, tls=tls)

    def known(self, name: str, who: str, message: int = 0) -> str:
        self.connections.begin(name)
        self.connections.trust(name, who)
        self.connections.take(name, message)
        self.connections.end(name)
        return name

    def look(
        self,
        received: dict[str, int],
        grown: int = 0,
        offenders: tuple[str, ...] = (),
        accepted: int = 0,
    ) -> set[str]:
        self.floods.alarming(BASE + grown)
        return self.floods.to_end(received, BASE + grown, offenders, accepted)


def test_strangers_end_while_memory_grows_without_an_explanation() -> None:
    flooded = Flooded()
    large, small, new = peer(1, 1), peer(2, 1), peer(3, 1)
    operator = flooded.known(peer(4, 1), "")
    received = {large: 2 * BLOCK, small: 4 * KIB, operator: 50 * MIB}
    assert flooded.look(received) == set()
    assert flooded.look(received, FIRST // 2) == set()
    assert flooded.look(received, FIRST + MIB) == {large}
    assert flooded.floods.held() == {"192.0.2.1"}
    # In the end all that were there before; newer ones may still identify themselves.
    assert flooded.look({small: 4 * KIB, operator: 50 * MIB, new: KIB}, THIRD + MIB) == {small}
    flooded.clock.now += HOLD_S
    assert flooded.floods.held() == set()


def closed() -> tuple[Flooded, str]:
    """Closed, after strangers from ever new addresses took the most allowed; and a known caller."""
    flooded = Flooded()
    caller = flooded.known(peer(200, 1), "node-1")
    assert flooded.look({caller: 4 * KIB}) == set()
    assert flooded.floods.admitted() is None
    for number, grown in enumerate((FIRST, SECOND, THIRD), 1):
        stranger = peer(number, 1)
        assert flooded.look({stranger: 2 * BLOCK, caller: 4 * KIB}, grown + MIB) in (
            {stranger},
            set(),
        )
    assert flooded.look({peer(3, 1): 2 * BLOCK, caller: 4 * KIB}, THIRD + MIB) == {peer(3, 1)}
    return flooded, caller


def test_while_ever_more_come_only_known_addresses_connect() -> None:
    flooded, caller = closed()
    admitted = frozenset({"192.0.2.200"})
    assert flooded.floods.admitted() == admitted
    # Memory is compared with what it was, not with what the first of them made of it.
    for number in range(10, 50):
        flooded.clock.now += 0.1
        newcomer, neighbour = peer(number, 1), peer(200, number)
        received = {newcomer: KIB, neighbour: KIB, caller: 4 * KIB}
        assert flooded.look(received, THIRD + 2 * MIB) == {newcomer}
        assert flooded.floods.admitted() == admitted
    flooded.clock.now += CLOSED_S
    assert flooded.look({caller: 4 * KIB}, FIRST - MIB) == set()
    assert flooded.floods.admitted() is None


def test_it_is_closed_for_longer_each_time_that_it_was_too_short() -> None:
    flooded, caller = closed()
    seconds = CLOSED_S
    for number in range(10, 20):
        flooded.clock.now += seconds - 0.1
        flooded.look({caller: 4 * KIB})
        assert flooded.floods.admitted() is not None
        flooded.clock.now += 0.2
        flooded.look({caller: 4 * KIB})
        assert flooded.floods.admitted() is None
        # The next growth is enough.
        stranger = peer(number, 1)
        assert flooded.look({stranger: 2 * BLOCK, caller: 4 * KIB}, FIRST + MIB) == {stranger}
        assert flooded.floods.admitted() is not None
        seconds = min(2 * seconds, MOST_CLOSED_S)


def test_what_stays_of_a_flood_is_the_servers_own_after_a_while() -> None:
    flooded, caller = closed()
    flooded.clock.now += CLOSED_S - 0.1
    assert flooded.look({caller: 4 * KIB}, THIRD + MIB) == set()
    assert flooded.floods.admitted() is not None
    flooded.clock.now += 0.2
    assert flooded.look({caller: 4 * KIB}, THIRD + MIB) == set()
    assert flooded.floods.admitted() is None
    assert flooded.look({caller: 4 * KIB, peer(4, 1): 2 * BLOCK}, THIRD + MIB) == set()


def test_an_address_that_sends_a_flood_is_not_admitted_for_callers_it_had() -> None:
    flooded, caller = closed()
    received = {caller: 4 * KIB, peer(200, 2): 2 * BLOCK}
    flooded.look(received, THIRD + 2 * MIB)
    assert flooded.look(received, THIRD + 2 * MIB) == {peer(200, 2)}
    assert flooded.floods.admitted() == frozenset()
    flooded.clock.now += HOLD_S
    assert flooded.floods.admitted() == {"192.0.2.200"}


def test_connections_and_messages_explain_what_they_take() -> None:
    flooded = Flooded()
    flooded.look({})
    many = {peer(number, port): 60 * KIB for number in range(1, 201) for port in range(5)}
    # As where all agents come back at once, and none of them was answered yet.
    assert flooded.look(many, 200 * MIB) == set()
    assert flooded.look(many, 300 * MIB) == many.keys()
    flooded = Flooded()
    agents = [flooded.known(peer(1, port), f"token {port}") for port in range(20)]
    stranger = {peer(2, 1): 2 * BLOCK}
    assert flooded.look(dict.fromkeys(agents, 0)) == set()
    for number, agent in enumerate(agents):
        flooded.known(agent, f"token {number}", 2 * MIB)
    assert flooded.look(dict.fromkeys(agents, 2 * MIB) | stranger, 10 * FIRST) == set()


def test_a_strangers_bytes_and_connections_explain_what_honest_ones_take_at_most() -> None:
    # A hundred connections of one address, for 10 MB, and 4 MiB for what they send ahead.
    received = {peer(1, port): 500 * KIB for port in range(100)}
    for tls, explained in ((True, 13), (False, 4)):
        flooded = Flooded(tls=tls)
        flooded.look({})
        assert flooded.look(received, FIRST + explained * MIB) == set()
        assert flooded.look(received, FIRST + (explained + 2) * MIB) == received.keys()
    # What came before explains nothing.
    flooded = Flooded()
    flooded.look(received)
    assert flooded.look(received, FIRST + MIB) == received.keys()


def test_connections_of_agents_go_on_explaining_what_they_take() -> None:
    """A call accounts for more than what a small one brings."""
    flooded = Flooded()
    waiting = {peer(255, 1): 2 * BLOCK}
    flooded.look(waiting)
    agents = [peer(number, port) for number in range(1, 251) for port in range(5)]
    for calls in range(1, 6):
        for agent in agents:
            flooded.known(agent, f"token of {agent}")
        # What they sent was of use for something else.
        flooded.clock.now += EXPLAINED_S
        came = dict.fromkeys(agents, 4 * KIB + calls * 300)
        assert flooded.look(came | waiting, 100 * MIB) == set()


def test_an_agents_bytes_that_no_message_accounts_for_explain_what_one_message_takes() -> None:
    thief, stranger = peer(1, 1), peer(2, 1)
    for accounted in (0, 300 * MIB):
        flooded = Flooded()
        flooded.known(thief, "token 1", accounted)
        flooded.look({thief: KIB})
        if accounted:
            # A message that is larger than what came of it accounts for no other bytes.
            flooded.known(thief, "token 1", accounted)
            flooded.look({thief: 64 * KIB}, 8 * MIB)
        received = {thief: 300 * MIB, stranger: 2 * BLOCK}
        assert flooded.look(received, FIRST + MIB) == set()
        assert flooded.look(received, FIRST + 6 * MIB) == {stranger}


def test_connections_that_are_ended_still_take_what_they_took() -> None:
    flooded = Flooded()
    flooded.look({})
    many = {peer(number, port): 30 * KIB for number in range(1, 201) for port in range(3)}
    fat = {peer(201, 1): 400 * KIB}
    # 60 MB are explained by connections, 35 by what was sent ahead.
    grown = 95 * MIB + FIRST + MIB
    ended = flooded.look(many | fat, grown)
    assert ended == many.keys() | fat.keys()
    rest = {peer(number, 9): KIB for number in range(202, 252)}
    for _ in range(3):
        assert flooded.look(rest, grown) == set()
        assert not flooded.floods.closed


def test_connections_that_were_ended_have_not_vanished() -> None:
    flooded = Flooded()
    flooded.look({}, accepted=1000)
    many = {peer(number, 1): 400 * KIB for number in range(1, 101)}
    grown = 23 * MIB + THIRD + 8 * MIB
    assert flooded.look(many, SECOND, accepted=1100) == many.keys()
    flooded.clock.now += 2.0
    assert flooded.look({}, grown, accepted=1100) == set()
    assert not flooded.floods.closed


def test_a_handshake_under_way_is_no_flood() -> None:
    flooded = Flooded()
    flooded.look({})
    hello = {peer(number, port): 500 for number in range(1, 251) for port in range(10)}
    assert flooded.look(hello, 100 * MIB) == set()
    assert not flooded.floods.closed


def test_where_memory_grows_though_it_is_closed_nobody_connects() -> None:
    flooded, caller = closed()
    grown = THIRD + FIRST
    assert flooded.look({caller: 4 * KIB}, grown - MIB) == set()
    assert flooded.floods.admitted() == {"192.0.2.200"}
    assert flooded.look({caller: 4 * KIB, peer(200, 2): KIB}, grown + 2 * MIB) == set()
    assert flooded.floods.admitted() == frozenset()
    # Whose caller is known goes on.
    assert flooded.look({caller: 4 * KIB, peer(200, 2): KIB}, grown) == {peer(200, 2)}
    flooded.clock.now += CLOSED_S
    flooded.look({caller: 4 * KIB})
    assert flooded.floods.admitted() is None


def test_what_a_caller_brought_explains_memory_after_it_left() -> None:
    flooded = Flooded()
    operator, stranger = flooded.known(peer(1, 1), ""), peer(2, 1)
    assert flooded.look({}) == set()
    # An import, which is over while what it took is not given back.
    assert flooded.look({operator: 20 * MIB}, 2 * THIRD) == set()
    for _ in range(3):
        assert flooded.look({stranger: 4 * KIB}, 2 * THIRD) == set()
    assert flooded.floods.held() == set()
    assert flooded.look({stranger: 2 * BLOCK}, 4 * THIRD) == {stranger}
    # Not beyond the next calm.
    assert flooded.look({}) == set()
    assert flooded.look({stranger: 2 * BLOCK}, 2 * THIRD) == {stranger}


def test_agents_that_came_since_all_was_calm_go_on_explaining_what_they_brought() -> None:
    flooded = Flooded()
    assert flooded.look({}) == set()
    agents = [flooded.known(peer(1, port), f"token {port}", 500 * KIB) for port in range(20)]
    received = dict.fromkeys(agents, 502 * KIB)
    late = peer(2, 1)
    for _ in range(3):
        assert flooded.look(received | {late: 2 * BLOCK}, THIRD + 8 * MIB) == set()


def test_what_a_fleet_that_came_back_did_not_take_explains_no_flood() -> None:
    flooded = Flooded()
    assert flooded.look({}) == set()
    agents = [flooded.known(peer(1, port), f"token {port}", 500 * KIB) for port in range(20)]
    # 160 MB are explained, half of it was taken and stays.
    received = dict.fromkeys(agents, 502 * KIB)
    assert flooded.look(received, 80 * MIB) == set()
    flooded.clock.now += EXPLAINED_S - 1.0
    late = {peer(2, 1): 2 * BLOCK}
    assert flooded.look(received | late, 150 * MIB) == set()
    assert flooded.look(received, 80 * MIB) == set()
    flooded.clock.now += 1.0
    assert flooded.look(received | late, 80 * MIB + FIRST - MIB) == set()
    assert flooded.look(received | late, 87 * MIB + FIRST) == late.keys()


def test_bytes_of_an_agent_that_no_message_accounts_for_explain_little() -> None:
    flooded = Flooded()
    thief = flooded.known(peer(1, 1), "token 1")
    assert flooded.look({thief: 900}) == set()
    # Frames that take nothing, before those that do.
    assert flooded.look({thief: 20 * MIB}, FIRST) == set()
    assert flooded.look({thief: 21 * MIB}, SECOND + 60 * MIB) == {thief}


def test_another_connection_from_the_same_port_is_looked_at_from_its_beginning() -> None:
    flooded = Flooded()
    thief = flooded.known(peer(1, 1), "token 1")
    assert flooded.look({thief: 8 * MIB}) == set()
    flooded.connections.remove(thief)
    flooded.known(thief, "token 1")
    assert flooded.look({thief: 96 * KIB}, SECOND + 8 * MIB) == {thief}


def test_an_agent_ends_for_bytes_that_no_message_accounts_for() -> None:
    flooded = Flooded()
    honest, thief = flooded.known(peer(1, 1), "token 1"), flooded.known(peer(2, 1), "token 2")
    assert flooded.look({honest: 900, thief: 900}) == set()
    flooded.known(honest, "token 1", message=100 * KIB)
    came = {honest: 900 + 101 * KIB, thief: 900 + 96 * KIB}
    assert flooded.look(came, SECOND + 8 * MIB) == {thief}
    assert flooded.floods.held() == {"192.0.2.2"}


def test_growth_without_suspects_is_the_servers_own() -> None:
    flooded = Flooded()
    operator = flooded.known(peer(1, 1), "")
    for _ in range(5):
        assert flooded.look({operator: KIB}, 2 * THIRD) == set()
    late = peer(2, 1)
    assert flooded.look({operator: KIB, late: 2 * BLOCK}, 2 * THIRD) == set()
    assert not flooded.floods.alarming(BASE + 2 * THIRD)


def test_where_many_left_before_anybody_looked_only_known_addresses_connect() -> None:
    flooded = Flooded()
    caller = flooded.known(peer(200, 1), "node-1")
    assert flooded.look({caller: KIB}, accepted=1000) == set()
    for _ in range(5):
        assert flooded.look({caller: KIB}, SECOND + MIB, accepted=1014) == set()
        assert not flooded.floods.closed
    assert flooded.look({caller: KIB}, THIRD - MIB, accepted=1014) == set()
    assert flooded.look({caller: KIB}, THIRD + MIB, accepted=1015) == set()
    assert flooded.floods.admitted() == {"192.0.2.200"}
    flooded.clock.now += CLOSED_S
    assert flooded.look({caller: KIB}, FIRST - MIB, accepted=1015) == set()
    assert flooded.floods.admitted() is None


@pytest.mark.parametrize("who", ["few", "known", "present"])
def test_few_or_known_or_present_connections_are_none_that_left(who: str) -> None:
    flooded = Flooded()
    operator = flooded.known(peer(200, 1), "")
    flooded.look({operator: KIB}, accepted=1000)
    came = 5 if who == "few" else 50
    received = {operator: KIB}
    for port in range(2, 2 + came):
        name = peer(200, port)
        if who == "known":
            flooded.known(name, "")
            flooded.connections.remove(name)
        elif who == "present":
            received[name] = 0
    for _ in range(5):
        assert flooded.look(received, THIRD + 8 * MIB, accepted=1000 + came) == set()
    assert not flooded.floods.closed
    assert not flooded.floods.alarming(BASE + THIRD + 8 * MIB)


def test_a_stranger_that_asks_nothing_brings_little() -> None:
    flooded = Flooded()
    silent, refused = peer(1, 1), peer(2, 1)
    for _ in range(10):
        flooded.connections.begin(refused)
        flooded.connections.end(refused)
    assert flooded.look({silent: MIB, refused: MIB}) == {silent}


def test_who_sends_too_many_headers_ends_with_all_of_the_same_token_and_address() -> None:
    flooded = Flooded()
    first, second = (flooded.known(peer(1, port), "token 1") for port in (1, 2))
    other = flooded.known(peer(1, 3), "token 2")
    shared = flooded.known(peer(2, 1), "token 1")
    operator = flooded.known(peer(1, 4), "")
    received = dict.fromkeys((first, second, other, shared, operator), KIB)
    assert flooded.look(received, offenders=(first,)) == {first, second}
    assert flooded.look(received, offenders=(operator,)) == {operator}
    assert flooded.floods.held() == set()


def test_an_address_is_held_off_after_a_few_offences() -> None:
    flooded = Flooded()
    known = flooded.known(peer(1, 50), "token 1")
    for port in range(4):
        assert flooded.floods.held() == set()
        offender = peer(1, port)
        assert flooded.look({offender: BLOCK, known: KIB}, offenders=(offender,)) == {offender}
    assert flooded.floods.held() == {"192.0.2.1"}
    late, elsewhere = peer(1, 9), peer(2, 9)
    assert flooded.look({late: 0, elsewhere: 0, known: KIB}) == {late}
