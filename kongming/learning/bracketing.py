"""Solo runs bracket the others: slow drift of a node divides out of a slowdown. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kongming.records.moments import unix
from kongming.records.run import Run

WIDTH_S = 300.0
"""How long a solo run tells what solo is like: drift is slower, and one run alone is noisy."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """The solo cost of one application as it was at any moment of a campaign.

    ``times`` are in seconds since 1970, ascending; ``logs`` the natural logs of the costs.
    """

    times: tuple[float, ...]
    logs: tuple[float, ...]
    width_s: float = WIDTH_S

    def at(self, moment: float) -> float:
        """The solo cost at ``moment`` (seconds since 1970): the mean of the logs, each run
        weighed by how near it is (a Gaussian of ``width_s``), the nearest ones at least."""
        distances = [abs(time - moment) for time in self.times]
        # Far from all of them the nearest would weigh 0 as well: distances count from it.
        nearest = min(distances)
        weights = [math.exp(-0.5 * ((d - nearest) / self.width_s) ** 2) for d in distances]
        total = math.fsum(weights)
        mean = math.fsum(w * log for w, log in zip(weights, self.logs, strict=True)) / total
        return math.exp(mean)


def bracket(runs: Iterable[Run], *, width_s: float = WIDTH_S) -> Bracket | None:
    """The bracket of one application's solo runs that succeeded; None without any."""
    solos = sorted(
        (unix(run.started_at), math.log(run.cost)) for run in runs if run.kind == "solo" and run.ok
    )
    if not solos:
        return None
    return Bracket(tuple(t for t, _ in solos), tuple(log for _, log in solos), width_s)


def slowdowns(runs: Sequence[Run], solos: Bracket) -> list[float]:
    """Each run's cost over the solo cost of the same minutes."""
    return [run.cost / solos.at(unix(run.started_at)) for run in runs]
