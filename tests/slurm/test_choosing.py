"""Choices and weights: what may never happen, whatever the numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_slurm import choosing
from kongming_slurm.rankings import NEVER, Rankings
from kongming_slurm.tags import Note

slowdowns = st.one_of(st.none(), st.floats(0.5, 100.0), st.just(NEVER))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[float | None], list[int], list[int]]:
    """Slowdowns and CPUs of nodes, and the places of those that can serve the job."""
    slow = draw(st.lists(slowdowns, max_size=12))
    cpus = [draw(st.integers(1, 8)) for _ in slow]
    places = [place for place in range(len(slow)) if draw(st.booleans())]
    return slow, cpus, places


@given(clusters(), st.floats(1.0, 10.0), st.integers(1, 8), st.integers(1, 30))
def test_a_job_always_keeps_enough_to_run(
    cluster: tuple[list[float | None], list[int], list[int]], limit: float, nodes: int, total: int
) -> None:
    slow, cpus, places = cluster
    out = choosing.excluded(places, slow, cpus, limit=limit, nodes=nodes, total=total)
    if out is None:
        assert len(places) < nodes or sum(cpus[place] for place in places) < total
        return
    kept = set(places) - out
    assert out <= set(places)
    assert len(kept) >= nodes
    assert sum(cpus[place] for place in kept) >= total
    # Nothing is excluded without a reason, nor for less of one than what stays above the limit.
    assert all((slow[place] or 0.0) > limit for place in out)
    stays_above = [slow[place] for place in kept if (slow[place] or 0.0) > limit]
    assert all(stay <= slow[place] for stay in stays_above for place in out)
    # What is above the limit stays only where it has to.
    if stays_above:
        worst = max((place for place in kept), key=lambda place: (slow[place] or 0.0, place))
        less = kept - {worst}
        assert len(less) < nodes or sum(cpus[place] for place in less) < total


def test_the_least_slow_stay_where_all_are_slow() -> None:
    out = choosing.excluded(
        [0, 1, 2, 3], [4.0, 2.0, NEVER, 3.0], [1] * 4, limit=1.5, nodes=2, total=1
    )
    assert out == {0, 2}


def test_what_is_not_known_is_never_excluded() -> None:
    out = choosing.excluded([0, 1], [None, 9.0], [1, 1], limit=1.5, nodes=1, total=1)
    assert out == {1}


def made(**changed: object) -> Rankings:
    values: dict[str, object] = {
        "written_at": 1.0,
        "good_for_s": 60.0,
        "limit": 1.5,
        "nodes": ("a", "b", "c", "d"),
        "up": (True, True, True, False),
        "cpus": (4, 4, 8, 8),
        "memory_mb": (1000, 2000, 2000, 2000),
        "partitions": {"all": (0, 1, 2, 3), "few": (0, 1), "one": (0,)},
        "apps": {"xz": (3.0, 1.0, 1.1, 1.0)},
    }
    return Rankings(**(values | changed))  # type: ignore[arg-type]


def note(**changed: object) -> Note:
    return Note(**({"app": "xz", "limit": 1.5} | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "partitions", "own", "expected"),
    [
        (note(), ["all"], [], ("a",)),
        (note(limit=4.0), ["all"], [], ()),
        (note(), ["one"], [], ()),
        # In either of the two it has to find a place: "one" has none but a.
        (note(), ["all", "one"], [], ()),
        (note(nodes=2), ["few"], [], ()),
        # c is the user's own to exclude, d is down: b alone is left of the good ones.
        (note(nodes=2), ["all"], ["c"], ()),
        (note(total=9), ["all"], [], ("a",)),
        (note(total=13), ["all"], [], ()),
        (note(memory_mb=1500, nodes=2), ["all"], [], ()),
        (note(app="bzip2"), ["all"], [], None),
        (note(), ["gone"], [], None),
        (note(cpus=16), ["all"], [], None),
    ],
)
def test_what_a_waiting_job_is_kept_from(
    asked: Note, partitions: list[str], own: list[str], expected: tuple[str, ...] | None
) -> None:
    assert choosing.kept_from(made(), asked, partitions, own) == expected


@given(
    st.integers(0, 5000),
    st.one_of(st.none(), st.floats(0.01, 1e6)),
    st.integers(10, 1000),
    st.floats(0.01, 1.0),
)
def test_a_weight_stays_in_its_span_and_settles(
    now: int, slowdown: float | None, span: int, step: float
) -> None:
    first = choosing.weight(now, slowdown, span=span, step=step)
    assert first // span == now // span
    assert first % span >= 1 or slowdown is not None
    assert choosing.weight(first, slowdown, span=span, step=step) == first


@given(st.floats(1.0, 50.0), st.floats(1.0, 50.0), st.floats(0.05, 0.5))
def test_slower_is_heavier(one: float, other: float, step: float) -> None:
    small, large = sorted((one, other))
    light = choosing.weight(0, small, span=1000, step=step)
    heavy = choosing.weight(0, large, span=1000, step=step)
    assert light <= heavy


def test_a_weight_changes_by_steps_alone() -> None:
    at = choosing.weight(1, 1.5, span=1000, step=0.1)
    assert at == 1 + round(math.log(1.5) / math.log(1.1))
    assert choosing.weight(at, 1.5 * 1.05, span=1000, step=0.1) == at
    assert choosing.weight(at, 1.5 * 1.3, span=1000, step=0.1) > at
    # Nothing is known of it any more: as if it were idle, rather than for ever as it was.
    assert choosing.weight(at, None, span=1000, step=0.1) == 1
    # What an administrator ordered by thousands stays.
    assert choosing.weight(3000, 1.5, span=1000, step=0.1) == 3000 + at


def test_nodes_of_one_weight_are_told_in_one_command() -> None:
    found = choosing.changed_weights(
        {"a": 1, "b": 1, "c": 1, "d": 9}, {"a": 2.0, "c": 2.0, "b": 1.0}, span=1000, step=0.1
    )
    assert found == {1: ["d"], 8: ["a", "c"]}
