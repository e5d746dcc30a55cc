"""Each correction against a simulator that has what it corrects, and only that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kongming.records.errors import (
    CannotAnswerError,
    ExtrapolationError,
    InputError,
    UnknownNameError,
)
from kongming.spark.application import Application, Rdd
from kongming.spark.estimation import Estimator, Size
from kongming.spark.model.cluster import Cluster, Dynamic, asked_cluster, dynamic_allocation
from kongming.spark.model.corrections.contention import learn_contention
from kongming.spark.model.corrections.correction import Change
from kongming.spark.model.corrections.first_tasks import learn_first_tasks
from kongming.spark.model.corrections.fresh_executors import first_of_application, first_of_kind
from kongming.spark.model.corrections.input_growth import learn_input_growth
from kongming.spark.model.corrections.launch_rate import learn_launch_rate
from kongming.spark.model.corrections.memory import learn_memory
from kongming.spark.model.corrections.spill import learn_spill
from kongming.spark.model.corrections.task_counts import coalesced, learn_task_counts
from kongming.spark.model.corrections.warm_up import expected_ages, learn_warm_up
from kongming.spark.model.workload import workload_of
from kongming.spark.reading import read
from kongming.spark.recommendation import recommend
from tests.spark.programs import Part, Program, Stage, random_program, run
from tests.spark.record import LOGS

MIB = 1 << 20


def _errors(program: Program, recorded: int, without: list[str]) -> float:
    estimator = Estimator(run(program, recorded), without=without)
    logs = []
    for executors in (1, 2, 6, 12):
        measured = run(program, executors).ended_s
        assert measured is not None
        logs.append(abs(np.log(estimator.estimate(Size(executors)).median_s / measured)))
    return float(np.mean(logs))


@pytest.mark.parametrize("seed", range(4))
def test_first_tasks_are_learned_and_halve_the_error(seed: int) -> None:
    program = random_program(seed, first_s=1.0)
    alone, none = ["warm-up"], ["warm-up", "first-tasks"]
    assert _errors(program, 3, alone) < 0.5 * _errors(program, 3, none)


def _of_kinds(executors: int) -> Application:
    """Two kinds of stages of twelve tasks of a second, by turns: the first task of an executor
    takes 5 s more, its first of a kind 3 s more."""
    parts = []
    for k in range(8):
        rdds = (Rdd(k, "scan" if k % 2 else "aggregate", 12),)
        lengths = [1.0 + (3.0 if k < 2 else 0.0) + (5.0 if k == 0 else 0.0)] * executors
        lengths += [1.0] * (12 - executors)
        parts.append(Part((Stage(tuple(lengths), rdds=rdds),), after=(k - 1,) if k else ()))
    return run(Program(tuple(parts)), executors)


def test_the_first_tasks_of_a_kind_of_stage_are_told_from_those_of_each_stage() -> None:
    learned = learn_first_tasks(workload_of(_of_kinds(6)))
    assert learned.stage_s == pytest.approx(np.zeros(8), abs=0.05)
    assert learned.kind_s == pytest.approx(np.full(8, 3.0), rel=0.1)
    assert learned.application_s == pytest.approx(5.0, rel=0.1)
    for executors in (2, 3, 12):
        measured = _of_kinds(executors).ended_s
        estimates = [
            Estimator(_of_kinds(6), without=w).estimate(Size(executors)).median_s
            for w in (["warm-up"], ["warm-up", "first-tasks"])
        ]
        assert estimates[0] == pytest.approx(measured, rel=0.05)
        # On more executors they run next to each other, and no correction is needed.
        assert executors > 6 or estimates[1] > 1.1 * measured


def test_a_long_stage_of_unknown_rdds_is_not_taken_for_slow_first_tasks() -> None:
    parts = [Part((Stage((40.0,) * 4),))]
    parts += [Part((Stage((2.0,) * 4),), after=(k,)) for k in range(4)]
    learned = learn_first_tasks(workload_of(run(Program(tuple(parts)), 8)))
    assert learned.application_s == 0.0
    assert learned.kind_s.tolist() == [0.0] * 5


def _of_two_kinds(executors: int) -> Application:
    """Two kinds of stages that show 5 s for the first task of a kind on each executor, then four
    stages of a twentieth of a second with a task for each core, each of a kind of its own."""
    parts = []
    for k in range(8):
        lengths = [6.0 if k < 2 else 1.0] * executors + [1.0] * (24 - executors)
        rdds = (Rdd(k, "scan" if k % 2 else "aggregate", 24),)
        parts.append(Part((Stage(tuple(lengths), rdds=rdds),), after=(k - 1,) if k else ()))
    for k in range(8, 12):
        rdds = (Rdd(k, f"collection {k}", executors),)
        parts.append(Part((Stage((0.05,) * executors, rdds=rdds),), after=(k - 1,)))
    application = run(Program(tuple(parts)), executors)
    settings = dict(application.settings)
    del settings["spark.default.parallelism"]
    return replace(application, settings=settings)


@pytest.mark.parametrize("executors", [2, 12])
def test_the_first_tasks_of_a_kind_take_no_longer_than_the_log_shows(executors: int) -> None:
    measured = _of_two_kinds(executors).ended_s
    estimate = Estimator(_of_two_kinds(6), without=["warm-up"]).estimate(Size(executors))
    assert estimate.median_s == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize("seconds", [(60.0, 1.0), (40.0, 1.0, 60.0, 2.0)])
def test_stages_of_the_same_rdds_that_do_other_amounts_of_work_are_not_slow_at_first(
    seconds: tuple[float, ...],
) -> None:
    parts = []
    for k, each in enumerate(seconds):
        rdds = (Rdd(2 * k, "MapPartitionsRDD", 4), Rdd(2 * k + 1, "ParallelCollectionRDD", 4))
        parts.append(Part((Stage((each,) * 4, rdds=rdds),), after=(k - 1,) if k else ()))
    program = Program(tuple(parts))
    estimator = Estimator(run(program, 4))
    for executors in (2, 8, 16):
        measured = run(program, executors).ended_s
        assert estimator.estimate(Size(executors)).median_s == pytest.approx(measured, rel=0.02)


def _warming(executors: int) -> Application:
    """Twelve rounds of one stage: each slot's tasks are shorter the longer it has worked."""
    random = np.random.default_rng(3)
    worked = np.zeros(executors)
    parts = []
    for k in range(12):
        # Of equal tasks each slot gets its share, in turns.
        lengths = []
        for task in range(16):
            slot = task % executors
            length = 4.0 * (1.0 + worked[slot]) ** -0.3 * random.uniform(0.95, 1.05)
            worked[slot] += length
            lengths.append(float(length))
        parts.append(Part((Stage(tuple(lengths)),), after=(k - 1,) if k else ()))
    return run(Program(tuple(parts)), executors)


