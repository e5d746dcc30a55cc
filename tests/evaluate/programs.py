"""Made-up evaluations for tests of scoring: say only what the test is about."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from kongming.evaluate import PairMeasurement, PairPrediction, score_pairs

NAMES = ("xz", "stencil", "hash-join", "sqlite", "redis", "gcc", "sort", "untar", "fft", "kmeans")

Values = Mapping[tuple[str, str], Sequence[float]]


def score(
    values: Values,
    predicted: Mapping[str, Mapping[tuple[str, str], float]],
    intervals: Mapping[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """``score_pairs`` of repeats by pair, and of predictions by model and pair, all of them with
    the same ``intervals``; solo times of 1."""
    apps = {app for app, _ in values}
    settings: dict[str, Any] = {
        "solo": dict.fromkeys(apps, 1.0),
        "training_mean": dict.fromkeys(apps, 1.2),
        "repeats": max(map(len, values.values())),
        "chosen": {},
        "placement": "cross-core",
        "node": {"id": "node-1"},
        "runs": sum(map(len, values.values())),
        "elapsed_s": 60.0,
        "scored": "raw",
    }
    return score_pairs(
        [PairMeasurement(app, neighbour, tuple(v)) for (app, neighbour), v in values.items()],
        [
            PairPrediction(app, neighbour, model, value, **(intervals or {}))
            for model, by_pair in predicted.items()
            for (app, neighbour), value in by_pair.items()
        ],
        **(settings | changes),
    )


def truth(apps: int = 6, seed: int = 0) -> dict[tuple[str, str], float]:
    """Slowdown of each ordered pair: a sensitivity times a pressure, in logs."""
    rng = random.Random(seed)
    names = NAMES[:apps]
    sensitivity = {name: rng.uniform(0.1, 1.0) for name in names}
    pressure = {name: rng.uniform(0.0, 0.9) for name in names}
    return {(a, b): math.exp(sensitivity[a] * pressure[b]) for a in names for b in names if a != b}


def noisy(
    values: Mapping[tuple[str, str], float], noise: float, repeats: int, seed: int = 1
) -> dict[tuple[str, str], tuple[float, ...]]:
    """Repeats whose logs are spread by ``noise``."""
    rng = random.Random(seed)
    return {
        pair: tuple(value * math.exp(rng.gauss(0.0, noise)) for _ in range(repeats))
        for pair, value in values.items()
    }
