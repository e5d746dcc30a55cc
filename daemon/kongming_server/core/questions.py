"""What is asked of the engine and what it answers: frozen records, no messages.

Times are unix seconds (UTC); names that end in ``_s`` are durations in seconds. A ``domain`` is
the place of a last-level cache domain in ``NodeFacts.llc_cpus``. ``placement`` None is the
application's only trained one, else ``DEFAULT_PLACEMENT``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kongming.errors import InputError
from kongming.fingerprint import PLACEMENTS, NodeFacts
from kongming.prediction import Driver, Interval
from kongming.scaling import Scaled, Scaling, check_where

DEFAULT_PLACEMENT = "cross-core"


class Basis(Enum):
    """What a prediction rests on: a model of the application, or the node's general slowdown."""

    MODEL = "model"
    NODE_ONLY = "node-only"


class StalePolicy(Enum):
    """What to do with a fingerprint that is older than its time to live."""

    WIDEN = "widen"
    REFUSE = "refuse"
    HISTORY = "history"


class Purpose(Enum):
    """What a fingerprint was taken for. An estimate is never kept as history."""

    LIVE = "live"
    REFERENCE = "reference"
    ESTIMATE = "estimate"


class NodeState(Enum):
    READY = "ready"
    SILENT = "silent"
    SUSPECT = "suspect"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the engine answers; every time in seconds.

    A fingerprint's time to live is learnt from its node's own history, between ``least_ttl_s``
    and ``most_ttl_s``: the time in which the log environment moves by ``ttl_movement``; it is
    ``ttl_s`` while there are too few fingerprints to learn from, and the log environment then
    counts as moving by ``default_movement`` in an hour. ``silent_after_s`` without a heartbeat
    makes a node silent. ``tie_share`` of the first one's interval (its half, in logs) is what
    scores may differ by and still be tied. ``unknown_pressure`` is the log slowdown that a
    resident without a signature is taken to inflict while no signature is known at all.
    ``history`` fingerprints are kept for each domain, and ``answers`` predictions are
    remembered.
    """

    ttl_s: float = 300.0
    least_ttl_s: float = 60.0
    most_ttl_s: float = 1800.0
    ttl_movement: float = 0.1
    default_movement: float = 0.3
    silent_after_s: float = 90.0
    tie_share: float = 0.25
    unknown_pressure: float = 0.1
    history: int = 16
    answers: int = 20_000

    def __post_init__(self) -> None:
        for name in ("ttl_s", "least_ttl_s", "most_ttl_s", "silent_after_s"):
            _positive(name, getattr(self, name))
        for name in ("ttl_movement", "default_movement", "unknown_pressure", "tie_share"):
            _not_negative(name, getattr(self, name))
        if self.least_ttl_s > self.most_ttl_s:
            raise InputError(
                "is above most_ttl_s.",
                field="least_ttl_s",
                found=self.least_ttl_s,
                allowed=f"up to {self.most_ttl_s:g}",
            )
        for name in ("history", "answers"):
            if getattr(self, name) < 1:
                raise InputError(
                    "is too few.", field=name, found=getattr(self, name), allowed="1 or more"
                )


@dataclass(frozen=True, slots=True)
class Question:
    """The runtime of ``app`` on ``node`` (id or name) as it is now.

    ``model`` None is the chosen one, ``model_version`` 0 the one in service, ``domain`` None the
    one with the least slowdown. ``resident_id`` is the placement of this very application where
    it runs already. ``strict`` refuses where the model extrapolates.

    With ``scaling`` it is of a whole job on ``nodes`` (``node`` is then empty), whose serial part
    runs on ``driver``, None for the first of them.
    """

    app: str
    node: str = ""
    placement: str | None = None
    level: float = 0.9
    stale_policy: StalePolicy = StalePolicy.WIDEN
    model: str | None = None
    model_version: int = 0
    domain: int | None = None
    resident_id: str = ""
    strict: bool = False
    scaling: Scaling | None = None
    nodes: tuple[str, ...] = ()
    driver: str | None = None

    def __post_init__(self) -> None:
        _named("app", self.app)
        check_where(self)
        check_placement(self.placement)
        check_level(self.level)
        if self.model_version < 0:
            raise InputError(
                "is no version.",
                field="model_version",
                found=self.model_version,
                allowed="0 for the one in service, or 1 or more",
            )


@dataclass(frozen=True, slots=True)
class Impact:
    """What a newcomer does to a resident: slowdowns over the idle node, without and with it."""

    app: str
    slowdown_now: Interval
    slowdown_then: Interval


@dataclass(frozen=True, slots=True)
class Forecast:
    """A prediction and what it rests on.

    ``model`` is empty, ``model_version`` 0 and ``solo`` and ``runtime`` None where the basis is
    NODE_ONLY. ``runtime`` and ``solo`` are in ``metric_unit``. ``fingerprint_age_s`` is None
    where the idle reference was used. ``residents`` says by placement id what the newcomer would
    do. ``added`` and ``removed`` are the placements by which the fingerprint was corrected.

    ``scaled`` is of a job on several machines: ``node_id``, ``domain`` and ``drivers`` are then of
    its slowest node, ``solo`` and ``runtime`` of the whole job in seconds, and ``slowdown`` is the
    job's over idle machines.
    """

    app: str
    node_id: str
    domain: int
    placement: str
    basis: Basis
    slowdown: Interval
    model: str = ""
    model_version: int = 0
    solo: float | None = None
    runtime: Interval | None = None
    metric_unit: str = "s"
    fingerprint_age_s: float | None = None
    fingerprint_taken_at: float | None = None
    stale: bool = False
    extrapolating: bool = False
    drivers: tuple[Driver, ...] = ()
    residents: Mapping[str, Impact] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    scaled: Scaled | None = None


@dataclass(frozen=True, slots=True)
class ColocationQuestion:
    """The runtime of ``app`` beside named neighbours on an idle node, and what it does to them.

    ``node`` None is the node of the training. ``model`` None is the chosen one.
    """

    app: str
    neighbours: tuple[str, ...] = ()
    node: str | None = None
    placement: str | None = None
    level: float = 0.9
    model: str | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        _named("app", self.app)
        check_placement(self.placement)
        check_level(self.level)
        for name in self.neighbours:
            _named("neighbours", name)


@dataclass(frozen=True, slots=True)
class NeighbourImpact:
    """What a neighbour meets; ``slowdown`` None where it has no model."""

    app: str
    slowdown: Interval | None


@dataclass(frozen=True, slots=True)
class Colocation:
    """The answer to a ColocationQuestion, neighbours in the order in which they were named."""

    forecast: Forecast
    neighbours: tuple[NeighbourImpact, ...] = ()


@dataclass(frozen=True, slots=True)
class RankRequest:
    """Nodes in the order in which ``app`` should be placed.

    ``nodes`` are candidates by id or name, none for all in service. A limit of 0 is none. The
    score is ``newcomer_weight`` times the newcomer's log slowdown and ``resident_weight`` times
    the sum of what is added to the residents'. ``seed`` None takes another one each time.

    With ``scaling`` sets of so many nodes are asked for, and ``limit`` counts sets. The slowest
    node of a set is the newcomer's part of its score.
    """

    app: str
    nodes: tuple[str, ...] = ()
    limit: int = 10
    placement: str | None = None
    slowdown_limit: float = 0.0
    resident_slowdown_limit: float = 0.0
    newcomer_weight: float = 1.0
    resident_weight: float = 1.0
    stale_policy: StalePolicy = StalePolicy.WIDEN
    level: float = 0.9
    seed: int | None = None
    memory_bytes: int = 0
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        _named("app", self.app)
        check_placement(self.placement)
        check_level(self.level)
        for name in (
            "slowdown_limit",
            "resident_slowdown_limit",
            "newcomer_weight",
            "resident_weight",
            "memory_bytes",
        ):
            _not_negative(name, getattr(self, name))
        if self.limit < 1:
            raise InputError("is too few.", field="limit", found=self.limit, allowed="1 or more")
        if self.seed is not None and self.seed < 0:
            raise InputError("is negative.", field="seed", found=self.seed, allowed="0 or more")


@dataclass(frozen=True, slots=True)
class RankedNode:
    """One place in a ranking. ``worst_resident_slowdown`` is the greatest median slowdown that a
    resident would have; ``residents`` counts placements that are reserved or bound there."""

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


@dataclass(frozen=True, slots=True)
class RankedSet:
    """Nodes for one job, least slowed first.

    ``slowdown`` is the whole job's over idle machines and ``runtime`` its runtime in seconds;
    without a scale model it is that of the slowest node, and ``runtime`` and ``scaled`` are None.
    """

    nodes: tuple[RankedNode, ...]
    score: float
    slowdown: Interval
    runtime: Interval | None = None
    scaled: Scaled | None = None
    extrapolating: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """Best first; where sets were asked for, ``nodes`` are those of the first of ``sets``.

    ``refused`` counts candidates by reason; ``staleness_s`` is by how much the matrix may lag
    behind the newest fingerprint.
    """

    nodes: tuple[RankedNode, ...]
    candidates: int
    refused: Mapping[str, int]
    basis: Basis
    staleness_s: float = 0.0
    sets: tuple[RankedSet, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedApplication:
    """A placement that is reserved or bound on a node, since when."""

    placement_id: str
    app: str
    state: str
    since: float


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node as it is now. ``reason`` says why it is not ready. ``general_slowdown`` is the
    geometric mean over surrogates of ``slowdown``, each over the idle reference; None without
    one. Of several domains it is the one with the greatest."""

    facts: NodeFacts
    state: NodeState
    reason: str = ""
    last_heartbeat: float | None = None
    last_fingerprint: float | None = None
    general_slowdown: float | None = None
    slowdown: Mapping[str, float] = field(default_factory=dict)
    placements: tuple[PlacedApplication, ...] = ()
    probe_cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Contribution:
    """A surrogate's part: what the log slowdown would lose were it as on the idle node."""

    surrogate: str
    family: str
    seconds_per_op: float
    idle_seconds_per_op: float
    log_slowdown: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a prediction is what it is; the greatest contribution first."""

    forecast: Forecast
    contributions: tuple[Contribution, ...]


def check_level(level: float) -> None:
    """Raises InputError unless ``level`` is a probability above 0 and below 1."""
    if not 0.0 < level < 1.0:
        raise InputError("is out of range.", field="level", found=level, allowed="above 0, below 1")


def check_placement(placement: str | None) -> None:
    """Raises InputError for a placement that is none."""
    if placement is not None and placement not in PLACEMENTS:
        raise InputError(
            "is no placement.", field="placement", found=placement, allowed=", ".join(PLACEMENTS)
        )


def _named(field_name: str, value: str) -> None:
    if not value:
        raise InputError("is empty.", field=field_name, allowed="a name")


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise InputError("is out of range.", field=name, found=value, allowed="finite, above 0")


def _not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0.0):
        raise InputError("is out of range.", field=name, found=value, allowed="finite, 0 or more")
