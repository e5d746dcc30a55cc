"""What a store knows of its nodes' load: the newest fingerprints beside the idle reference."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kongming.errors import UnknownNameError
from kongming.fingerprint import Fingerprint, NodeFacts
from kongming.prediction import Interval
from kongming.store import Store

HISTORY = 16
"""Fingerprints of one domain that are looked at, the newest of them as the node's present."""

AS_LOADED = ("adhoc", "live", "reference", "idle")
"""Purposes of fingerprints that show a node as it was loaded by itself: the others were taken
under a load of our own."""


@dataclass(frozen=True, slots=True)
class KnownDomain:
    """One last-level cache domain: fingerprints of one suite version, the newest first, and the
    idle reference in seconds per operation by surrogate (empty where none was learnt)."""

    node: NodeFacts
    domain: int
    fingerprints: tuple[Fingerprint, ...]
    idle: Mapping[str, float] = field(default_factory=dict)

    @property
    def newest(self) -> Fingerprint:
        return self.fingerprints[0]

    @property
    def taken_at(self) -> float:
        """When the newest one ended, in unix seconds."""
        return unix(self.newest.started_at) + self.newest.elapsed_s

    def slowdown(self, times: Mapping[str, float]) -> dict[str, float]:
        """Of these seconds per operation over the idle reference; empty without one."""
        return {name: times[name] / self.idle[name] for name in sorted(times) if name in self.idle}

    def median_times(self) -> dict[str, float]:
        """Seconds per operation by surrogate: the median over all fingerprints."""
        seen: dict[str, list[float]] = {}
        for fingerprint in self.fingerprints:
            for name, seconds in fingerprint.times().items():
                seen.setdefault(name, []).append(seconds)
        return {name: statistics.median(times) for name, times in seen.items()}


def known_domains(store: Store, node: NodeFacts) -> list[KnownDomain]:
    """The domains of ``node`` that a fingerprint was taken on, by number."""
    found = [
        fingerprint
        for purpose in AS_LOADED
        for fingerprint in store.fingerprints(node_id=node.id, purpose=purpose, limit=HISTORY)
        if fingerprint.times()
    ]
    found.sort(key=lambda fingerprint: unix(fingerprint.started_at), reverse=True)
    by_domain: dict[int, list[Fingerprint]] = {}
    for fingerprint in found:
        by_domain.setdefault(domain_of(node, fingerprint.cpu), []).append(fingerprint)
    known = []
    for domain, fingerprints in sorted(by_domain.items()):
        newest = fingerprints[0]
        version = newest.suite_version
        reference = store.reference(node.id, version, newest.cpu) or store.reference(
            node.id, version
        )
        same = [f for f in fingerprints if f.suite_version == version][:HISTORY]
        known.append(
            KnownDomain(node, domain, tuple(same), {} if reference is None else reference.times)
        )
    return known


def domain_of(node: NodeFacts, cpu: int) -> int:
    """The place of the last-level cache domain that holds ``cpu``; 0 where none is known to."""
    return next((place for place, cpus in enumerate(node.llc_cpus) if cpu in cpus), 0)


def resolve(nodes: Iterable[NodeFacts], wanted: str) -> NodeFacts:
    """The node of that id, else of that name.

    Raises:
        UnknownNameError: there is none, or several have that name.
    """
    known = list(nodes)
    for node in known:
        if node.id == wanted:
            return node
    named = [node for node in known if node.name == wanted]
    if len(named) == 1:
        return named[0]
    if named:
        raise UnknownNameError(
            "single node",
            wanted,
            [node.id for node in named],
            hint="Several nodes have that name: give an id.",
        )
    raise UnknownNameError("node", wanted, {n.name or n.id for n in known} | {n.id for n in known})


def geometric_mean(slowdown: Mapping[str, float]) -> float | None:
    """The general slowdown: the geometric mean over surrogates; None without any."""
    return statistics.geometric_mean(slowdown.values()) if slowdown else None


def general_slowdown(slowdown: Mapping[str, float], level: float) -> Interval | None:
    """What a program of which nothing is known may meet: the geometric mean over surrogates,
    between the quantiles of single ones; None without a reference. Never calibrated."""
    middle = geometric_mean(slowdown)
    if middle is None:
        return None
    ordered = sorted(slowdown.values())
    tail = (1.0 - level) / 2.0
    low = ordered[math.floor(tail * (len(ordered) - 1))]
    high = ordered[math.ceil((1.0 - tail) * (len(ordered) - 1))]
    return Interval(middle, min(low, middle), max(high, middle), level, calibrated=False)


def unix(moment: str) -> float:
    """Unix seconds of ISO 8601; UTC where it names no zone."""
    parsed = datetime.fromisoformat(moment)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
