"""The verdict on a profile: what its own runs say about how they were measured."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, get_args

import pytest

from kongming.records.judgement import Judgement, Reason, ReasonCode
from kongming.records.judging import judge, learned_from, spread, without_spoiled
from kongming.records.run import APP_CPUS, APP_KIND, CUT_OFF, DISTURBED, Run, Usage
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
    assert verdict.advice("gz") is None
    assert "2 loads that must be felt were" in str(verdict)


def test_runs_alone_that_differ_spoil_a_profile() -> None:
    """The runs of a walk through the first hour, on a CPU that something else used."""
    verdict = judge([solo(0.826), solo(0.720), solo(0.370), loaded(0.692)])
    assert verdict.verdict == "spoiled"
    spread, unfelt = verdict.reasons
    assert (spread.code, spread.verdict) == ("solo-spread", "spoiled")
    assert spread.figures["ratio"] == pytest.approx(0.826 / 0.370)
    assert "differ by 2.23 times (0.37 to 0.826 s)" in str(verdict)
    assert (unfelt.code, dict(unfelt.figures)) == ("unfelt-loads", {"runs": 1, "of": 1})
    assert unfelt.loads == ("compute.float@1",)
    assert "kongming profile APPS.toml --app gz --again" in str(verdict.advice("gz"))


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


def test_many_runs_alone_are_judged_as_few_are() -> None:
    """The ends of many are farther apart than those of few that differ as much."""
    few, many = (
        [math.exp(NormalDist(0.0, 0.07).inv_cdf((k + 0.5) / n)) for k in range(n)] for n in (6, 60)
    )
    assert max(many) / min(many) > 1.35
    for seconds in (few, many):
        assert judge([solo(second) for second in seconds]).verdict == "good"
    # A quarter of them is more than an accident.
    assert (
        judge([*map(solo, many), *(solo(1.6 * second) for second in many[::3])]).verdict != "good"
    )


def test_drift_between_campaigns_spoils_neither() -> None:
    """Slowdowns are over the solo runs of the same minutes."""
    first = [solo(1.0), solo(1.02), solo(0.99), loaded(2.0)]
    slower = [solo(second, campaign="d") for second in (1.55, 1.6, 1.62)]
    second = [*slower, loaded(3.2, campaign="d")]
    verdict = judge([*first, *second])
    assert [reason.code for reason in verdict.reasons] == ["solo-shift"]
    # A load that slows nothing is no slowdown beside the quicker campaign either.
    unfelt = judge([*first, *slower, loaded(1.6, campaign="d")])
    assert [reason.code for reason in unfelt.reasons] == ["unfelt-loads", "solo-shift"]


@pytest.mark.parametrize("medians", [(1.0, 1.6), (1.0, 1.0, 1.0, 1.0, 1.6)])
def test_one_campaign_of_many_that_was_slower_alone_is_no_outlier(medians: Sequence[float]) -> None:
    runs = [
        solo(median * second, campaign=f"c{number}")
        for number, median in enumerate(medians)
        for second in (0.99, 1.0, 1.01)
    ]
    (reason,) = (reason for reason in judge(runs).reasons if reason.code == "solo-shift")
    assert reason.figures["ratio"] == pytest.approx(1.6)


def test_campaigns_of_other_times_alone_are_not_all_good() -> None:
    """The median over both is a time that the program never had."""
    first = [solo(1.0), solo(1.02), solo(0.99), loaded(2.0)]
    slower = [solo(second, campaign="d") for second in (1.55, 1.6, 1.62)]
    verdict = judge([*first, *slower, loaded(3.2, campaign="d")])
    assert verdict.verdict == "usable"
    (shift,) = verdict.reasons
    assert shift.figures == {
        "ratio": 1.6, "campaigns": 2, "runs": 6, "shortest": 1.0, "longest": 1.6
    }  # fmt: skip
    assert "6 runs alone are of 2 campaigns whose medians differ by 1.60 times" in str(verdict)
    # To measure once more makes them no more alike.
    assert "slowdowns hold" in str(verdict.advice("gz"))
    assert Judgement.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict
    alike = [solo(second, campaign="d") for second in (1.1, 1.15, 1.2)]
    good = judge([*first, *alike, loaded(2.2, campaign="d")])
    assert good.verdict == "good"
    assert "3 runs alone of the campaign, of 2, in which they differ most" in str(good)
    assert "2 loads that must be felt were" in str(good)


def test_the_campaign_that_differs_most_gives_the_verdict() -> None:
    quiet = [solo(1.0), solo(1.01), solo(1.02)]
    noisy = [solo(second, campaign="d") for second in (1.0, 1.1, 1.4)]
    (reason,) = judge([*quiet, *noisy]).reasons
    assert reason.verdict == "usable"
    assert reason.figures == {
        "ratio": 1.4, "runs": 3, "shortest": 1.0, "longest": 1.4, "campaigns": 2
    }  # fmt: skip
    # One run of each campaign: there is nothing else to compare with.
    assert judge([solo(1.0 + k / 2, campaign=str(k)) for k in range(4)]).verdict == "spoiled"


def test_between_the_limits_a_profile_is_usable() -> None:
    assert judge([solo(1.0), solo(1.1), solo(1.4)]).verdict == "usable"
    assert str(judge([solo(1.0), solo(1.01)])) == "usable: it ran alone only twice."


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


@pytest.mark.parametrize(
    ("config", "cpu_s"), [({APP_KIND: "service"}, 0.9), ({APP_CPUS: 2}, 1.0), ({}, 1.1)]
)
def test_a_load_on_one_core_need_not_be_felt_on_several(
    config: dict[str, Any], cpu_s: float
) -> None:
    """Nor by a service, whose load driver is what the processor time is of."""
    usage = Usage(cpu_s=cpu_s)
    runs = [solo(second, config=config, usage=usage) for second in (1.0, 1.01, 1.02)]
    judged = judge([*runs, loaded(1.05, config=config, usage=usage)])
    assert judged.verdict == "good"
    assert "must be felt" not in str(judged)


def test_a_load_is_felt_where_the_run_under_it_was_cut_off() -> None:
    """Its program's timeout leaves it a fifth more than its runtime alone."""
    quiet = [solo(1.0), solo(1.01), solo(1.02)]
    judged = judge([*quiet, loaded(1.2, passive={CUT_OFF: 1.0}), loaded(2.0)])
    assert judged.verdict == "good"
    assert "2 loads that must be felt were" in str(judged)
    assert judge([*quiet, loaded(1.2), loaded(2.0)]).verdict == "spoiled"


