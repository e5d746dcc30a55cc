"""Assignments, what runs where: a state machine of assignments, by the scheduler's own ids.

    reserve ──> reserved ──bind──> bound ──release──> released
                   │  └─────────release──────────────────^
                   └──time──> expired

Repeating a request of the same id changes nothing, whatever state it has reached; the same id
for another application or node is a conflict. Pure: the caller brings the time and keeps what is
returned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from kongming.records.errors import ConflictError, InputError, UnknownNameError
from kongming.records.resident import BOUND, EXPIRED, RELEASED, RESERVED, Resident

DEFAULT_TTL_S = 120.0
"""A reservation ends by itself after so long, unless the request says otherwise."""

CLOCK_SLACK_S = 60.0
"""A start or end that a scheduler tells is believed within this much of the server's clock, or
where it is earlier; what lies further ahead is taken to be now."""

KEPT_ENDED_S = 3600.0
"""How long an ended assignment is remembered: well beyond what a fingerprint lives."""


class AssignmentBook:
    """All assignments that are active, and those that ended lately."""

    def __init__(self, residents: Iterable[Resident] = ()) -> None:
        self._by_id = {resident.assignment_id: resident for resident in residents}

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, assignment_id: str) -> Resident:
        """Raises UnknownNameError for an id that was never seen, or is forgotten."""
        assignment = self._by_id.get(assignment_id)
        if assignment is None:
            raise UnknownNameError(
                "assignment", assignment_id, None, hint="Reserve or bind it with app and node."
            )
        return assignment

    def all(self, *, node_id: str | None = None, ended: bool = False) -> list[Resident]:
        """Those of one node or of all, in the order of their reservation."""
        residents = [
            resident
            for resident in self._by_id.values()
            if (node_id is None or resident.node_id == node_id) and (ended or resident.active)
        ]
        return oldest_first(residents)

    def put(self, resident: Resident) -> None:
        """Replace what was known of an assignment by what the store or another server says."""
        self._by_id[resident.assignment_id] = resident

    def reserve(
        self,
        assignment_id: str,
        app: str,
        node_id: str,
        now: float,
        *,
        placement: str | None = None,
        domain: int = 0,
        ttl_s: float | None = None,
        memory_bytes: int = 0,
    ) -> Resident:
        """Hold a place. An id that is known already comes back as it is.

        Raises:
            InputError: an empty id or application, or a time to live that is not above 0.
            ConflictError: the id is another application's, or on another node.
        """
        _check_names(assignment_id, app)
        ttl = DEFAULT_TTL_S if ttl_s is None else ttl_s
        if not (math.isfinite(ttl) and ttl > 0.0):
            raise InputError("is out of range.", field="ttl", value=ttl, allowed="above 0 s")
        if memory_bytes < 0:
            raise InputError(
                "is negative.", field="memory_bytes", value=memory_bytes, allowed="0 or more"
            )
        known = self._same(assignment_id, app, node_id)
        if known is not None:
            return known
        return self._keep(
            Resident(
                assignment_id=assignment_id,
                app=app,
                node_id=node_id,
                domain=domain,
                placement=placement,
                reserved_at=now,
                expires_at=now + ttl,
                memory_bytes=memory_bytes,
            )
        )

    def bind(
        self,
        assignment_id: str,
        now: float,
        *,
        started_at: float | None = None,
        app: str = "",
        node_id: str = "",
        placement: str | None = None,
        domain: int = 0,
    ) -> Resident:
        """The application has started. One whose reservation expired is bound all the same: it
        runs, whatever was agreed. One that was released stays so.

        Raises:
            UnknownNameError: an unknown id without ``app`` and ``node_id``.
            ConflictError: the id is another application's, or on another node.
        """
        begun = _believed(started_at, now)
        known = self._same(assignment_id, app, node_id)
        if known is None:
            if not (app and node_id):
                raise UnknownNameError(
                    "assignment",
                    assignment_id,
                    None,
                    hint="Say app and node to bind it unreserved.",
                )
            _check_names(assignment_id, app)
            return self._keep(
                Resident(
                    assignment_id,
                    app,
                    node_id,
                    domain,
                    placement,
                    BOUND,
                    reserved_at=begun,
                    bound_at=begun,
                )
            )
        if known.state in (BOUND, RELEASED):
            return known
        return self._keep(
            replace(known, state=BOUND, bound_at=begun, ended_at=None, expires_at=None)
        )

    def release(self, assignment_id: str, now: float, *, ended_at: float | None = None) -> Resident:
        """Release an assignment that has ended, or whose job never came.

        Raises:
            UnknownNameError: an id that was never seen.
        """
        known = self.get(assignment_id)
        if known.state in (RELEASED, EXPIRED):
            return known
        ended = _believed(ended_at, now)
        begun = known.bound_at if known.bound_at is not None else known.reserved_at
        if begun is not None:
            ended = max(ended, begun)
        return self._keep(replace(known, state=RELEASED, ended_at=ended, expires_at=None))

    def expire(self, now: float) -> list[Resident]:
        """End the reservations whose time is over; returns them. Those that ended long ago are
        forgotten on the way."""
        ended = []
        for resident in list(self._by_id.values()):
            if (
                resident.state == RESERVED
                and resident.expires_at is not None
                and resident.expires_at <= now
            ):
                ended.append(
                    self._keep(replace(resident, state=EXPIRED, ended_at=resident.expires_at))
                )
            elif not resident.active and now - (resident.ended_at or 0.0) > KEPT_ENDED_S:
                del self._by_id[resident.assignment_id]
        return ended

    def _keep(self, resident: Resident) -> Resident:
        self._by_id[resident.assignment_id] = resident
        return resident

    def _same(self, assignment_id: str, app: str, node_id: str) -> Resident | None:
        known = self._by_id.get(assignment_id)
        if known is None:
            return None
        for what, theirs, ours in (("app", known.app, app), ("node", known.node_id, node_id)):
            if ours and ours != theirs:
                raise ConflictError(
                    f"is {theirs} for the assignment {assignment_id}, not {ours}.",
                    field=what,
                    hint="Give each assignment an id of its own.",
                )
        return known


def oldest_first(residents: Iterable[Resident]) -> list[Resident]:
    """Sort them by their reservation, or their start where they were never reserved."""
    return sorted(
        residents, key=lambda resident: (resident.reserved_at or 0.0, resident.assignment_id)
    )


def _check_names(assignment_id: str, app: str) -> None:
    for name, value in (("assignment_id", assignment_id), ("app", app)):
        if not value:
            raise InputError("is empty.", field=name, allowed="a name")


def _believed(reported: float | None, now: float) -> float:
    if (
        reported is None
        or not math.isfinite(reported)
        or reported > now + CLOCK_SLACK_S
        or reported < 0.0
    ):
        return now
    return min(reported, now)
