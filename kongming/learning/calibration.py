"""The factor that widens intervals of pairs, learned from co-runs of other applications.

A co-run gives the error of a prediction in units of its interval (``intervals.score``). For one
application the factor is learned from co-runs in which it took no part, on either side
(``intervals.widening``), so that an interval is never fitted to the data it is checked with. Pure:
the caller provides models, signatures and co-runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kongming.learning.intervals import Widening, score, widening
from kongming.learning.model_file import ModelFile
from kongming.learning.predict import slowdown_colocated
from kongming.records.errors import CannotAnswerError, InputError
from kongming.records.prediction import Interval
from kongming.records.run import Run, Signature, geometric_mean


@dataclass(frozen=True, slots=True)
class CoRun:
    """The measured slowdown of ``app`` co-located with ``neighbours``: one run, or the mean of
    repeats.
    """

    app: str
    neighbours: tuple[str, ...]
    slowdown: float


@dataclass(frozen=True, slots=True)
class Score:
    """The distance of a co-run from its prediction, in halves of the unwidened interval."""

    app: str
    neighbours: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The scores of all co-runs that can be predicted, at one node and placement, for intervals of
    ``level``."""

    scores: tuple[Score, ...] = ()
    level: float = 0.9

    def widening(self, app: str) -> Widening:
        """Return the factor for the intervals of ``app``, from the co-runs in which it took no
        part.

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
    """Return the scores of ``coruns`` by the application's own model; None or "auto" is its chosen
    one.

    ``files`` and ``signatures`` are by application, all of one node and placement. Co-runs that
    cannot be predicted are left out: the application has no model (or no ``model``), or a neighbour
    has no matching signature.
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
    """Return the successful co-runs among ``runs`` of applications with the identity that was
    trained. The slowdown is over the solo runs of the same campaign, or over the solo time of
    training if the campaign has none.
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
        return slowdown_colocated(files[one.app], company, model=model, level=level)
    except (CannotAnswerError, InputError):
        return None
