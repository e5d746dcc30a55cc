"""Read the nodes of a store: references, recent fingerprints, agents and assignments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kongming.engine.assignments import KEPT_ENDED_S
from kongming.engine.nodes import domain_of
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.moments import unix
from kongming.records.resident import EXPIRED, RESERVED, Resident
from kongming.store import Reference, Store
from kongming.store.service_entries import StoredAgent

AS_LOADED = ("live", "adhoc")
"""Purposes of fingerprints that show a node as others load it. A reference shows it idle, and all
others were taken under a load of our own."""


def newest_references(
    store: Store, node: NodeFacts, references: Iterable[Reference] | None = None
) -> list[tuple[int, Reference]]:
    """The newest idle reference of each last-level cache domain, with the domain; of
    ``references`` (newest first) where they were read already."""
    newest_first = store.references(node_id=node.id) if references is None else references
    newest: dict[int, Reference] = {}
    for reference in newest_first:
        domain = domain_of(node, reference.cpu)
        if domain is not None:
            newest.setdefault(domain, reference)
    return sorted(newest.items())


def recent_fingerprints(
    store: Store, node: NodeFacts, history: int
) -> list[tuple[int, Fingerprint]]:
    """The newest ``history`` fingerprints of each last-level cache domain, with the domain; the
    oldest first."""
    domains = max(1, len(node.llc_cpus))
    recent = [
        fingerprint
        for purpose in AS_LOADED
        for fingerprint in store.fingerprints(
            node_id=node.id, purpose=purpose, limit=history * domains
        )
        if fingerprint.times()
    ]
    recent.sort(key=lambda fingerprint: unix(fingerprint.started_at), reverse=True)
    by_domain: dict[int, list[Fingerprint]] = {}
    for fingerprint in recent:
        domain = domain_of(node, fingerprint.cpu)
        if domain is not None:
            by_domain.setdefault(domain, []).append(fingerprint)
    return [
        (domain, fingerprint)
        for domain, fingerprints in sorted(by_domain.items())
        for fingerprint in reversed(_of_one_suite(fingerprints)[:history])
    ]


def _of_one_suite(fingerprints: list[Fingerprint]) -> list[Fingerprint]:
    """Those of the first one's suite version: the columns of others are other surrogates."""
    return [
        fingerprint
        for fingerprint in fingerprints
        if fingerprint.suite_version == fingerprints[0].suite_version
    ]


def suspicion_of(agent: StoredAgent) -> str:
    """Return why what an agent reports is not believed; empty where it is."""
    return str(agent.document.get("suspect") or "")


def holder_of(agent: StoredAgent) -> str:
    """Return whose credentials a node is registered with; empty for nobody's."""
    return str(agent.document.get("bound_to") or "")


def current_assignments(store: Store, now: float) -> list[Resident]:
    """Those that are active, or ended so lately that a fingerprint may still hold them."""
    return [
        resident
        for resident in store.assignments()
        if resident.active or now - (resident.ended_at or 0.0) < KEPT_ENDED_S
    ]


def assignments_at(store: Store, now: float) -> list[Resident]:
    """``current_assignments``, with reservations ended whose time is over: where no server runs,
    nobody has said so in the store."""
    return [_expired(resident, now) for resident in current_assignments(store, now)]


def _expired(resident: Resident, now: float) -> Resident:
    expires_at = resident.expires_at
    if resident.state == RESERVED and expires_at is not None and expires_at <= now:
        return replace(resident, state=EXPIRED, ended_at=expires_at)
    return resident
