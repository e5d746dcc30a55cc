"""Removal of a node's slow drift: slowdowns over the solo runs before and after. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kongming.records.moments import unix
from kongming.records.run import Run

WIDTH_S = 300.0
"""Width in seconds of the weights of solo runs: drift is slower, and a single run is noisy."""

TRAINING_WIDTH_S = 900.0
"""The same for training runs: a profile has a solo run every ten minutes or so, and one of them
alone is no reference."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """The solo cost of one application at any moment of a campaign.

    ``times`` are in seconds since 1970, ascending; ``logs`` the natural logs of the costs.
    """

    times: tuple[float, ...]
    logs: tuple[float, ...]
    width_s: float = WIDTH_S

    def at(self, moment: float, *, without: int | None = None) -> float:
        """Return the solo cost at ``moment`` (seconds since 1970): the mean of the logs, weighted
        by distance in time (a Gaussian of ``width_s``). The nearest run always counts. ``without``
        is the position of a run that is left out, if there is another."""
        distances = [abs(time - moment) for time in self.times]
        if without is not None and len(distances) > 1:
            distances[without] = math.inf
        # Far from all runs even the nearest would have weight 0, so distances count from it.
        nearest = min(distances)
        weights = [math.exp(-0.5 * ((d - nearest) / self.width_s) ** 2) for d in distances]
        total = math.fsum(weights)
        mean = math.fsum(w * log for w, log in zip(weights, self.logs, strict=True)) / total
        return math.exp(mean)


def bracket(runs: Iterable[Run], *, width_s: float = WIDTH_S) -> Bracket | None:
    """Return the bracket of one application's successful solo runs; None without any."""
    solos = sorted(
        (unix(run.started_at), math.log(run.cost)) for run in runs if run.kind == "solo" and run.ok
    )
    if not solos:
        return None
    return Bracket(tuple(t for t, _ in solos), tuple(log for _, log in solos), width_s)


def slowdowns(runs: Sequence[Run], solos: Bracket) -> list[float]:
    """Return each run's cost over the solo cost at the same time."""
    return [run.cost / solos.at(unix(run.started_at)) for run in runs]
