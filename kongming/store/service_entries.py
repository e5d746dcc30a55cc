"""Records of the service, as frozen dataclasses. Times are unix seconds in UTC."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run, Signature
from kongming.store.row_ids import row_id

SILENT_AFTER_S = 60.0
"""An operation whose server has reported nothing of it for so long has failed."""


@dataclass(frozen=True, slots=True)
class StoredAgent:
    """Agent of a node: ``document`` as stored, ``seen_at`` the time of its last heartbeat."""

    node_id: str
    document: Mapping[str, Any]
    seen_at: float


@dataclass(frozen=True, slots=True)
class Promotion:
    """Promotion of a model version into service."""

    app: str
    placement: str
    version: int
    reason: str
    promoted_at: float


@dataclass(frozen=True, slots=True)
class StoredForecast:
    """Prediction for an assignment; ``document`` is the prediction's JSON form."""

    assignment_id: str
    app: str
    node_id: str
    placement: str
    model_version: int
    made_at: float
    document: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredRealised:
    """Finished run with its prediction, both in ``metric_unit``.

    ``lower`` and ``upper`` should contain the metric with probability ``level``. Of a prediction
    that says "at least", the end on the side of worse is infinity, or 0 where higher is better.
    """

    run_id: str
    assignment_id: str
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
        """Absolute relative error |predicted - measured| / measured, in percent; none on the side
        on which the interval has no end."""
        if self.within_open_end:
            return 0.0
        return 100.0 * abs(self.predicted - self.measured) / self.measured

    @property
    def is_open(self) -> bool:
        """Return whether the prediction said "at least"."""
        return math.isinf(self.upper) or self.lower <= 0.0

    @property
    def within_open_end(self) -> bool:
        """Return whether it said "at least" and was worse than that."""
        worse = (
            self.measured > self.predicted
            if math.isinf(self.upper)
            else self.measured < self.predicted
        )
        return self.is_open and worse

    @property
    def covered(self) -> bool:
        """Return whether the prediction interval contains the measured value."""
        return self.lower <= self.measured <= self.upper


@dataclass(frozen=True, slots=True)
class StoredOperation:
    """Long-running operation, such as training; ``progress`` 0 to 1.

    ``owner`` is the server that executes it; ``document`` holds the request, the result, and as
    ``told_at`` when the owner last reported anything of it.
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

    def or_abandoned(self, now: float) -> StoredOperation:
        """Return it as failed if its owner has reported nothing of it for ``SILENT_AFTER_S``: it
        died, and no server of its machine has started since, which would say so in the store."""
        told_at = float(self.document.get("told_at", self.created_at))
        if self.state not in ("queued", "running") or now - told_at <= SILENT_AFTER_S:
            return self
        message = "The server that worked on it has ended."
        return replace(self, state="failed", message=message, ended_at=now)


@dataclass(frozen=True, slots=True)
class StoredToken:
    """Bearer token: only the hash of its secret is stored, in hexadecimal.

    ``expires_at`` None means never; ``subject`` is the user or program that it was issued to;
    ``nodes`` are patterns (as of a shell) of the names of nodes that an agent may speak for by
    it, empty for any.
    """

    id: str
    role: str
    secret_hash: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    subject: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reported:
    """Record as reported by an agent. ``purpose`` applies only to fingerprints, ``requested`` only
    to runs and signatures: whether an operator or a server asked for it, so that it is learnt
    from."""

    node_id: str
    sequence: int
    record: Fingerprint | Run | Signature
    purpose: str = "live"
    requested: bool = True

    @property
    def row_id(self) -> str:
        return row_id(self.node_id, self.record.id)


@dataclass(frozen=True, slots=True)
class Refused:
    """Reported record that was refused, and why."""

    id: str
    field: str
    message: str
    node_id: str = ""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Ids of reported records that are committed, and the refused records.

    Records of several nodes may have one id: ``rows`` are the ``row_id`` of the new ones.
    """

    new: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()
    rows: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all committed records, duplicates included."""
        return self.new + self.duplicates


@dataclass(frozen=True, slots=True)
class Change:
    """Entry of the change feed. Sequence numbers rise in the order in which changes are visible.

    =========== ========== ======================
    kind        owner      key
    =========== ========== ======================
    node        node id    node id
    fingerprint node id    fingerprint id
    reference   node id    suite version/CPU
    model       app        placement
    signature   app        signature id
    calibration app        placement
    assignment  node id    assignment id
    reset       (empty)    (empty)
    =========== ========== ======================

    ``calibration``: a requested signature or run, by which intervals may be widened.
    ``origin`` is the ``Store.origin`` of the writer, so that a server can skip its own changes.
    """

    sequence: int
    kind: str
    owner: str
    key: str
    origin: str
    changed_at: float


@dataclass(frozen=True, slots=True)
class HourlyFingerprint:
    """Statistics of the live fingerprints of one CPU of one node over one hour.

    ``surrogates`` holds, by name, seconds per operation: the median, 10th and 90th percentile
    over the hour's ``count`` fingerprints; ``passive`` holds means. Values have six digits.
    """

    node_id: str
    cpu: int
    suite_version: str
    hour_at: float
    count: int
    surrogates: Mapping[str, tuple[float, float, float]]
    passive: Mapping[str, float]
