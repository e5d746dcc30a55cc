"""Floods of headers: which connections are to end, and which addresses may not connect.

gRPC reads the headers of a call, however many, before anybody is asked who they are, and a byte
that names an earlier header makes it keep some 150. No setting of gRPC bounds that. So a thread
(``flood_watch``) looks, whatever the event loop is doing, for memory that grows without a reason,
and ends the connections that bring bytes which no call accounts for; and the interceptor tells it
of calls that came with too many headers. An address that did so repeatedly cannot connect for a
while. Where memory grows all the same, since ever new addresses come or come back, or leave before
anybody looks, only those can connect from which a caller was known before, until what was read of
the others is done with.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Set
from typing import NamedTuple

from kongming.rpc.connections import Connections, Use, address_of, plain_peer
from kongming_server.security.rates import Rates

__all__ = ["CLOSED_S", "EXPLAINED_S", "HOLD_S", "MOST_CLOSED_S", "Floods"]

HOLD_S = 5.0
"""For so long connections are refused from an address after a flood from there."""

CLOSED_S, MOST_CLOSED_S = 5.0, 60.0
"""For so long only known addresses connect, and twice as long each time that it has to be closed
again: what was read of the others takes 25 ms a call to be done with."""

_WARY_S = 60.0
"""For so long after that it is closed again as soon as anybody ends while memory grows."""

_REMEMBERED_S, _REMEMBERED = 24 * 3600.0, 10_000
"""How long, and of how many addresses, it is known that a caller was let in."""

FIRST, SECOND, THIRD = 48 << 20, 80 << 20, 112 << 20
"""Memory without an explanation from which on connections end, and ever more of them."""

_STRANGER_BYTES = {FIRST: 20 << 10, SECOND: 8 << 10, THIRD: 0}
"""What a connection without a known caller yet may have brought. A handshake and the first call
of an agent are some 4 kB, and gRPC lets 64 KiB of a first message follow, until the caller is known
a few ms later."""

_STRANGER_MOST_BYTES, _UNREAD_BYTES = 512 << 10, 192 << 10
"""What it may have brought in any case, and what more for each call that was refused, whose message
was not read."""

_HEADER_BYTES = 2048
"""Of a call in addition to its message: headers, frames, and what TLS adds to them."""

_AGENT_BYTES = {SECOND: 64 << 10, THIRD: 16 << 10}
"""What one of an agent's may have brought since all was calm that no message accounts for."""

_CONNECTION_BYTES, _OPENED_BYTES = 100 << 10, 8 << 10
"""What one takes of TLS, from its first byte on, or on which a caller was known; and any other."""

_KNOWN_FACTOR, _UNREAD_FACTOR = 16, 2
"""What a byte takes that a known caller brought, once it was decoded, and one that was not read: a
stranger's, or an agent's that no message accounts for."""

_WINDOW_BYTES, _MESSAGE_BYTES = 64 << 10, 1 << 20
"""Bytes of one connection that were not read: of a stranger's, as more gRPC does not let an honest
one send ahead, and of an agent's, whose message may be half there."""

_STRANGERS_BYTES, _UNREAD_AGENTS_BYTES = (4 << 20, 256 << 20), (16 << 20, 1 << 30)
"""What all such bytes may explain, of one address and together: who knows of it can send bytes that
take nothing."""

_ENDED_S, _ENDED_BYTES = 1.0, 64 << 20
"""For so long what connections explain that were ended stays explained, up to so much: they are not
given back at once, and the others would be ended for it."""

EXPLAINED_S = 5.0
"""For so long after known callers' bytes came, or were decoded, they explain a growth. What they
took by then stays explained; what they might have taken is not for others to use."""

_QUIET_BYTES = 64 << 10
"""Fewer that no message accounts for, of all connections together, do not explain a growth."""

_VANISHED_BYTES = 8 << 20
"""What a stranger's connection takes at most that came and went between two looks."""

_CALM_BYTES = 4 << 20
"""A growth that is none."""

_DRIFT_BYTES_S = 2 << 20
"""Growth per second that is taken as that of the server itself."""


