"""Costs of runs: by an expression in the dimensions, or learned from the costs told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.explore.errors import ExploreError
from kongming.explore.features import Features
from kongming.explore.learners.least_squares import PairwiseTerms
from kongming.explore.space import Space
from kongming.expressions import parse
from kongming.records.errors import InputError

REPORTED = "told"
CONSTANT_COST = "makes all runs cost the same."
"""What is wrong with a cost in no parameter."""
ENOUGH = 4
"""Costs told from which costs are predicted."""

CostFunction = Callable[[Floats], Floats]
"""(n,) costs of (n, d) codes."""


def by_expression(space: Space, text: str) -> CostFunction:
    """Costs by an expression in the numeric dimensions.

    Raises:
        ExploreError: the expression is not valid.
    """
    names = [dimension.name for dimension in space.dimensions if not dimension.is_text]
    try:
        expression = parse(text, field="cost", variables=names, constant=CONSTANT_COST)
    except InputError as error:
        raise ExploreError(error.message) from error

    def costs(codes: Floats) -> Floats:
        values = expression(space.columns(codes))
        bad = ~np.isfinite(values) | (values <= 0.0)
        if bad.any():
            at = int(np.argmax(bad))
            wrong = "not defined" if np.isnan(values[at]) else "not above 0"
            raise ExploreError(
                f"{text} is {wrong} at {space.decode(codes[[at]])[0]}.",
                field="cost",
                value=str(values[at]),
            )
        return values

    return costs


def within_means(prices: Floats, left: float) -> NDArray[np.bool_]:
    """(n,) whether each of the points, in their order, is paid for by what those before it leave
    of a budget; one that is not is passed over."""
    paid = np.zeros(len(prices), dtype=np.bool_)
    for place, price in enumerate(prices.tolist()):
        if left > 0.0 and price <= left:
            paid[place] = True
            left -= price
    return paid


def learned(
    space: Space, codes: Sequence[tuple[float, ...]], costs: Sequence[float]
) -> CostFunction | None:
    """Costs predicted from those of (n, d) runs, within a factor of 2 of them; None for too few."""
    if len(costs) < ENOUGH:
        return None
    features = Features(space.dimensions, "both")
    # A run that cost nothing, as from a cache, has no logarithm: it counts as the cheapest.
    known = np.log(np.maximum(costs, min((cost for cost in costs if cost > 0.0), default=1.0)))
    X = features(np.array(codes))
    # Runs come in any order, which tells nothing.
    order = np.lexsort((known, *X.T))
    model = PairwiseTerms().fit(X[order], known[order])
    low, high = float(known.min()) - np.log(2.0), float(known.max()) + np.log(2.0)
    return lambda points: np.asarray(np.exp(np.clip(model.predict(features(points)), low, high)))
