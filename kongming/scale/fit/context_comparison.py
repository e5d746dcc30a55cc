"""Compare the model over all contexts with each context's own fit on what is left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.context_cliff import steps
from kongming.scale.fit.context_common import Together, fit_common
from kongming.scale.fit.context_own import LEAST, OwnFits, fit_own, places_in
from kongming.scale.fit.context_process import Process
from kongming.scale.fit.validation import folds_of, largest_out
from kongming.scale.points import Integers, Runs

FOLDS = 8


def compare_own(
    data: Together, parts: Sequence[Runs], place: Integers, process: Process
) -> tuple[OwnFits, tuple[Floats, Floats]]:
    """Fit each context alone, and compare that with the model over all of them on what is left out.

    ``place`` has the number in the process of each configuration of the contexts, -1 for none.
    Also return the residuals of left-out configurations and their variances (``left_out``).
    """
    terms, items = data.terms, data.items
    counts = np.unique(data.points.machines)
    ends = float(counts[0]), float(counts[-1])
    alone = process.left_out([np.array([i]) for i in range(len(data.points))])
    rows: list[tuple[Floats, Floats, Floats, Integers, Integers]] = []
    starts = np.concatenate([[0], np.cumsum([part.count for part in parts])])

    def compare(
        i: int, training: Runs, left: Runs, common: Floats, ends: tuple[float, float], at: Integers
    ) -> None:
        """``common`` (n,) logs of the common model's prediction over the typical time."""
        fit = fit_own(training, terms, items)
        if fit is not None:
            points = left.configurations
            needed = np.log(left.typical / fit.predict(points))
            places = places_in(points, training.configurations, ends)
            rows.append((places, common + needed, needed, np.full(len(points), i), at))

    for i, part in enumerate(parts):
        own = place[starts[i] : starts[i + 1]]
        if part.count <= LEAST or (own < 0).any():
            continue
        for fold in folds_of(part.count, FOLDS):
            at = own[fold]
            residual = process.left_out_fold(at)[0]
            compare(i, part.without(fold), part.within(fold), -residual, ends, at)
        for training, left in largest_out(part, most=2):
            at = own[np.isin(part.configurations.machines, np.unique(left.points.machines))]
            residual = process.left_out_fold(at)[0]
            compare(i, training, left, -residual, ends, np.full(len(at), -1))
    for count in counts[::-1][:2]:
        # What the common model says of machine counts that no context has.
        small = data.points.machines < count
        if len(np.unique(data.points.machines[small])) < 2:
            break
        trained = data.take(small)
        trend, cliff, rest = fit_common(trained, process.take(small))
        big = data.take(~small)
        common = np.log(trend.predict(big.points) / big.seconds)
        common += steps(cliff, data.contexts, big.points, big.inputs.owner) + rest.mean(big.inputs)
        most = float(trained.points.machines.max())
        for i, part in enumerate(parts):
            mine, low = big.inputs.owner == i, part.points.machines < count
            at = place[starts[i] : starts[i + 1]]
            if mine.any() and (at >= 0).all() and low.any():
                of_left = common[mine]
                left = part.take(~low)
                compare(i, part.take(low), left, of_left, (ends[0], most), np.full(left.count, -1))
    fits = tuple(fit_own(part, terms, items) for part in parts)
    if not rows:
        return OwnFits.untested(fits), alone
    places, way, needed, owner, at = (np.concatenate(each) for each in zip(*rows, strict=True))
    own_fits = OwnFits(fits, places, owner, way, needed)
    residuals = alone[0].copy()
    drawn, single = needed - own_fits.left_out() * way, at >= 0
    residuals[at[single]] = drawn[single]
    return own_fits, (residuals, alone[1])
