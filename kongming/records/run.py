"""Timed executions of an application, what they ran under, and what its neighbours saw."""

from __future__ import annotations

import itertools
import math
import random
import re
import statistics
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kongming.records.errors import MALFORMED, InputError
from kongming.records.fingerprint import SCHEMA, Fingerprint, check_schema
from kongming.records.moments import unix
from kongming.records.quantity import check_number, check_quantity

RUN_KINDS = ("solo", "induced", "corun", "signature", "environment")
"""solo: idle node; induced: under a load level, or next to an application that is the load of a
profile; corun: co-located with another application, to compare with what is predicted; signature:
an attempt at a signature that failed (one that succeeded is a Signature, not a Run); environment:
under limits or neighbours that no model knows, named in ``config``."""


CUT_OFF = "cut_off"
"""Name of the passive signal (1) of a run that was ended before its program was: its cost is a
lower bound."""

DISTURBED = "disturbed"
"""Name of the passive signal (1) of a run during which another measurement ran on its CPUs."""

_DISTURBED_TEXT = re.compile(r" measured on CPU \d+ meanwhile\.$")
"""The warning by which documents say so that were written before there was a signal for it."""

WAITING_SHARE = "waiting_share"
"""Name of the passive signal of a signature that says for which share of its solo time the program
was off its processor."""


ON_SEVERAL_CPUS = 1.02
"""A run that used more processor time than this many times its wall time ran on several CPUs at
once: how long it waited meanwhile is not to be seen in the sum."""


APP_KIND = "app_kind"
"""Name in ``config`` of an application's kind where that is not "batch". Of a "service" it is the
load driver that was timed."""

APP_CPUS = "app_cpus"
"""Name in ``config`` of how many CPUs an application uses where that is not 1."""


NEIGHBOUR_IDENTITIES = "neighbour_identities"
"""Name in ``config`` of a co-run of the identities of its neighbours, by application; older
co-runs do not say them."""


