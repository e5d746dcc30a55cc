"""The verdict on a profile: what its own runs say about how they were measured."""

from __future__ import annotations

from typing import Any

import pytest

from kongming.records.judging import DISTURBED, judge, spread, without_spoiled
from kongming.records.run import Run, Usage
from tests import builders


def solo(seconds: float, **changes: Any) -> Run:
    """A run that computes all the time."""
    settings = {"placement": "same-core", "usage": Usage(cpu_s=seconds), "campaign": "c"}
    return builders.run("gz", seconds, **(settings | changes))


def loaded(seconds: float, intensity: float = 1.0, **changes: Any) -> Run:
    load = builders.level("compute.float", intensity=intensity)
    return solo(seconds, levels=(load,), **changes)


def test_a_quiet_profile_is_good() -> None:
    verdict = judge([solo(1.0), solo(1.02), solo(0.99), loaded(2.0), loaded(1.5, 0.5)])
    assert verdict.verdict == "good"
    assert verdict.advice is None
    assert "2 loads that must be felt were" in str(verdict)


def test_runs_alone_that_differ_spoil_a_profile() -> None:
    """The runs of a walk through the first hour, on a CPU that something else used."""
    verdict = judge([solo(0.826), solo(0.720), solo(0.370), loaded(0.692)])
    assert verdict.verdict == "spoiled"
    assert "differ by 2.23 times (0.37 to 0.826 s)" in verdict.reasons[0]
    assert "compute.float@1" in verdict.reasons[1]
    assert "--again" in str(verdict.advice)


@pytest.mark.parametrize(
    ("steal", "waiting", "cause"),
    [(0.3, 0.5, "the host took up to 30 %"), (0.0, 0.5, "tasks waited for a CPU up to 50 %")],
)
def test_the_system_says_why(steal: float, waiting: float, cause: str) -> None:
    signals = {"steal": steal, "psi_cpu_some": waiting}
    runs = [solo(second, passive=signals) for second in (1.0, 1.1, 1.7)]
    assert cause in str(judge(runs))


def test_one_outlier_of_many_does_not_count() -> None:
    runs = [solo(second) for second in (1.0, 1.01, 1.02, 1.03, 3.0)]
    assert spread(runs) == pytest.approx(1.03)
    assert judge(runs).verdict == "good"
    assert judge(runs[1:]).verdict == "spoiled"


def test_between_the_limits_a_profile_is_usable() -> None:
    assert judge([solo(1.0), solo(1.1), solo(1.4)]).verdict == "usable"
    assert judge([solo(1.0), solo(1.01)]).reasons == ("it ran alone only twice",)


def test_only_loads_that_must_be_felt_are_expected_to_be() -> None:
    quiet = [solo(1.0), solo(1.01), solo(1.02)]
    assert judge([*quiet, loaded(1.0)]).verdict == "spoiled"
    # A light load, one on another core, one that waits for a disk, a program that waits.
    waits = [solo(second, usage=Usage(cpu_s=0.3)) for second in (1.0, 1.01, 1.02)]
    reader = solo(1.0, levels=(builders.level("iobench.read.4M"),))
    elsewhere = [solo(second, placement="cross-core") for second in (1.0, 1.01, 1.02)]
    for runs in (
        [*quiet, loaded(1.05, 0.2)],
        [*quiet, reader],
        [*elsewhere, loaded(1.0, placement="cross-core")],
        [*waits, loaded(1.0, usage=Usage(cpu_s=0.3))],
    ):
        assert judge(runs).verdict == "good"


def test_what_was_measured_together_with_something_else_is_not_trusted() -> None:
    warning = f"another measured on CPU 0 {DISTURBED}"
    runs = [solo(1.0, warnings=(warning,)), solo(1.01, warnings=(warning,)), solo(1.02)]
    assert judge(runs).verdict == "spoiled"
    assert judge([*runs, solo(1.0), solo(1.0)]).verdict == "usable"


def test_without_a_run_alone_there_is_no_profile() -> None:
    assert judge([builders.run("gz", None)]).verdict == "spoiled"


def test_a_second_good_campaign_replaces_a_spoiled_one() -> None:
    bad = [solo(0.8), solo(0.4), solo(0.7), loaded(0.7)]
    assert without_spoiled(bad) == (bad, 0)
    good = [
        *(solo(second, campaign="d") for second in (0.4, 0.4, 0.41)),
        loaded(0.8, campaign="d"),
    ]
    assert without_spoiled([*bad, *good]) == (good, 4)
    # Runs of co-runs are no profile, and stay.
    alone = solo(0.4, campaign="pairs")
    assert without_spoiled([*bad, *good, alone]) == ([*good, alone], 4)
