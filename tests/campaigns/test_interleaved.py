"""Two campaigns in one random order."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.campaigns.campaign import Budget
from kongming.campaigns.interleaved import (
    InterleavedCampaign,
    in_time,
    interleave,
    runs_among,
    turns,
)
from kongming.profiling.events import Between, Doing, Event


@given(st.integers(0, 4), st.integers(0, 20), st.integers(0, 20), st.integers(0, 99))
def test_the_first_blocks_come_first_and_none_is_lost(
    first: int, blocks: int, tasks: int, seed: int
) -> None:
    order = turns(first, blocks, tasks, seed)
    assert order.count(0) == blocks
    assert order.count(1) == tasks
    assert not any(order[: min(first, blocks)])
    assert order == turns(first, blocks, tasks, seed)


def test_profiles_end_within_a_budget() -> None:
    assert runs_among(560, 12.0, 3600.0, None) == 560
    assert runs_among(560, 12.0, 3600.0, 36_000.0) == 560
    assert runs_among(560, 12.0, 3600.0, 6000.0) == 150
    # Nothing can be scored before all applications are profiled.
    assert runs_among(560, 12.0, 3600.0, 3600.0) == 0


def taken(
    order: list[int], blocks: list[tuple[int, float]], budget_s: float | None
) -> tuple[list[int], float]:
    """The turns, and the seconds until the last block of the profiles; each ``block`` has steps and
    takes seconds, and a run of a pair 10 s."""
    seconds: list[float] = []
    ended, left = 0.0, iter(blocks)

    def budget() -> float | None:
        return None if budget_s is None else budget_s - sum(seconds)

    chosen = []
    for k in in_time(order, [steps for steps, _ in blocks], budget, lambda: sum(seconds)):
        chosen.append(k)
        seconds.append(10.0 if k else next(left)[1])
        if k == 0:
            ended = sum(seconds)
    return chosen, ended


def test_pairs_wait_where_the_profiles_would_not_end_in_time() -> None:
    order = [0] * 4 + [0, 1] * 20
    for block_s, budget_s in ((10.0, None), (10.0, 1000.0)):
        assert taken(order, [(1, block_s)] * 24, budget_s)[0] == order
    # Twice as slow: 480 s of profiles do not leave the time for all pairs.
    late, ended = taken(order, [(1, 20.0)] * 24, 600.0)
    assert 0 < late.count(1) <= 12
    assert ended <= 600.0
    assert taken(order, [(1, 40.0)] * 24, 600.0)[0] == [0] * 24


@given(
    st.lists(st.integers(3, 9), min_size=20, max_size=40),
    st.floats(1.25, 1.6),
    st.integers(0, 99),
)
def test_profiles_that_fit_end_within_the_budget(sizes: list[int], slack: float, seed: int) -> None:
    """Set-up and short blocks come first; the last two blocks are slower than all before."""
    blocks = [(0, 3.0), *((1, 7.0) for _ in range(4)), *((size, 7.0 * size) for size in sizes)]
    blocks += [(9, 81.0)] * 2
    budget_s = slack * sum(seconds for _, seconds in blocks)
    late, ended = taken(turns(5, len(blocks), 200, seed), blocks, budget_s)
    assert late.count(0) == len(blocks)
    assert ended <= budget_s


def source(name: str, length: int, closed: list[str]) -> Generator[Event, None, None]:
    try:
        yield Doing(f"{name} begins", 0, length)
        for k in range(length):
            yield Between()
            yield Doing(f"{name}{k}", k, length)
    finally:
        closed.append(name)


def test_each_goes_on_in_its_turn_and_both_end() -> None:
    closed: list[str] = []
    events = interleave((source("a", 2, closed), source("b", 3, closed)), [0, 1, 0, 1, 1, 1, 1, 1])
    assert [event.text for event in events if isinstance(event, Doing)] == [
        *("a begins", "b begins", "a0", "b0", "b1", "b2", "a1"),
    ]
    assert sorted(closed) == ["a", "b"]


def test_closing_closes_both() -> None:
    closed: list[str] = []
    events = interleave((source("a", 2, closed), source("b", 3, closed)), [0, 1])
    next(events)
    next(events)
    events.close()
    assert sorted(closed) == ["a", "b"]


def test_complete_profiles_are_finished_where_the_pairs_are_cut_off() -> None:
    finished: list[str] = []

    def measured(_: Callable[[], bool]) -> Generator[Event, None, None]:
        yield from source("profiles", 2, [])

    def cut_off(_: Callable[[], bool]) -> Generator[Event, None, None]:
        yield from source("pairs", 5, [])
        raise KeyboardInterrupt

    blocks = [[SimpleNamespace(kind="solo", repeat=0, follows=False, index=k)] for k in range(2)]
    profiles: Any = SimpleNamespace(
        plan=SimpleNamespace(blocks=lambda: blocks, seed=1),
        dropped={},
        done=frozenset(),
        events=measured,
        finish=lambda: finished.append("profiles"),
        seeing=lambda observe: observe,
    )
    pairs: Any = SimpleNamespace(
        finished=False, events=cut_off, finish=lambda: finished.append("pairs")
    )
    store: Any = None
    campaign = InterleavedCampaign(profiles, store, lambda _: pairs, ["one", "two"], 5)
    with pytest.raises(KeyboardInterrupt):
        campaign.drive(Budget(None), lambda _: None)
    # Asked first, for those that were cut off after their last; and where they end.
    assert finished == ["profiles", "profiles"]
