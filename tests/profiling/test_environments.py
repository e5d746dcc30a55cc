"""Which environments there are, in which order they are visited: pure."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.profiling.environments.environment import (
    DEFAULT,
    FEWEST,
    LIMITED,
    Environment,
    environments,
)
from kongming.profiling.environments.memory_need import limit_bytes
from kongming.profiling.environments.tasks import tasks
from kongming.records.errors import InputError
from tests.builders import node

APPS = ("gzip", "sort", "xz")
INDUCERS = {"stream.triad": "memory", "iobench.read.4M": "read", "compute.int": "compute"}
NONE_PERMITTED = dict.fromkeys(LIMITED, "no control group can be written by this user.")
ONE_CPU = node(cpus=(3,), cores={"3": 3}, sockets={"3": 0})


def kinds(planned: tuple[Environment, ...]) -> Counter[str]:
    return Counter(environment.kind for environment in planned if environment.unavailable is None)


def test_by_default_there_are_two_of_each_kind_and_the_idle_node() -> None:
    planned = environments(DEFAULT, node(), APPS)
    assert kinds(planned) == dict.fromkeys((*LIMITED, "mix"), 2) | {"idle": 1}
    assert {e.parameters["cpu_quota"] for e in planned if e.kind == "quota"} == {0.5, 0.8}
    alone, shared = (e for e in planned if e.kind == "cpuset")
    assert (alone.parameters["cpu"], alone.loaded) == (1, False)
    assert (shared.parameters["cpu"], shared.shares_cpu) == (0, True)
    assert {e.parameters["seat"] for e in planned if e.kind == "mix"} == {"same", "other"}
    assert not any(e.synthetic for e in planned)


def test_the_fewest_come_in_pairs() -> None:
    assert kinds(environments(FEWEST, node(), APPS)) == {"quota": 2, "io": 2, "cpuset": 2}
    with pytest.raises(InputError, match=r"environments: .* Allowed: 6 or more"):
        environments(FEWEST - 1, node(), APPS)


@given(
    n=st.integers(FEWEST, 40),
    seed=st.integers(0, 1000),
    missing=st.sets(st.sampled_from(LIMITED)),
    apps=st.sets(st.sampled_from("abcdefgh"), min_size=8),
    facts=st.sampled_from((node(), ONE_CPU, node(cpus=(0, 1, 2, 3)))),
)
def test_as_many_as_asked_each_with_a_name_of_its_own(
    n: int, seed: int, missing: set[str], apps: set[str], facts: object
) -> None:
    reasons = {kind: "not here." if kind in missing else None for kind in LIMITED}
    planned = environments(n, facts, sorted(apps), reasons=reasons, inducers=INDUCERS, seed=seed)  # type: ignore[arg-type]
    assert planned == environments(
        n,
        facts,
        sorted(apps, reverse=True),
        reasons=reasons,
        inducers=INDUCERS,
        seed=seed,  # type: ignore[arg-type]
    )
    here = [e for e in planned if e.unavailable is None]
    assert len(here) == n
    assert len({e.name for e in planned}) == len(planned)
    assert {e.kind for e in planned if e.unavailable is not None} == missing
    assert missing.isdisjoint(e.kind for e in here)
    assert any(e.synthetic for e in here) == (len(missing) == len(LIMITED))
    for environment in here:
        assert set(environment.programs) <= apps
        assert environment.loaded == (environment.kind == "mix" or environment.shares_cpu)


def test_what_cannot_be_made_is_listed_with_its_reason() -> None:
    planned = environments(8, node(), APPS, reasons={"io": "There is no disk behind /x."})
    assert "io" not in kinds(planned)
    (missing,) = (e for e in planned if e.unavailable is not None)
    assert missing.to_dict()["unavailable"] == "There is no disk behind /x."


def test_without_any_limit_there_are_synthetic_ones_in_addition_to_real_mixes() -> None:
    planned = environments(8, node(), APPS, reasons=NONE_PERMITTED, inducers=INDUCERS, seed=4)
    synthetic = [e for e in planned if e.synthetic]
    assert len(synthetic) >= 2
    assert len(synthetic) < 8
    for environment in synthetic:
        assert 1 <= len(environment.levels) <= 2
        assert len({level.family for level in environment.levels}) == len(environment.levels)
        assert environment.programs == ()
    others = environments(8, node(), APPS, reasons=NONE_PERMITTED, inducers=INDUCERS, seed=5)
    assert synthetic != [e for e in others if e.synthetic]


def test_more_than_there_are_is_an_error_that_says_how_many() -> None:
    with pytest.raises(InputError, match=r"Allowed: up to \d+"):
        environments(200, node(), ("only",))


def test_a_slow_disk_is_slowed_too() -> None:
    usual = [e for e in environments(DEFAULT, node(), APPS) if e.kind == "io"]
    slow_read_s = (4 << 20) / 100e6  # 100 MB/s, less than the highest limit
    reference = {"iobench.read.4M": slow_read_s, "iobench.write.4M": 1e-3}
    slow = [e for e in environments(DEFAULT, node(), APPS, reference=reference) if e.kind == "io"]
    for before, after in zip(usual, slow, strict=True):
        assert after.parameters["read_bytes_per_s"] <= 50e6
        assert after.parameters["read_iops"] < before.parameters["read_iops"]
        assert after.parameters["write_bytes_per_s"] == before.parameters["write_bytes_per_s"]
    assert len({e.parameters["read_bytes_per_s"] for e in slow}) == 2


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InputError, match="is not a kind of environment"):
        Environment("x", "weather")


@given(need=st.integers(0, 1 << 36), more=st.integers(0, 1 << 20))
def test_a_memory_limit_leaves_the_program_what_it_needs(need: int, more: int) -> None:
    for environment in environments(16, node(), APPS):
        if environment.kind == "memory":
            limit = limit_bytes(need, environment.parameters)
            assert limit > need + (8 << 20)
            assert limit % 4096 == 0
            assert limit_bytes(need + more, environment.parameters) >= limit


@given(repeats=st.integers(1, 4), seed=st.integers(0, 1000))
def test_every_round_visits_each_case_once_and_repeats_lie_in_different_rounds(
    repeats: int, seed: int
) -> None:
    planned = environments(DEFAULT, node(), APPS, reasons={"memory": "not here."})
    plan = tasks(APPS, planned, repeats=repeats, seed=seed)
    assert plan == tasks(tuple(reversed(APPS)), planned, repeats=repeats, seed=seed)
    assert [task.step for task in plan] == list(range(repeats * DEFAULT * len(APPS)))
    cases = Counter((task.round, task.environment.name, task.app) for task in plan)
    assert set(cases.values()) == {1}
    for _, visit in groupby(plan, key=lambda task: task.visit):
        assert len({(task.round, task.environment.name) for task in visit}) == 1
    rounds = [task.round for task in plan]
    assert rounds == sorted(rounds)


def test_the_order_differs_by_seed_and_names_must_not_repeat() -> None:
    planned = environments(DEFAULT, node(), APPS)
    orders = {
        tuple(task.environment.name for task in tasks(APPS, planned, repeats=1, seed=seed))
        for seed in range(5)
    }
    assert len(orders) > 1
    with pytest.raises(InputError, match="have the same name"):
        tasks(APPS, [planned[0], planned[0]], repeats=1, seed=0)
    with pytest.raises(InputError, match="repeats"):
        tasks(APPS, planned, repeats=0, seed=0)
