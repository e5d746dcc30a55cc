"""Answers of a service: frozen records without messages, the same from a server and a store.

Moments (fields that end in ``_at``) are unix seconds, and ISO 8601 in the JSON form; names that
end in ``_s`` are durations in seconds. A ``domain`` is the place of a last-level cache domain in
``NodeFacts.llc_cpus``. Slowdowns are ratios to the idle node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from kongming.records import moments
from kongming.records.fingerprint import NodeFacts
from kongming.records.judgement import Judgement
from kongming.records.prediction import Interval, PredictionFields
from kongming.records.scaling import Scaled

Basis = Literal["model", "node-only"]
"""What a prediction rests on: a model of the application, or the node's general slowdown."""

NodeState = Literal["ready", "unreferenced", "silent", "suspect", "stored"]
"""ready: its agent reports. unreferenced: its agent reports, but has no idle reference yet, so what
is slow on it is not known, or only over like nodes. silent: no report within the timeout.
suspect: it reported implausible values. stored: no agent is known, only stored measurements."""

OUT_OF_SERVICE: tuple[NodeState, ...] = ("silent", "suspect")
"""States in which nothing is to be placed on a node, and what is known of it may be wrong."""


class Answer:
    """A record with a JSON form."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, by the names of the fields."""
        return {
            f.name: _json(getattr(self, f.name), moment=f.name.endswith("_at"))
            for f in fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass
        }


def _json(value: Any, *, moment: bool = False) -> Any:
    if moment and isinstance(value, float | int):
        return moments.format(value)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): _json(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_json(inner) for inner in value]
    return value


# -- predictions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResidentImpact(Answer):
    """A resident's slowdown as it runs now, and once the newcomer is there too."""

    app: str
    slowdown_now: Interval
    slowdown_then: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast(Answer, PredictionFields):
    """A prediction for a node, and what it rests on.

    ``model`` is empty, ``model_version`` 0 and ``solo_s`` and ``runtime_s`` None where the basis
    is the node alone.
    ``fingerprint_age_s`` and ``fingerprint_taken_at`` are None where the idle reference was used.
    ``residents`` says by assignment id what the application would do to them; ``added`` and
    ``removed`` are the assignments by which the fingerprint was corrected.

    ``scaled`` is of a job on several machines, None for a single node: ``node_id``, ``domain`` and
    ``drivers`` are then of its slowest node, ``solo_s`` and ``runtime_s`` of the whole job, and
    ``slowdown`` is the job's over idle machines.
    """

    node_id: str
    domain: int
    basis: Basis
    model_version: int = 0
    fingerprint_age_s: float | None = None
    fingerprint_taken_at: float | None = None
    stale: bool = False
    residents: Mapping[str, ResidentImpact] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    scaled: Scaled | None = None


@dataclass(frozen=True, slots=True)
class NeighbourImpact(Answer):
    """Impact on a neighbour; ``slowdown`` None where it has no model."""

    app: str
    slowdown: Interval | None


@dataclass(frozen=True, slots=True)
class Colocation(Answer):
    """An application co-located with neighbours, in the order in which they were named."""

    prediction: Forecast
    neighbours: tuple[NeighbourImpact, ...] = ()


@dataclass(frozen=True, slots=True)
class RankedNode(Answer):
    """One place in a ranking; a lower ``score`` is better. ``residents`` counts assignments.

    ``worst_resident_at_least`` says that some resident would be slowed "at least" so much, or that
    no model says of one how much: the worst is slowed as given, or more.
    """

    node_id: str
    name: str
    domain: int
    score: float
    slowdown: Interval
    worst_resident_slowdown: float = 1.0
    fingerprint_age_s: float | None = None
    stale: bool = False
    extrapolating: bool = False
    tied_with_first: bool = False
    residents: int = 0
    worst_resident_at_least: bool = False

    def keeps(self, limit: float) -> bool:
        """Return whether the newcomer is known to keep a limit of its slowdown; 0 is none."""
        return not limit or not (self.slowdown.at_least or self.slowdown.median > limit)

    def residents_keep(self, limit: float) -> bool:
        """Return whether all residents are known to keep a limit of their slowdowns; 0 is none."""
        return not limit or not (
            self.worst_resident_at_least or self.worst_resident_slowdown > limit
        )


