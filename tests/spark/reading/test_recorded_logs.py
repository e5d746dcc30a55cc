"""Logs that Spark wrote (tests/spark/record.py): all of them are read, and say what happened."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import cramjam
import numpy as np
import pytest
import zstandard

from kongming.records.errors import InputError
from kongming.spark import reading
from kongming.spark.application import FAILED, KILLED, SUCCEEDED, Application
from kongming.spark.model.replay import replay
from kongming.spark.model.workload import workload_of
from kongming.spark.reading.repairs import PARTS
from tests.spark.record import LOGS

SINGLE = sorted(path.name for path in LOGS.glob("*.zstd*"))
each_spark = pytest.mark.parametrize("label", ["spark-4", "spark-35"])


def read(name: str) -> Application:
    return reading.read(LOGS / name)


def kinds(application: Application) -> dict[str, int]:
    return {finding.kind: finding.count for finding in application.findings}


@pytest.mark.parametrize("name", [*SINGLE, "spark-4-rolling", "spark-35-rolling"])
def test_parts_add_up_and_nothing_is_negative(name: str) -> None:
    application = read(name)
    assert application.stages
    for stage in application.stages:
        tasks = stage.tasks
        span = tasks["finish_s"] - tasks["launch_s"]
        parts = np.array([tasks[part] for part in PARTS], "f8")
        np.testing.assert_allclose(parts.sum(axis=0), span, atol=1e-4)
        assert (parts >= 0).all()
        assert (np.diff(tasks["launch_s"]) >= 0).all()
        assert ((tasks["launch_s"] >= 0) & (tasks["finish_s"] <= application.last_s)).all()
        assert (tasks["executor"] < len(application.executors)).all()
        if stage.failure is None and stage.attempt == 0 and stage.completed_s is not None:
            assert (tasks["status"] == SUCCEEDED).sum() == stage.task_count
    for job in application.jobs:
        assert job.completed_s is None or 0 <= job.submitted_s <= job.completed_s
    assert "broken-lines" not in kinds(application)


@each_spark
def test_queries_are_executions_whose_shuffles_are_reused(label: str) -> None:
    application = read(f"{label}-queries.zstd")
    assert application.complete
    assert [execution.adaptive for execution in application.executions] == [True, True]
    assert {job.execution for job in application.jobs} == {0, 1, None}
    assert kinds(application)["skipped-stages"] >= 2
    writes = {stage.stage: stage.shuffle_dependency for stage in application.stages}
    assert {True, False} == set(writes.values())


@each_spark
def test_what_is_cached_is_known_from_its_blocks(label: str) -> None:
    application = read(f"{label}-cache.zstd")
    cached = [rdd for stage in application.stages for rdd in stage.rdds if rdd.persisted]
    assert {(rdd.partitions, rdd.cached_partitions) for rdd in cached} == {(8, 8)}
    assert all(rdd.memory_bytes > 100_000 for rdd in cached)
    assert application.driver_gc_s is not None


@each_spark
def test_pools_of_overlapping_jobs(label: str) -> None:
    application = read(f"{label}-pools.zstd")
    assert {job.pool for job in application.jobs} == {"pool-0", "pool-1"}
    assert {job.group for job in application.jobs} == {f"group-{k}" for k in range(6)}


@each_spark
def test_executors_that_come_and_go(label: str) -> None:
    application = read(f"{label}-dynamic.zstd")
    assert kinds(application).keys() == {"late-executors"}
    assert sorted(executor.removed_s is None for executor in application.executors) == [False, True]


@each_spark
def test_a_lost_executor_and_what_had_to_run_again(label: str) -> None:
    application = read(f"{label}-killed-executor.zstd")
    counts = kinds(application)
    assert counts["lost-executors"] == 1
    assert counts["stage-attempts"] >= 1
    assert counts["failed-tasks"] >= 1


@each_spark
def test_failed_tasks_held_their_slots(label: str) -> None:
    application = read(f"{label}-failures.zstd")
    failed = [stage.tasks[stage.tasks["status"] == FAILED] for stage in application.stages]
    assert sum(map(len, failed)) == kinds(application)["failed-tasks"]
    assert all((tasks["finish_s"] > tasks["launch_s"]).all() for tasks in failed)
    assert [job.succeeded for job in application.jobs] == [True, False]


@each_spark
def test_a_speculative_copy_and_its_original_held_slots(label: str) -> None:
    application = read(f"{label}-speculation.zstd")
    counts = kinds(application)
    assert (counts["speculative-tasks"], counts["killed-tasks"]) == (1, 1)
    [stage] = application.stages
    [copy] = stage.tasks[stage.tasks["speculative"]]
    [original] = stage.tasks[stage.tasks["status"] == KILLED]
    assert (copy["status"], copy["attempt"]) == (SUCCEEDED, 1)
    assert copy["partition"] == original["partition"]
    assert copy["executor"] != original["executor"]
    # The original ran on until its worker of Python had been ended, two seconds later.
    assert original["launch_s"] < copy["launch_s"] < copy["finish_s"] < original["finish_s"] - 2.0
    workload = workload_of(application)
    [work] = workload.stages
    assert work.speculation is not None
    assert work.lengths.sum() == pytest.approx(
        float((stage.tasks["finish_s"] - stage.tasks["launch_s"]).sum()), rel=1e-5
    )
    # No stage waits for a task that is killed.
    assert replay(workload, workload.cluster).end_s == pytest.approx(workload.measured_s, rel=0.02)


@pytest.mark.parametrize(
    ("name", "cut"),
    [("spark-4-killed-driver.zstd", 0), ("spark-35-killed-driver.zstd.inprogress", 1)],
)
def test_a_killed_driver_leaves_an_unfinished_job(name: str, cut: int) -> None:
    """Its last line may be cut."""
    application = read(name)
    assert not application.complete
    assert kinds(application)["unfinished-jobs"] == 1
    assert kinds(application).get("cut-tail", 0) == cut


@each_spark
def test_streaming_batches_are_executions(label: str) -> None:
    application = read(f"{label}-streaming.zstd")
    assert len(application.executions) >= 3
    # A batch's parts are executions of their own, below the batch's.
    assert any(execution.root not in (None, execution.id) for execution in application.executions)


@each_spark
def test_a_barrier_stage(label: str) -> None:
    assert [stage.barrier for stage in read(f"{label}-barrier.zstd").stages] == [True]


@each_spark
def test_a_rolling_log_of_several_files(label: str) -> None:
    application = read(f"{label}-rolling")
    assert application.complete
    assert len(application.jobs) == 16
    assert kinds(application) == {}


# -- codecs


def content(label: str = "spark-4") -> bytes:
    return zstandard.decompress((LOGS / f"{label}-queries.zstd").read_bytes())


PACKED = sorted(path.name for path in (LOGS / "codecs").iterdir())


def summary(application: Application) -> tuple[object, ...]:
    tasks = np.concatenate([stage.tasks for stage in application.stages])
    return application.jobs, application.executions, application.executors, tasks.tobytes()


@pytest.mark.parametrize("name", PACKED)
def test_every_codec_of_spark(name: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(content(name.rpartition("-")[0]))
    assert summary(reading.read(LOGS / "codecs" / name)) == summary(reading.read(plain))


@pytest.mark.parametrize("codec", ["gzip", "gzip twice", "lz4 frame", "xerial twice"])
def test_other_containers(codec: str, tmp_path: Path) -> None:
    plain = content()
    half = plain.index(b"\n", len(plain) // 2) + 1
    snappy = (LOGS / "codecs" / "spark-4-snappy").read_bytes()
    packed = {
        "gzip": gzip.compress(plain),
        "gzip twice": gzip.compress(plain[:half]) + gzip.compress(plain[half:]),
        "lz4 frame": bytes(cramjam.lz4.compress(plain)),
        # Another stream's header, and nothing in it.
        "xerial twice": snappy + snappy[:16],
    }
    path, other = tmp_path / "log", tmp_path / "plain"
    path.write_bytes(packed[codec])
    other.write_bytes(plain)
    assert summary(reading.read(path)) == summary(reading.read(other))


@pytest.mark.parametrize("pack", [gzip.compress, cramjam.lz4.compress])
def test_a_file_that_cannot_be_decompressed_is_named(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """An lz4 frame is read as one piece: Spark writes none."""
    path = tmp_path / "log"
    path.write_bytes(bytes(pack(content()))[:20])
    with pytest.raises(InputError, match=r"that can be read: log (ends|cannot)"):
        reading.read(path)


def test_what_follows_the_last_frame_takes_nothing_of_it(tmp_path: Path) -> None:
    packed = (LOGS / "codecs" / "spark-4-zstd").read_bytes()
    path = tmp_path / "log"
    path.write_bytes(packed + bytes(100))
    application = reading.read(path)
    assert summary(application) == summary(reading.read(LOGS / "codecs" / "spark-4-zstd"))
    assert kinds(application)["damaged-files"] == 1


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_what_is_there_of_a_cut_file_is_read(name: str, share: float, tmp_path: Path) -> None:
    packed = (LOGS / "codecs" / name).read_bytes()
    path = tmp_path / "log"
    path.write_bytes(packed[: int(share * len(packed))])
    application = reading.read(path)
    complete = reading.read(LOGS / "codecs" / name)
    assert not application.complete
    assert 1 <= len(application.jobs) <= len(complete.jobs)
    assert [job.submitted_s for job in application.jobs] == [
        job.submitted_s for job in complete.jobs[: len(application.jobs)]
    ]
    if not name.endswith("zstd"):  # the end of a frame may be missing in a good log
        assert kinds(application)["damaged-files"] == 1
