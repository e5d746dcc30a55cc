"""Addresses by which callers with the same credentials are told apart. No I/O.

Agents may share a token or certificate, each from an address of its own, and then each is to have
its own share of what limits allow. Whoever took over a node may have as many addresses as its
network gives it, and is to have no more than the nodes that its credentials may have.
"""

from __future__ import annotations

__all__ = ["Addresses"]

_FORGOTTEN_S = 60.0
"""An address from which nothing came for so long gives its place to another."""


class Addresses:
    """The addresses that credentials were shown from of late. At most ``identities`` of these are
    remembered: those that were quiet longest are forgotten first."""

    def __init__(self, identities: int = 65_536) -> None:
        self._identities = identities
        # When each was last in use, by credentials; of both those first that were longest ago.
        self._seen: dict[str, dict[str, float]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def counts(self, identity: str, address: str, most: int, now: float) -> bool:
        """Return whether this address is one of ``most`` that count by themselves at ``now`` (s of
        a steady clock). All others of these credentials are to count as one."""
        seen = self._seen[identity] = self._seen.pop(identity, {})
        if len(self._seen) > self._identities:
            del self._seen[next(iter(self._seen))]
        if seen.pop(address, None) is None and len(seen) >= most:
            oldest = next(iter(seen))
            if now - seen[oldest] < _FORGOTTEN_S:
                return False
            del seen[oldest]
        seen[address] = now
        return True
