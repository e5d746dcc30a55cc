"""Question of a ranking, with the model, and what was worked out of single places."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from kongming.arrays import Floats
from kongming.engine import scoring
from kongming.engine.catalog import Pressure
from kongming.engine.scoring import Served
from kongming.records.questions import RankQuestion


@dataclass(frozen=True, eq=False, slots=True)
class Query:
    """A question with what it is answered by: the model in service, None where there is none, and
    the newcomer's pressure. ``history`` and ``residents`` are filled in while it is answered."""

    request: RankQuestion
    model: Served | None
    pressure: Pressure
    now: float
    history: dict[int, Reading] = field(default_factory=dict)
    residents: dict[int, tuple[float, bool]] = field(default_factory=dict)
    """By place that was worked out: the greatest log slowdown that a resident would have, and
    whether that of any is a lower bound, or not predicted by a model."""


@dataclass(frozen=True, eq=False, slots=True)
class Reading:
    """Environment of a place that is not its newest fingerprint but the ``median`` (C,) of its
    history: ``slowed`` (C,) over the idle reference, and the scores of the model."""

    slowed: Floats
    median: Floats
    error: float = 0.0
    outside: bool = False
    limit: float = 0.0
    at_least: bool = False
    variant: int = scoring.NEITHER
    filled: bool = False


def log_limit(ratio: float) -> float:
    """Return the log of a limit on a slowdown; infinite where 0 says that there is none."""
    return math.log(ratio) if ratio > 0.0 else math.inf


def mean_log(logs: Floats) -> float:
    """Return the mean of the known values; NaN without a warning where there are none, as in a
    store that has no reading yet."""
    known = logs[~np.isnan(logs)]
    return float(known.mean()) if known.size else math.nan
