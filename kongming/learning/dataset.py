"""Conversion of runs to numbers: a design matrix, a target and the groups that validation leaves
out. Only this module knows the order of columns. All others use their names.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.learning import reading_pairs
from kongming.learning.awake import awake_factor, awake_shares, keeping_awake
from kongming.learning.bracketing import TRAINING_WIDTH_S, Bracket
from kongming.learning.columns import (
    DEVICES,
    NEIGHBOUR,
    NEVER_WAITS,
    Dropped,
    families_of,
    known_times,
    suite_offsets,
    times_after,
    without_missing,
)
from kongming.quantities import count, per_cent
from kongming.records import control
from kongming.records.errors import IncompatibleError, UntrainedError
from kongming.records.lower_bounds import completed
from kongming.records.moments import unix
from kongming.records.run import Run, SoloTime, solo_time, waiting_share

_DISTURBED = "was disturbed: arithmetic read slower than under the same load elsewhere"
_READ_ANEW = "was disturbed: its files had left the page cache"


@dataclass(frozen=True, eq=False)
class Dataset:
    """The training data of one application on one node at one placement. ``X`` (n, p), which models
    are fitted to, is the natural log of seconds per operation during a run: the mean of the
    readings before and after it. ``known`` (n, p) is the reading before the run: the models are
    scored on it. ``y`` is (n,), the log of cost / solo, less ``awake`` where the load kept a CPU
    awake (``awake_factor``). ``reading_variance`` (p,) is the variance of the noise of an entry of
    ``X``. ``groups`` holds, per row, the resource families of its load: empty for a solo run,
    ``neighbour:NAME`` for a run co-located with NAME, ``in:NAME`` for one in an environment;
    ``inducers`` the surrogates or programs that loaded it, or that environment. ``idle`` is (p,),
    the log of the median over the solo rows: the environment of the solo runs. All readings are as
    of the larger suite, which signatures are of: ``suite_offset`` (p,) is what was added to the log
    readings of the quick one (``columns.suite_offsets``). ``known_up_to`` is the least ``y`` that
    is a lower bound only: of a run that was ended before its program was, if no other that came to
    its end took longer. ``completed`` are the rows of those that others took longer than: their
    ``y`` is the mean of these. ``ended`` says of every row that was ended, on the scale of ``y``,
    what it had taken by then.
    """

    app: str
    identity: str
    node_id: str
    placement: str
    suite_version: str
    metric_unit: str
    better: str
    solo: SoloTime
    columns: tuple[str, ...]
    families: tuple[str, ...]
    X: Floats
    known: Floats
    y: Floats
    idle: Floats
    reading_variance: Floats
    suite_offset: Floats
    awake: float
    groups: tuple[frozenset[str], ...]
    inducers: tuple[tuple[str, ...], ...]
    levels: tuple[str, ...]
    kinds: tuple[str, ...]
    run_ids: tuple[str, ...]
    cpu: int
    known_up_to: float = math.inf
    completed: frozenset[int] = frozenset()
    ended: Mapping[int, float] = field(default_factory=dict)
    dropped_columns: tuple[Dropped, ...] = ()
    dropped_runs: tuple[Dropped, ...] = ()

    @cached_property
    def spread(self) -> Floats:
        """The 0.9 quantile (p,) of the distance between readings before solo runs and ``idle``, in
        logs.
        """
        solo = [i for i, kind in enumerate(self.kinds) if kind == "solo"]
        if len(solo) < 2:
            return np.zeros(len(self.columns))
        away = np.abs(self.known[solo] - self.idle)
        return np.asarray(np.quantile(away, 0.9, axis=0), dtype=np.float64)

    @cached_property
    def times(self) -> Floats:
        """Seconds per operation (n, p): the paper's plain models are fitted to these."""
        return np.asarray(np.exp(self.X), dtype=np.float64)

    def targets(self, rows: NDArray[np.intp]) -> tuple[Floats, float]:
        """Return ``y`` and ``known_up_to`` as they are if there were these rows alone: what was
        ended counts as those of them that took longer, whatever others did."""
        if self.ended.keys().isdisjoint(rows.tolist()):
            return self.y[rows], math.inf
        if len(rows) == len(self.y):
            return self.y[rows], self.known_up_to
        logs, open_ended = completed(
            [self.ended.get(i, float(self.y[i])) for i in rows.tolist()],
            [i in self.ended for i in rows.tolist()],
        )
        return _known(np.array(logs), np.array(open_ended, dtype=np.bool_))

    def select(self, names: Iterable[str]) -> Dataset:
        """Return the same runs with only these columns, in this dataset's order; unknown names are
        ignored."""
        wanted = set(names)
        keep = [i for i, column in enumerate(self.columns) if column in wanted]
        return replace(
            self,
            columns=tuple(self.columns[i] for i in keep),
            families=tuple(self.families[i] for i in keep),
            X=self.X[:, keep],
            known=self.known[:, keep],
            idle=self.idle[keep],
            reading_variance=self.reading_variance[keep],
            suite_offset=self.suite_offset[keep],
        )

    def as_quick(self) -> Dataset:
        """Return the same runs with readings as the quick suite's, which live ones are of."""
        offset = self.suite_offset
        return replace(
            self,
            X=self.X - offset,
            known=self.known - offset,
            idle=self.idle - offset,
            suite_offset=np.zeros(len(offset)),
        )


