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
"""The same, at most, for training runs: where the nearest solo run is ten minutes away, it alone is
no reference."""

_TIMES_NEAREST = 3.0
"""The width, up to its maximum, over the distance of the nearest solo run. On recordings of five
lists, whose solo runs are 2 to 20 minutes from the loaded ones, predictions err alike with this,
with 300 s and with 900 s throughout (mean absolute log errors within 0.4 points)."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """The solo cost of one application at any moment of a campaign.

    ``times`` are in seconds since 1970, ascending; ``logs`` the natural logs of the costs.
    ``most_width_s`` is the width of the weights far from all runs.
    """

    times: tuple[float, ...]
    logs: tuple[float, ...]
    most_width_s: float = WIDTH_S

    def at(self, moment: float, *, without: int | None = None) -> float:
        """Return the solo cost at ``moment`` (seconds since 1970): the mean of the logs, weighted
        by distance in time (a Gaussian of ``WIDTH_S`` or, up to ``most_width_s``, three times the
        nearest distance). The nearest run always counts. ``without`` is the position of a run that
        is left out, if there is another."""
        distances = [abs(time - moment) for time in self.times]
        if without is not None and len(distances) > 1:
            distances[without] = math.inf
        # Far from all runs even the nearest would have weight 0, so distances count from it.
        nearest = min(distances)
        width_s = min(max(WIDTH_S, _TIMES_NEAREST * nearest), self.most_width_s)
        weights = [math.exp(-0.5 * ((d - nearest) / width_s) ** 2) for d in distances]
        total = math.fsum(weights)
        mean = math.fsum(w * log for w, log in zip(weights, self.logs, strict=True)) / total
        return math.exp(mean)


def bracket(runs: Iterable[Run]) -> Bracket | None:
    """Return the bracket of one application's successful solo runs; None without any."""
    solos = sorted(
        (unix(run.started_at), math.log(run.cost)) for run in runs if run.kind == "solo" and run.ok
    )
    if not solos:
        return None
    return Bracket(tuple(t for t, _ in solos), tuple(log for _, log in solos))


def slowdowns(runs: Sequence[Run], solos: Bracket) -> list[float]:
    """Return each run's cost over the solo cost at the same time."""
    return [run.cost / solos.at(unix(run.started_at)) for run in runs]
