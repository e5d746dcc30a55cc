"""Adaptive profiling: suggest the next points to run, be told what was measured, predict the rest.

Paper 004, Algorithm 1. All decisions are functions of the settings, the seed and what was told so
far, so that a profiler that was saved and read goes on as if nothing had happened.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.explore.choice import choose
from kongming.explore.errors import ExploreError
from kongming.explore.learners import LEARNERS, PAPER
from kongming.explore.policies import POLICIES
from kongming.explore.situation import Situation, keys
from kongming.explore.space import Point, Space
from kongming.explore.tree import ObliqueModelTree
from kongming.records.errors import UntrainedError
from kongming.sealed_document import DocumentKind

KIND = DocumentKind(
    "kongming-explore-profiler", 1, "profiler's document", "fit it again", "kongming explore fit"
)
FEWEST_RUNS = 2
"""The least budget: one run is no model."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Predictions of points, (n,) arrays. ``lower`` and ``upper`` bound the interval at the
    profiler's level; ``extrapolating``: no run is near; ``failure_probability`` of a run there."""

    median: Floats
    lower: Floats
    upper: Floats
    extrapolating: NDArray[np.bool_]
    failure_probability: Floats


@dataclass(frozen=True, slots=True)
class _Run:
    codes: tuple[float, ...]
    value: float | None
    error: str | None
    cost: float | None