class _Seen(NamedTuple):
    """One connection at one look: the bytes that came, and those that calls account for."""

    size: int
    accounted: int


class _Credit:
    """Memory that known callers' bytes explain, until it is used or too old."""

    def __init__(self) -> None:
        self._parts = deque[tuple[float, int]]()

    def add(self, size: int, now: float) -> None:
        if size > 0:
            self._parts.append((now + EXPLAINED_S, size))

    def use(self, most: float, now: float) -> float:
        """Take up to so much, the oldest first; returns how much there was."""
        used = 0.0
        while self._parts and used < most:
            until, size = self._parts.popleft()
            if until <= now:
                continue
            part = min(size, most - used)
            used += part
            if part < size:
                self._parts.appendleft((until, int(size - part)))
        return used


class Floods:
    """Decides which connections are to end and which addresses cannot connect; does no I/O."""

    def __init__(
        self,
        connections: Connections,
        resident: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        tls: bool = True,
    ) -> None:
        """``resident``: the memory that the server takes now, in bytes."""
        self._tls = tls
        self._connections = connections
        self._clock = clock
        self._calm = float(resident)
        self._calm_at = clock()
        # At the last look when all was calm; who came since is not in it.
        self._seen: dict[str, _Seen] = {}
        self._calm_connections = 0
        # Strangers that had come by then, those that left included; None until the first look.
        self._calm_strangers: int | None = None
        # By agents: of what calls account for, what is to account for nothing.
        self._void: dict[str, int] = {}
        # At the last look: the memory that what known callers brought since then explains, with
        # those that left.
        self._explained: dict[str, int] = {}
        self._explained_by_left = 0
        self._explained_before = 0
        # Of that, what may yet be taken; and what was, and was not given back.
        self._credit = _Credit()
        self._taken = 0.0
        self._present: Set[str] = frozenset()
        self._looks_in_vain = 0
        self._offences = Rates(rate=0.2, burst=3.0)
        # Until when, the first of them first: taking that off a dict gets slower with each.
        self._held = OrderedDict[str, float]()
        self._held_now: frozenset[str] | None = None
        # When a known caller was last seen there, the latest last.
        self._known: dict[str, float] = {}
        self._closed_until: float | None = None
        self._closed_s = CLOSED_S
        # Memory without an explanation when it was closed; and whether it grew even so.
        self._closed_at, self._closed_to_all = 0.0, False
        # What strangers explained when some were ended last; and how many, since all was calm.
        self._ended_at, self._explained_then = -math.inf, 0.0
        self._ended_strangers = 0
        self._wary_until = -math.inf

    def alarming(self, resident: int) -> bool:
        """Return whether memory has grown so much that connections have to be looked at."""
        now = self._clock()
        self._calm = min(self._calm + _DRIFT_BYTES_S * (now - self._calm_at), float(resident))
        self._calm_at = now
        self._taken = min(self._taken, resident - self._calm)
        return resident - self._calm - self._taken > FIRST

    def held(self) -> frozenset[str]:
        """The addresses from which connections are refused now."""
        now = self._clock()
        while self._held and self._held[next(iter(self._held))] <= now:
            self._held.popitem(last=False)
            self._held_now = None
        # There may be many, and each look asks.
        if self._held_now is None:
            self._held_now = frozenset(self._held)
        return self._held_now

    @property
    def closed(self) -> bool:
        """Return whether only known addresses may connect."""
        return self._closed_until is not None

    def admitted(self) -> frozenset[str] | None:
        """The only addresses from which anybody may connect now; None for all that are not held."""
        if not self.closed:
            return None
        return frozenset() if self._closed_to_all else frozenset(self._known) - self.held()

    def to_end(
        self,
        received: Mapping[str, int],
        resident: int,
        offenders: Iterable[str] = (),
        accepted: int = 0,
    ) -> set[str]:
        """The peers whose connections are to end.

        ``received``: the bytes that came over each that is open; ``offenders``: the peers of calls
        with too many headers; ``accepted``: how many connections there were so far.
        """
        ending = self._of_offenders({plain_peer(peer) for peer in offenders}, received)
        self._remember(received)
        # As of before: who is there when it closes may yet say who they are.
        admitted = self.admitted()
        ending |= self._without_account(received, resident, accepted)
        for peer in received:
            address = address_of(peer)
            shut_out = address in self._held or (admitted is not None and address not in admitted)
            if shut_out and not self._trusted(peer):
                ending.add(peer)
        return ending & received.keys()

    def _remember(self, received: Iterable[str]) -> None:
        now = self._clock()
        for address in {address_of(peer) for peer in received if self._trusted(peer)}:
            self._known.pop(address, None)
            self._known[address] = now
        while self._known:
            oldest = next(iter(self._known))
            if len(self._known) <= _REMEMBERED and now - self._known[oldest] <= _REMEMBERED_S:
                break
            del self._known[oldest]

    def _of_offenders(self, offenders: set[str], received: Mapping[str, int]) -> set[str]:
        # With an address, as where limits count: agents that share a token from elsewhere are not
        # to lose their connections by what one of them does.
        ending, thieves = set(offenders), set[tuple[str, str]]()
        for peer in offenders:
            use = self._connections.use(peer)
            if use is not None and use.trusted:
                if not use.who:
                    # Of an operator or a scheduler, or where nobody is asked who they are.
                    continue
                thieves.add((use.who, address_of(peer)))
            if self._offences.take(address_of(peer), self._clock()) > 0.0:
                self._hold(peer)
        for peer in received if thieves else ():
            use = self._connections.use(peer)
            if use is not None and (use.who, address_of(peer)) in thieves:
                ending.add(peer)
        return ending

    def _without_account(
        self, received: Mapping[str, int], resident: int, accepted: int
    ) -> set[str]:
        """Those that brought bytes which no message accounts for, where memory has grown."""
        strangers: dict[str, int] = {}
        ahead, unread_of_agents = Counter[str](), Counter[str]()
        agents: dict[str, int] = {}
        explained: dict[str, int] = {}
        now: dict[str, _Seen] = {}
        ending: set[str] = set()
        for peer, size in received.items():
            use = self._connections.use(peer) or Use()
            accounted = use.taken + use.begun * _HEADER_BYTES
            now[peer] = _Seen(size, accounted)
            before = self._seen.get(peer, _Seen(0, 0))
            if before.size > size:
                # Another connection, from the same port.
                before = self._seen[peer] = _Seen(0, 0)
                self._void.pop(peer, None)
                self._explained_by_left += self._explained.pop(peer, 0)
            if not use.trusted:
                strangers[peer] = size
                ahead[address_of(peer)] += min(size - before.size, _WINDOW_BYTES)
                if size - use.begun * _UNREAD_BYTES > _STRANGER_MOST_BYTES:
                    ending.add(peer)
                continue
            brought, unread = size - before.size, 0
            if use.who:
                read = accounted - max(before.accounted, self._void.get(peer, 0))
                if read > brought:
                    # Of messages that were larger than what came of them, or came before: that
                    # accounts for no other bytes.
                    self._void[peer] = accounted - brought
                unread = max(0, brought - max(0, read))
                agents[peer] = unread
            unread_of_agents[address_of(peer)] += min(unread, _MESSAGE_BYTES)
            explained[peer] = (brought - unread) * _KNOWN_FACTOR
        self._explained_by_left += sum(
            size for peer, size in self._explained.items() if peer not in received
        )
        self._explained = explained
        total = sum(explained.values()) + self._explained_by_left
        self._credit.add(total - self._explained_before, self._clock())
        self._explained_before = total
        # Who came since all was calm.
        new = received.keys() - self._seen.keys()
        new_strangers = {peer: strangers[peer] for peer in new & strangers.keys()}
        of_new = self._of_connections(len(new), new_strangers.values())
        # As many of them as there are more than then: of those that left, memory is used again.
        of_new *= max(0, len(received) - self._calm_connections) / max(1, len(new))
        of_strangers = of_new + _of_unread(ahead, *_STRANGERS_BYTES)
        unexplained = (
            (resident - self._calm)
            - self._taken
            - of_strangers
            - _of_unread(unread_of_agents, *_UNREAD_AGENTS_BYTES)
            - self._of_ended(of_strangers)
        )
        taken = self._credit.use(unexplained, self._clock())
        self._taken += taken
        unexplained -= taken
        level = max((least for least in _STRANGER_BYTES if unexplained > least), default=0)
        if level:
            ending |= {
                peer
                for peer, size in strangers.items()
                # Who has only just come may be about to say who they are.
                if size > _STRANGER_BYTES[level] and (level < THIRD or peer in self._present)
            }
        if level in _AGENT_BYTES:
            ending |= {peer for peer, size in agents.items() if size > _AGENT_BYTES[level]}
        for peer in ending:
            self._hold(peer)
        if ending:
            self._ended_at, self._explained_then = self._clock(), of_strangers
        came = accepted - self._connections.trusted_so_far
        if self._calm_strangers is None:
            self._calm_strangers = came
        # Nobody can say what they brought, and there is nobody to end.
        gone = came - self._calm_strangers - len(new_strangers)
        vanished = max(0, gone - self._ended_strangers)
        self._ended_strangers += len(ending & new_strangers.keys())
        by_vanished = vanished * _VANISHED_BYTES >= unexplained
        suspected = sum(strangers.values()) + sum(agents.values())
        in_vain = not ending and suspected < _QUIET_BYTES and not by_vanished
        self._looks_in_vain = self._looks_in_vain + 1 if level and in_vain else 0
        if self._closed_until is None:
            wary = self._clock() < self._wary_until
            if (ending or by_vanished) and (level == THIRD or (level and wary)):
                self._close(unexplained)
            own = self._looks_in_vain > 2
        else:
            # It comes from known addresses, or from the networks that those are in.
            self._closed_to_all |= unexplained > self._closed_at + FIRST
            # Who ended has left calls behind that wait to be refused, and take memory until then.
            over = self._clock() >= self._closed_until
            own = over and bool(level)
            if over:
                self._closed_until, self._wary_until = None, self._clock() + _WARY_S
                self._closed_to_all = False
        if own:
            # What has grown is the server's own, or was freed and not given back: it is used again.
            self._calm, self._taken = float(resident), 0.0
            self._looks_in_vain = 0
        if resident - self._calm < _CALM_BYTES:
            # What explains a growth is to be as old as what it is reckoned from.
            self._seen, self._calm_connections, self._calm_strangers = now, len(now), came
            self._explained, self._explained_by_left, self._explained_before = {}, 0, 0
            self._void, self._ended_strangers = {}, 0
            self._credit, self._taken = _Credit(), 0.0
        else:
            self._seen = {peer: seen for peer, seen in self._seen.items() if peer in now}
        self._present = now.keys()
        return ending

    def _of_connections(self, connections: int, of_strangers: Iterable[int]) -> float:
        """Return what so many take; ``of_strangers`` are the bytes that came over each
        stranger's."""
        opened = sum(not (self._tls and size > 0) for size in of_strangers)
        return opened * _OPENED_BYTES + (connections - opened) * _CONNECTION_BYTES

    def _of_ended(self, explained: float) -> float:
        """Return what is explained no more since connections were ended just now."""
        if self._clock() - self._ended_at > _ENDED_S:
            return 0.0
        return min(max(0.0, self._explained_then - explained), _ENDED_BYTES)

    def _close(self, unexplained: float) -> None:
        self._closed_at = unexplained
        again = self._clock() < self._wary_until
        self._closed_s = min(2.0 * self._closed_s, MOST_CLOSED_S) if again else CLOSED_S
        self._closed_until = self._clock() + self._closed_s

    def _trusted(self, peer: str) -> bool:
        use = self._connections.use(peer)
        return use is not None and use.trusted

    def _hold(self, peer: str) -> None:
        address = address_of(peer)
        self._held[address] = self._clock() + HOLD_S
        self._held.move_to_end(address)
        self._held_now = None


def _of_unread(unread: Mapping[str, int], of_an_address: int, most: int) -> int:
    """Return what bytes explain that were not read, by the addresses they came from."""
    parts = (min(size * _UNREAD_FACTOR, of_an_address) for size in unread.values())
    return min(sum(parts), most)
