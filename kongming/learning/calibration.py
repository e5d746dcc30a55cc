"""The factor that widens intervals of pairs, learned from co-runs of other applications.

A co-run gives the error of a prediction in units of its interval (``intervals.score``). For one
application the factor is learned from co-runs in which it took no part, on either side
(``intervals.widening``), so that an interval is never fitted to the data it is checked with. Pure:
the caller provides models, signatures and co-runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from types import MappingProxyType

from kongming.learning.bracketing import bracket
from kongming.learning.intervals import (
    Widening,
    expected_factor,
    expected_score,
    score,
    widening_factor,
)
from kongming.learning.model_file import ModelFile
from kongming.learning.predict import slowdown_colocated
from kongming.learning.repeat_noise import Variance, pool, shrunk
from kongming.records.errors import CannotAnswerError, InputError
from kongming.records.moments import unix
from kongming.records.run import Run, Signature


@dataclass(frozen=True, slots=True)
class CoRun:
    """The measured slowdown of one run of ``app`` co-located with ``neighbours``."""

    app: str
    neighbours: tuple[str, ...]
    slowdown: float


@dataclass(frozen=True, slots=True)
class Score:
    """The distance of a co-run from its prediction, in halves of the unwidened interval: one run's
    in the ``run`` interval, or the mean of a company's runs in the ``expected`` one."""

    app: str
    neighbours: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The scores of all co-runs that can be predicted, at one node and placement, for intervals of
    ``level``: ``scores`` of single runs, ``expected`` of means less what their own error explains,
    ``expected_at_most`` of means as they are. ``repeats`` is the variance of each application's
    repeats, ``loaded_runs`` how many runs under a load its model was learned from."""

    scores: tuple[Score, ...] = ()
    level: float = 0.9
    expected: tuple[Score, ...] = ()
    expected_at_most: tuple[Score, ...] = ()
    repeats: Mapping[str, Variance] = field(default_factory=dict)
    loaded_runs: Mapping[str, int] = field(default_factory=dict)

    def widening(self, app: str) -> Widening:
        """Return the factor for the intervals of ``app``, from the co-runs in which it took no
        part.

        Raises:
            InputError: ``level`` is not between 0 and 1.
        """
        runs = _of_others(self.scores, app)
        sizes = [self.loaded_runs[other] for other in runs if other in self.loaded_runs]
        means, at_most = _of_others(self.expected, app), _of_others(self.expected_at_most, app)
        return Widening(
            widening_factor(runs, self.level),
            len(runs),
            sum(len(values) for values in runs.values()),
            expected_factor(means, at_most, self.level),
            pool(variance for name, variance in self.repeats.items() if name != app),
            self.level,
            statistics.median(sizes) if sizes else 0.0,
        )


def calibrate(
    files: Mapping[str, ModelFile],
    signatures: Mapping[str, Sequence[Signature]],
    coruns: Iterable[CoRun],
    *,
    model: str | None = None,
    level: float = 0.9,
    repeats: Mapping[str, Variance] = MappingProxyType({}),
) -> Calibration:
    """Return the scores of ``coruns`` by the application's own model; None or "auto" is its chosen
    one.

    ``files`` and ``signatures`` are by application, all of one node and placement; ``repeats`` are
    the variances of applications whose models are not among ``files``, which intervals are drawn
    towards too: a factor holds for intervals of the same pool as those that it was learned from.
    Co-runs that cannot be predicted are left out: the application has no model (or no ``model``),
    or a neighbour has no matching signature.
    """
    repeats = {**repeats, **{app: file.variants["full"].repeats for app, file in files.items()}}
    pools = {
        app: pool(variance for name, variance in repeats.items() if name != app) for app in files
    }
    companies: dict[tuple[str, tuple[str, ...]], list[float]] = {}
    for corun in coruns:
        companies.setdefault((corun.app, corun.neighbours), []).append(corun.slowdown)
    scores: list[Score] = []
    expected: list[Score] = []
    at_most: list[Score] = []
    reach = NormalDist().inv_cdf((1.0 + level) / 2.0)
    for (app, neighbours), slowdowns in companies.items():
        if app not in files:
            continue
        company = {name: signatures.get(name, ()) for name in neighbours}
        try:
            interval = slowdown_colocated(
                files[app], company, model=model, level=level, widening=Widening(pool=pools[app])
            )
        except (CannotAnswerError, InputError):
            continue
        scores += [Score(app, neighbours, score(interval, value)) for value in slowdowns]
        noise = shrunk(repeats[app], pools[app]) / math.sqrt(len(slowdowns))
        mean = math.fsum(map(math.log, slowdowns)) / len(slowdowns)
        expected.append(Score(app, neighbours, expected_score(interval, mean, reach * noise)))
        at_most.append(Score(app, neighbours, expected_score(interval, mean, 0.0)))
    loaded_runs = {
        app: size
        for app, file in files.items()
        if (size := file.variants["full"].loaded_runs) is not None
    }
    return Calibration(tuple(scores), level, tuple(expected), tuple(at_most), repeats, loaded_runs)


def coruns_of(runs: Iterable[Run], files: Mapping[str, ModelFile]) -> list[CoRun]:
    """Return the successful co-runs among ``runs`` of applications with the identity that was
    trained. The slowdown is over the solo runs of the same campaign around it, as an evaluation
    counts it, or over the solo time of training if the campaign has none.
    """
    of_files = [
        run
        for run in runs
        if run.ok and run.app in files and run.identity == files[run.app].identity
    ]
    by_campaign: dict[tuple[str, str], list[Run]] = {}
    for run in of_files:
        if run.campaign:
            by_campaign.setdefault((run.campaign, run.app), []).append(run)
    alone = {key: bracket(members) for key, members in by_campaign.items()}
    coruns = []
    for run in of_files:
        if run.kind == "corun" and run.neighbours:
            solos = alone.get((run.campaign, run.app))
            solo = solos.at(unix(run.started_at)) if solos else files[run.app].solo.median
            coruns.append(CoRun(run.app, run.neighbours, run.cost / solo))
    return coruns


def _of_others(scores: Iterable[Score], app: str) -> dict[str, list[float]]:
    """Return the scores by application, without those of co-runs in which ``app`` took part."""
    others: dict[str, list[float]] = {}
    for corun in scores:
        if corun.app != app and app not in corun.neighbours:
            others.setdefault(corun.app, []).append(corun.value)
    return others