class DecisionTreeProfiler:
    """Chooses a few points of a space to run, and models all others (paper 004).

    Args:
        budget: runs in all.
        batch: runs that are suggested at a time.
        policy: how points are chosen (``POLICIES``).
        model: the learner of the final model (``LEARNERS``), or ``auto``.
        weights: of error, size and cost in the score of a leaf.
        cost: an expression in the dimensions, ``told`` (learned from the costs told), or None.
        level: of the intervals.
        stop_pct: stop once 90% of the space is known within so many per cent.
        random_state: a seed; None draws one.

    Raises:
        ExploreError: a setting is not valid.
    """

    def __init__(
        self,
        space: Space,
        *,
        budget: int = 40,
        batch: int = 5,
        policy: str = "auto",
        model: str = "auto",
        weights: tuple[float, float, float] = (1.0, 1.0, 0.0),
        cost: str | None = None,
        level: float = 0.9,
        stop_pct: float | None = None,
        random_state: int | None = 0,
    ) -> None:
        if not isinstance(space, Space):
            raise ExploreError("is no Space.", field="space", found=repr(space))
        self.space = space
        self.budget = _whole(budget, "budget", FEWEST_RUNS)
        self.batch = _whole(batch, "batch", 1)
        self.policy = _one_of(policy, "policy", POLICIES)
        self.model = _one_of(model, "model", ("auto", "paper", *LEARNERS))
        self.weights = _weights(weights)
        self.cost = cost
        self.level = _between(level, "level", 0.0, 1.0)
        self.stop_pct = None if stop_pct is None else _between(stop_pct, "stop_pct", 0.0, math.inf)
        seed = secrets.randbelow(2**31) if random_state is None else random_state
        self.random_state = _whole(seed, "random_state", 0)
        self._runs: list[_Run] = []
        self._pending: list[tuple[float, ...]] = []
        self._suggested = 0
        self._pool: tuple[Floats, bool] | None = None
        self._fitted: Any = None

    # The loop

    def suggest(self, n: int | None = None) -> list[dict[str, Any]]:
        """The next points to run, ``batch`` or ``n`` of them; [] once the budget is spent.

        Points that were suggested and not told yet are pending: they count, and are not repeated.
        """
        count = self.batch if n is None else _whole(n, "n", 1)
        count = min(count, self.budget - len(self._runs) - len(self._pending))
        if count < 1:
            return []
        rng = np.random.default_rng(
            [self.random_state, len(self._runs), len(self._pending), self._suggested]
        )
        codes = POLICIES[self.policy](self._situation(rng), count)
        self._pending += [tuple(row) for row in codes.tolist()]
        self._suggested += len(codes)
        return self.space.decode(codes)

    def tell(
        self,
        point: Point,
        value: float | None,
        *,
        error: str | None = None,
        cost: float | None = None,
    ) -> None:
        """Tell what a run measured: a value, or None and the ``error`` of a run that failed.

        Any order, points told before (repeats) and points never suggested are welcome.

        Raises:
            ExploreError: the point is not allowed, or value or cost are no finite number.
        """
        codes = tuple(self.space.encode([point])[0].tolist())
        if value is None:
            error = error or "failed"
        else:
            if error is not None:
                raise ExploreError("was told with a value.", field="error", found=error)
            value = _finite(value, "value")
        if cost is not None:
            cost = _between(cost, "cost", 0.0, math.inf)
        pending = [_key(row) for row in self._pending]
        if _key(codes) in pending:
            del self._pending[pending.index(_key(codes))]
        self._runs.append(_Run(codes, value, error, cost))
        self._fitted = None

    def _situation(self, rng: np.random.Generator) -> Situation:
        d = len(self.space.names)
        if self._pool is None:
            self._pool = self.space.pool(np.random.default_rng([self.random_state]))
        good = [run for run in self._runs if run.value is not None]
        return Situation(
            space=self.space,
            pool=self._pool[0],
            whole=self._pool[1],
            runs=_rows([run.codes for run in good], d),
            values=np.array([run.value for run in good], dtype=np.float64),
            failed=_rows([run.codes for run in self._runs if run.value is None], d),
            pending=_rows(self._pending, d),
            weights=self.weights,
            cost_of=None,
            noise=0.0,
            budget=self.budget,
            rng=rng,
            seed=self.random_state,
            tree_of=lambda situation: ObliqueModelTree(random_state=self.random_state).fit(
                situation.features(situation.runs), situation.values
            ),
        )

    # The model

    def predict(self, points: Iterable[Point]) -> Forecast:
        """Predictions of points.

        Raises:
            ExploreError: a point is not allowed.
            UntrainedError: fewer than two runs succeeded.
        """
        points = list(points)
        codes = self.space.encode(points)
        situation = self._situation(np.random.default_rng(0))
        if len(situation.values) < FEWEST_RUNS:
            reasons = sorted({run.error for run in self._runs if run.error})
            raise UntrainedError(
                f"{len(situation.values)} of {len(self._runs)} runs succeeded; a model needs "
                f"{FEWEST_RUNS}." + (f" Reasons: {'; '.join(reasons[:5])}." if reasons else "")
            )
        if self._fitted is None:
            names = tuple(LEARNERS) if self.model == "auto" else (self.model,)
            if self.model == "paper":
                names = PAPER
            self._fitted = choose(
                self.space.dimensions,
                situation.runs,
                situation.values,
                np.ones(len(situation.values)),
                names,
                self.random_state,
            )
        median = self._fitted.predict(codes)
        width = 0.0
        return Forecast(
            median=median,
            lower=median - width,
            upper=median + width,
            extrapolating=np.zeros(len(codes), dtype=bool),
            failure_probability=np.zeros(len(codes)),
        )

    @property
    def model_name(self) -> str | None:
        """The learner of the final model; None before a prediction was asked for."""
        return None if self._fitted is None else self._fitted.name

    def report(self) -> dict[str, Any]:
        """Facts about the runs and the model, as JSON."""
        return {"runs": len(self._runs), "budget": self.budget, "model": self.model_name}

    # Documents

    def to_json(self) -> str:
        """The settings and all runs, as JSON text that ``from_json`` reads."""
        payload = {
            "space": self.space.to_dict(),
            "settings": {
                "budget": self.budget,
                "batch": self.batch,
                "policy": self.policy,
                "model": self.model,
                "weights": list(self.weights),
                "cost": self.cost,
                "level": self.level,
                "stop_pct": self.stop_pct,
                "random_state": self.random_state,
            },
            "runs": [
                {
                    "codes": _plain(run.codes),
                    "value": run.value,
                    "error": run.error,
                    "cost": run.cost,
                }
                for run in self._runs
            ],
            "pending": [_plain(row) for row in self._pending],
            "suggested": self._suggested,
        }
        return json.dumps(KIND.seal(payload), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote; the same answers then give the same suggestions.

        Raises:
            InputError: the text is no profiler, is damaged, or a newer KONGMING wrote it.
        """
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ExploreError(f"The profiler's document is no JSON: {error}.") from error
        return KIND.read(document, cls._from_document)

    @classmethod
    def _from_document(cls, document: Mapping[str, Any]) -> Self:
        settings = dict(document["settings"])
        settings["weights"] = tuple(settings["weights"])
        profiler = cls(Space.from_document(document["space"]), **settings)
        profiler._runs = [
            _Run(_coded(run["codes"]), run["value"], run["error"], run["cost"])
            for run in document["runs"]
        ]
        profiler._pending = [_coded(row) for row in document["pending"]]
        profiler._suggested = int(document["suggested"])
        return profiler


def _rows(rows: list[tuple[float, ...]], width: int) -> Floats:
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)


def _key(row: tuple[float, ...]) -> bytes:
    return next(iter(keys(np.array([row]))))


def _plain(row: tuple[float, ...]) -> list[float | None]:
    return [None if math.isnan(code) else code for code in row]


def _coded(row: list[float | None]) -> tuple[float, ...]:
    return tuple(math.nan if code is None else float(code) for code in row)


def _finite(value: object, field: str) -> float:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ExploreError("is no number.", field=field, found=repr(value), allowed="finite")
    return float(value)


def _between(value: object, field: str, low: float, high: float) -> float:
    number = _finite(value, field)
    if not low <= number <= high or (field in ("level", "stop_pct") and number in (low, high)):
        allowed = f"from {low:g}" + ("" if high == math.inf else f" to {high:g}")
        raise ExploreError("is out of range.", field=field, found=number, allowed=allowed)
    return number


def _whole(value: object, field: str, least: int) -> int:
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        allowed = f"a whole number from {least}"
        raise ExploreError("is out of range.", field=field, found=repr(value), allowed=allowed)
    return value


def _one_of(value: object, field: str, known: Iterable[str]) -> str:
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        allowed = ", ".join(names)
        raise ExploreError("is not known.", field=field, found=repr(value), allowed=allowed)
    return value


def _weights(weights: object) -> tuple[float, float, float]:
    if not isinstance(weights, tuple | list) or len(weights) != 3:
        raise ExploreError(
            "are three numbers.", field="weights", found=repr(weights), allowed="error, size, cost"
        )
    error, size, cost = (_finite(weight, "weights") for weight in weights)
    return error, size, cost
