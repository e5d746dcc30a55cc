"""The columns of a dataset: the choice of surrogates and the readings of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from kongming.arrays import Floats
from kongming.records.errors import InputError
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run

MISSING_SHARE = 0.2
"""A column that is missing in a larger share of the runs is dropped. Further columns are dropped
until at most this share of the runs is incomplete."""


DEVICES = ("read", "write", "metadata", "network")
"""Families of devices that a program waits for without using a processor."""

NEIGHBOUR = "neighbour:"
"""Begins the group of runs co-located with a program, where others have the families of a load."""

NEVER_WAITS = 0.01
"""A program that is off its processor for less than this share of its solo time waits for no
device: device inducers slow it only by their use of memory."""


_MEDIAN_TO_DEVIATION = 1.0 / NormalDist().inv_cdf(0.75)
"""Standard deviation of a normal distribution whose median absolute deviation is 1."""

_MEDIAN_VARIANCE = math.pi / 2.0
"""Variance of the median over that of the mean, of many normal values."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A column or a run that was left out, and why."""

    name: str
    reason: str


def quick_columns(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the sorted names of the quick suite, taken from the runs' quick fingerprints."""
    names: set[str] = set()
    for run in runs:
        for fingerprint in (run.before, run.fingerprint):
            if fingerprint is not None and fingerprint.suite == "quick":
                names.update(fingerprint.surrogates)
    return tuple(sorted(names))


def row(columns: Sequence[str], times: Mapping[str, float]) -> Floats:
    """Return (p,) seconds per operation in the order of ``columns``.

    Raises:
        InputError: a column is missing, or its time is not finite and above 0 s.
    """
    missing = [name for name in columns if name not in times]
    if missing:
        raise InputError(
            f"The environment has no reading of {', '.join(missing)}.",
            hint="Measure a suite that has them: kongming fingerprint --suite standard --json",
        )
    for name in columns:
        if not (math.isfinite(times[name]) and times[name] > 0.0):
            raise InputError(
                "is not a valid time.",
                field=name,
                value=times[name],
                allowed="a finite time above 0 s",
            )
    return np.array([times[name] for name in columns], dtype=np.float64)


def suite_offsets(runs: Sequence[Run]) -> dict[str, float]:
    """Return by surrogate how much slower, in logs, a larger suite reads it than the quick one does
    in the same minute, without any load: the median over the solo runs that have both, shrunk by
    the share of its square that is not its own variance.

    Suites differ in the order of their readings, and so in what is in the caches and on the disk
    before each.
    """
    differences: dict[str, list[float]] = {}
    for run in runs:
        if run.kind == "solo" and _is_quick(run.before) and not _is_quick(run.fingerprint):
            quick = _times(run.before)
            for name, seconds in _times(run.fingerprint).items():
                if name in quick:
                    differences.setdefault(name, []).append(math.log(seconds / quick[name]))
    return {name: shrunk_median(values) for name, values in differences.items() if len(values) >= 2}


def shrunk_median(values: Sequence[float]) -> float:
    """Return the median m of ``values``, two or more, as m^3 / (m^2 + v), where v is its variance:
    near 0 where it could be chance, and hardly changed where it is not."""
    middle = float(np.median(values))
    deviation = float(np.median(np.abs(np.asarray(values) - middle))) * _MEDIAN_TO_DEVIATION
    variance = _MEDIAN_VARIANCE * deviation**2 / len(values)
    total = middle**2 + variance
    # Squares of the least numbers are 0.
    return middle * (middle**2 / total) if total > 0.0 else 0.0


def known_times(run: Run, offsets: Mapping[str, float]) -> dict[str, float]:
    """Return the readings before the run as a larger suite reads; of two readings of a surrogate
    the later one. Of a run next to a program these are the program's signature, as of a prediction:
    a quick fingerprint meets only a phase of it."""
    signature = _as_larger(run.fingerprint, offsets)
    return signature if run.neighbours else signature | _as_larger(run.before, offsets)


def times_after(run: Run, offsets: Mapping[str, float]) -> dict[str, float]:
    return {} if run.neighbours else _as_larger(run.after, offsets)


def _as_larger(fingerprint: Fingerprint | None, offsets: Mapping[str, float]) -> dict[str, float]:
    times = _times(fingerprint)
    if not _is_quick(fingerprint):
        return times
    return {name: seconds * math.exp(offsets.get(name, 0.0)) for name, seconds in times.items()}


def _is_quick(fingerprint: Fingerprint | None) -> bool:
    return fingerprint is not None and fingerprint.suite == "quick"


def _times(fingerprint: Fingerprint | None) -> dict[str, float]:
    return {} if fingerprint is None else fingerprint.times()


def families_of(runs: Sequence[Run]) -> dict[str, str]:
    families: dict[str, str] = {}
    for run in runs:
        if run.fingerprint is not None:
            for name, reading in run.fingerprint.surrogates.items():
                if reading.family:
                    families.setdefault(name, reading.family)
    return families


def without_missing(
    names: list[str], readings: Sequence[Mapping[str, float]]
) -> tuple[list[str], list[Dropped]]:
    n = len(readings)
    absent = {name: sum(name not in row for row in readings) for name in names}
    dropped = [
        Dropped(name, f"is missing in {absent[name]} of {n} runs")
        for name in names
        if absent[name] > MISSING_SHARE * n
    ]
    gone = {d.name for d in dropped}
    remaining = [name for name in names if name not in gone]
    while remaining:
        incomplete = sum(any(name not in row for name in remaining) for row in readings)
        if incomplete <= MISSING_SHARE * n:
            break
        worst = max(remaining, key=lambda name: (absent[name], name))
        remaining.remove(worst)
        dropped.append(Dropped(worst, f"is missing in {absent[worst]} of {n} runs"))
    return remaining, dropped
