"""Questions to a service: frozen records without messages, checked before they are sent."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from kongming.records.errors import InputError
from kongming.records.fingerprint import PLACEMENTS
from kongming.records.scaling import Scaling, check_where

StalePolicy = Literal["widen", "refuse", "history"]
"""What to do where a node's fingerprint is older than its time to live: widen the interval,
refuse with StaleError, or use the median of the node's recent fingerprints."""

STALE_POLICIES: tuple[StalePolicy, ...] = get_args(StalePolicy)

DEFAULT_PLACEMENT = "cross-core"
"""The placement that is meant where none is named and the application is trained there, or
nowhere."""


def placement_or_default(placement: str | None, trained: Collection[str]) -> str:
    """``placement`` where it is named; else the default one, unless the application is ``trained``
    at other placements only: then the first of those, in the order of ``PLACEMENTS``."""
    if placement is not None:
        return placement
    if not trained or DEFAULT_PLACEMENT in trained:
        return DEFAULT_PLACEMENT
    return min(trained, key=PLACEMENTS.index)


@dataclass(frozen=True, slots=True)
class Question:
    """The runtime of ``app`` on ``node`` (id or name) as it is now.

    ``placement`` None is as ``placement_or_default`` says; ``model`` None is the chosen one,
    ``model_version`` 0 the one in service, ``domain`` None the last-level cache domain with the
    least slowdown. ``resident_id`` is the assignment id of this very application
    where it runs there already. ``strict`` refuses where the model extrapolates.

    With ``scaling`` it is of a whole job on ``nodes`` (``node`` is then empty), whose serial part
    runs on ``driver``, None for the first of them.
    """

    app: str
    node: str = ""
    placement: str | None = None
    level: float = 0.9
    stale_policy: StalePolicy = "widen"
    model: str | None = None
    model_version: int = 0
    domain: int | None = None
    resident_id: str = ""
    strict: bool = False
    scaling: Scaling | None = None
    nodes: tuple[str, ...] = ()
    driver: str | None = None

    def __post_init__(self) -> None:
        _named(app=self.app)
        _checked(self.placement, self.level, self.stale_policy)
        check_where(self)
        if self.model_version < 0:
            raise InputError(
                "is not a version.",
                field="model_version",
                value=self.model_version,
                allowed="0 for the one in service, or 1 or more",
            )


@dataclass(frozen=True, slots=True)
class ColocationQuestion:
    """The runtime of ``app`` co-located with named neighbours on an idle node.

    ``node`` None is the node of the training runs. One name may come several times.
    """

    app: str
    neighbours: tuple[str, ...] = ()
    node: str | None = None
    placement: str | None = None
    level: float = 0.9
    model: str | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        _named(app=self.app)
        for name in self.neighbours:
            _named(neighbours=name)
        _checked(self.placement, self.level)


@dataclass(frozen=True, slots=True)
class RankQuestion:
    """Nodes in the order in which ``app`` should be placed.

    ``nodes`` are candidates by id or name, none for all. Limits are ratios of slowdown, 0 for
    none. The score is ``newcomer_weight`` times the newcomer's log slowdown and
    ``resident_weight`` times the sum of what is added to the residents'. Near ties are spread by
    ``seed``; None takes another one each time.

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
    stale_policy: StalePolicy = "widen"
    level: float = 0.9
    seed: int | None = None
    memory_bytes: int = 0
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        _named(app=self.app)
        _checked(self.placement, self.level, self.stale_policy)
        if self.limit < 1:
            raise InputError("is too few.", field="limit", value=self.limit, allowed="1 or more")
        if self.seed is not None and self.seed < 0:
            raise InputError("is negative.", field="seed", value=self.seed, allowed="0 or more")
        for name in (
            "slowdown_limit",
            "resident_slowdown_limit",
            "newcomer_weight",
            "resident_weight",
            "memory_bytes",
        ):
            value = getattr(self, name)
            if not 0.0 <= value < float("inf"):
                raise InputError(
                    "is out of range.", field=name, value=value, allowed="finite, 0 or more"
                )
        if 0.0 < self.resident_slowdown_limit < 1.0:
            # Where nobody is, nobody is slowed: by less than 1 all nodes would be refused.
            raise InputError(
                "is out of range.",
                field="resident_slowdown_limit",
                value=self.resident_slowdown_limit,
                allowed="0 for none, or 1 or more",
            )


def _named(**names: str) -> None:
    for field, name in names.items():
        if not name:
            raise InputError("is missing.", field=field)


def _checked(placement: str | None, level: float, stale_policy: str = "widen") -> None:
    for field, value, allowed in (
        ("placement", placement, (None, *PLACEMENTS)),
        ("stale_policy", stale_policy, STALE_POLICIES),
    ):
        if value not in allowed:
            names = ", ".join(name for name in allowed if name is not None)
            raise InputError("is unknown.", field=field, value=value, allowed=names)
    if not 0.0 < level < 1.0:
        raise InputError("is out of range.", field="level", value=level, allowed="above 0, below 1")