def test_what_was_measured_together_with_something_else_is_not_trusted() -> None:
    runs = [
        solo(1.0, passive={DISTURBED: 1.0}),
        solo(1.01, passive={DISTURBED: 1.0}),
        solo(1.02),
    ]
    assert judge(runs).verdict == "spoiled"
    assert judge([*runs, solo(1.0), solo(1.0)]).verdict == "usable"


def test_documents_without_the_signal_say_by_a_warning_that_a_run_was_disturbed() -> None:
    run = solo(1.0, warnings=("kongming profile (process 7) measured on CPU 0 meanwhile.",))
    assert not run.disturbed
    read = Run.from_dict(run.to_dict())
    assert read.disturbed
    assert Run.from_dict(read.to_dict()) == read
    other = solo(1.0, warnings=("The page cache was emptied meanwhile.",))
    assert not Run.from_dict(other.to_dict()).disturbed


def test_without_a_run_alone_there_is_no_profile() -> None:
    verdict = judge([builders.run("gz", None)])
    assert str(verdict) == "spoiled: no run alone succeeded."
    assert "runs --failed" in str(verdict.advice("gz"))


def test_the_worst_reason_comes_first_and_gives_the_verdict() -> None:
    """Here a profile of two runs alone, half of which were measured next to another program."""
    disturbed = solo(1.0, passive={DISTURBED: 1.0})
    verdict = judge([disturbed, solo(1.3)])
    assert [reason.verdict for reason in verdict.reasons] == ["spoiled", "usable", "usable"]
    assert [reason.code for reason in verdict.reasons] == [
        "measured-together",
        "solo-spread",
        "few-solo-runs",
    ]


