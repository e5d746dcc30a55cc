"""The replay against a plain simulator that shares no code with it, and its properties."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kongming.records.errors import CannotAnswerError
from kongming.spark.estimate_document import document
from kongming.spark.estimation import Estimator, Size
from kongming.spark.model.baselines import ConstantLengths
from kongming.spark.model.cluster import Cluster, Dynamic, asked_cluster
from kongming.spark.model.critical_path import critical_path_s
from kongming.spark.model.driver import driver_time
from kongming.spark.model.groups import job_groups, subgroups
from kongming.spark.model.replay import replay
from kongming.spark.model.sparklens import Sparklens, run_seconds
from kongming.spark.model.workload import workload_of
from kongming.spark.reading import read
from tests.spark.programs import Part, Program, Stage, random_program, run, shuffled
from tests.spark.record import LOGS

SEEDS = range(8)

CLUSTERS = Path(__file__).parents[3] / "benchmarks/spark/logs"
"""Logs of the benchmark's clusters."""


def _gaps_and_tasks(program: Program) -> float:
    jobs = sum(part.gap + part.tail for part in program.parts)
    return jobs + program.end + sum(sum(s.lengths) for part in program.parts for s in part.stages)


@pytest.mark.parametrize("seed", SEEDS)
def test_constant_lengths_give_what_the_program_takes_at_any_size(seed: int) -> None:
    program = random_program(seed)
    estimator = Estimator(run(program, 3), without=["first-tasks", "warm-up"])
    for executors in (1, 2, 5, 16):
        measured = run(program, executors).ended_s
        assert measured is not None
        # Turnover is inferred from the log: where slots wait for a parent it is not exact.
        assert estimator.estimate(Size(executors)).median_s == pytest.approx(measured, rel=0.005)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_recorded_size_replays_as_it_was(seed: int) -> None:
    errors = []
    for threads in (False, True):
        application = run(random_program(seed, threads=threads), 3)
        workload = workload_of(application)
        errors.append(abs(replay(workload, workload.cluster).end_s / workload.measured_s - 1.0))
    assert max(errors) < 0.08
    assert np.median(errors) < 0.02


@pytest.mark.parametrize("seed", SEEDS)
def test_one_slot_takes_the_sum_and_endless_slots_the_critical_path(seed: int) -> None:
    program = random_program(seed)
    workload = workload_of(run(program, 1))
    assert replay(workload, workload.cluster).end_s == pytest.approx(_gaps_and_tasks(program))
    endless = replay(workload, Cluster(workload.tasks, 1)).end_s
    assert endless == pytest.approx(critical_path_s(workload))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_the_records_does_not_matter(seed: int) -> None:
    application = run(random_program(seed, threads=True, first_s=0.7), 2)
    ours, others = (
        Estimator(each).estimate(Size(5)) for each in (application, shuffled(application, seed))
    )
    assert ours.median_s == pytest.approx(others.median_s)
    assert ours.baselines == pytest.approx(others.baselines)


@pytest.mark.parametrize("seed", SEEDS)
def test_more_slots_are_never_far_slower_and_never_below_the_critical_path(seed: int) -> None:
    workload = workload_of(run(random_program(seed, threads=True), 2))
    times = [replay(workload, Cluster(count, 1)).end_s for count in (1, 2, 4, 8, 64)]
    # Graham's anomalies allow a little more time with more slots.
    assert all(more <= 1.1 * fewer for fewer, more in itertools.pairwise(times))
    assert min(times) >= critical_path_s(workload) - 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_sparklens_and_constant_lengths_agree_where_groups_do_not_overlap(seed: int) -> None:
    workload = workload_of(run(random_program(seed), 3))
    for executors in (1, 4, 9):
        cluster = Cluster(executors, 1)
        paper, sparklens = ConstantLengths(workload), Sparklens(workload)
        assert paper.seconds(cluster) == pytest.approx(sparklens.seconds(cluster), rel=0.01)


RECORDED = [
    *(LOGS / f"spark-{name}" for name in ("35-queries.zstd", "4-queries.zstd", "4-cache.zstd")),
    *(LOGS / f"spark-4-{name}" for name in ("dynamic.zstd", "failures.zstd", "rolling")),
    *(LOGS / f"spark-35-{name}" for name in ("dynamic.zstd", "failures.zstd", "rolling")),
    *(CLUSTERS / f"{name}-2-0.zstd" for name in ("tpch", "sort", "cached", "windows", "words")),
]
"""Logs whose job groups do not overlap."""


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_sparklens_and_constant_lengths_agree_on_recorded_logs(path: Path) -> None:
    """Of the same task lengths: Sparklens takes shorter ones, the executors' run time alone."""
    workload = workload_of(read(path))
    lengths = [stage.lengths for stage in workload.stages]
    paper, sparklens = ConstantLengths(workload), Sparklens(workload)
    for executors in (1, 2, 4, 8, 16):
        cluster = asked_cluster(workload.cluster, executors)
        same = sparklens.seconds(cluster, lengths)
        assert same == pytest.approx(paper.seconds(cluster), rel=0.01)
        run_only = [run_seconds(stage) for stage in workload.stages]
        assert sparklens.seconds(cluster) == pytest.approx(
            paper.seconds(cluster, run_only), rel=0.01
        )
        assert sparklens.seconds(cluster) < same


