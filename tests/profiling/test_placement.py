"""Placements over given and random topologies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.campaigns.this_node import measured_node
from kongming.profiling.plans.placement import Seats, available, choose, shares_cache, shares_core
from kongming.records.errors import InputError, UnknownNameError
from kongming.records.fingerprint import PLACEMENTS, NodeFacts
from tests.builders import node


def machine(sockets: int, cores: int, threads: int, llcs: int = 1, **changes: Any) -> NodeFacts:
    """CPUs numbered as Linux does: first threads of all cores, then the second ones."""
    per_thread = sockets * cores
    cpus = range(per_thread * threads)
    core = {cpu: cpu % per_thread for cpu in cpus}
    groups = [
        tuple(c for c in cpus if core[c] // cores == s and core[c] % cores * llcs // cores == g)
        for s in range(sockets)
        for g in range(llcs)
    ]
    facts: dict[str, Any] = {
        "cpus": tuple(cpus),
        "cores": {str(cpu): core[cpu] % cores for cpu in cpus},
        "sockets": {str(cpu): core[cpu] // cores for cpu in cpus},
        "llc_cpus": tuple(group for group in groups if group),
        "siblings": {},
    }
    return node(**(facts | changes))


def test_two_cores_under_one_cache() -> None:
    here = machine(1, 2, 1)
    assert choose(here, "cross-core") == Seats((0,), 1)
    assert choose(here, "same-core") == Seats((0,), 0)
    assert available(here) == {
        "same-core": None,
        "smt-sibling": "no two CPUs of this node share a core (as reported by the kernel)",
        "cross-core": None,
        "cross-socket": "this node has one socket",
    }


def test_one_cpu() -> None:
    here = machine(1, 1, 1)
    assert available(here) == {
        "same-core": None,
        "smt-sibling": "this process may use one CPU of this node",
        "cross-core": "this process may use one CPU of this node",
        "cross-socket": "this process may use one CPU of this node",
    }
    with pytest.raises(InputError, match=r"placement: .*one CPU.*Allowed: same-core\."):
        choose(here, "cross-core")


def test_what_was_measured_counts_more_than_the_kernel() -> None:
    hidden = machine(1, 2, 1, siblings={"0,1": {"shares_core": True}})
    assert choose(hidden, "smt-sibling") == Seats((0,), 1)
    assert available(hidden)["cross-core"] == "no two cores of this node share a last-level cache"
    claimed = machine(1, 1, 2, siblings={"0,1": {"shares_core": False}})
    assert choose(claimed, "cross-core") == Seats((0,), 1)
    assert available(claimed)["smt-sibling"] is not None


def test_threads_caches_and_sockets_of_a_server() -> None:
    here = machine(2, 4, 2, llcs=2)
    assert choose(here, "smt-sibling") == Seats((0,), 8)
    assert choose(here, "cross-core") == Seats((0,), 1)
    assert choose(here, "cross-socket") == Seats((0,), 4)
    assert choose(here, "cross-core", 3) == Seats((0, 2, 3), 1)
    assert choose(here, "cross-socket", 4) == Seats((0, 1, 2, 3), 4)
    assert choose(here, "same-core", 2) == Seats((0, 1), 0)


def test_caches_that_are_not_shared() -> None:
    assert available(machine(1, 2, 1, llcs=2))["cross-core"] is not None


def test_too_many_cpus() -> None:
    here = machine(1, 2, 1)
    assert available(here, 2)["cross-core"] is not None
    assert (
        available(here, 3)["same-core"]
        == "the application uses 3 CPUs and this process may use 2 CPUs"
    )
    with pytest.raises(InputError, match="none for this many CPUs"):
        choose(here, "same-core", 3)


def test_an_unknown_placement_is_suggested() -> None:
    with pytest.raises(UnknownNameError, match="cross-core"):
        choose(machine(1, 2, 1), "crosscore")


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("sizes", [(1,), (2,), (1, 2)])
def test_no_cpu_of_a_program_is_a_hidden_thread_of_its_neighbours_core(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], stored: bool
) -> None:
    """The kernel of a virtual machine says four cores, the CPUs are two; also where results cannot
    be stored."""
    hidden = ({0, 1}, {2, 3})
    known: dict[str, dict[str, Any]] = {}

    def measured(_: str, pair: tuple[int, ...], **__: object) -> dict[str, dict[str, Any]]:
        here = {f"{pair[0]},{pair[1]}": {"shares_core": set(pair) in hidden}}
        if stored:
            known.update(here)
        return {**known, **here}

    monkeypatch.setattr("kongming.probes.node.node_facts", lambda: machine(1, 4, 1))
    monkeypatch.setattr("kongming.probes.topology.measure_siblings", measured)
    here = measured_node("cross-core", sizes)
    for size in sizes:
        seats = choose(here, "cross-core", size)
        assert not any({cpu, seats.neighbour} in hidden for cpu in seats.app)


@st.composite
def machines(draw: st.DrawFn) -> NodeFacts:
    here = machine(
        draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
    )  # fmt: skip
    offline = draw(st.sets(st.sampled_from(here.cpus)))
    cpus = tuple(cpu for cpu in here.cpus if cpu not in offline) or here.cpus[:1]
    pairs = [(a, b) for a in cpus for b in cpus if a < b]
    measured = draw(
        st.dictionaries(st.sampled_from(pairs), st.booleans(), max_size=3) if pairs else st.just({})
    )
    siblings = {f"{a},{b}": {"shares_core": shared} for (a, b), shared in measured.items()}
    facts = here.to_dict()
    facts["topology"] |= {"cpus": list(cpus), "siblings": siblings}
    return NodeFacts.from_dict(facts)


@given(machines(), st.integers(1, 5))
def test_seats_are_what_their_placement_says(here: NodeFacts, app_cpus: int) -> None:
    reasons = available(here, app_cpus)
    assert tuple(reasons) == PLACEMENTS
    for placement, reason in reasons.items():
        if reason is not None:
            assert reason.strip()
            with pytest.raises(InputError) as caught:
                choose(here, placement, app_cpus)
            assert reason in str(caught.value)
            continue
        seats = choose(here, placement, app_cpus)
        first, neighbour = seats.app[0], seats.neighbour
        assert len(set(seats.app)) == len(seats.app) == app_cpus
        assert {*seats.app, neighbour} <= set(here.cpus)
        if placement == "same-core":
            assert neighbour == first
            continue
        assert neighbour not in seats.app
        if placement == "smt-sibling":
            assert shares_core(here, first, neighbour)
        elif placement == "cross-core":
            assert not any(shares_core(here, cpu, neighbour) for cpu in seats.app)
            assert shares_cache(here, first, neighbour)
        else:
            sockets = {here.sockets[str(cpu)] for cpu in seats.app}
            assert here.sockets[str(neighbour)] not in sockets