@dataclass(frozen=True, slots=True)
class RankedSet(Answer):
    """Nodes for one job, least slowed first; a lower ``score`` is better.

    ``slowdown`` is the whole job's over idle machines, and ``runtime_s`` its runtime; without a
    scale model it is that of the slowest node, and ``runtime_s`` and ``scaled`` are None.
    """

    nodes: tuple[RankedNode, ...]
    score: float
    slowdown: Interval
    runtime_s: Interval | None = None
    scaled: Scaled | None = None
    extrapolating: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking(Answer):
    """Best first; where sets were asked for, ``nodes`` are those of the first of ``sets``.

    ``refused`` counts candidates by reason; ``staleness_s`` is by how much the predictions may lag
    behind the newest fingerprint. ``profile`` is as a prediction has it.
    """

    nodes: tuple[RankedNode, ...]
    candidates: int
    refused: Mapping[str, int]
    basis: Basis
    staleness_s: float = 0.0
    elapsed_s: float = 0.0
    sets: tuple[RankedSet, ...] = ()
    profile: Judgement | None = None


@dataclass(frozen=True, slots=True)
class Contribution(Answer):
    """Amount that the log slowdown would lose were this surrogate as on the idle node."""

    surrogate: str
    family: str
    seconds_per_op: float
    idle_seconds_per_op: float
    log_slowdown: float


@dataclass(frozen=True, slots=True)
class Explanation(Answer):
    """Explanation why a prediction is what it is, the greatest contribution first."""

    prediction: Forecast
    contributions: tuple[Contribution, ...]


# -- nodes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlacedApplication(Answer):
    """An assignment that is reserved or bound on a node."""

    assignment_id: str
    app: str
    state: str
    since_at: float


@dataclass(frozen=True, slots=True)
class NodeReport(Answer):
    """A node as it is now. ``general_slowdown`` is the geometric mean over surrogates of
    ``slowdown``, None without an idle reference; of several domains it is the one with the
    greatest. ``reason`` says why it is not ready; ``probe_cost`` is a fraction of one core."""

    facts: NodeFacts
    state: NodeState
    reason: str = ""
    last_heartbeat_at: float | None = None
    last_fingerprint_at: float | None = None
    general_slowdown: float | None = None
    slowdown: Mapping[str, float] = field(default_factory=dict)
    assignments: tuple[PlacedApplication, ...] = ()
    probe_cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Assignment(Answer):
    """A job on a node: reserved, bound, released or expired."""

    assignment_id: str
    app: str
    node_id: str
    domain: int
    placement: str | None
    state: Literal["reserved", "bound", "released", "expired"]
    reserved_at: float | None = None
    bound_at: float | None = None
    ended_at: float | None = None
    expires_at: float | None = None


# -- applications and models -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Realised(Answer):
    """Predictions against what was measured afterwards; ``coverage`` and ``level`` are 0 to 1."""

    runs: int
    median_error_pct: float
    coverage: float
    level: float
    drifted: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ApplicationReport(Answer):
    """A registered application. ``trained`` are the placements that it has a model for."""

    name: str
    identity: str
    document: Mapping[str, Any]
    runs: int = 0
    trained: tuple[str, ...] = ()
    realised: Realised | None = None


@dataclass(frozen=True, slots=True)
class Imported(Answer):
    """Counts of records that were new, and that were known before."""

    runs: int
    signatures: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class TrainedModel(Answer):
    """Result of training for one application; ``error`` says why it made nothing. ``profile`` is
    the verdict on its runs, None where nothing was made of them."""

    app: str
    placement: str
    version: int
    promoted: bool
    reason: str = ""
    error: str = ""
    profile: Judgement | None = None


@dataclass(frozen=True, slots=True)
class OperationReport(Answer):
    """Progress of a training; ``progress`` is 0 to 1. ``apps`` is empty where everything was asked
    for, ``cause`` says why it was begun."""

    id: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: float = 0.0
    message: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    trained: tuple[TrainedModel, ...] = ()
    apps: tuple[str, ...] = ()
    cause: str = ""
    created_at: float | None = None

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class ModelReport(Answer):
    """A trained model. ``document`` is its file as JSON text, empty in a listing."""

    app: str
    placement: str
    version: int
    identity: str
    node_id: str
    trained_at: float | None
    chosen: str
    in_service: bool
    document: str = field(default="", repr=False)
