"""Plans are pure: same seed, same order; bounded runs; solos spread; the node's own levels."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.profiling.plans.campaign_plan import (
    PAPER_SURROGATES,
    estimate,
    levels_of,
    make_plan,
)
from kongming.profiling.plans.order import BLOCK_APPS
from kongming.profiling.plans.steps import Step
from kongming.records.control import TAKES
from kongming.records.errors import InputError

FAMILY = {"iobench.read": "read", "iobench.write": "write", "metadata": "metadata"}
INDUCERS = {
    **{name: FAMILY.get(name.rpartition(".")[0], "memory") for name in PAPER_SURROGATES},
    "memory.streaming.8M": "cache",
    "memory.streaming.LLChalf": "cache",
    "memory.random.8M": "cache",
    "memory.random.LLChalf": "cache",
    "memory.fault": "memory",
    "compute.float": "compute",
    "os.switch": "os",
    "iobench.fsync": "write",
    "net.loopback": "network",
}


def plan(apps: list[str], seed: int = 1, **options: object):
    options.setdefault("placement", "cross-core")
    return make_plan(str(options.pop("name", "quick")), apps, INDUCERS, seed=seed, **options)  # type: ignore[arg-type]


@given(st.integers(1, 9), st.integers(0, 2**31), st.sampled_from(["quick", "paper"]))
def test_same_seed_same_plan_and_every_block_shares_one_load(
    count: int, seed: int, name: str
) -> None:
    apps = [f"app{i}" for i in range(count)]
    planned = plan(apps, seed, name=name)
    assert planned == plan(apps, seed, name=name)
    assert [step.index for step in planned.steps] == list(range(len(planned.steps)))
    for block in planned.blocks():
        assert len({(step.kind, step.levels) for step in block}) == 1
        assert len(block) <= BLOCK_APPS
        assert len({step.app for step in block}) == len(block)


def test_each_program_is_run_next_to_a_cpu_that_is_awake_and_presses_on_nothing() -> None:
    awake = [
        step.app for step in plan(["a", "b"]).steps if _names(step) == [("compute.float", 1.0)]
    ]
    assert sorted(awake) == ["a", "b"]


def _names(step: Step) -> list[tuple[str, float]]:
    return [(level.surrogate, level.intensity) for level in step.levels]


def test_programs_as_loads_come_in_addition_to_levels_and_their_signatures_first() -> None:
    apps = ["a", "b", "c", "d"]
    planned = plan(apps, inducer_apps=["a", "press"], unsigned=["press"])
    loads = Counter((s.app, s.neighbour) for s in planned.steps if s.neighbour is not None)
    assert set(loads) == {(a, n) for a in apps for n in ("a", "press") if a != n}
    assert set(loads.values()) == {3}
    assert {s.kind for s in planned.steps if s.neighbour is not None} == {"induced"}
    assert all(len({(s.levels, s.neighbour) for s in block}) == 1 for block in planned.blocks())
    (signed,) = [s.index for s in planned.steps if s.app == "press"]
    assert signed == len(apps)
    # Each is waited for once a block, and plans without them are what they were.
    seconds = {"a": 4.0, "b": 4.0, "c": 4.0, "d": 4.0}
    costs = [
        estimate(
            planned,
            app_seconds=seconds | {"press": s},
            suite_seconds=2.0,
            write_bytes_per_second={},
        )
        for s in (4.0, 8.0)
    ]
    blocks = sum(block[0].neighbour == "press" for block in planned.blocks())
    assert costs[1].seconds - costs[0].seconds == pytest.approx(4.0 * (1.5 * blocks + 2))
    assert costs[0].runs["press"] == 4
    rest = [s for s in plan(apps).steps if s.kind == "induced"]
    assert Counter((s.app, s.levels) for s in rest) == Counter(
        (s.app, s.levels) for s in planned.steps if s.kind == "induced" and s.neighbour is None
    )


@pytest.mark.parametrize(
    ("placement", "thrice"),
    [
        ("cross-core", {"stream.triad", "memory.streaming.LLChalf", "iobench.read.4M"}),
        ("same-core", {"compute.float", "stream.triad"}),
    ],
)
def test_what_neighbours_contend_for_is_induced_at_three_levels_and_in_mixes(
    placement: str, thrice: set[str]
) -> None:
    ladder = levels_of("quick", INDUCERS, placement=placement)
    alone = Counter(mix[0].surrogate for mix in ladder if len(mix) == 1)
    assert {name for name, count in alone.items() if count >= 3} >= thrice
    mixes = [mix for mix in ladder if len(mix) == 2]
    assert len(mixes) == 2
    assert all(len({level.family for level in mix}) == 2 for mix in mixes)
    assert len(set(ladder)) == len(ladder)


def test_signatures_are_repeated_three_times() -> None:
    kinds = Counter((step.app, step.kind) for step in plan(["a", "b"]).steps)
    assert kinds["a", "signature"] == kinds["b", "signature"] == 3


def test_another_seed_gives_another_order() -> None:
    assert plan(["a", "b"], 1).steps != plan(["a", "b"], 2).steps


@given(st.integers(1, 12), st.integers(0, 1000))
def test_quick_runs_an_application_some_fifty_times(count: int, seed: int) -> None:
    apps = [f"app{i}" for i in range(count)]
    planned = plan(apps, seed)
    for app in apps:
        assert 40 <= planned.runs_of(app) <= 52


def test_paper_observes_each_of_table_one_ten_times() -> None:
    planned = plan(["a", "b"], name="paper")
    seen = Counter(
        (step.app, step.levels[0].surrogate) for step in planned.steps if step.kind == "induced"
    )
    assert seen == {(app, name): 10 for app in "ab" for name in PAPER_SURROGATES}


@given(
    st.integers(1, 12),
    st.integers(0, 1000),
    st.sampled_from(["cross-core", "same-core"]),
    st.sampled_from([None, 2, 3, 7, 12]),
)
def test_solo_runs_are_first_spread_and_beside_the_runs_under_a_load(
    count: int, seed: int, placement: str, levels: int | None
) -> None:
    planned = plan([f"app{i}" for i in range(count)], seed, placement=placement, levels=levels)
    blocks = list(planned.blocks())
    for app in {step.app for step in planned.steps}:
        mine = [step for step in planned.steps if step.app == app]
        solos = [step for step in mine if step.kind == "solo"]
        assert [step.repeat for step in solos] == list(range(len(solos)))
        assert mine[0] == solos[0]
        if levels is None:
            shares = [step.index / len(planned.steps) for step in solos]
            gaps = [later - sooner for sooner, later in itertools.pairwise(shares)]
            assert shares[-1] > 0.9
            assert max(gaps) < 0.25
    near = {place for place, block in enumerate(blocks) if block[0].kind == "solo"}
    loads = [place for place, block in enumerate(blocks) if block[0].kind == "induced"]
    beside = [
        place
        for place in loads
        if (blocks[place][0].follows and place - 1 in near)
        or (place + 1 in near and blocks[place + 1][0].follows)
    ]
    for place in loads:
        if blocks[place][0].follows:
            assert {s.app for s in blocks[place]} == {s.app for s in blocks[place - 1]}
    if levels is None:
        assert len(beside) >= 0.7 * len(loads)


def test_a_campaign_waits_between_units_only() -> None:
    planned = plan(["a", "b", "c", "d"])
    for sooner, later in itertools.pairwise(planned.blocks()):
        if later[0].follows:
            assert {step.app for step in later} == {step.app for step in sooner}
            assert {sooner[0].kind, later[0].kind} <= {"solo", "induced"}
    first = next(iter(planned.blocks()))
    assert not first[0].follows


def test_fewer_levels_keep_several_families() -> None:
    planned = plan(["a", "b", "c"], levels=8)
    families = {level.family for step in planned.steps for level in step.levels}
    assert len(families) >= 4
    assert planned.runs_of("a") < plan(["a", "b", "c"]).runs_of("a")


def test_a_node_without_1g_uses_its_largest_size() -> None:
    small = {k: v for k, v in INDUCERS.items() if not k.endswith(".1G")}
    small |= {"memory.random.512M": "memory", "memory.random.128M": "memory"}
    names = {level.surrogate for mix in levels_of("quick", small) for level in mix}
    assert "memory.random.512M" in names
    assert not any(name.endswith(".1G") for name in names)


@pytest.mark.parametrize(
    ("options", "field"),
    [({"repeats": 0}, "repeats"), ({"levels": 1}, "levels"), ({"name": "slow"}, "plan")],
)
def test_wrong_options_name_the_field(options: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(["a"], **options)
    assert caught.value.field == field


def test_estimate_counts_time_and_bytes() -> None:
    planned = plan(["a"])
    rates = {"iobench.write.4M": 100e6}
    slow = estimate(
        planned, app_seconds={"a": 4.0}, suite_seconds=2.0, write_bytes_per_second=rates
    )
    fast = estimate(
        planned, app_seconds={"a": 2.0}, suite_seconds=2.0, write_bytes_per_second=rates
    )
    assert slow.seconds > fast.seconds > 28 * 2.0
    # Three levels write, at intensity 1, 0.5 and 0.4, for 1 s of start, 2 s of suite and a run;
    # nothing else does, as the suite is said to write nothing.
    assert slow.written_bytes == pytest.approx(1.9 * 100e6 * 7.0)
    # At the most each run takes five times 4 s, and three of them 240 s more together: 100 s at
    # most each, those under the fastest writer first. And each of them is disturbed and taken three
    # times, while its load goes on.
    overtime = 1.0 * 100.0 + 0.5 * 100.0 + 0.4 * 40.0
    most = 1.9 * (1.0 + 2.0 + TAKES * (4.0 + 16.0)) + TAKES * overtime
    assert slow.most_written_bytes == pytest.approx(100e6 * most)
    kinds = Counter(step.kind for step in planned.steps)
    again = (kinds["solo"] + kinds["induced"]) * 4.0 + kinds["signature"] * 8.0
    longer = kinds["induced"] * 16.0 + 240.0
    assert slow.most_seconds - slow.seconds == pytest.approx(TAKES * longer + (TAKES - 1) * again)
    likely = estimate(
        planned,
        app_seconds={"a": 4.0},
        suite_seconds=2.0,
        write_bytes_per_second=rates,
        likely_share=0.25,
    )
    assert likely.written_bytes == pytest.approx(slow.written_bytes / 4.0)
    assert likely.most_written_bytes == slow.most_written_bytes
    assert slow.runs == {"a": planned.runs_of("a")}


def test_the_whole_quick_plan_repeats_what_repeats_worst() -> None:
    for placement, heavy in (
        ("cross-core", {"stream.triad", "memory.random.LLChalf", "memory.streaming.LLChalf"}),
        ("same-core", {"compute.float", "stream.triad", "memory.streaming.LLChalf"}),
    ):
        planned = make_plan("quick", ["a"], INDUCERS, placement=placement, seed=1)
        assert sum(step.kind == "solo" for step in planned.steps) == 12
        counted = Counter(step.levels for step in planned.steps if step.kind == "induced")
        thrice = {levels[0].surrogate for levels, count in counted.items() if count == 3}
        assert thrice == heavy
        assert set(counted.values()) == {1, 3}
        few = make_plan("quick", ["a"], INDUCERS, placement=placement, seed=1, levels=12)
        assert sum(step.kind == "solo" for step in few.steps) == 6
        assert all(step.repeat == 0 for step in few.steps if step.kind == "induced")
