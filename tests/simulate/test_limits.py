"""A queue with backfill: its rules, who is killed, and what predictions may know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.records.errors import InputError
from kongming.simulate.limits import (
    LIMITS,
    Generated,
    LimitedJobs,
    Schedule,
    easy,
    plan_of,
    predicted_quantiles,
    read_jobs,
    read_swf,
)
from tests.conftest import Kongming


def jobs_of(rows: list[tuple[float, int, float, float]], capacity: int = 4) -> LimitedJobs:
    """Jobs of one application, of (arrival, processors, run, limit)."""
    arrival, processors, run, limit = np.array(sorted(rows), dtype=np.float64).T
    return LimitedJobs(
        arrival_s=arrival,
        app_of=np.zeros(len(rows), dtype=np.int64),
        processors=processors.astype(np.int64),
        run_s=run,
        limit_s=limit,
        known_from_s=arrival + run,
        capacity=capacity,
        source="made for a test",
    )


def schedule(name: str, jobs: LimitedJobs) -> Schedule:
    return easy(jobs, plan_of(name, jobs)[0])


durations = st.integers(1, 40).map(float)
queues = st.lists(
    st.tuples(st.integers(0, 60).map(float), st.integers(1, 4), durations, durations),
    min_size=1,
    max_size=25,
).map(jobs_of)


@settings(max_examples=60, deadline=None)
@given(queues)
def test_the_queue_keeps_the_machine_and_the_limits(jobs: LimitedJobs) -> None:
    done = schedule("user", jobs)
    assert (done.start_s >= jobs.arrival_s).all()
    np.testing.assert_array_equal(done.killed, jobs.run_s > jobs.limit_s)
    np.testing.assert_allclose(done.end_s - done.start_s, np.minimum(jobs.run_s, jobs.limit_s))
    for moment in done.start_s:
        running = (done.start_s <= moment) & (moment < done.end_s)
        assert jobs.processors[running].sum() <= jobs.capacity
    # Who did not overtake started in the order of arrival.
    assert (np.diff(done.start_s[~done.backfilled]) >= 0.0).all()


@settings(max_examples=60, deadline=None)
@given(queues)
def test_with_exact_limits_backfill_makes_nobody_wait_longer_than_the_first_in_line(
    jobs: LimitedJobs,
) -> None:
    """EASY's promise: overtaking does not delay the first job that waits."""
    exact = jobs_of(
        [(a, p, r, r) for a, p, r in zip(jobs.arrival_s, jobs.processors, jobs.run_s, strict=True)]
    )
    done = schedule("user", exact)
    for job in np.flatnonzero(~done.backfilled):
        earlier = np.arange(len(exact)) < job
        ahead = max(
            (done.start_s[earlier & ~done.backfilled]).max(initial=0.0), exact.arrival_s[job]
        )
        # From when it is the first in line, those that run then are all that it waits for.
        running = (done.start_s <= ahead) & (done.end_s > ahead) & (np.arange(len(exact)) != job)
        running &= ~((done.start_s == ahead) & done.backfilled & ~earlier)
        ends = np.sort(np.append(done.end_s[running], ahead))
        free = [
            exact.capacity - exact.processors[running & (done.end_s > end)].sum() for end in ends
        ]
        could = next(e for e, f in zip(ends, free, strict=True) if f >= exact.processors[job])
        assert done.start_s[job] <= could


# One runs on 3 of 4 processors, planned for 100 s; the next needs all; the third fits next to the
# first if it ends by then.
FIRST, WIDE = (0.0, 3, 50.0, 100.0), (1.0, 4, 10.0, 10.0)


@pytest.mark.parametrize(("limit", "start"), [(98.0, 2.0), (99.0, 60.0)])
def test_a_job_is_backfilled_if_it_fits_into_the_gap(limit: float, start: float) -> None:
    done = schedule("user", jobs_of([FIRST, WIDE, (2.0, 1, 20.0, limit)]))
    assert done.start_s.tolist() == [0.0, 50.0, start]
    assert done.backfilled.tolist() == [False, False, start == 2.0]


def test_processors_that_are_left_over_are_given_once() -> None:
    running, first_in_line = (0.0, 2, 100.0, 100.0), (1.0, 3, 10.0, 10.0)
    smaller = [(2.0, 1, 500.0, 500.0), (3.0, 1, 500.0, 500.0)]
    done = schedule("user", jobs_of([running, first_in_line, *smaller]))
    assert done.start_s.tolist() == [0.0, 100.0, 2.0, 110.0]


