"""The negative control: what cannot be slowed here must read as ever, else somebody else was there.

On cores of their own nothing slows arithmetic in registers, whatever the neighbour does. Where it
reads slower than in its like, the host or another tenant took part of the processor, and everything
else that was read then is about them. On a shared core the neighbour itself takes the processor:
there is no control. What had left the page cache is a control of its own (``eviction``), on any
core. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

from kongming.records import eviction
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run, Signature

NAMES = ("compute.float", "compute.int")
"""Surrogates that stay in registers."""

LIMIT = 0.15
"""Log of the factor over the quiet ones of its like above which a reading was disturbed. The clock
of a processor falls by less where its other cores are busy."""

QUIET = 0.2
"""The quantile of its like that is a quiet reading. Not the least: that falls with their number, so
that the same reading would be disturbed among many and not among few."""

TAKES = 3
"""How often a measurement that was disturbed is taken at most; the least disturbed stays."""

AGAIN = "again: somebody else slowed the processor, or its files had left the page cache"
"""What is said of a run that is taken again."""

_OF_ITS_OWN = ("cross-core", "cross-socket")


def applies(placement: str) -> bool:
    """Return whether the program has a core of its own at this placement."""
    return placement in _OF_ITS_OWN


def excesses(prints: Sequence[Fingerprint]) -> list[float]:
    """Return how far the controls of each fingerprint read above the quiet ones of all, in logs; 0
    where it has none. All are of one placement, suite and load."""
    logs = [
        {name: math.log(s) for name, s in fingerprint.times().items() if name in NAMES and s > 0.0}
        for fingerprint in prints
    ]
    quiet = {
        name: _quiet([row[name] for row in logs if name in row])
        for name in NAMES
        if any(name in row for row in logs)
    }
    return [
        math.fsum(value - quiet[name] for name, value in row.items()) / len(row) if row else 0.0
        for row in logs
    ]


def _quiet(values: Sequence[float]) -> float:
    return sorted(values)[int(QUIET * (len(values) - 1))]


def undisturbed(signatures: Sequence[Signature]) -> list[Signature]:
    """The repeated signatures of one application without those that were disturbed; at least one
    stays."""
    if len(signatures) < 2 or not applies(signatures[0].placement):
        return list(signatures)
    above = excesses([signature.fingerprint for signature in signatures])
    limit = max(LIMIT, min(above))
    return [signature for signature, value in zip(signatures, above, strict=True) if value <= limit]


def left_out(runs: Sequence[Run]) -> frozenset[str]:
    """The ids of the disturbed and the evicted runs to leave out (``left_out_by_cause``)."""
    return frozenset().union(*left_out_by_cause(runs))


def left_out_by_cause(runs: Sequence[Run]) -> tuple[frozenset[str], frozenset[str]]:
    """The ids of the disturbed runs to leave out, and of the evicted ones: none of either where
    they are more than a quarter of the runs, since those left would be of the machine's quiet
    moments alone."""
    slowed, read_anew = (
        ids if 4 * len(ids) <= len(runs) else frozenset()
        for ids in (disturbed(runs), evicted(runs))
    )
    return slowed, read_anew


def evicted(runs: Iterable[Run]) -> frozenset[str]:
    """The ids of the runs whose files had left the page cache, so that they took longer by more
    than what a disturbed reading is above a quiet one."""
    return frozenset(run_id for run_id, excess in eviction.excesses(runs).items() if excess > LIMIT)


def disturbed(runs: Iterable[Run]) -> frozenset[str]:
    """The ids of the runs that were disturbed: their controls right before and right after, on
    average, read above the quiet ones under the same load in their campaign.

    Runs in an environment are not compared: a quota or a shared CPU slows arithmetic by itself, in
    some readings and not in others, and what else runs there is what their models learn.
    """
    alike: dict[object, list[tuple[Run, Fingerprint]]] = {}
    for run in runs:
        if applies(run.placement) and "environment" not in run.config:
            load = (run.campaign, run.node_id, run.placement, run.levels, run.neighbours)
            for fingerprint in (run.before, run.after):
                if fingerprint is not None:
                    alike.setdefault(
                        (load, fingerprint.suite, fingerprint.suite_version), []
                    ).append((run, fingerprint))
    by_run: dict[str, list[float]] = {}
    for pairs in alike.values():
        above = excesses([fingerprint for _, fingerprint in pairs])
        for (run, _), value in zip(pairs, above, strict=True):
            by_run.setdefault(run.id, []).append(value)
    return frozenset(
        run_id for run_id, values in by_run.items() if math.fsum(values) / len(values) > LIMIT
    )


Taken = TypeVar("Taken")


def is_enough(takes: Sequence[tuple[float, object]]) -> bool:
    """Return whether a measurement need not be taken again after these takes with their
    excesses."""
    return bool(takes) and (takes[-1][0] <= LIMIT or len(takes) >= TAKES)


def least_disturbed(takes: Sequence[tuple[float, Taken]]) -> Taken:
    """Select the least disturbed of several takes with their excesses; the latest of equals. A run
    that failed or was cut off was disturbed by nothing that it shows: it is returned only if no
    other came to its end."""
    ended = [take for take in takes if not _unfinished(take[1])] or takes
    least = min(excess for excess, _ in ended)
    return [taken for excess, taken in ended if excess == least][-1]


def _unfinished(taken: object) -> bool:
    return isinstance(taken, Run) and (not taken.ok or taken.cut_off)


class Watch:
    """Readings of the controls so far in a campaign, by what they are compared within, and what its
    runs read: whether the newest was disturbed, so that it is taken again."""

    def __init__(self, placement: str) -> None:
        self._applies = applies(placement)
        self._seen: dict[object, list[Fingerprint]] = {}
        self._reading = eviction.Watch()

    def excess_of(self, alike: object, run: Run) -> float:
        """Learn of a run under one load; returns by how much it was disturbed or evicted, whichever
        is more, in logs."""
        return max(self.excess(alike, (run.before, run.after)), self._reading.excess(run))

    def excess(self, alike: object, prints: Sequence[Fingerprint | None]) -> float:
        """Learn of fingerprints taken under one load; returns by how much their controls read above
        the quiet ones under it, on average, in logs. 0 where there is no control."""
        taken = [fingerprint for fingerprint in prints if fingerprint is not None]
        if not self._applies or not taken:
            return 0.0
        values = []
        for fingerprint in taken:
            seen = self._seen.setdefault((alike, fingerprint.suite, fingerprint.suite_version), [])
            seen.append(fingerprint)
            values.append(excesses(seen)[-1])
        return math.fsum(values) / len(values)