def test_warm_up_is_learned_from_stages_that_come_again() -> None:
    application = _warming(4)
    slope = learn_warm_up(workload_of(application)).slope
    # Reduced by its uncertainty.
    assert -0.35 < slope < -0.05
    for executors in (2, 8):
        measured = _warming(executors).ended_s
        errors = [
            abs(Estimator(application, without=w).estimate(Size(executors)).median_s / measured - 1)
            for w in ([], ["warm-up"])
        ]
        assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize("seed", range(4))
def test_where_no_task_is_slower_at_first_little_is_corrected(seed: int) -> None:
    assert _errors(random_program(seed), 3, []) < 0.03


def test_corrections_add_up_change_nothing_at_the_recorded_size_and_can_be_left_out() -> None:
    application = run(random_program(1, first_s=1.0), 3)
    estimator = Estimator(application)
    same = estimator.estimate(Size(3))
    assert set(same.corrections.values()) == {0.0}
    assert same.median_s == pytest.approx(estimator.replayed_s())
    other = estimator.estimate(Size(9))
    constant = Estimator(application, without=list(other.corrections)).estimate(Size(9))
    assert other.corrections["first-tasks"] > 0.0
    assert constant.median_s + sum(other.corrections.values()) == pytest.approx(other.median_s)
    with pytest.raises(UnknownNameError, match="correction"):
        Estimator(application, without=["magic"])