def build(
    runs: Iterable[Run], *, columns: Sequence[str] | None = None, denoise: bool = True
) -> Dataset:
    """Build the dataset of one application on one node at one placement.

    ``columns`` restricts the surrogates to those named. Failed runs, runs without a fingerprint,
    disturbed ones (``control``) and repeated ids are left out; so are columns that are constant or
    missing in too many runs (see ``MISSING_SHARE``), and then runs without a reading of a remaining
    column. ``dropped_columns`` and ``dropped_runs`` list what was left out, with reasons. Columns
    are sorted by name and rows are in order of start, so that neither the order of surrogates nor
    that of runs in the input matters. Without ``denoise``, readings after a run are not used.

    Raises:
        IncompatibleError: the runs differ in application, identity, node, placement, suite version
            or metric.
        UntrainedError: there is no solo run or no usable run.
    """
    usable, dropped_runs = _usable(runs)
    if not usable:
        raise UntrainedError(
            "There is no run to learn from: none succeeded with a fingerprint.",
            hint="Profile the application first: kongming profile APPS.toml",
        )
    for what, values in _identifying(usable).items():
        if len(values) > 1:
            raise IncompatibleError(
                f"The runs differ in {what} ({', '.join(sorted(values))}) and are not mixed.",
                hint=f"Give the runs of one {what} only.",
            )
    solo = solo_time(usable)
    if solo is None:
        raise UntrainedError(
            f"No solo run of {usable[0].app} succeeded, so its slowdowns are unknown.",
            hint="Profile it again: solo runs are part of every plan.",
        )
    offsets = suite_offsets(usable)
    readings = [known_times(run, offsets) for run in usable]
    families = families_of(usable)
    names = sorted({name for row in readings for name in row})
    if columns is not None:
        unmeasured = sorted(set(columns) - set(names))
        dropped = [Dropped(name, "was not measured") for name in unmeasured]
        names = [name for name in names if name in set(columns)]
    else:
        dropped = []
    names, missing = without_missing(names, readings)
    dropped += missing
    waiting = waiting_share(usable)
    if waiting is not None and waiting < NEVER_WAITS:
        reason = f"the program waits for no device: {per_cent(100.0 * (1.0 - waiting))} is CPU time"
        idle_devices = [name for name in names if families.get(name) in DEVICES]
        # Without any other column, these are kept.
        if len(idle_devices) < len(names):
            dropped += [Dropped(name, reason) for name in idle_devices]
            names = [name for name in names if name not in idle_devices]
    complete = [i for i, row in enumerate(readings) if all(name in row for name in names)]
    for i in sorted(set(range(len(usable))) - set(complete)):
        absent = [name for name in names if name not in readings[i]]
        dropped_runs.append(Dropped(usable[i].id, f"has no reading of {', '.join(absent)}"))
    usable = [usable[i] for i in complete]
    readings = [readings[i] for i in complete]
    known = reading_pairs.log_readings(readings, names)
    shift = reading_pairs.log_readings([times_after(run, offsets) for run in usable], names) - known
    met = reading_pairs.met(known, shift) if denoise else known
    varying = [j for j in range(len(names)) if len(usable) and np.ptp(met[:, j]) > 0.0]
    dropped += [Dropped(names[j], "is constant") for j in range(len(names)) if j not in varying]
    if not varying:
        raise UntrainedError(
            f"No surrogate varied over the {count(len(usable), 'run')} of {usable[0].app}."
            if usable
            else "No run has a reading of every surrogate.",
            hint="Profile it under load: kongming profile APPS.toml --plan quick",
        )
    remaining = tuple(names[j] for j in varying)
    X = met[:, varying]
    cut_off = [run.cut_off for run in usable]
    measured = _log_slowdowns(usable, solo)
    logs, open_ended = completed(measured.tolist(), cut_off)
    y, bounds = np.array(logs), np.array(open_ended, dtype=np.bool_)
    awake = keeping_awake(usable)
    factor = awake_factor(y[awake], waiting)
    # What is left is due to pressure, which the models learn.
    at_pressure = factor * awake_shares(usable)
    y, known_up_to = _known(y - at_pressure, bounds)
    ended = dict(enumerate((measured - at_pressure).tolist()))
    solo_rows = [i for i, run in enumerate(usable) if run.kind == "solo"]
    first = usable[0]
    return Dataset(
        app=first.app,
        identity=first.identity,
        node_id=first.node_id,
        placement=first.placement,
        suite_version=_suite_version(first),
        metric_unit=first.metric_unit,
        better=first.better,
        solo=solo,
        columns=remaining,
        families=tuple(families.get(name, "") for name in remaining),
        X=X,
        known=known[:, varying],
        y=y,
        awake=factor,
        idle=np.median(X[solo_rows] if solo_rows else X, axis=0),
        suite_offset=np.array([offsets.get(name, 0.0) for name in remaining]),
        reading_variance=_reading_variance(X, shift[:, varying], solo_rows, denoise),
        inducers=tuple(_inducers(run) for run in usable),
        groups=tuple(_groups(run) for run in usable),
        levels=tuple(_level_key(run) for run in usable),
        kinds=tuple(run.kind for run in usable),
        run_ids=tuple(run.id for run in usable),
        cpu=_common_cpu(usable),
        known_up_to=known_up_to,
        completed=frozenset(np.flatnonzero(cut_off & ~bounds).tolist()),
        ended={i: ended[i] for i, cut in enumerate(cut_off) if cut},
        dropped_columns=tuple(sorted(dropped, key=lambda d: d.name)),
        dropped_runs=tuple(dropped_runs),
    )


