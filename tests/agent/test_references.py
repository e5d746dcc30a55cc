from __future__ import annotations

from dataclasses import replace

import pytest
from kongming_agent.domain_states import DomainStates
from kongming_agent.probing import references
from kongming_agent.reporting.spool import Spool

from kongming import Fingerprint, Reading
from tests.builders import fingerprint


def idle(seconds: float, **changes: object) -> Fingerprint:
    return fingerprint({"a": seconds, "b": 1e-9}, **changes)


def test_a_reference_is_the_lower_quartile_of_each_surrogate_as_it_was_measured() -> None:
    readings = [idle(seconds * 1e-9) for seconds in (20, 21, 22, 23, 90)]
    reference = references.reference(readings)
    assert reference is not None
    assert reference.times() == {"a": pytest.approx(21e-9), "b": 1e-9}
    assert reference.surrogates["a"] == readings[1].surrogates["a"]
    assert reference.id not in {each.id for each in readings}
    again = references.reference(readings)
    assert again == reference
    assert "5 readings" in reference.warnings[0]


def test_one_reading_stands_for_itself_and_none_makes_none() -> None:
    only = idle(2e-9)
    assert references.reference([only]) == only
    assert references.reference([]) is None


def test_a_surrogate_that_failed_is_taken_where_it_succeeded() -> None:
    failed = replace(
        idle(1e-9), surrogates={"a": Reading(name="a", family="cache", error="no room")}
    )
    reference = references.reference([idle(3e-9), failed])
    assert reference is not None
    assert reference.times() == {"a": 3e-9}


def test_readings_of_another_suite_are_dropped_and_the_newest_kept() -> None:
    old = [idle(1e-9, suite_version="1-old") for _ in range(3)]
    newest = idle(2e-9)
    assert references.retain(old, newest) == [newest]
    many = [idle(1e-9) for _ in range(20)]
    assert references.retain(many, newest) == [*many[-references.MOST_READINGS + 1 :], newest]


def test_readings_of_the_machine_that_it_was_are_dropped(spool: Spool) -> None:
    """A copied image keeps its state, and so does a machine that gets another processor."""
    old = [idle(1e-9) for _ in range(5)]
    spool.put("idle:0", [each.to_dict() for each in old])
    newest = replace(idle(1.3e-9), node=replace(old[0].node, id="another"))
    states = DomainStates(spool)
    assert states.kept_reference(0, newest.suite_version, "another") is None
    assert states.keep_reference(0, newest) == newest
    assert states.kept_reference(0, newest.suite_version, "another") == (newest, 1)


def test_slowdowns_and_their_mean() -> None:
    ratios = references.slowdowns({"a": 4e-9, "b": 1e-9, "c": 1.0}, {"a": 1e-9, "b": 1e-9})
    assert ratios == {"a": 4.0, "b": 1.0}
    assert references.general(ratios) == pytest.approx(2.0)
    assert references.general({}) is None


def test_a_reading_of_another_version_is_left_out(spool: Spool) -> None:
    readable = fingerprint({"compute.int": 1e-9})
    newer = fingerprint({"compute.int": 1e-9}).to_dict() | {"schema": 2}
    states, mine = DomainStates(spool), (readable.suite_version, readable.node.id)
    spool.put("idle:0", [newer, readable.to_dict()])
    assert states.kept_reference(0, *mine) == (readable, 1)
    spool.put("idle:0", [newer])
    assert states.kept_reference(0, *mine) is None
    assert states.keep_reference(0, readable) == readable
    assert states.kept_reference(0, *mine) == (readable, 1)
