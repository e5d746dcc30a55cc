"""Connections of a port, which are in use, and which are to end: idle ones, and those above a
limit.

It decides and does no I/O: who holds the sockets asks it, and ends what it names.
"""

from __future__ import annotations

import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

__all__ = ["Connections", "Use", "address_of", "peer_name", "plain_peer"]


@dataclass(slots=True)
class _Connection:
    """``trusted``: a caller on it was known, the last of them by ``who``. ``calls`` at work;
    ``since`` when it was last in use or was made, in the seconds of the clock. ``begun``: calls so
    far; ``taken``: bytes of their messages."""

    address: str
    since: float
    calls: int = 0
    trusted: bool = False
    who: str = ""
    begun: int = 0
    taken: int = 0


class Use(NamedTuple):
    """Use of a connection: whether a caller was known, and by which identity; how many calls began,
    and the bytes of the messages that were read."""

    trusted: bool = False
    who: str = ""
    begun: int = 0
    taken: int = 0


class Connections:
    """The connections of one port by their peers, as gRPC names them (``ipv4:HOST:PORT``)."""

    def __init__(
        self,
        *,
        most: int = 1 << 30,
        per_address: int = 1 << 30,
        idle_s: float = 30.0,
        spare_trusted: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``most`` in all and ``per_address``; ``spare_trusted`` leaves connections of known
        callers alone where they are merely idle."""
        self._most = most
        self._per_address = per_address
        self._idle_s = idle_s
        self._spare_trusted = spare_trusted
        self._clock = clock
        # In the order in which they were made or last in use, so that ``since`` only grows. One
        # moves in a single step: whoever asks from another thread must not miss it meanwhile.
        self._known: OrderedDict[str, _Connection] = OrderedDict()
        self._of_address: Counter[str] = Counter()
        self.trusted_so_far = 0
        """On how many a caller was known, those that have ended included."""

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._known))

    def add(self, peer: str) -> None:
        """A connection was made; one that is known stays as it is."""
        self._get(plain_peer(peer))

    def remove(self, peer: str) -> None:
        """Forget a connection that has ended."""
        gone = self._known.pop(plain_peer(peer), None)
        if gone is not None:
            self._of_address[gone.address] -= 1
            if not self._of_address[gone.address]:
                del self._of_address[gone.address]

    def keep(self, present: Iterable[str], before: float) -> None:
        """Add those that are there, and forget the others that were made before (clock, s)."""
        there = {plain_peer(peer) for peer in present}
        for peer, connection in tuple(self._known.items()):
            if peer not in there and connection.since < before and not connection.calls:
                self.remove(peer)
        for peer in there:
            self.add(peer)

    def begin(self, peer: str) -> None:
        """A call on it begins; ``end`` must follow."""
        known = self._get(plain_peer(peer))
        known.calls += 1
        known.begun += 1

    def _get(self, peer: str) -> _Connection:
        known = self._known.get(peer)
        if known is None:
            known = self._known[peer] = _Connection(address_of(peer), self._clock())
            self._of_address[known.address] += 1
        return known

    def end(self, peer: str) -> None:
        """A call on it has ended."""
        peer = plain_peer(peer)
        known = self._known.get(peer)
        if known is not None:
            known.calls = max(0, known.calls - 1)
            known.since = self._clock()
            self._known.move_to_end(peer)

    def trust(self, peer: str, who: str = "") -> None:
        """A caller on it is known; ``who``: an identity to find its other connections by."""
        known = self._known.get(plain_peer(peer))
        if known is not None:
            self.trusted_so_far += not known.trusted
            known.trusted = True
            known.who = who

    def take(self, peer: str, size: int) -> None:
        """Count bytes of a message of a known caller that were read from the connection."""
        known = self._known.get(plain_peer(peer))
        if known is not None:
            known.taken += size

    def use(self, peer: str) -> Use | None:
        """Return what it is used for; None for one that is not known. From any thread."""
        known = self._known.get(plain_peer(peer))
        return None if known is None else Use(known.trusted, known.who, known.begun, known.taken)

    def has_room(self, peer: str) -> bool:
        """Return whether one more of this peer's address is within the limits."""
        address = address_of(plain_peer(peer))
        return len(self._known) < self._most and self._of_address[address] < self._per_address

    def to_end(self, joining: str | None = None) -> list[str]:
        """The peers whose connections are to end now, for each its idleness or a limit.

        Above a limit those go first that no known caller has used, the longest idle first, and
        those with a call at work never. ``joining`` is counted as one more; without it, every
        address is looked at.
        """
        counts, total = self._of_address, len(self._known)
        above = {}
        if joining is not None:
            address, total = address_of(plain_peer(joining)), total + 1
            above[address] = counts[address] + 1 - self._per_address
        elif counts and max(counts.values()) > self._per_address:
            above = {address: n - self._per_address for address, n in counts.items()}
        over = total - self._most
        ending: dict[str, None] = {}

        def end(peer: str, address: str) -> None:
            nonlocal over
            ending[peer] = None
            over -= 1
            if address in above:
                above[address] -= 1

        for peer, connection in self._idle():
            end(peer, connection.address)
        for trusted in (False, True):
            if over <= 0 and all(n <= 0 for n in above.values()):
                break
            for peer, connection in self._known.items():
                surplus = over > 0 or above.get(connection.address, 0) > 0
                if (
                    surplus
                    and connection.trusted is trusted
                    and not connection.calls
                    and peer not in ending
                ):
                    end(peer, connection.address)
                    if joining is not None and over <= 0 and above[address] <= 0:
                        break
        return list(ending)

    def _idle(self) -> Iterator[tuple[str, _Connection]]:
        latest = self._clock() - self._idle_s
        for peer, connection in self._known.items():
            if connection.since > latest:
                return
            if not connection.calls and not (connection.trusted and self._spare_trusted):
                yield peer, connection


def peer_name(host: str, port: int) -> str:
    """A peer as gRPC writes it, without escapes."""
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


@lru_cache(maxsize=8192)
def address_of(peer: str) -> str:
    """Return what limits count by: the address without its port; of IPv6 the network of 64 bits,
    since that is what one host is commonly given."""
    kind, _, rest = peer.partition(":")
    if kind == "ipv4":
        return rest.rpartition(":")[0]
    if kind == "ipv6":
        text = unquote(rest).rpartition("]")[0].lstrip("[").partition("%")[0]
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            return text
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, 64), strict=False).network_address)
    return kind


@lru_cache(maxsize=8192)
def plain_peer(peer: str) -> str:
    """One way to write a peer, for sockets and gRPC differ over IPv6."""
    kind, _, rest = peer.partition(":")
    if kind != "ipv6":
        return peer
    host, _, port = unquote(rest).rpartition("]:")
    host = host.lstrip("[").partition("%")[0]
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return peer
    mapped = address.ipv4_mapped
    return f"ipv4:{mapped}:{port}" if mapped is not None else f"ipv6:[{address}]:{port}"