def with_history(run_s: float) -> LimitedJobs:
    """The gap of above, after 30 runs that took one minute: the fourth asks for two hours."""
    earlier = [(100.0 * n, 4, 60.0, 7200.0) for n in range(30)]
    gap = [(5000.0, 3, 300.0, 300.0), (5001.0, 4, 60.0, 60.0), (5002.0, 1, run_s, 7200.0)]
    jobs = jobs_of([*earlier, *gap])
    jobs.app_of[30:32] = (1, 2)
    return jobs


@pytest.mark.parametrize(
    ("name", "start", "killed"),
    [
        ("user", 5360.0, False),
        ("median", 5002.0, True),
        ("q95", 5002.0, True),
        ("time-min", 5002.0, False),
        ("time-min-late", 5002.0, False),
    ],
)
def test_a_prediction_that_is_too_short_kills_as_a_limit_alone(
    name: str, start: float, killed: bool
) -> None:
    jobs = with_history(600.0)
    done = schedule(name, jobs)
    assert (done.start_s[-1], bool(done.killed[-1])) == (start, killed)
    assert done.end_s[-1] - done.start_s[-1] == (60.0 if killed else 600.0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["poisson", "bursty", "daily"]))
def test_time_min_kills_nobody_whom_the_user_would_not(seed: int, arrivals: str) -> None:
    jobs = Generated(arrivals, 400, 0.9, 64, seed=seed).generate()
    done = {name: schedule(name, jobs) for name in LIMITS}
    for name in ("time-min", "time-min-late"):
        np.testing.assert_array_equal(done[name].killed, done["user"].killed)
    # A shorter limit kills whom a longer one does.
    for less, more in (("user", "q95"), ("q95", "median")):
        assert (done[less].killed <= done[more].killed).all()
    assert all(np.isfinite(outcome.end_s).all() for outcome in done.values())


def test_a_burst_of_more_jobs_than_there_are_takes_no_room() -> None:
    jobs = Generated("bursty", 1000, 0.9, 64, burst=1e12).generate()
    assert len(jobs) == 1000
    assert len(set(jobs.arrival_s.tolist())) == 1


def test_a_prediction_knows_what_has_ended_and_holds_its_share() -> None:
    jobs = Generated("poisson", 4000, 0.7, 64, zipf=0.0, apps=4, seed=3).generate()
    predicted = predicted_quantiles(jobs, 0.95)
    known = np.isfinite(predicted)
    assert known.mean() > 0.9
    covered = (np.minimum(jobs.run_s, jobs.limit_s) <= predicted)[known].mean()
    assert covered == pytest.approx(0.95, abs=0.02)
    # Later runs change nothing.
    run_s = jobs.run_s.copy()
    run_s[2000:] *= 3.0
    changed = Generated("poisson", 4000, 0.7, 64, zipf=0.0, apps=4, seed=3).generate()
    changed.run_s[:] = run_s
    np.testing.assert_array_equal(predicted_quantiles(changed, 0.95)[:2000], predicted[:2000])


SWF = """; Version: 2.2
; MaxProcs: 8
  1  0  5 100 2 -1 -1  2 3600 -1 1 1 1  7 1 1 -1 -1
  2 10 -1  90 2 -1 -1 -1   60 -1 1 1 1 -1 1 1 -1 -1
  3 20  0  -1 2 -1 -1  2 3600 -1 0 1 1  7 1 1 -1 -1
  4 15  0  30 2 -1 -1  4   -1 -1 1 2 1  7 1 1 -1 -1
  5  5  0  30 2 -1 -1  4  120 -1 1 1 1  7 1 1 -1 -1
"""


def test_a_trace_of_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "trace.swf"
    path.write_text(SWF)
    jobs = read_swf(path)
    assert (len(jobs), jobs.skipped, jobs.capacity) == (3, 2, 8)
    assert jobs.arrival_s.tolist() == [0.0, 5.0, 10.0]
    assert jobs.processors.tolist() == [2, 4, 2]
    # The last ran beyond its limit until the system noticed.
    assert jobs.run_s.tolist() == [100.0, 30.0, 60.0]
    assert jobs.known_from_s.tolist() == [105.0, 35.0, 70.0]
    assert jobs.app_of[0] == jobs.app_of[1] != jobs.app_of[2]
    path.write_text(SWF + "6 1 2\n")
    with pytest.raises(InputError, match="line 8"):
        read_swf(path)
    for wrong in ("1.5", "1e300"):
        path.write_text(SWF.replace(" 4  120", f" {wrong}  120"))
        with pytest.raises(InputError, match="line 7"):
            read_swf(path)
    path.write_text("".join(SWF.splitlines(keepends=True)[i] for i in (0, 1, 5)))
    with pytest.raises(InputError, match="1 without"):
        read_swf(path)
    path.write_text(SWF.replace("MaxProcs", "Procs"))
    with pytest.raises(InputError, match="MaxProcs"):
        read_swf(path)
    with pytest.raises(InputError, match="widest"):
        read_swf(path, 2)
    with pytest.raises(InputError, match="There is no file") as caught:
        read_swf(tmp_path / "trase.swf")
    assert caught.value.hint == f"Did you mean {path}?"


