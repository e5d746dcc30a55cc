"""What intervals over pairs have to be widened by, learnt from co-runs of other applications.

A co-run says how far off a prediction was, in units of its interval (``intervals.score``). For
one application the factor is learnt from the co-runs of all others (``intervals.widening``):
from none in which it took part itself, on either side, so that an interval is never fitted to
what it is then held against. Pure: the caller brings models, signatures and co-runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kongming.learning.intervals import Widening, score, widening
from kongming.learning.model_file import ModelFile
from kongming.learning.predict import slowdown_beside
from kongming.records.errors import CannotAnswerError, InputError
from kongming.records.prediction import Interval
from kongming.records.run import Run, Signature, geometric_mean


@dataclass(frozen=True, slots=True)
class CoRun:
    """What ``app`` was slowed by beside ``neighbours``: one run, or the mean of repeats."""

    app: str
    neighbours: tuple[str, ...]
    slowdown: float


@dataclass(frozen=True, slots=True)
class Score:
    """A co-run's distance from its prediction, in halves of the unwidened interval."""

    app: str
    neighbours: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The scores of all co-runs that could be predicted, at one node and placement, for
    intervals of ``level``."""

    scores: tuple[Score, ...] = ()
    level: float = 0.9

    def widening(self, app: str) -> Widening:
        """The factor for the intervals of ``app``, from the co-runs that it had no part in.

        Raises:
            InputError: ``level`` is not between 0 and 1.
        """
        others: dict[str, list[float]] = {}
        for one in self.scores:
            if one.app != app and app not in one.neighbours:
                others.setdefault(one.app, []).append(one.value)
        return widening(others, self.level)


def calibrate(
    files: Mapping[str, ModelFile],
    signatures: Mapping[str, Sequence[Signature]],
    coruns: Iterable[CoRun],
    *,
    model: str | None = None,
    level: float = 0.9,
) -> Calibration:
    """The scores of ``coruns``, by the application's own model; None or "auto" for its choice.

    ``files`` and ``signatures`` are by application, all of one node and placement. Co-runs that
    cannot be predicted are left out: of an application without a model (or without ``model``),
    or beside one without a signature that fits.
    """
    said: dict[tuple[str, tuple[str, ...]], Interval | None] = {}
    scores = []
    for one in coruns:
        pair = (one.app, one.neighbours)
        if pair not in said:
            said[pair] = _slowdown(files, signatures, one, model, level)
        interval = said[pair]
        if interval is not None:
            scores.append(Score(one.app, one.neighbours, score(interval, one.slowdown)))
    return Calibration(tuple(scores), level)


def coruns_of(runs: Iterable[Run], files: Mapping[str, ModelFile]) -> list[CoRun]:
    """The co-runs among ``runs`` that succeeded, of applications as they were trained.

    The slowdown is over the solo runs of the same campaign, which ran in the same minutes; over
    the solo time of training where it had none.
    """
    of_files = [
        run
        for run in runs
        if run.ok and run.app in files and run.identity == files[run.app].identity
    ]
    solos: dict[tuple[str, str], list[float]] = {}
    for run in of_files:
        if run.kind == "solo" and run.campaign:
            solos.setdefault((run.campaign, run.app), []).append(run.cost)
    found = []
    for run in of_files:
        if run.kind == "corun" and run.neighbours:
            alone = solos.get((run.campaign, run.app))
            solo = geometric_mean(alone) if alone else files[run.app].solo.median
            found.append(CoRun(run.app, run.neighbours, run.cost / solo))
    return found


def _slowdown(
    files: Mapping[str, ModelFile],
    signatures: Mapping[str, Sequence[Signature]],
    one: CoRun,
    model: str | None,
    level: float,
) -> Interval | None:
    if one.app not in files:
        return None
    company = {name: signatures.get(name, ()) for name in one.neighbours}
    try:
        return slowdown_beside(files[one.app], company, model=model, level=level)
    except (CannotAnswerError, InputError):
        return None
