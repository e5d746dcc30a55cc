"""All peers over all pairs: rows for the tables of ``kongming evaluate``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.peers.bubble_up import BubbleUp
from benchmarks.peers.paragon import Paragon, ParagonPairs
from benchmarks.peers.peer import Measured, Pair, Peer, Profile
from benchmarks.peers.zhao import Zhao
from kongming.records.errors import UntrainedError

NAMES = ("BUBBLE-UP", "PARAGON", "ZHAO", "PARAGON-PAIRS")
"""The peers; the last one only where measured pairs are given."""


def predictions(
    profiles: Mapping[str, Profile],
    pairs: Iterable[Pair],
    measured: Measured | None = None,
) -> list[tuple[str, str, str, float]]:
    """(application, neighbour, peer, predicted slowdown) for each pair and peer, in that order.

    All profiles must be of one node, placement and suite. ``measured``, slowdowns of pairs that
    were really run, adds PARAGON-PAIRS; a scored pair may be among them, for it is left out in
    both directions when it is predicted. What a peer cannot answer has no row: it lacks load
    levels of caches and memory, or the neighbour's signature.

    Raises:
        IncompatibleError: the profiles differ in node, placement or suite version.
        UnknownNameError: a pair names an application that has no profile.
    """
    requested = list(pairs)
    peers: list[Peer] = [BubbleUp(), Paragon(), Zhao()]
    if measured is not None:
        peers.append(ParagonPairs())
    rows = []
    for peer in peers:
        try:
            peer.fit(profiles, measured)
        except UntrainedError:
            continue
        for app, neighbour in requested:
            try:
                rows.append((app, neighbour, peer.name, peer.slowdown(app, neighbour)))
            except UntrainedError:
                continue
    order = {pair: number for number, pair in reversed(list(enumerate(requested)))}
    rows.sort(key=lambda row: order[row[0], row[1]])
    return rows
