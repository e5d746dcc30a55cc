"""Which version goes into service."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_server.quality.acceptance import LEAST_UNSEEN, Judged, decide, unasked_change

ERRORS = tuple(np.linspace(0.01, 0.05, 20).tolist())
NOISE = 0.01


def version(factor: float = 1.0, **changes: Any) -> Judged:
    judged = Judged(
        identity="a1",
        node_id="node-1",
        suite_version="1-0123abcd",
        metric_unit="s",
        better="lower",
        errors=tuple(factor * error for error in ERRORS),
        noise=NOISE,
    )
    return replace(judged, **changes)


def test_the_first_version_goes_into_service() -> None:
    assert decide(version(), None).promoted


def test_an_equal_one_goes_into_service_and_a_worse_one_does_not() -> None:
    assert decide(version(), version(), same_runs=True).promoted
    refused = decide(version(1.5), version(), same_runs=True)
    assert not refused.promoted
    assert "worse" in refused.reason
    assert "4.6 %" in refused.reason  # mean of 1.5 times the errors, as a percentage
    assert "3.0 %" in refused.reason


def test_on_the_same_runs_only_repeat_noise_is_forgiven() -> None:
    noise = NOISE / np.sqrt(len(ERRORS))
    mean = float(np.mean(ERRORS))
    assert decide(version((mean + 0.9 * noise) / mean), version(), same_runs=True).promoted
    assert not decide(version((mean + 1.1 * noise) / mean), version(), same_runs=True).promoted


def test_on_other_runs_a_standard_error_is_forgiven() -> None:
    slightly = version(1.1)
    assert not decide(slightly, version(), same_runs=True).promoted
    assert decide(slightly, version()).promoted
    assert not decide(version(1.4), version()).promoted


def test_runs_that_the_old_one_never_saw_count_more_than_its_validation() -> None:
    # Its validation was excellent, but the program is not what it was.
    old = version(0.2)
    assert not decide(version(), old).promoted
    assert decide(version(), old, [0.5] * LEAST_UNSEEN).promoted
    assert not decide(version(), old, [0.5] * (LEAST_UNSEEN - 1)).promoted
    # And the other way round: it does better on new runs than the new one on left-out ones.
    assert not decide(version(), version(), [0.001] * 10).promoted


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"identity": "b2"}, "program"),
        ({"suite_version": "2-0123abcd"}, "suite"),
        ({"better": "higher"}, "metric"),
    ],
)
def test_what_cannot_be_compared_gives_way(change: dict[str, Any], word: str) -> None:
    decision = decide(version(9.0, **change), version())
    assert decision.promoted
    assert word in decision.reason


@pytest.mark.parametrize(
    ("change", "word"),
    [({"identity": "b2"}, "program"), ({"node_id": "node-2"}, "node"), ({}, "")],
)
def test_what_no_operator_asked_for_is_of_the_same_program_and_node(
    change: dict[str, Any], word: str
) -> None:
    assert word in unasked_change(version(0.1, **change), version())
    assert bool(unasked_change(version(0.1, **change), version())) is bool(word)


def test_a_model_of_another_node_has_to_be_better() -> None:
    assert not decide(version(node_id="node-2"), version()).promoted
    assert decide(version(0.5, node_id="node-2"), version()).promoted


def test_without_validation_there_is_nothing_to_be_no_worse_by() -> None:
    assert not decide(version(errors=()), version()).promoted
    assert decide(version(), version(errors=())).promoted
    assert decide(version(errors=()), version(errors=())).promoted


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.booleans())
def test_of_two_versions_one_at_least_may_replace_the_other(
    first: float, second: float, same_runs: bool
) -> None:
    left, right = version(first), version(second)
    forward = decide(left, right, same_runs=same_runs)
    back = decide(right, left, same_runs=same_runs)
    assert forward.promoted or back.promoted
    if first <= second:
        assert forward.promoted
