"""Exclusions and weights: invariants for any numbers."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_slurm import policy
from kongming_slurm.ranking_file import NEVER, RankingFile
from kongming_slurm.tags import Note

slowdowns = st.one_of(st.none(), st.floats(0.5, 100.0), st.just(NEVER))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[float | None], list[int], list[int]]:
    """Slowdowns and CPUs of nodes, and the places of those that can serve the job."""
    by_place = draw(st.lists(slowdowns, max_size=12))
    cpus = [draw(st.integers(1, 8)) for _ in by_place]
    places = [place for place in range(len(by_place)) if draw(st.booleans())]
    return by_place, cpus, places


@given(clusters(), st.floats(1.0, 10.0), st.integers(1, 8), st.integers(1, 30))
def test_a_job_always_keeps_enough_to_run(
    cluster: tuple[list[float | None], list[int], list[int]], limit: float, nodes: int, total: int
) -> None:
    by_place, cpus, places = cluster
    excluded = policy.excluded(places, by_place, cpus, limit=limit, nodes=nodes, total=total)
    if excluded is None:
        assert len(places) < nodes or sum(cpus[place] for place in places) < total
        return
    remaining = set(places) - excluded
    assert excluded <= set(places)
    assert len(remaining) >= nodes
    assert sum(cpus[place] for place in remaining) >= total
    # What is excluded is above the limit, and no faster than what remains above it.
    assert all((by_place[place] or 0.0) > limit for place in excluded)
    slow = [by_place[place] for place in remaining if (by_place[place] or 0.0) > limit]
    assert all(slowdown <= by_place[place] for slowdown in slow for place in excluded)
    # What is above the limit remains only where it has to.
    if slow:
        worst = max(remaining, key=lambda place: (by_place[place] or 0.0, place))
        less = remaining - {worst}
        assert len(less) < nodes or sum(cpus[place] for place in less) < total


@given(
    st.lists(st.tuples(slowdowns, st.integers(1, 8), st.integers(1, 16)), min_size=1, max_size=8),
    st.builds(
        Note,
        app=st.just("xz"),
        limit=st.just(1.5),
        task_cpus=st.integers(1, 3),
        node_tasks=st.integers(0, 3),
        node_cpus=st.integers(0, 5),
        memory_per_cpu_mb=st.sampled_from([0, 0, 2]),
    ),
    st.integers(1, 20),
    st.sampled_from([1, 1, 2]),
)
def test_all_tasks_find_a_place_on_what_remains(
    cluster: list[tuple[float | None, int, int]], job: Note, tasks: int, threads: int
) -> None:
    nodes = tuple(f"n{place}" for place in range(len(cluster)))
    job = dataclasses.replace(job, cpus=job.task_cpus, total=tasks * job.task_cpus)
    file = rankings(
        nodes=nodes,
        up=(True,) * len(nodes),
        cpus=tuple(cpus for _, cpus, _ in cluster),
        memory_mb=tuple(memory for _, _, memory in cluster),
        threads=(threads,) * len(nodes),
        partitions={"main": tuple(range(len(nodes)))},
        apps={"xz": tuple(slowdown for slowdown, _, _ in cluster)},
    )

    def fits(place: int) -> int:
        """Tasks of the job that the place holds, counted out."""
        _, cpus, memory = cluster[place]
        count = 0
        while (
            (wanted := (count + 1) * job.task_cpus) <= min(cpus, job.node_cpus or cpus)
            and min(cpus, -(-wanted // threads) * threads) * job.memory_per_cpu_mb <= memory
            and count < (job.node_tasks or tasks)
        ):
            count += 1
        return count

    division = policy.divided(file, job, ["main"], [])
    if division is None:
        assert sum(map(fits, range(len(nodes)))) < tasks
    else:
        assert sum(map(fits, division.remaining)) >= tasks


def test_the_least_slow_remain_where_all_are_slow() -> None:
    excluded = policy.excluded(
        [0, 1, 2, 3], [4.0, 2.0, NEVER, 3.0], [1] * 4, limit=1.5, nodes=2, total=1
    )
    assert excluded == {0, 2}


def test_a_node_that_is_slowed_at_least_so_much_counts_as_above_the_limit() -> None:
    def excluded(nodes: int) -> frozenset[int] | None:
        slow = [1.1, 1.2, 4.0]
        return policy.excluded([0, 1, 2], slow, [1] * 3, limit=1.5, nodes=nodes, total=1, least=[0])

    assert excluded(1) == {0, 2}
    # It stays before what is known to be slower.
    assert excluded(2) == {2}


def test_an_unknown_node_is_never_excluded() -> None:
    excluded = policy.excluded([0, 1], [None, 9.0], [1, 1], limit=1.5, nodes=1, total=1)
    assert excluded == {1}


def rankings(**changed: object) -> RankingFile:
    values: dict[str, object] = {
        "written_at": 1.0,
        "good_for_s": 60.0,
        "limit": 1.5,
        "nodes": ("a", "b", "c", "d"),
        "up": (True, True, True, False),
        "cpus": (4, 4, 8, 8),
        "memory_mb": (1000, 2000, 2000, 2000),
        "threads": (1, 1, 1, 1),
        "partitions": {"all": (0, 1, 2, 3), "few": (0, 1), "one": (0,)},
        "apps": {"xz": (3.0, 1.0, 1.1, 1.0)},
    }
    return RankingFile(**(values | changed))  # type: ignore[arg-type]


def note(**changed: object) -> Note:
    return Note(**({"app": "xz", "limit": 1.5} | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job_note", "partitions", "own", "expected"),
    [
        (note(), ["all"], [], ("a",)),
        (note(limit=4.0), ["all"], [], ()),
        (note(), ["one"], [], ()),
        # The job needs a place in each of the two: "one" has none but a.
        (note(), ["all", "one"], [], ()),
        (note(nodes=2), ["few"], [], ()),
        # The user excludes c, d is down: b alone is left of the fast ones.
        (note(nodes=2), ["all"], ["c"], ()),
        (note(total=9), ["all"], [], ("a",)),
        (note(total=13), ["all"], [], ()),
        (note(memory_mb=1500, nodes=2), ["all"], [], ()),
        (note(app="bzip2"), ["all"], [], None),
        (note(), ["gone"], [], None),
        (note(cpus=16), ["all"], [], None),
    ],
)
def test_exclusions_of_a_pending_job(
    job_note: Note, partitions: list[str], own: list[str], expected: tuple[str, ...] | None
) -> None:
    division = policy.divided(rankings(), job_note, partitions, own)
    assert (division and division.names) == expected


@given(
    st.integers(0, 5000),
    st.one_of(st.none(), st.floats(0.01, 1e6)),
    st.integers(10, 1000),
    st.floats(0.01, 1.0),
)
def test_a_weight_stays_in_its_span_and_settles(
    current: int, slowdown: float | None, span: int, step: float
) -> None:
    first = policy.weight(current, slowdown, span=span, step=step)
    assert first // span == current // span
    assert first % span >= 1 or slowdown is not None
    assert policy.weight(first, slowdown, span=span, step=step) == first


@given(st.floats(1.0, 50.0), st.floats(1.0, 50.0), st.floats(0.05, 0.5))
def test_slower_is_heavier(first: float, second: float, step: float) -> None:
    small, large = sorted((first, second))
    light = policy.weight(0, small, span=1000, step=step)
    heavy = policy.weight(0, large, span=1000, step=step)
    assert light <= heavy


def test_a_weight_changes_by_steps_alone() -> None:
    at = policy.weight(1, 1.5, span=1000, step=0.1)
    assert at == 1 + round(math.log(1.5) / math.log(1.1))
    assert policy.weight(at, 1.5 * 1.05, span=1000, step=0.1) == at
    assert policy.weight(at, 1.5 * 1.3, span=1000, step=0.1) > at
    # An unknown node is weighted as an idle one, rather than for ever as before.
    assert policy.weight(at, None, span=1000, step=0.1) == 1
    # What an administrator ordered by thousands stays.
    assert policy.weight(3000, 1.5, span=1000, step=0.1) == 3000 + at


def test_nodes_of_one_weight_are_changed_by_one_command() -> None:
    changes = policy.changed_weights(
        {"a": 1, "b": 1, "c": 1, "d": 9}, {"a": 2.0, "c": 2.0, "b": 1.0}, span=1000, step=0.1
    )
    assert changes == {1: ["d"], 8: ["a", "c"]}