def _known(y: Floats, bounds: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Return log slowdowns and how far they are known, where those of ``bounds`` (n,) are no more
    than the least: beyond the lowest of these nothing is known, of whatever was ended later as
    well. Not the highest, though a program's first runs may go on for six times as long as later
    ones: those were under other loads, and one that was ended at five times may slow it six times
    where the heaviest slow it forty times. "At least thirty" would be false of it."""
    known_up_to = float(y[bounds].min()) if bounds.any() else math.inf
    return np.where(bounds, known_up_to, y), known_up_to


def _log_slowdowns(runs: Sequence[Run], solo: SoloTime) -> Floats:
    """Return (n,): each run's log cost over the solo cost of the same minutes, as co-runs are
    scored. A solo run's is over the other solo runs, so that their spread stays what it is however
    far apart they are."""
    alone = sorted(
        (run for run in runs if run.kind == "solo"), key=lambda run: unix(run.started_at)
    )
    if not alone:
        return np.log(np.array([run.cost for run in runs]) / solo.median)
    solos = Bracket(
        tuple(unix(run.started_at) for run in alone),
        tuple(math.log(run.cost) for run in alone),
        TRAINING_WIDTH_S,
    )
    place = {run.id: i for i, run in enumerate(alone)}
    return np.array(
        [
            math.log(run.cost / solos.at(unix(run.started_at), without=place.get(run.id)))
            for run in runs
        ]
    )


def in_environments(runs: Iterable[Run], reference: str) -> list[Run]:
    """Return the runs of kind ``environment`` in the form that ``build`` takes: those in
    ``reference`` as solo runs, which slowdowns are relative to, the others as runs under a load,
    each environment a group."""
    return [
        replace(run, kind="solo" if run.config["environment"] == reference else "induced")
        for run in runs
        if run.kind == "environment"
    ]


def _usable(runs: Iterable[Run]) -> tuple[list[Run], list[Dropped]]:
    usable: list[Run] = []
    dropped: list[Dropped] = []
    seen: set[str] = set()
    for run in runs:
        if run.id in seen:
            dropped.append(Dropped(run.id, "is a duplicate"))
        elif not run.ok or not math.isfinite(run.cost):
            dropped.append(Dropped(run.id, f"failed: {run.error or 'no valid metric'}"))
        elif run.fingerprint is None:
            dropped.append(Dropped(run.id, "has no fingerprint"))
        else:
            usable.append(run)
        seen.add(run.id)
    disturbed, evicted = control.left_out_by_cause(usable)
    dropped += [
        Dropped(run.id, _DISTURBED if run.id in disturbed else _READ_ANEW)
        for run in usable
        if run.id in disturbed | evicted
    ]
    usable = [run for run in usable if run.id not in disturbed | evicted]
    usable.sort(key=lambda run: (run.started_at, run.step, run.id))
    return usable, dropped


def _identifying(runs: Sequence[Run]) -> dict[str, set[str]]:
    return {
        "application": {run.app for run in runs},
        "identity": {run.identity for run in runs},
        "node": {run.node_id for run in runs},
        "placement": {run.placement for run in runs},
        "suite version": {_suite_version(run) for run in runs},
        "metric": {f"{run.metric_unit}, {run.better} is better" for run in runs},
    }


def _suite_version(run: Run) -> str:
    return "" if run.fingerprint is None else run.fingerprint.suite_version


def _reading_variance(X: Floats, shift: Floats, solo_rows: list[int], denoise: bool) -> Floats:
    """Return (p,): from the differences of two readings around a run, else from solo runs."""
    p = X.shape[1]
    variance = np.zeros(p)
    if len(solo_rows) >= 2:
        variance = np.var(X[solo_rows], axis=0, ddof=1)
    squares = reading_pairs.mean_square(shift)
    # Half the mean square is one reading's variance; the mean of two readings has half of it.
    return np.where(reading_pairs.paired(shift) >= 2, squares / (4.0 if denoise else 2.0), variance)


def _environment(run: Run) -> tuple[str, ...]:
    """Return the environment that a run has instead of a load; none for a solo run."""
    if run.kind != "induced" or run.levels or "environment" not in run.config:
        return ()
    return (str(run.config["environment"]),)


def _groups(run: Run) -> frozenset[str]:
    places = frozenset(f"in:{name}" for name in _environment(run))
    return run.families or places or frozenset(NEIGHBOUR + name for name in run.neighbours)


def _inducers(run: Run) -> tuple[str, ...]:
    surrogates = tuple(sorted(level.surrogate for level in run.levels))
    return surrogates or _environment(run) or run.neighbours


def _level_key(run: Run) -> str:
    """Return a key that is equal for repeats of a run, from which the repeat noise is computed. A
    run that was cut off has none: its cost is not its own."""
    if run.cut_off:
        return f"cut off:{run.id}"
    loads = sorted(str(level) for level in run.levels)
    return f"{run.kind}:{'+'.join(loads)}" + "".join(
        f"|{name}" for name in (*sorted(run.neighbours), *_environment(run))
    )


def _common_cpu(runs: Sequence[Run]) -> int:
    cpus = Counter(run.fingerprint.cpu for run in runs if run.fingerprint is not None)
    return min(cpus, key=lambda cpu: (-cpus[cpu], cpu))