def test_task_counts_follow_the_default_parallelism() -> None:
    parts = (Part((Stage((8.0,) * 4), Stage((2.0,) * 4, (0,)))),)
    application = run(Program(parts, settings={}), 4)
    settings = {k: v for k, v in application.settings.items() if "parallelism" not in k}
    workload = workload_of(replace(application, settings=settings))
    counts = learn_task_counts(workload, None)
    assert counts.rules == ("parallelism", "parallelism")
    change = Change(workload.cluster, asked_cluster(workload.cluster, 8))
    lengths = counts.apply([stage.lengths for stage in workload.stages], change)
    assert [len(own) for own in lengths] == [8, 8]
    assert lengths[0].sum() == pytest.approx(32.0)


def test_coalescing_advises_as_many_partitions_as_cores_until_they_are_too_small() -> None:
    assert coalesced(64 * MIB, 8, {}) == 8
    assert coalesced(64 * MIB, 16, {}) == 16
    assert coalesced(4 * MIB, 16, {}) == 4
    assert coalesced(1 << 40, 16, {}) == 200
    later = {"spark.sql.adaptive.coalescePartitions.parallelismFirst": "false"}
    assert coalesced(640 * MIB, 64, later) == 10


def test_contention_is_learned_from_tasks_beside_fewer_others() -> None:
    random = np.random.default_rng(0)
    application = run(Program((Part((Stage((1.0,) * 200),)),)), 1, 4)
    tasks = application.stages[0].tasks.copy()
    # Two at once in the first half, four in the second, which are slower by 2^0.4.
    for k in range(100):
        start = (k // 2) * 1.0
        tasks["launch_s"][k], tasks["finish_s"][k] = start, start + random.uniform(0.9, 1.0)
    for k in range(100):
        start = 50.0 + (k // 4) * 1.5
        length = random.uniform(0.9, 1.0) * 2**0.4
        tasks["launch_s"][100 + k], tasks["finish_s"][100 + k] = start, start + length
    stage = replace(application.stages[0], tasks=tasks)
    workload = workload_of(replace(application, stages=(stage,)))
    # A lower bound: towards its end a task runs next to fewer.
    assert 0.2 < learn_contention(workload).slope <= 0.42


def test_a_driver_that_launches_slowly_limits_short_tasks() -> None:
    application = run(Program((Part((Stage((0.2,) * 400),)),)), 8)
    tasks = application.stages[0].tasks.copy()
    shift = np.arange(len(tasks)) * 0.02
    tasks["launch_s"], tasks["finish_s"] = 1.0 + shift, 1.2 + shift
    ended = float(tasks["finish_s"].max())
    stage = replace(application.stages[0], tasks=tasks, completed_s=ended)
    job = replace(application.jobs[0], completed_s=ended)
    application = replace(application, stages=(stage,), jobs=(job,), ended_s=ended, last_s=ended)
    workload = workload_of(application)
    assert learn_launch_rate(workload).interval_s == pytest.approx(0.02)
    wide = Estimator(application).estimate(Size(64))
    assert wide.median_s == pytest.approx(ended, rel=0.1)
    assert wide.baselines["constant_durations"] < 0.4 * ended


def _sampled(ratio: float, executors: int = 2) -> Application:
    """A stage of constant, one of fixed and linear, and one of n log n seconds."""
    nlogn = ratio * np.log(ratio * 1e6)
    stages = [
        Stage((2.0,) * 8),
        Stage((1.0 + 30.0 * ratio,) * 8, (0,)),
        Stage((float(2.0 * nlogn),) * 8, (1,)),
    ]
    return run(Program((Part(tuple(stages)),)), executors)


def test_two_samples_tell_how_each_stage_grows() -> None:
    small, larger, full = (workload_of(_sampled(ratio)) for ratio in (0.1, 0.2, 1.0))
    inputs = learn_input_growth(small, 0.1, larger, 0.2, 1.0)
    assert inputs.kinds == ("constant", "linear", "n log n")
    estimator = Estimator(
        _sampled(0.1), inputs=inputs, without=["first-tasks", "warm-up", "task-counts"]
    )
    estimate = estimator.estimate(Size(2))
    assert estimate.median_s == pytest.approx(full.measured_s, rel=0.02)
    assert "10 times the input" in estimate.reasons[0]
    with pytest.raises(InputError, match="same ratio"):
        learn_input_growth(small, 0.1, larger, 0.1, 1.0)
    elsewhere = workload_of(_sampled(0.2, executors=3))
    with pytest.raises(CannotAnswerError, match="2 executors with 2 slots and 3 executors with 3"):
        learn_input_growth(small, 0.1, elsewhere, 0.2, 1.0)


def _iterative(executors: int) -> Application:
    """Eight partitions of 500 MB kept in memory; executors have 1 GB each."""
    rdd = Rdd(5, "points", 8, persisted=True, cached_partitions=8, memory_bytes=4e9)
    make, read = Stage((10.0,) * 8, rdds=(rdd,)), Stage((2.0,) * 8, rdds=(rdd,))
    parts = [Part((make,))]
    parts += [Part((read,), after=(k,)) for k in range(6)]
    return run(Program(tuple(parts)), executors)


def test_the_memory_cliff_is_modelled_said_and_refused_under_strict() -> None:
    application = _iterative(8)
    estimate = Estimator(application).estimate(Size(2))
    fits = Estimator(application).estimate(Size(4))
    assert fits.corrections["memory"] == 0.0
    # Half of the partitions are computed again in each of six stages.
    assert estimate.corrections["memory"] == pytest.approx(6 * 10.0 * 4 / 2, rel=0.35)
    assert any("memory cliff" in reason and "4 executors" in reason for reason in estimate.reasons)
    with pytest.raises(ExtrapolationError, match="memory cliff"):
        Estimator(application, strict=True).estimate(Size(2))


def test_what_is_cached_after_other_data_takes_its_room() -> None:
    """Two programs like the iterative one in a row, each with an RDD of its own."""
    parts = []
    for number in range(2):
        rdd = Rdd(number, "points", 8, persisted=True, cached_partitions=8, memory_bytes=4e9)
        lengths = (10.0, 2.0, 2.0)
        parts += [Part((Stage((length,) * 8, rdds=(rdd,)),)) for length in lengths]
    chain = [replace(part, after=(k - 1,) if k else ()) for k, part in enumerate(parts)]
    application = run(Program(tuple(chain)), 8)
    assert learn_memory(workload_of(application)).cached_bytes == pytest.approx(4e9)
    estimate = Estimator(application).estimate(Size(4))
    assert (estimate.corrections["memory"], estimate.reasons) == (0.0, ())


def test_misses_that_the_log_shows_go_where_memory_suffices() -> None:
    """Two executors keep half of the partitions: the others are computed again, in 10 s more."""
    rdd = Rdd(5, "points", 8, persisted=True)
    read = Stage((2.0, 12.0) * 4, rdds=(rdd,))
    parts = [Part((Stage((10.0,) * 8, rdds=(rdd,)),))]
    parts += [Part((read,), after=(k,)) for k in range(6)]
    application = run(Program(tuple(parts)), 2)
    stages = []
    for stage in application.stages:
        tasks = stage.tasks.copy()
        if stage.stage:
            hit = tasks["partition"] % 2 == 0
            tasks["input_bytes"][hit] = 5e8
        stages.append(replace(stage, tasks=tasks))
    estimator = Estimator(
        replace(application, stages=tuple(stages)), without=["first-tasks", "warm-up"]
    )
    memory = learn_memory(estimator.workload)
    assert memory.cached_bytes == pytest.approx(4e9)
    assert memory.missing(estimator.workload.cluster) == pytest.approx(0.5)
    assert memory.fits_from(estimator.workload.cluster) == 4
    # All six stages of eight hits on four slots, after the first of eight tasks.
    assert estimator.estimate(Size(4)).median_s == pytest.approx(20 + 6 * 4 + 7.5, rel=0.05)


def _chain(*counts: int) -> Program:
    parts = [Part((Stage((2.0,) * n),), after=(k - 1,) if k else ()) for k, n in enumerate(counts)]
    return Program(tuple(parts))


@pytest.mark.parametrize("cluster", [Cluster(3, 2), Cluster(8, 1), Cluster(40, 1), Cluster(40, 4)])
def test_first_tasks_are_those_of_a_shuffled_order_of_executors(cluster: Cluster) -> None:
    """As Spark's log shows: narrow stages land on any executors, not on those that are warm."""
    counts = [2, 3, 2, 8, 2, 50, 2]
    random = np.random.default_rng(1)
    first = np.zeros(len(counts))
    for _ in range(1000):
        warm = np.zeros(cluster.executors, bool)
        for number, count in enumerate(counts):
            order = random.permutation(cluster.executors)
            places = order[np.arange(min(count, cluster.slots)) % cluster.executors]
            first[number] += (~warm[places]).sum() / 1000
            warm[places] = True
    workload = workload_of(run(_chain(*counts), 2))
    assert first_of_application(workload, counts, cluster) == pytest.approx(first, abs=0.35)


@pytest.mark.parametrize("cluster", [Cluster(8, 1), Cluster(40, 1), Cluster(40, 4)])
def test_first_tasks_of_a_kind_are_those_of_a_shuffled_order_too(cluster: Cluster) -> None:
    counts = [2, 3, 2, 8, 2, 50, 2]
    kinds = [Rdd(k, name, 8) for k, name in enumerate("ABABAAB")]
    random = np.random.default_rng(1)
    first = np.zeros(len(counts))
    for _ in range(1000):
        warm = {name: np.zeros(cluster.executors, bool) for name in "AB"}
        for number, (count, kind) in enumerate(zip(counts, kinds, strict=True)):
            order = random.permutation(cluster.executors)
            places = order[np.arange(min(count, cluster.slots)) % cluster.executors]
            first[number] += (~warm[kind.name][places]).sum() / 1000
            warm[kind.name][places] = True
    parts = tuple(
        Part((Stage((2.0,) * n, rdds=(rdd,)),), after=(k - 1,) if k else ())
        for k, (n, rdd) in enumerate(zip(counts, kinds, strict=True))
    )
    workload = workload_of(run(Program(parts), 2))
    assert first_of_kind(workload, counts, cluster) == pytest.approx(first, abs=0.35)


def test_readers_of_what_is_cached_go_where_it_is() -> None:
    rdd = Rdd(5, "points", 3, persisted=True)
    stages = [Stage((2.0,) * 3, rdds=(rdd,))] * 3
    parts = tuple(Part((each,), after=(k - 1,) if k else ()) for k, each in enumerate(stages))
    workload = workload_of(run(Program(parts), 2))
    assert first_of_application(workload, [3, 3, 3], Cluster(9, 1)) == [3.0, 0.0, 0.0]
    # The first stage makes it, the others read it: another kind.
    assert first_of_kind(workload, [3, 3, 3], Cluster(9, 1)) == [3.0, 3.0, 0.0]


def test_slots_without_tasks_make_no_other_task_colder() -> None:
    workload = workload_of(run(_chain(*[4] * 6), 4))
    four = expected_ages(workload, [4] * 6, Cluster(4, 1))
    assert four.tolist() == pytest.approx([0.0, 2.0, 4.0, 6.0, 8.0, 10.0])
    # More cores than tasks: the executor has run as many tasks, at the same time.
    assert expected_ages(workload, [4] * 6, Cluster(1, 64)) == pytest.approx(four)
    # However many executors there are, only those that had tasks count: 8 s in 4 slots or more.
    many = expected_ages(workload, [4] * 6, Cluster(10_000, 1))
    assert many == pytest.approx([0.0, *[2.0] * 5], rel=0.01)


def test_memory_that_no_number_of_executors_makes_good_is_refused_under_strict() -> None:
    estimator = Estimator(read(LOGS / "spark-4-queries.zstd"), strict=True)
    with pytest.raises(ExtrapolationError, match=r"would spill .* the log does not tell"):
        estimator.estimate(Size(1, memory_bytes=1024.0))
    with pytest.raises(ExtrapolationError, match="fit into no number of executors"):
        Estimator(_iterative(8), strict=True).estimate(Size(8, memory_bytes=1024.0))


def _sorting(room: float, slots_each: int = 2) -> Application:
    """Tasks that read and need differing amounts; what exceeds their room spills, at 100 MB/s."""
    random = np.random.default_rng(5)
    needed = random.uniform(0.2e9, 1.0e9, 40)
    read = needed * random.uniform(0.3, 1.5, 40)
    spilled = np.maximum(needed - room / slots_each, 0.0)
    lengths = 2.0 + read / 1e9 + spilled / 1e8
    program = Program((Part((Stage(tuple(lengths.tolist())),)),))
    settings = {"spark.executor.memory": f"{round(room / 0.6 / MIB) + 300}m"}
    application = run(replace(program, settings=settings), 2, slots_each)
    (stage,) = application.stages
    tasks = stage.tasks.copy()
    at = tasks["partition"]
    tasks["memory_spill_bytes"] = spilled[at]
    tasks["peak_execution_bytes"], tasks["input_bytes"] = (needed - spilled)[at], read[at]
    executors = tuple(replace(each, storage_bytes=room) for each in application.executors)
    return replace(
        application, settings=settings, executors=executors, stages=(replace(stage, tasks=tasks),)
    )


def test_spill_is_learned_and_follows_the_memory_of_a_task() -> None:
    """Less memory or more cores spill more, more memory spills less; --without spill does not."""
    application = _sorting(1.2e9)
    estimator = Estimator(application)
    rate = learn_spill(estimator.workload, learn_memory(estimator.workload)).second_per_byte
    assert rate == pytest.approx(1e-8, rel=0.05)

    def heap(room: float) -> float:
        return room / 0.6 + 300 * MIB

    for room, cores in ((0.8e9, 2), (2.4e9, 2), (1.2e9, 4)):
        size = Size(2, cores, heap(room))
        measured = _sorting(room, cores).ended_s
        assert estimator.estimate(size).median_s == pytest.approx(measured, rel=0.05)
        plain = Estimator(application, without=["spill"]).estimate(size)
        assert plain.median_s != pytest.approx(measured, rel=0.2)
    assert any("would spill" in each for each in estimator.estimate(Size(2, 4)).reasons)
    assert estimator.estimate(Size(2)).corrections["spill"] == 0.0


def test_cached_blocks_keep_what_the_settings_of_the_log_protect() -> None:
    """Tasks take 2 GB of execution memory: all of an executor's but for what is protected."""
    application = _iterative(8)
    stages = []
    for stage in application.stages:
        tasks = stage.tasks.copy()
        tasks["peak_execution_bytes"] = 2e9
        stages.append(replace(stage, tasks=tasks))
    for text, share, fits in (
        (None, 0.5, 8),
        ("0.8", 0.8, 5),
        ("0.25", 0.25, 16),
        ("*********(redacted)", 0.5, 8),
        ("nan", 0.5, 8),
    ):
        settings = {} if text is None else {"spark.memory.storageFraction": text}
        workload = workload_of(replace(application, stages=tuple(stages), settings=settings))
        memory, cluster = learn_memory(workload), workload.cluster
        assert memory.room(cluster) == pytest.approx(1e9 * share)
        assert memory.fits_from(cluster) == fits
        # Eight executors cache 500 MB each, of which they keep no more than the protected.
        assert learn_spill(workload, memory).room(cluster) == pytest.approx(
            1e9 - min(5e8, 1e9 * share)
        )


def test_dynamic_allocation_has_no_more_executors_than_tasks_had_use_for() -> None:
    cluster = replace(Cluster(16, 2), dynamic=Dynamic(0, 16))
    workload = workload_of(run(_chain(4, 4, 8), 2))
    assert first_of_application(workload, [4, 4, 8], cluster) == [4.0, 0.0, 4.0]


def test_the_knee_does_not_lie_beyond_the_fastest() -> None:
    """Beyond eight executors this program's stages land on cold ones."""
    estimator = Estimator(read(LOGS / "spark-35-killed-executor.zstd"))
    chosen = recommend(estimator.estimates([Size(count) for count in range(1, 17)]))
    assert chosen.fastest.executors <= 8
    assert chosen.knee.executors <= chosen.fastest.executors


def test_executors_start_as_fast_as_those_that_tasks_waited_for() -> None:
    application = read(LOGS / "spark-4-dynamic.zstd")
    first = min(each.added_s for each in application.executors)
    last = max(each.added_s for each in application.executors)
    wait = last - min(job.submitted_s for job in application.jobs)
    start_s = dynamic_allocation(application, 1, 2).start_s
    assert start_s == pytest.approx(wait - 1.0)
    assert start_s < first
