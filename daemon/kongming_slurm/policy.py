"""Nodes that are excluded for a job, and weights of nodes. Pure.

``excluded`` decides for pending jobs as job_submit.lua decides for new jobs; a test compares the
two.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kongming_slurm.ranking_file import RankingFile
from kongming_slurm.tags import Note


def excluded(
    places: Sequence[int],
    slowdowns: Sequence[float | None],
    cpus: Sequence[int],
    *,
    limit: float,
    nodes: int,
    total: int,
    least: Collection[int] = (),
) -> frozenset[int] | None:
    """Select, of the places that can serve the job, those whose slowdown is above the limit, or is
    no more than the ``least`` that it may be.

    ``cpus`` are those that the job can use of each place. The least slow of them stay in where
    fewer than ``nodes`` places, or ``total`` CPUs, would be left. A place whose slowdown is unknown
    (None) is never excluded. None where all places together are too few.
    """
    if len(places) < nodes or sum(cpus[place] for place in places) < total:
        return None
    over = []
    kept_nodes = kept_cpus = 0
    for place in places:
        slowdown = slowdowns[place]
        if slowdown is not None and (slowdown > limit or place in least):
            over.append((slowdown, place))
        else:
            kept_nodes, kept_cpus = kept_nodes + 1, kept_cpus + cpus[place]
    over.sort()
    first = 0
    while first < len(over) and (kept_nodes < nodes or kept_cpus < total):
        kept_nodes, kept_cpus = kept_nodes + 1, kept_cpus + cpus[over[first][1]]
        first += 1
    return frozenset(place for _, place in over[first:])


def usable_cpus(cpus: int, memory_mb: int, threads: int, note: Note) -> int:
    """Return how many CPUs of a node a job can use: those of complete tasks. Memory is given to
    complete cores of so many ``threads``; where these are not known (0), a node counts nothing
    whose memory does not suffice for all its CPUs."""
    if note.memory_per_cpu_mb and memory_mb // note.memory_per_cpu_mb < cpus:
        # As with CR_Core; with CR_CPU a job may be left more nodes than it needs.
        cpus = memory_mb // note.memory_per_cpu_mb // threads * threads if threads else 0
    if note.node_cpus:
        cpus = min(cpus, note.node_cpus)
    tasks = cpus // note.task_cpus
    if note.node_tasks:
        tasks = min(tasks, note.node_tasks)
    return note.task_cpus * tasks


class Division(NamedTuple):
    """The places to exclude for a pending job, with their ``names``, and the ``remaining`` ones,
    which it may get; all in the order of the rankings. ``usable_cpus`` are those of each place of
    the rankings."""

    names: tuple[str, ...]
    excluded: list[int]
    remaining: list[int]
    usable_cpus: list[int]


def divided(
    rankings: RankingFile, note: Note, partitions: Iterable[str], own: Iterable[str]
) -> Division | None:
    """Divide the places that could serve a pending job.

    None where the application or a partition is not known any more, or too few nodes could serve
    the job.
    """
    slowdowns = rankings.apps.get(note.app)
    if slowdowns is None:
        return None
    excluded_places: set[int] = set()
    kept_places: set[int] = set()
    own_names = frozenset(own)
    threads = rankings.threads or (0,) * len(rankings.nodes)
    sizes = zip(rankings.cpus, rankings.memory_mb, threads, strict=True)
    usable = [usable_cpus(*size, note) for size in sizes]
    for partition in partitions:
        if partition not in rankings.partitions:
            return None
        places = [
            place
            for place in rankings.partitions[partition]
            if rankings.up[place]
            and usable[place] >= note.cpus
            and rankings.memory_mb[place] >= note.memory_mb
            and rankings.nodes[place] not in own_names
        ]
        slow_places = excluded(
            places,
            slowdowns,
            usable,
            limit=note.limit,
            nodes=note.nodes,
            total=note.total,
            least=rankings.least.get(note.app, ()),
        )
        if slow_places is None:
            return None
        # The job needs enough places in each of its partitions.
        excluded_places |= slow_places
        kept_places |= set(places) - slow_places
    over = sorted(excluded_places - kept_places)
    names = tuple(rankings.nodes[place] for place in over)
    return Division(names, over, sorted(kept_places), usable)


def weight(current: int, slowdown: float | None, *, span: int, step: float) -> int:
    """The weight of a node: ``current`` with the offset within ``span`` that its slowdown asks for.

    Slurm prefers small weights. An administrator's multiple of ``span`` stays; the offset counts
    steps of ``step`` (0.1 is 10%) on a scale of ratios. A node keeps its weight until its slowdown
    has moved by a complete step. An unknown node has the weight of an idle one.
    """
    base, offset = current // span * span, current % span - 1
    if slowdown is None or not slowdown > 1.0:
        steps = 0.0
    else:
        steps = min(math.log(slowdown) / math.log1p(step), span - 2.0)
    if slowdown is not None and offset >= 0 and abs(steps - offset) < 1.0:
        return current
    return base + 1 + min(round(steps), span - 2)


def changed_weights(
    current: Mapping[str, int], slowdowns: Mapping[str, float], *, span: int, step: float
) -> dict[int, list[str]]:
    """Nodes to be changed, by their new weight: one command sets one weight."""
    changes: dict[int, list[str]] = {}
    for name in sorted(current):
        new = weight(current[name], slowdowns.get(name), span=span, step=step)
        if new != current[name]:
            changes.setdefault(new, []).append(name)
    return dict(sorted(changes.items()))
