"""Compare the model over all contexts with each context's own fit on what is left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.scale.fit.contexts.context_cliff import ContextCliff, step_at, steps
from kongming.scale.fit.contexts.context_common import Together, fit_common
from kongming.scale.fit.contexts.context_few import FEW, Compared, subsets
from kongming.scale.fit.contexts.context_own import LEAST, REACH, OwnFits, fit_own, places_in
from kongming.scale.fit.contexts.context_process import Process
from kongming.scale.fit.validation import folds_of, largest_out
from kongming.scale.points import Integers, Runs

FOLDS = 8

GROUPS = 4
"""Groups of contexts whose fewest machines are left out together."""


def compare_own(
    data: Together,
    parts: Sequence[Runs],
    place: Integers,
    cliff: ContextCliff | None,
    process: Process,
) -> tuple[OwnFits, tuple[Floats, Floats]]:
    """Fit each context alone, and compare that with the model over all of them on what is left out.

    ``place`` has the number in the process of each configuration of the contexts, -1 for none.
    Also return the residuals of left-out configurations and their variances (``left_out``).
    """
    terms, items = data.terms, data.items
    counts = np.unique(data.points.machines)
    ends = float(counts[0]), float(counts[-1])
    alone = process.left_out_each()
    rows: list[Compared] = []
    numbers: list[Integers] = []
    drawn: list[Compared] = []
    starts = np.concatenate([[0], np.cumsum([part.count for part in parts])])

    def compare(
        i: int,
        training: Runs,
        left: Runs,
        common: Floats,
        ends: tuple[float, float],
        at: Integers,
        cliff: ContextCliff | None,
    ) -> None:
        """``common`` (n,) logs of the common model's prediction over the typical time."""
        compared = own_and_common(i, training, left, common, ends, cliff)
        if compared is not None:
            rows.append(compared)
            numbers.append(at)

    def own_and_common(
        i: int,
        training: Runs,
        left: Runs,
        common: Floats,
        ends: tuple[float, float],
        cliff: ContextCliff | None,
    ) -> Compared | None:
        fit = fit_own(training, terms, items)
        if fit is None:
            return None
        points = left.configurations
        needed = np.log(left.typical / fit.predict(points))
        step = step_at(cliff, data.contexts[i])
        places = places_in(points, training.configurations, ends, step)
        return Compared(places, np.full(len(points), i), common + needed, needed)

    for i, part in enumerate(parts):
        own = place[starts[i] : starts[i + 1]]
        if part.count <= LEAST or (own < 0).any():
            continue
        for fold in folds_of(part.count, FOLDS):
            at = own[fold]
            residual = process.left_out_fold(at)[0]
            compare(i, part.without(fold), part.within(fold), -residual, ends, at, cliff)
        for training, left in largest_out(part, most=2):
            at = own[np.isin(part.configurations.machines, np.unique(left.points.machines))]
            residual = process.left_out_fold(at)[0]
            compare(i, training, left, -residual, ends, np.full(len(at), -1), cliff)

    def refit(left: NDArray[np.bool_], ends: tuple[float, float]) -> None:
        """Compare on the configurations ``left`` (n,) of a common model that never saw them."""
        trend, cliff, rest = fit_common(data.take(~left), process.take(~left))
        out = data.take(left)
        common = np.log(trend.predict(out.points) / out.seconds)
        common += steps(cliff, data.contexts, out.points, out.inputs.owner) + rest.mean(out.inputs)
        for i in np.unique(out.inputs.owner).tolist():
            own = place[starts[i] : starts[i + 1]]
            if (own < 0).any() or left[own].all():
                continue
            mine, part = left[own], parts[i]
            training, held_out = (
                part.within(np.flatnonzero(~mine)),
                part.within(np.flatnonzero(mine)),
            )
            of_left = common[out.inputs.owner == i]
            compare(i, training, held_out, of_left, ends, np.full(len(of_left), -1), cliff)

    for count in counts[::-1][:2]:
        # What the common model says of machine counts that no context has.
        below = data.points.machines < count
        if len(np.unique(data.points.machines[below])) < 2:
            break
        refit(~below, (ends[0], float(data.points.machines[below].max())))
    # A cliff shows itself at the fewest machines: what the common model says of those of a context
    # when the cliff was found without them.
    fewest = np.full(len(parts), np.inf)
    np.minimum.at(fewest, data.inputs.owner, data.points.machines)
    smallest = data.points.machines <= fewest[data.inputs.owner]
    for group in range(GROUPS):
        left = smallest & (data.inputs.owner % GROUPS == group)
        if left.any() and len(np.unique(data.points.machines[~left])) > 1:
            refit(left, ends)
    # Contexts are predicted from as few of their configurations as others have.
    for few in _few(parts):
        for i, part in enumerate(parts):
            own = place[starts[i] : starts[i + 1]]
            for chosen in [] if (own < 0).any() else subsets(few, part.count, i):
                rest = np.setdiff1d(np.arange(part.count), chosen)
                common = -process.left_out_fold(own[rest])[0]
                training, left_out = part.within(chosen), part.within(rest)
                compared = own_and_common(i, training, left_out, common, ends, cliff)
                if compared is not None:
                    drawn.append(compared)
    fits = tuple(fit_own(part, terms, items) for part in parts)
    configurations = np.array([part.count for part in parts])
    if not rows:
        return OwnFits.untested(fits, configurations), alone
    of_all, of_few = (Compared.joined(each, len(REACH)) for each in (rows, drawn))
    at, own_fits = np.concatenate(numbers), OwnFits(fits, configurations, of_all, of_few)
    residuals, variances = (each.copy() for each in alone)
    answered, unsure = own_fits.left_out()
    single = at >= 0
    residuals[at[single]] = answered[single]
    variances[at[single]] += unsure[single]
    return own_fits, (residuals, variances)


def _few(parts: Sequence[Runs]) -> list[int]:
    """Return the numbers of configurations of contexts that have few, and without one of them."""
    counts = {part.count for part in parts if part.count < FEW}
    return sorted(few for few in counts | {count - 1 for count in counts} if few >= LEAST)
