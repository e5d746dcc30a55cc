"""List of assignments, those that have ended included."""

from __future__ import annotations

from kongming.engine.assignments import oldest_first
from kongming.records.resident import Resident
from kongming.store import Store

MOST_ENDED = 10_000
"""Ended assignments in one answer, as in the contract."""


def list_assignments(
    store: Store, node_id: str | None = None, *, most_ended: int = MOST_ENDED
) -> list[Resident]:
    """All that are active, and those of the ended ones that began last; of one node or of all,
    oldest first. Raises StoreError."""
    active = store.assignments(active=True, node_id=node_id)
    ended = store.assignments(active=False, node_id=node_id, limit=most_ended)
    # One that ended between the two readings is in both, and has ended.
    by_id = {resident.assignment_id: resident for resident in (*active, *ended)}
    return oldest_first(by_id.values())
