"""Choice of one of the sizes of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kongming.records.errors import CannotAnswerError
from kongming.spark.estimation import Estimate, Price


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The cheapest size, the fastest, and the knee: from where on more executors bring little."""

    cheapest: Estimate
    fastest: Estimate
    knee: Estimate


TIE = 0.005
"""Sizes within this of the best are as good: the smaller one is taken."""


def recommend(estimates: Sequence[Estimate], price_per_hour: Price = 1.0) -> Recommendation:
    """Choose among estimates (figure 5.4: the minimum of the cost curve)."""
    if not estimates:
        raise CannotAnswerError("There is no estimate to choose from.")
    slots = sorted(estimates, key=lambda each: (each.executors * each.cores, each.executors))

    def best(values: Sequence[float]) -> Estimate:
        least = min(values)
        return next(
            each for each, value in zip(slots, values, strict=True) if value <= least * (1 + TIE)
        )

    fastest = best([each.median_s for each in slots])
    return Recommendation(
        cheapest=best([each.cost(price_per_hour) for each in slots]),
        fastest=fastest,
        # Beyond the fastest more slots bring nothing.
        knee=_knee(slots[: slots.index(fastest) + 1]),
    )


def by_deadline(
    estimates: Sequence[Estimate], deadline_s: float, required: float
) -> tuple[Estimate | None, Estimate]:
    """Return the fewest slots that end in time with the ``required`` probability, None if no size
    does, and the size that is most likely to, of several the smallest; where none can, that is the
    fastest."""
    if not estimates:
        raise CannotAnswerError("There is no estimate to choose from.")
    slots = sorted(estimates, key=lambda each: (each.executors * each.cores, each.executors))

    def likelihood(each: Estimate) -> tuple[float, float]:
        probability = each.probability(deadline_s)
        # A probability that is rounded to 0 does not tell which size misses by least.
        return probability, 0.0 if probability else -each.median_s

    likeliest = max(slots, key=likelihood)
    ending = (each for each in slots if each.probability(deadline_s) >= required)
    return next(ending, None), likeliest


def _knee(estimates: Sequence[Estimate]) -> Estimate:
    """The size farthest below the line from the first to the last, both axes from 0 to 1
    (Satopaa et al. 2011)."""
    x = [float(each.executors * each.cores) for each in estimates]
    y = [each.median_s for each in estimates]
    width, height = x[-1] - x[0], max(y) - min(y)
    if not width or not height:
        return estimates[0]
    below = [
        (y[0] + (y[-1] - y[0]) * (at - x[0]) / width - value) / height
        for at, value in zip(x, y, strict=True)
    ]
    return estimates[max(range(len(below)), key=below.__getitem__)]
