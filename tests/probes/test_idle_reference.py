from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.probes.reference import MIN_READINGS, idle_reference
from kongming.records.errors import IncompatibleError, InputError, UntrainedError
from kongming.records.fingerprint import Fingerprint, NodeFacts, Reading


def node(identity: str = "n") -> NodeFacts:
    return NodeFacts(
        id=identity,
        name="",
        architecture="",
        cpu_vendor="",
        cpu_model="",
        cpus=(0,),
        cores={},
        sockets={},
        l1d_bytes=0,
        l2_bytes=0,
        llc_bytes=0,
        llc_cpus=(),
        memory_bytes=0,
        kernel="",
        hypervisor=None,
        huge_pages="",
    )


def reading(
    times: dict[str, float | None], identity: str = "n", version: str = "1-a"
) -> Fingerprint:
    surrogates = {
        name: Reading(name, "cache", error="no")
        if seconds is None
        else Reading(name, "cache", seconds_per_op=seconds, median=seconds, p90=seconds, n=1)
        for name, seconds in times.items()
    }
    return Fingerprint(node(identity), "quick", version, 0, "2026-01-01T00:00:00Z", 1.0, surrogates)


times = st.lists(st.floats(1e-10, 1.0), min_size=MIN_READINGS, max_size=40)


@given(times, st.floats(0.0, 1.0))
def test_the_reference_lies_within_the_readings(seen: list[float], quantile: float) -> None:
    reference = idle_reference([reading({"a": time}) for time in seen], quantile)
    assert min(seen) <= reference["a"] <= max(seen)


@given(times)
def test_it_is_low_but_not_the_lowest_rule(seen: list[float]) -> None:
    reference = idle_reference([reading({"a": time}) for time in seen])
    assert min(seen) <= reference["a"] <= sorted(seen)[len(seen) // 2]


def test_neighbours_in_most_readings_do_not_matter() -> None:
    seen = [1.0, 1.0, 1.0] + [3.0] * 9
    assert idle_reference([reading({"a": time}) for time in seen]) == {"a": 1.0}


def test_too_few_readings_are_refused() -> None:
    with pytest.raises(UntrainedError, match="10 readings; there are 9"):
        idle_reference([reading({"a": 1.0})] * 9)


def test_a_surrogate_that_often_failed_is_left_out() -> None:
    seen = [reading({"a": 1.0, "b": 2.0})] * 9 + [reading({"a": 1.0, "b": None})]
    assert idle_reference(seen) == {"a": 1.0}


def test_nodes_and_suites_are_not_mixed() -> None:
    same = [reading({"a": 1.0})] * 10
    with pytest.raises(IncompatibleError, match="nodes"):
        idle_reference([*same, reading({"a": 1.0}, identity="other")])
    with pytest.raises(IncompatibleError, match="versions"):
        idle_reference([*same, reading({"a": 1.0}, version="1-b")])


def test_quantile_is_checked() -> None:
    with pytest.raises(InputError, match="quantile"):
        idle_reference([reading({"a": 1.0})] * 10, quantile=1.5)
