"""A run during which the node changed is distinguished from one during which it did not."""

from __future__ import annotations

import dataclasses

import pytest

from kongming.learning.steadiness import CHANGED, changed, limits, shift
from kongming.records.run import Run
from tests import builders

QUIET = {"memory.random.8M": 20e-9, "stream.triad": 2e-9, "iobench.fsync": 1e-3}


def between(after: dict[str, float]) -> Run:
    run = builders.run("a", 3.0, QUIET)
    return dataclasses.replace(
        run,
        before=builders.fingerprint(QUIET, suite="quick"),
        after=builders.fingerprint(QUIET | after, suite="quick"),
    )


def test_a_family_that_shifts_marks_the_run() -> None:
    assert changed(between({})) is False
    assert changed(between({"memory.random.8M": 22e-9})) is False
    assert changed(between({"memory.random.8M": 60e-9})) is True
    assert changed(between({"iobench.fsync": 0.5e-3})) is True


def test_a_family_that_never_reads_the_same_marks_only_what_is_unusual_for_it() -> None:
    runs = [between({"iobench.fsync": 1e-3 * factor}) for factor in (0.5, 1.0, 1.4, 0.6, 1.9)]
    usual = limits(runs)
    assert usual["memory"] == CHANGED
    assert usual["write"] > 1.0
    assert not any(changed(run, usual) for run in runs)
    assert changed(between({"iobench.fsync": 9e-3}), usual) is True
    assert changed(between({"memory.random.8M": 60e-9}), usual) is True


def test_without_two_fingerprints_nothing_is_known() -> None:
    assert changed(builders.run("a", 3.0, QUIET)) is None


def test_the_shift_is_the_mean_log_by_family() -> None:
    run = between({"stream.triad": 4e-9})
    assert run.before is not None
    assert run.after is not None
    shifts = shift(run.before, run.after)
    assert shifts["memory"] == pytest.approx(0.6931, abs=1e-4)
    assert shifts["write"] == 0.0