MOST_COPIES = 256
"""Worker processes of one inducer at the most."""


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """Load level that one inducer runs at: ``intensity`` is its duty cycle, above 0 and up to 1."""

    surrogate: str
    family: str
    intensity: float = 1.0
    copies: int = 1

    def __post_init__(self) -> None:
        if not 0.0 < self.intensity <= 1.0:
            raise InputError(
                "is out of range.",
                field="intensity",
                value=self.intensity,
                allowed="above 0, up to 1",
            )
        if not 1 <= self.copies <= MOST_COPIES:
            raise InputError(
                "is out of range.",
                field="copies",
                value=self.copies,
                allowed=f"1 to {MOST_COPIES}",
            )

    def __str__(self) -> str:
        copies = f" x{self.copies}" if self.copies > 1 else ""
        return f"{self.surrogate}@{self.intensity:g}{copies}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "surrogate": self.surrogate,
            "family": self.family,
            "intensity": self.intensity,
            "copies": self.copies,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> LoadLevel:
        return cls(
            surrogate=str(document["surrogate"]),
            family=str(document["family"]),
            intensity=float(document.get("intensity", 1.0)),
            copies=int(document.get("copies", 1)),
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of the run itself. Known only afterwards: never a feature of a prediction."""

    cpu_s: float = 0.0
    page_faults: int = 0
    major_faults: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    max_rss_bytes: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_number(getattr(self, name), f"usage.{name}", 0, "finite, 0 or more")

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Usage:
        return cls(**{k: v for k, v in document.items() if k in cls.__slots__})


@dataclass(frozen=True, slots=True)
class Run:
    """One timed execution, with the fingerprint and the load that it ran under.

    ``metric`` is in ``metric_unit`` (wall seconds unless the application says otherwise);
    ``wall_s`` is always there. ``cost`` is the metric turned so that more is worse: the metric
    itself, or 1/metric where higher is better; slowdown is a ratio of costs. A run that failed
    keeps its reason in ``error`` and is never trained on.

    ``fingerprint`` is of the load that the run was under, ``before`` a quick one right before it
    and ``after`` one right after it. Only what was read before a run may predict it; ``after``
    serves to mark runs during which the node changed, and to denoise what is learned from.
    """

    app: str
    identity: str
    node_id: str
    placement: str
    kind: str
    started_at: str
    wall_s: float
    metric: float | None
    metric_unit: str = "s"
    better: str = "lower"
    levels: tuple[LoadLevel, ...] = ()
    neighbours: tuple[str, ...] = ()
    fingerprint: Fingerprint | None = None
    before: Fingerprint | None = None
    after: Fingerprint | None = None
    usage: Usage = field(default_factory=Usage)
    passive: Mapping[str, float] = field(default_factory=dict)
    exit_status: int | None = 0
    error: str | None = None
    warnings: tuple[str, ...] = ()
    campaign: str = ""
    step: int = -1
    config: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        unix(self.started_at)
        if self.better not in ("lower", "higher"):
            raise InputError(
                "is unknown.", field="better", value=self.better, allowed="lower, higher"
            )
        check_number(self.wall_s, "wall_s", 0.0, "a finite time")
        # A metric of 0 or less is kept: the run is not ok.
        if self.metric is not None:
            check_quantity(self.metric, "metric")
        for field_name, values in (("passive", self.passive), ("parts", self.parts)):
            _check_finite(values, field_name)
            for name, value in values.items():
                check_number(value, f"{field_name}.{name}")
        _check_finite(self.config, "config")

    @property
    def ok(self) -> bool:
        return self.error is None and self.metric is not None and self.metric > 0

    @property
    def cost(self) -> float:
        """The metric with more meaning worse. Raises ValueError for a failed run."""
        if self.metric is None or self.metric <= 0:
            raise ValueError(f"run {self.id} has no metric")
        return self.metric if self.better == "lower" else 1.0 / self.metric

    @property
    def cut_off(self) -> bool:
        """Return whether it was ended before its program was, so that its cost is a lower bound."""
        return bool(self.passive.get(CUT_OFF))

    @property
    def disturbed(self) -> bool:
        """Return whether another measurement ran on the same CPUs during the run."""
        return bool(self.passive.get(DISTURBED))

    @property
    def waiting_share(self) -> float | None:
        """The share of the wall time that the program was off the processor; None if that is not
        known: its processor time was not read, is that of a service's load driver
        (``APP_KIND``), or is the sum over several CPUs (``APP_CPUS``, ``ON_SEVERAL_CPUS``)."""
        if self.usage.cpu_s <= 0.0 or self.wall_s <= 0.0:
            return None
        if self.config.get(APP_KIND) == "service" or self.config.get(APP_CPUS, 1) != 1:
            return None
        busy = self.usage.cpu_s / self.wall_s
        return None if busy > ON_SEVERAL_CPUS else max(0.0, 1.0 - busy)

    @property
    def families(self) -> frozenset[str]:
        """Resource families of the load: what validation leaves out together."""
        return frozenset(level.family for level in self.levels)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "id": self.id,
            "app": self.app,
            "identity": self.identity,
            "node_id": self.node_id,
            "placement": self.placement,
            "kind": self.kind,
            "started_at": self.started_at,
            "wall_s": self.wall_s,
            "metric": self.metric,
            "metric_unit": self.metric_unit,
            "better": self.better,
            "levels": [level.to_dict() for level in self.levels],
            "neighbours": list(self.neighbours),
            "fingerprint": None if self.fingerprint is None else self.fingerprint.to_dict(),
            "before": None if self.before is None else self.before.to_dict(),
            "after": None if self.after is None else self.after.to_dict(),
            "usage": self.usage.to_dict(),
            "passive": dict(self.passive),
            "exit_status": self.exit_status,
            "error": self.error,
            "warnings": list(self.warnings),
            "campaign": self.campaign,
            "step": self.step,
            "config": dict(self.config),
            "parts": dict(self.parts),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Run:
        check_schema(document, "run")
        try:
            prints = {
                key: None if document.get(key) is None else Fingerprint.from_dict(document[key])
                for key in ("fingerprint", "before", "after")
            }
            return cls(
                app=str(document["app"]),
                identity=str(document["identity"]),
                node_id=str(document["node_id"]),
                placement=str(document["placement"]),
                kind=str(document["kind"]),
                started_at=str(document["started_at"]),
                wall_s=float(document["wall_s"]),
                metric=None if document.get("metric") is None else float(document["metric"]),
                metric_unit=str(document.get("metric_unit", "s")),
                better=str(document.get("better", "lower")),
                levels=tuple(LoadLevel.from_dict(level) for level in document.get("levels", [])),
                neighbours=tuple(str(n) for n in document.get("neighbours", [])),
                fingerprint=prints["fingerprint"],
                before=prints["before"],
                after=prints["after"],
                usage=Usage.from_dict(document.get("usage", {})),
                passive=_passive(document),
                exit_status=document.get("exit_status"),
                error=document.get("error"),
                warnings=tuple(str(w) for w in document.get("warnings", [])),
                campaign=str(document.get("campaign", "")),
                step=int(document.get("step", -1)),
                config=dict(document.get("config", {})),
                parts={str(k): float(v) for k, v in document.get("parts", {}).items()},
                id=str(document["id"]),
            )
        except MALFORMED as error:
            raise InputError(f"The run is not valid ({error!r}).", field="run") from error


def _passive(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the passive signals of a run's document, whichever version has written it."""
    passive = {str(k): float(v) for k, v in document.get("passive", {}).items()}
    if any(_DISTURBED_TEXT.search(str(warning)) for warning in document.get("warnings", ())):
        passive.setdefault(DISTURBED, 1.0)
    return passive


def _check_finite(value: object, field: str) -> None:
    """Raises InputError for a number that JSON cannot hold, or a message not exactly (whose numbers
    are floats), at any depth."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError("is not finite.", field=field, value=value)
    elif isinstance(value, int):
        if abs(value) > 2**53:
            raise InputError(
                "is an integer beyond 2^53, which JSON's numbers do not hold exactly. Write it as "
                "text.",
                field=field,
                value=value,
            )
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            _check_finite(inner, f"{field}.{name}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _check_finite(inner, f"{field}[{index}]")


@dataclass(frozen=True, slots=True)
class Signature:
    """The fingerprint that a neighbour co-located with an application sees (Algorithm 1, phase 2).

    Readings are weighted by time over ``iterations`` whole iterations of the application, the
    gaps between iterations left out.
    """

    app: str
    identity: str
    node_id: str
    placement: str
    fingerprint: Fingerprint
    iterations: int
    campaign: str = ""
    step: int = -1
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "id": self.id,
            "app": self.app,
            "identity": self.identity,
            "node_id": self.node_id,
            "placement": self.placement,
            "fingerprint": self.fingerprint.to_dict(),
            "iterations": self.iterations,
            "campaign": self.campaign,
            "step": self.step,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Signature:
        check_schema(document, "signature")
        try:
            return cls(
                app=str(document["app"]),
                identity=str(document["identity"]),
                node_id=str(document["node_id"]),
                placement=str(document["placement"]),
                fingerprint=Fingerprint.from_dict(document["fingerprint"]),
                iterations=int(document["iterations"]),
                campaign=str(document.get("campaign", "")),
                step=int(document.get("step", -1)),
                id=str(document["id"]),
            )
        except MALFORMED as error:
            raise InputError(
                f"The signature is not valid ({error!r}).", field="signature"
            ) from error


@dataclass(frozen=True, slots=True)
class SoloTime:
    """The idle node's cost of an application: median of its solo runs, and their spread.

    ``noise_pct`` is half the inter-quartile range over the median, in per cent: what a repeat
    of the very same run differs by. It is None below two runs.
    """

    median: float
    noise_pct: float | None
    n: int


def solo_time(runs: Iterable[Run]) -> SoloTime | None:
    """Median and spread of the cost over the solo runs that succeeded; None without any."""
    costs = sorted(run.cost for run in runs if run.kind == "solo" and run.ok)
    if not costs:
        return None
    median = statistics.median(costs)
    if len(costs) < 2:
        return SoloTime(median, None, len(costs))
    low, _, high = statistics.quantiles(costs, n=4, method="inclusive")
    return SoloTime(median, 100.0 * (high - low) / 2.0 / median, len(costs))


def waiting_share(runs: Iterable[Run]) -> float | None:
    """Return the share of solo time that the program was off the processor; None if that is not
    known, or not of every run whose processor time was read: a program that is on several CPUs in
    some of them is so in the others too."""
    timed = [run for run in runs if run.kind == "solo" and run.usage.cpu_s > 0.0]
    shares = [run.waiting_share for run in timed]
    known = [share for share in shares if share is not None]
    return statistics.median(known) if known and len(known) == len(timed) else None


def median_wall_s(runs: Iterable[Run]) -> float | None:
    """Median seconds of the runs that succeeded; None without any."""
    walls = [run.wall_s for run in runs if run.ok]
    return statistics.median(walls) if walls else None


def trained_on(runs: Iterable[Run]) -> set[tuple[str, str]]:
    """Return the ordered pairs whose second was a load of the first one's profile: to predict them
    says nothing about neighbours that were not seen."""
    return {
        (run.app, other)
        for run in runs
        if run.kind == "induced" and run.ok
        for other in run.neighbours
    }


def geometric_mean(costs: Sequence[float]) -> float:
    """Return the geometric mean of costs above 0, by which repeats of one run are combined."""
    return math.exp(statistics.fmean(math.log(cost) for cost in costs))


_MOST_SPLITS = 1000


def noise_floor_pct(costs: Sequence[float]) -> float | None:
    """Return what a perfect predictor of these repeats' geometric mean would still be off by, per
    cent.

    For two repeats 100 x |ln r1 - ln r2| / 2; for more, the same over all splits into halves (of
    13 or more over a thousand of them), scaled to the number of repeats. None below two.
    """
    n = len(costs)
    if n < 2:
        return None
    logs = [math.log(cost) for cost in costs]
    half, total = n // 2, sum(logs)
    parts: Iterable[Sequence[float]] = itertools.combinations(logs, half)
    if math.comb(n, half) > _MOST_SPLITS:
        # Drawn: the first of all combinations have the first repeats in common. In an order of
        # their own, the same repeats have the same floor whenever each was measured.
        logs.sort()
        rng = random.Random(n)
        parts = (rng.sample(logs, half) for _ in range(_MOST_SPLITS))
    differences = [abs(sum(part) / half - (total - sum(part)) / (n - half)) for part in parts]
    # The mean of n logs has the spread of one over sqrt(n); a difference of half means has
    # sqrt(1/half + 1/(n - half)) of it.
    scale = math.sqrt(half * (n - half)) / n
    return 100.0 * statistics.fmean(differences) * scale