EVERY_REASON = [
    *judge([solo(0.4, passive={"steal": 0.3}), solo(0.8), loaded(0.8)]).reasons,
    *judge([solo(0.4, passive={"psi_cpu_some": 0.3}), solo(0.8)]).reasons,
    *judge([solo(k + 1.0, campaign=str(k)) for k in (0, 0, 1, 1)]).reasons,
    *judge([solo(1.0), solo(1.0), solo(1.0), loaded(2.0)]).reasons,
    *judge([builders.run("gz", None)]).reasons,
    *judge([solo(1.0), builders.run("gz", None)]).reasons,
    Reason("measured-together", "usable", {"runs": 1.0}),
    Reason("slowed-by-others", "usable", {"runs": 2.0, "of": 5.0}),
    Reason("evicted-files", "usable", {"runs": 2.0, "of": 5.0}),
]


def test_a_judgement_survives_its_json_form() -> None:
    """As it stands in a model, in words and figures alike, whatever its reasons."""
    assert {reason.code for reason in EVERY_REASON} == set(get_args(ReasonCode))
    judgement = Judgement("spoiled", tuple(EVERY_REASON), left_out_runs=1, metric_unit="ops/s")
    again = Judgement.from_dict(json.loads(json.dumps(judgement.to_dict())))
    assert again == judgement
    assert str(again) == str(judgement)
    assert "0.4 to 0.8 ops/s" in str(again)
    assert "1 run is left out of training" in str(again)


def few(runs: object, **figures: float) -> dict[str, Any]:
    named = {"runs": runs, **figures}
    return {"code": "few-solo-runs", "verdict": "usable", "figures": named, "loads": []}


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "splendid"},
        {"reasons": []},
        {"left_out_runs": -1},
        # More than the message of a server's answer holds.
        {"left_out_runs": 1 << 31},
        {"reasons": [{"code": "moon", "verdict": "usable", "figures": {}, "loads": []}]},
        {"reasons": [{"code": "few-solo-runs", "verdict": "usable", "figures": {}, "loads": []}]},
        # Good, of a profile that something spoiled.
        {"reasons": [reason.to_dict() for reason in EVERY_REASON[:1]]},
        {"verdict": "spoiled"},
        {"metric_unit": "u" * 129},
        {"metric_unit": {}},
        {"reasons": [few(runs=-1.0)], "verdict": "usable"},
        {"reasons": [few(runs=1e308)], "verdict": "usable"},
        {"reasons": [few(runs=True)], "verdict": "usable"},
        {"reasons": [few(runs="1")], "verdict": "usable"},
        {"reasons": [few(1.0)] * 65, "verdict": "usable"},
        {"reasons": [few(1.0, **{f"f{n}": 1.0 for n in range(64)})], "verdict": "usable"},
        {"reasons": [few(1.0) | {"loads": "ab"}], "verdict": "usable"},
        {"reasons": [few(1.0) | {"loads": [1]}], "verdict": "usable"},
        {"reasons": [few(1.0) | {"loads": ["x" * 100_000] * 3}], "verdict": "usable"},
        {"reasons": [few(1.0) | {"loads": [""] * 300_000}], "verdict": "usable"},
        {"reasons": [few(1.0) | {"loads": ["x" * 9_000]}] * 30, "verdict": "usable"},
    ],
)
def test_what_is_no_judgement_is_refused(change: dict[str, Any]) -> None:
    document = judge([solo(1.0), solo(1.01)]).to_dict()
    with pytest.raises(ValueError):  # noqa: PT011  # the reader of the whole document names it
        Judgement.from_dict(document | change)


def test_a_reason_of_a_newer_version_is_said_by_its_code() -> None:
    assert str(Judgement("usable", (Reason("moon", "usable"),))) == "usable: moon."


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


def test_runs_alone_between_co_runs_are_no_part_of_a_profile() -> None:
    """They have no fingerprint, so training leaves them out: neither verdict nor noise has them."""
    times = {"compute.int": 1e-9}
    profile = [solo(second, times=times) for second in (1.0, 1.02, 0.99)]
    between = [solo(second, campaign="corun") for second in (2.0, 3.0, 4.0)]
    verdict = judge([*profile, loaded(2.0, times=times), *between])
    assert verdict.verdict == "good"
    assert verdict.reasons[0].figures["runs"] == 3
    assert learned_from([*profile, *between]) == profile
    failed = builders.run("gz", None)
    assert judge([*profile, failed, *between]).reasons[0].code == "failed-runs"
    assert learned_from([*profile, failed]) == profile
