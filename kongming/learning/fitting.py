"""Fit of one model to rows of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.learning import spaces
from kongming.learning.dataset import Dataset
from kongming.learning.estimators.base import ContextRegressor, Regressor
from kongming.learning.estimators.context import Context
from kongming.learning.registry import Kind


@dataclass(frozen=True, eq=False, slots=True)
class Fitted:
    """A fitted estimator with the conversion of seconds per operation to log slowdown."""

    kind: Kind
    estimator: Regressor
    idle: Floats
    spread: Floats
    bounds: tuple[float, float]

    def log_slowdown(self, times: Floats) -> Floats:
        """Return (n,) log slowdowns from ``times`` (n, p), seconds per operation in the dataset's
        order.
        """
        predicted = self.estimator.predict(
            spaces.features(times, self.idle, self.kind.space, self.spread)
        )
        return spaces.log_slowdown(predicted, self.kind.space, self.bounds)


def fit(
    kind: Kind,
    dataset: Dataset,
    *,
    noise: float,
    rows: NDArray[np.intp] | None = None,
    inner: Sequence[Sequence[int]] | None = None,
    random_state: int = 0,
) -> Fitted:
    """Fit ``kind`` to ``rows`` of the dataset (all by default).

    ``noise`` is the repeat noise in logs; ``inner`` are the folds, as positions within ``rows``, by
    which a model chooses its penalty or selection. (There what was ended counts as in all
    ``rows``: of a choice within them that gives nothing away.)
    """
    chosen = np.arange(len(dataset.y)) if rows is None else rows
    idle = np.exp(dataset.idle)
    X = spaces.features(dataset.times[chosen], idle, kind.space, dataset.spread)
    logs, known_up_to = dataset.targets(chosen)
    y = spaces.target(logs, kind.space)
    estimator = kind.make(random_state)
    if kind.context:
        if not isinstance(estimator, ContextRegressor):
            raise TypeError(f"{kind.name} needs a context, which its estimator does not take")
        estimator.fit(X, y, context=_context(dataset, chosen, inner or ()))
    else:
        estimator.fit(X, y)
    bounds = spaces.credible_bounds(logs, noise, known_up_to)
    return Fitted(kind, estimator, idle, dataset.spread, bounds)


def _context(dataset: Dataset, rows: NDArray[np.intp], folds: Sequence[Sequence[int]]) -> Context:
    return Context(
        folds=tuple(tuple(fold) for fold in folds),
        inducers=tuple(dataset.inducers[i] for i in rows),
        families=dataset.families,
        columns=dataset.columns,
        reading_variance=dataset.reading_variance,
    )
