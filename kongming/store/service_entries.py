"""What the service keeps, as plain frozen records. Times are unix seconds in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kongming.fingerprint import Fingerprint
from kongming.run import Run, Signature

STATES = ("reserved", "bound", "released", "expired")
"""Of a placement. ``reserved`` and ``bound`` ones are active."""

ACTIVE = ("reserved", "bound")

KINDS = ("node", "fingerprint", "reference", "model", "signature", "placement", "reset")
"""Of a change. ``reset`` says that changes were missed: read everything again."""


@dataclass(frozen=True, slots=True)
class StoredPlacement:
    """An application that is, will be or was on a node. ``memory_bytes`` 0 means not known."""

    placement_id: str
    app: str
    node_id: str
    domain: int
    placement: str
    state: str
    reserved_at: float | None = None
    bound_at: float | None = None
    ended_at: float | None = None
    expires_at: float | None = None
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StoredAgent:
    """A node's agent: ``document`` as it was put, ``seen_at`` when it last said that it lives."""

    node_id: str
    document: Mapping[str, Any]
    seen_at: float


@dataclass(frozen=True, slots=True)
class Promotion:
    """A version of a model that went into service."""

    app: str
    placement: str
    version: int
    reason: str
    promoted_at: float


@dataclass(frozen=True, slots=True)
class StoredForecast:
    """What was predicted for a placement; ``document`` is the prediction's JSON form."""

    placement_id: str
    app: str
    node_id: str
    placement: str
    model_version: int
    made_at: float
    document: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredRealised:
    """A finished run beside what was predicted for it, both in ``metric_unit``.

    ``lower`` and ``upper`` should hold the metric with probability ``level``.
    """

    run_id: str
    placement_id: str
    app: str
    placement: str
    node_id: str
    model_version: int
    ended_at: float
    predicted: float
    lower: float
    upper: float
    level: float
    measured: float
    metric_unit: str = "s"

    @property
    def error_pct(self) -> float:
        """|predicted - measured| / measured, in per cent."""
        return 100.0 * abs(self.predicted - self.measured) / self.measured

    @property
    def covered(self) -> bool:
        return self.lower <= self.measured <= self.upper


@dataclass(frozen=True, slots=True)
class StoredOperation:
    """A long-running operation, as training; ``progress`` 0 to 1.

    ``owner`` is the server that works on it; ``document`` is what was asked and what came of it.
    """

    id: str
    kind: str
    state: str
    progress: float = 0.0
    message: str = ""
    owner: str = ""
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    document: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A bearer token: only the hash of its secret is kept, in hexadecimal.

    ``expires_at`` None means never; ``subject`` is whom it was given to.
    """

    id: str
    role: str
    secret_hash: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Reported:
    """One record as an agent delivered it. ``purpose`` counts for fingerprints alone."""

    node_id: str
    sequence: int
    record: Fingerprint | Run | Signature
    purpose: str = "live"


@dataclass(frozen=True, slots=True)
class Refused:
    """A reported record that cannot be kept, and why."""

    id: str
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """Ids of reported records that are committed, and those that were refused."""

    new: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """All that is committed, duplicates included."""
        return self.new + self.duplicates


@dataclass(frozen=True, slots=True)
class Change:
    """Something in the store changed. Sequences rise in the order in which changes are seen.

    ========== ========== ======================
    kind       owner      key
    ========== ========== ======================
    node       node id    node id
    fingerprint node id   fingerprint id
    reference  node id    suite version/CPU
    model      app        placement
    signature  app        signature id
    placement  node id    placement id
    reset      (empty)    (empty)
    ========== ========== ======================

    ``origin`` is the ``Store.origin`` of who made it: a server may skip its own.
    """

    sequence: int
    kind: str
    owner: str
    key: str
    origin: str
    changed_at: float


@dataclass(frozen=True, slots=True)
class HourlyFingerprint:
    """What is kept of the live fingerprints of one CPU of one node over one hour.

    ``surrogates`` holds, by name, seconds per operation: the median, 10th and 90th percentile
    over the hour's ``count`` fingerprints; ``passive`` holds means. Six digits are kept.
    """

    node_id: str
    cpu: int
    suite_version: str
    hour_at: float
    count: int
    surrogates: Mapping[str, tuple[float, float, float]]
    passive: Mapping[str, float]
