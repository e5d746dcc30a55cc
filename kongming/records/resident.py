"""Jobs on nodes, as engine and store exchange them."""

from __future__ import annotations

from dataclasses import dataclass

RESERVED, BOUND, RELEASED, EXPIRED = "reserved", "bound", "released", "expired"
ACTIVE = (RESERVED, BOUND)
STATES = (RESERVED, BOUND, RELEASED, EXPIRED)

LONGEST_BIND_DELAY_S = 3600.0
"""How long after a start an agent still reports it; it drops what it could not report by then."""


@dataclass(frozen=True, slots=True)
class Resident:
    """One assignment. ``placement`` None is the application's only trained one, else the default;
    ``memory_bytes`` 0 is not known. Times are unix seconds, None for what has not happened."""

    assignment_id: str
    app: str
    node_id: str
    domain: int = 0
    placement: str | None = None
    state: str = RESERVED
    reserved_at: float | None = None
    bound_at: float | None = None
    ended_at: float | None = None
    expires_at: float | None = None
    memory_bytes: int = 0

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    @property
    def since(self) -> float:
        """Return when it reached the state that it is in, as far as that is known."""
        if self.state == BOUND and self.bound_at is not None:
            return self.bound_at
        if self.ended_at is not None:
            return self.ended_at
        return self.reserved_at if self.reserved_at is not None else 0.0
