"""Dynamic allocation: only executors that come count."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kongming.spark.application import Application
from kongming.spark.estimation import Estimator, Size
from kongming.spark.model.cluster import Dynamic, dynamic_allocation
from kongming.spark.model.workload import workload_of
from tests.conftest import Kongming
from tests.spark.event_logs import write
from tests.spark.programs import Part, Program, Stage, run


def _following(executors: int) -> Any:
    """Five jobs of as many tasks as there are cores, and a shuffle of as many again."""
    parts = []
    for k in range(5):
        each = 240.0 / executors
        stages = (Stage((each,) * executors), Stage((each,) * executors, (0,)))
        parts.append(Part(stages, after=(k - 1,) if k else ()))
    application = run(Program(tuple(parts)), executors)
    settings = application.settings
    del settings["spark.default.parallelism"]
    return application


def estimated(kongming: Kongming, log: Path, most: int) -> dict[str, Any]:
    shown = kongming("spark", "estimate", log, "--dynamic", f"1..{most}", "--json")
    assert shown.returncode == 0, shown.stderr
    (estimate,) = json.loads(shown.stdout)["estimates"]
    assert isinstance(estimate, dict)
    return estimate


def test_executors_that_never_come_change_nothing(kongming: Kongming, tmp_path: Path) -> None:
    """Few tasks wait at once: a thousand executors are asked for no more than eight are."""
    log = write(_following(6), tmp_path / "log")
    few, many = estimated(kongming, log, 8), estimated(kongming, log, 1000)
    assert many["reasons"] == few["reasons"] == []
    assert many["corrections"] == few["corrections"]
    assert many["runtime_s"] == few["runtime_s"]


def test_parallelism_is_of_the_executors_at_that_stage() -> None:
    """The first stage is cut for the executor that is there, the others for those that came."""
    estimator = Estimator(_following(6))
    size = Size(6, dynamic=Dynamic(1, 6, start_s=1.0))
    lengths = estimator.pipeline.replay(estimator.cluster(size)).lengths
    counts = [len(own) for own in lengths]
    assert counts[0] == 2
    assert counts == sorted(counts)
    assert counts[-1] > 2
    # A shuffle has as many partitions as what it reads, though more executors came meanwhile.
    assert counts[::2] == counts[1::2]
    fixed = estimator.pipeline.replay(estimator.cluster(Size(6))).lengths
    assert [len(own) for own in fixed] == [6] * 10


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("600", 600.0),
        ("600s", 600.0),
        ("10m", 600.0),
        ("10min", 600.0),
        ("500ms", 0.5),
        ("x", 60.0),
    ],
)
def test_timeouts_have_units(text: str, seconds: float) -> None:
    application = run(Program((Part((Stage((10.0,) * 8),)),)), 4)
    settings = application.settings | {"spark.dynamicAllocation.executorIdleTimeout": text}
    dynamic = dynamic_allocation(replace(application, settings=settings), 0, 4)
    assert dynamic.idle_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("lengths", "held_s"),
    [
        ((10.0,) * 8, 4 * (20.0 + 60.0)),
        ((10.0, 10.0, 10.0, 400.0), 3 * (10.0 + 60.0) + 460.0),
        ((10.0, 400.0, 400.0, 400.0), 70.0 + 3 * 460.0),
    ],
)
def test_executors_that_are_idle_at_the_end_leave_too(
    lengths: tuple[float, ...], held_s: float
) -> None:
    """Four executors, and ten minutes of the driver: each goes a minute after its last task."""
    application = run(Program((Part((Stage(lengths),)),)), 4)
    assert application.ended_s is not None
    end_s = application.ended_s + 600.0
    estimator = Estimator(replace(application, ended_s=end_s, last_s=end_s))
    size = Size(4, dynamic=Dynamic(0, 4, start_s=0.5))
    estimate = estimator.estimate(size)
    assert estimate.median_s > 600.0
    assert estimate.machine_s == pytest.approx(held_s, rel=0.1)


def test_the_distance_is_to_the_executors_that_come() -> None:
    application = run(Program((Part((Stage((30.0,) * 12),)),)), 6)
    estimator = Estimator(application)
    far = estimator.estimate(Size(1000, dynamic=Dynamic(1, 1000, start_s=1.0)))
    near = estimator.estimate(Size(12))
    assert workload_of(application).tasks == 12
    assert not any("times more slots" in reason for reason in far.reasons)
    assert far.deviation < 1.2 * near.deviation


def _recorded(jobs: Sequence[tuple[float, float]], added: Sequence[float]) -> Application:
    """Jobs from and to these moments, and executors that came at those."""
    application = run(Program((Part((Stage((1.0,)),)),)), 1)
    (job,), (executor,) = application.jobs, application.executors
    return replace(
        application,
        settings={**application.settings, "spark.dynamicAllocation.enabled": "true"},
        last_s=max(end for _, end in jobs) + 1.0,
        jobs=tuple(
            replace(job, id=place, submitted_s=begin, completed_s=end)
            for place, (begin, end) in enumerate(jobs)
        ),
        executors=tuple(
            replace(executor, id=str(place), added_s=time) for place, time in enumerate(added)
        ),
    )


# The first came with the application; requested at 31, 32 and 33 s, they start in 20 s.
COMING = (25.0, 51.0, 52.0, 52.0, 53.0, 53.0)
LONG = (30.0, 150.0)


@pytest.mark.parametrize(
    ("jobs", "added", "start_s"),
    [
        ([LONG], COMING, 20.0),
        # Small jobs of a second thread, every 300 ms, while the first still waits.
        ([LONG, *((30.3 + 0.3 * k, 30.35 + 0.3 * k) for k in range(390))], COMING, 20.0),
        # The next query begins while the first one's executors start.
        ([(30.0, 50.8), (50.9, 150.0)], COMING, 20.0),
        # Queries of five seconds, one after the other.
        ([(30.0 + 6.0 * k, 35.0 + 6.0 * k) for k in range(20)], COMING, 20.0),
        # An executor that came with the application, half a second after its first job.
        ([(24.5, 150.0)], COMING, 25.0),
        # A second query's executors start faster, on machines that are there by then.
        ([LONG, (300.0, 400.0)], (*COMING, 306.0, 307.0), 5.0),
    ],
)
def test_executors_start_as_the_first_of_each_stretch_of_jobs(
    jobs: list[tuple[float, float]], added: tuple[float, ...], start_s: float
) -> None:
    assert dynamic_allocation(_recorded(jobs, added), 1, 8).start_s == pytest.approx(start_s)
