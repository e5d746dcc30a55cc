"""Runs whose files had left the page cache: they read from the device what their program usually
finds in memory, though neither it nor its neighbour is to blame. Holds for any placement. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from kongming.records.run import Run

FACTOR = 3.0
"""How often the usual bytes a run must read, at least, for its files to have left the cache."""

BYTES_PER_S = 128 << 20
"""What programs read at when they find their files evicted: in small pieces and in order, far below
the rate of their device. In the recordings of benchmarks/accuracy those whose files came and went
lose 2 to 13 ms for each MiB (77 to 442 MiB/s)."""

FEWEST_OTHERS = 3
"""Other runs of the program from which its usual bytes are known."""

_LARGEST_SHARE = 0.99
"""The most that reading is assumed to take of a run: some devices are faster than is assumed."""


def excesses(runs: Iterable[Run], *, single: bool = False) -> dict[str, float]:
    """Return by id how much longer each run took, in logs, by what it read from the device beyond
    the usual, where that is ``FACTOR`` times the usual or more; others have none.

    Usual is the median of the program's other runs in the campaign, or that of the others under the
    same load where it is higher: a neighbour that takes the page cache each time is what the runs
    next to it are about. So a run that is the only one under its load has none, unless ``single``:
    a second one would show whose doing it was. Runs in an environment, whose memory may be limited,
    have none.
    """
    campaigns: dict[object, list[Run]] = {}
    for run in runs:
        if run.ok and "environment" not in run.config:
            key = (run.app, run.identity, run.node_id, run.placement, run.campaign)
            campaigns.setdefault(key, []).append(run)
    result: dict[str, float] = {}
    for members in campaigns.values():
        if len(members) <= FEWEST_OTHERS:
            continue
        usual = _medians_of_others(members)
        for group in _by_load(members):
            if len(group) == 1 and not single and (group[0].levels or group[0].neighbours):
                usual[group[0].id] = math.inf
            for run_id, value in _medians_of_others(group).items():
                usual[run_id] = max(usual[run_id], value)
        result |= {
            run.id: excess for run in members if (excess := _excess(run, usual[run.id])) > 0.0
        }
    return result


def _excess(run: Run, usual: float) -> float:
    read = run.usage.read_bytes
    if run.wall_s <= 0.0 or read <= FACTOR * usual:
        return 0.0
    return -math.log1p(-min(_LARGEST_SHARE, (read - usual) / BYTES_PER_S / run.wall_s))


def _by_load(runs: Sequence[Run]) -> Iterable[Sequence[Run]]:
    groups: dict[object, list[Run]] = {}
    for run in runs:
        groups.setdefault((run.levels, run.neighbours), []).append(run)
    return groups.values()


def _medians_of_others(runs: Sequence[Run]) -> dict[str, float]:
    """Return by id the median of the bytes that the other runs read; 0 where there is no other."""
    ordered = sorted(runs, key=lambda run: run.usage.read_bytes)
    read = [run.usage.read_bytes for run in ordered]
    others = len(read) - 1
    if others == 0:
        return {ordered[0].id: 0.0}

    def without(left_out: int, rank: int) -> int:
        return read[rank if rank < left_out else rank + 1]

    low, high = (others - 1) // 2, others // 2
    return {
        run.id: (without(position, low) + without(position, high)) / 2.0
        for position, run in enumerate(ordered)
    }


class Watch:
    """Bytes that the runs of a campaign read so far: whether the files of the newest had left the
    page cache, so that it is taken again."""

    def __init__(self) -> None:
        self._seen: dict[str, list[Run]] = {}

    def excess(self, run: Run) -> float:
        """Learn of a run; returns its ``excesses`` among those so far."""
        seen = self._seen.setdefault(run.app, [])
        seen.append(run)
        return excesses(seen, single=True).get(run.id, 0.0)
