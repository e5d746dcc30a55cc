"""Lists of assignments: none that is active is left out, however many have ended."""

from __future__ import annotations

from kongming_server.services.assignment_list import list_assignments

from kongming.records.resident import Resident
from kongming.store import Store


def test_active_assignments_are_listed_however_many_have_ended(store_url: str) -> None:
    active = [
        Resident(f"bound-{n}", "sort", "n1", state="bound", reserved_at=float(n), bound_at=float(n))
        for n in (1, 2)
    ]
    ended = [
        Resident(
            f"ended-{n}", "sort", "n1", state="released", reserved_at=float(n), ended_at=20.0 - n
        )
        for n in (3, 4, 5, 6)
    ]
    elsewhere = Resident("elsewhere", "sort", "n2", reserved_at=7.0, expires_at=1e10)
    with Store.open(store_url) as store:
        store.put_assignments([*active, *ended, elsewhere])
        assert list_assignments(store, most_ended=2) == [*active, *ended[2:], elsewhere]
        assert list_assignments(store, "n1") == [*active, *ended]