def test_baselines_of_each_execution_hold_its_own_gaps() -> None:
    stage = Stage((4.0,) * 4)
    program = Program(
        (
            Part((stage,), execution=1),
            Part((Stage((2.0,) * 4),), gap=0.5, after=(0,), execution=1),
            Part((stage,), gap=3.0, after=(1,)),
            Part((stage, stage), gap=1.0, after=(2,), execution=2),
        )
    )
    workload = workload_of(run(program, 2))
    for executors, turns in ((1, 4), (2, 2), (4, 1), (8, 1)):
        cluster = Cluster(executors, 1)
        last = 4.0 * max(8 // executors, 1)
        expected = {1: pytest.approx(6.0 * turns + 0.5), 2: pytest.approx(last)}
        assert ConstantLengths(workload).execution_seconds(cluster) == expected
        assert Sparklens(workload).execution_seconds(cluster) == expected


def test_sparklens_takes_an_overlap_off_the_driver_and_never_ends_before_it_began() -> None:
    program = Program(tuple(Part((Stage((10.0,) * 2),), gap=1.0) for _ in range(4)), end=1.0)
    workload = workload_of(run(program, 4))
    # Two of four jobs at a time: 21 s for 10 + 10 + 20 + 20 s of lists.
    assert workload.measured_s == pytest.approx(22.0)
    one_each = Sparklens(workload).seconds(Cluster(8, 1))
    assert one_each == pytest.approx(22.0 - 60.0 + 40.0)
    assert ConstantLengths(workload).seconds(Cluster(8, 1)) == pytest.approx(2.0 + 40.0)
    short = [stage.lengths / 10.0 for stage in workload.stages]
    assert Sparklens(workload).seconds(Cluster(8, 1), short) == 0.0


def test_driver_time_is_split_and_overlapping_jobs_count_once() -> None:
    program = Program(
        (
            Part((Stage((4.0,)),), gap=2.0),
            Part((Stage((6.0,)),), gap=3.0),
            Part((Stage((1.0,)),), gap=5.0, after=(0, 1)),
        ),
        end=1.5,
    )
    driver = driver_time(run(program, 4))
    assert driver.startup_s == pytest.approx(2.0)
    assert driver.between_jobs_s == pytest.approx(5.0)
    assert driver.end_s == pytest.approx(1.5)
    assert driver.total_s == pytest.approx(8.5)


def test_jobs_of_an_execution_are_a_group_and_split_by_time() -> None:
    stage = Stage((1.0,))
    program = Program(
        (
            Part((stage,), execution=7),
            Part((stage,), execution=7),
            Part((stage,), gap=0.5, after=(0, 1), execution=7),
            Part((stage,), after=(2,)),
        )
    )
    jobs = run(program, 4).jobs
    groups = job_groups(jobs)
    assert [group.jobs for group in groups] == [(0, 1, 2), (3,)]
    ends = [job.completed_s or 0.0 for job in jobs]
    assert subgroups(groups[0], jobs, ends) == ((0, 1), (2,))


def test_threads_are_not_tied_to_each_other() -> None:
    """A thread of short jobs goes on while another waits for its long one."""
    program = Program(
        (
            Part((Stage((40.0,) * 4),), gap=1.0),
            *(Part((Stage((2.0,) * 4),), gap=1.0, after=() if k == 0 else (k,)) for k in range(4)),
        )
    )
    estimator = Estimator(run(program, 8))
    for executors in (4, 16):
        measured = run(program, executors).ended_s
        assert estimator.estimate(Size(executors)).median_s == pytest.approx(measured, rel=0.02)


def test_fair_pools_share_what_fifo_gives_to_the_first() -> None:
    parts = tuple(Part((Stage((1.0,) * 40),), gap=0.1 * (k + 1)) for k in range(2))
    application = run(Program(parts), 4)
    pools = tuple(replace(job, pool=f"pool{job.id}") for job in application.jobs)
    ends = {}
    for mode in ("FIFO", "FAIR"):
        settings = {**application.settings, "spark.scheduler.mode": mode}
        workload = workload_of(replace(application, jobs=pools, settings=settings))
        ends[mode] = replay(workload, Cluster(4, 1)).job_spans[:, 1]
    assert ends["FIFO"][0] < 0.6 * ends["FIFO"][1]
    assert ends["FAIR"][0] > 0.9 * ends["FAIR"][1]


def test_a_barrier_waits_for_all_its_slots_and_needs_them() -> None:
    program = Program((Part((Stage((3.0,) * 4),)),), end=0.0)
    application = run(program, 4)
    stages = tuple(replace(stage, barrier=True) for stage in application.stages)
    workload = workload_of(replace(application, stages=stages))
    assert replay(workload, Cluster(4, 1)).end_s == pytest.approx(4.0)
    with pytest.raises(CannotAnswerError, match="barrier of 4 tasks"):
        replay(workload, Cluster(3, 1))
    with pytest.raises(CannotAnswerError, match="dynamic allocation"):
        replay(workload, Cluster(4, 1, dynamic=Dynamic(0, 4)))
    estimator = Estimator(replace(application, stages=stages))
    (only,) = estimator.estimates([Size(3), Size(4)])
    assert only.executors == 4
    assert "3 executors: Stage 0 is a barrier" in estimator.refused[0]
    with pytest.raises(CannotAnswerError):
        estimator.estimates([Size(2), Size(3)])


def test_task_cpus_halve_the_slots() -> None:
    application = run(Program((Part((Stage((1.0,) * 8),), gap=0.0),), end=0.0), 2, 2)
    executors = tuple(replace(each, cores=4) for each in application.executors)
    settings = {**application.settings, "spark.task.cpus": "2"}
    workload = workload_of(replace(application, executors=executors, settings=settings))
    assert workload.cluster.slots == 4
    assert replay(workload, asked_cluster(workload.cluster, 1)).end_s == pytest.approx(4.0)


def test_dynamic_allocation_ramps_up_by_doubling_and_gives_back() -> None:
    program = Program(
        (
            Part((Stage((10.0,) * 64),), gap=1.0),
            Part((Stage((5.0,)),), gap=200.0, after=(0,)),
        )
    )
    workload = workload_of(run(program, 16))
    fixed = replay(workload, Cluster(16, 1))
    dynamic = replay(workload, replace(Cluster(16, 1), dynamic=Dynamic(1, 16, start_s=2.0)))
    assert fixed.end_s < dynamic.end_s < 1.5 * fixed.end_s
    assert dynamic.executor_s < 0.7 * fixed.executor_s


def test_executors_that_come_late_are_waited_for() -> None:
    application = run(Program((Part((Stage((1.0,) * 8),), gap=0.0),), end=0.0), 2)
    late = (application.executors[0], replace(application.executors[1], added_s=3.0))
    workload = workload_of(replace(application, executors=late))
    assert workload.cluster.executors == 2
    assert replay(workload, workload.cluster).end_s == pytest.approx(6.0, abs=0.6)


def test_killed_copies_hold_a_slot_and_nobody_waits_for_them() -> None:
    application = run(Program((Part((Stage((1.0, 1.0, 9.0)),), gap=0.0),), end=0.0), 3)
    stage = application.stages[0]
    tasks = stage.tasks.copy()
    tasks["partition"][2], tasks["status"][2] = 1, 2
    stage = replace(stage, tasks=tasks, completed_s=1.0)
    workload = workload_of(replace(application, stages=(stage,)))
    assert replay(workload, Cluster(3, 1)).stage_spans[0, 1] == pytest.approx(1.0)


def test_gpus_and_a_log_without_tasks_are_refused() -> None:
    application = run(Program((Part((Stage((1.0,)),)),)), 1)
    gpu = {**application.settings, "spark.task.resource.gpu.amount": "1"}
    with pytest.raises(CannotAnswerError, match="gpu"):
        workload_of(replace(application, settings=gpu))
    with pytest.raises(CannotAnswerError, match="no task has finished"):
        workload_of(replace(application, stages=()))
    with pytest.raises(CannotAnswerError, match="no executor"):
        workload_of(replace(application, executors=()))


def test_tasks_of_jobs_whose_start_is_unknown_have_no_answer() -> None:
    application = replace(run(random_program(0), 2), jobs=())
    with pytest.raises(CannotAnswerError, match="job whose start"):
        workload_of(application)


@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize("name", ["spark-4-queries", "spark-4-cache", "spark-4-failures"])
def test_no_model_goes_below_its_own_critical_path(name: str, paper: bool) -> None:
    estimator = Estimator(read(LOGS / f"{name}.zstd"), paper=paper)
    critical = document(estimator, [estimator.estimate(Size(1))])["critical_path_s"]
    assert estimator.estimate(Size(64)).median_s >= critical - 1e-9
    if paper:
        assert estimator.estimate(Size(64)).median_s == pytest.approx(critical)
