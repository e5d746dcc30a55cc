"""Which nodes a job is kept from, and what weight a node has. Pure.

``excluded`` decides for jobs that wait as job_submit.lua decides for jobs that come; a test holds
the two together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from kongming_slurm.rankings import Rankings
from kongming_slurm.tags import Note


def excluded(
    places: Sequence[int],
    slow: Sequence[float | None],
    cpus: Sequence[int],
    *,
    limit: float,
    nodes: int,
    total: int,
) -> frozenset[int] | None:
    """Of the places that can serve the job, those whose slowdown is above the limit.

    The least slow of them stay in where fewer than ``nodes`` places, or ``total`` CPUs, would be
    left. A place of unknown slowdown (None) is never excluded. None where all places together are
    too few: then nothing is to be said.
    """
    if len(places) < nodes or sum(cpus[place] for place in places) < total:
        return None
    over = []
    kept = had = 0
    for place in places:
        slowdown = slow[place]
        if slowdown is not None and slowdown > limit:
            over.append((slowdown, place))
        else:
            kept, had = kept + 1, had + cpus[place]
    over.sort()
    first = 0
    while first < len(over) and (kept < nodes or had < total):
        kept, had, first = kept + 1, had + cpus[over[first][1]], first + 1
    return frozenset(place for _, place in over[first:])


def kept_from(
    rankings: Rankings, note: Note, partitions: Iterable[str], own: Iterable[str]
) -> tuple[str, ...] | None:
    """Names of the nodes that a waiting job is to be kept from, in the order of the rankings.

    None where nothing can be said: the application or a partition is not known any more, or too
    few nodes could serve the job.
    """
    slow = rankings.apps.get(note.app)
    if slow is None:
        return None
    out: set[int] = set()
    stays: set[int] = set()
    names = frozenset(own)
    for partition in partitions:
        if partition not in rankings.partitions:
            return None
        places = [
            place
            for place in rankings.partitions[partition]
            if rankings.up[place]
            and rankings.cpus[place] >= note.cpus
            and rankings.memory_mb[place] >= note.memory_mb
            and rankings.nodes[place] not in names
        ]
        found = excluded(
            places, slow, rankings.cpus, limit=note.limit, nodes=note.nodes, total=note.total
        )
        if found is None:
            return None
        # In each of its partitions the job has to find a place.
        out |= found
        stays |= set(places) - found
    return tuple(rankings.nodes[place] for place in sorted(out - stays))


def weight(now: int, slowdown: float | None, *, span: int, step: float) -> int:
    """The weight of a node: ``now`` with its place within ``span`` set by its general slowdown.

    Slurm prefers small weights. What an administrator gave in multiples of ``span`` stays; within
    it weights count steps of ``step`` (0.1 is 10%) on a scale of ratios. A node keeps its weight
    until its slowdown has moved by a whole step. Of a node that is not known it is that of an
    idle one.
    """
    base, offset = now // span * span, now % span - 1
    if slowdown is None or not slowdown > 1.0:
        steps = 0.0
    else:
        steps = min(math.log(slowdown) / math.log1p(step), span - 2.0)
    if slowdown is not None and offset >= 0 and abs(steps - offset) < 1.0:
        return now
    return base + 1 + min(round(steps), span - 2)


def changed_weights(
    now: Mapping[str, int], slowdowns: Mapping[str, float], *, span: int, step: float
) -> dict[int, list[str]]:
    """Nodes to be changed by the weight that they get, for one command a weight."""
    found: dict[int, list[str]] = {}
    for name in sorted(now):
        new = weight(now[name], slowdowns.get(name), span=span, step=step)
        if new != now[name]:
            found.setdefault(new, []).append(name)
    return dict(sorted(found.items()))