def limits_document(kongming: Kongming, *arguments: object) -> dict[str, Any]:
    done = kongming("simulate", "--limits", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_the_command_compares_limits_over_seeds(kongming: Kongming) -> None:
    given = ("user,time-min", "--synthetic", "daily", "--jobs", "600", "--load", "0.9")
    document = limits_document(kongming, *given, "--seeds", "3")
    assert list(document["limits"]) == ["user", "time-min"]
    for own in document["limits"].values():
        assert own["ended_early_share"]["mean"] == 0.0
        assert own["wait_mean_s"]["low"] < own["wait_mean_s"]["high"]
    assert document["limits"]["user"]["wait_over_user"]["mean"] == pytest.approx(1.0)
    assert (document["trace"]["traces"], document["trace"]["jobs"]) == (3, 600)
    assert len(document["runs"]["user"]) == 3
    shown = kongming("simulate", "--limits", *given, "--seeds", "1")
    assert "time-min" in shown.stdout
    assert "history of 19 runs" in shown.stdout


def test_traces_of_both_formats(kongming: Kongming, tmp_path: Path) -> None:
    swf, table = tmp_path / "trace.swf", tmp_path / "trace.csv"
    swf.write_text(SWF)
    table.write_text(
        "arrival_s,app,processors,run_s,limit_s\n0,a,2,100,3600\n5,a,4,30,120\n10,b,2,60,60\n"
    )
    from_swf = limits_document(kongming, "all", "--trace", swf)
    from_table = limits_document(kongming, "all", "--trace", table, "--nodes", "8", "--slots", "1")
    assert list(from_swf["limits"]) == list(LIMITS)
    assert from_swf["limits"] == from_table["limits"]
    assert (from_swf["trace"]["skipped"], from_table["trace"]["skipped"]) == (2, 0)


def test_jobs_that_all_arrive_at_once(kongming: Kongming, tmp_path: Path) -> None:
    """Then there is no time while jobs arrive, whose use could be told."""
    table = tmp_path / "trace.csv"
    table.write_text("arrival_s,app,processors,run_s,limit_s\n0,a,2,100,3600\n0,a,4,30,120\n")
    arguments = ("user", "--trace", table, "--nodes", "4", "--slots", "1")
    own = limits_document(kongming, *arguments)["limits"]["user"]
    assert own["utilisation"]["mean"] is own["useful"]["mean"] is None
    assert own["wait_mean_s"]["mean"] == 50.0
    assert kongming("simulate", "--limits", *arguments).returncode == 0


def test_a_job_of_more_processors_than_numbers_hold(tmp_path: Path) -> None:
    table = tmp_path / "trace.csv"
    table.write_text("arrival_s,app,processors,run_s,limit_s\n0,a,1e19,100,3600\n")
    with pytest.raises(InputError, match="too small for the widest job"):
        read_jobs(table, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--limits", "usr"), "user"),
        (("--limits", "al"), "Did you mean all"),
        (("--synthetic", "daily"), "--limits"),
        (("--seeds", "3"), "--limits"),
        (("--limits", "all", "--zipf", "nan"), "zipf"),
        (("--limits", "all", "--trace", "none.swf"), "none.swf"),
        (("--limits", "all", "--trace", "none.swf", "--seeds", "3"), "--seeds"),
        (("--limits", "all", "--trace", "none.swf", "--jobs", "9"), "--jobs"),
        (("--limits", "all", "--plot", "figure.svg"), "--plot"),
        (("--limits", "all", "--fleet", "none.csv"), "--fleet"),
        (("--limits", "all", "--pack"), "--pack"),
    ],
)
def test_wrong_usage(kongming: Kongming, arguments: tuple[str, ...], message: str) -> None:
    done = kongming("simulate", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
