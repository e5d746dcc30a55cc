"""Event logs of Spark that are cut, damaged, without some of their lines or with some twice: what
is read of them, and estimated from it, has no negative time and no number that is none."""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from hypothesis import strategies as st

from kongming.cli.spark.inspect import document
from kongming.spark import estimate_document
from kongming.spark.application import Application
from kongming.spark.estimation import Estimator, Size, warnings_of
from kongming.spark.inspection import inspect
from kongming.spark.model.cluster import dynamic_allocation
from kongming.spark.reading import read
from kongming.spark.reading.repairs import PARTS
from tests.fuzz.mutations import contents, documents
from tests.fuzz.target import Target, file_of
from tests.spark.event_lines import content, run
from tests.spark.record import LOGS


@cache
def _recorded() -> list[list[Any]]:
    """The events of each recorded log."""
    logs = [zstandard.decompress(path.read_bytes()) for path in sorted(LOGS.glob("*.zstd"))]
    return [[json.loads(line) for line in log.splitlines()] for log in logs]


@cache
def _packed() -> list[bytes]:
    seeds = [path.read_bytes() for path in sorted((LOGS / "codecs").iterdir())]
    return [*seeds, gzip.compress(content(run()))]


@st.composite
def _lines(draw: st.DrawFn) -> bytes:
    """Lines dropped, doubled, out of order, with other values in them; cut at last."""
    events = list(draw(st.sampled_from([run(), *_recorded()])))
    chance = random.Random(draw(st.integers(0, 2**32)))
    remaining = [
        event for event in events if chance.random() > draw(st.sampled_from([0.0, 0.02, 0.3]))
    ]
    for _ in range(draw(st.integers(0, 3))):
        at = chance.randrange(len(remaining) + 1)
        remaining[at:at] = [chance.choice(events)]
    for _ in range(draw(st.integers(0, 3))):
        at = chance.randrange(len(remaining)) if remaining else 0
        remaining[at : at + 1] = [draw(documents([event])) for event in remaining[at : at + 1]]
    lines = b"".join(
        json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in remaining
    )
    return lines[: chance.choice((len(lines), chance.randrange(len(lines) + 1)))]


def log_draws() -> st.SearchStrategy[bytes]:
    return _lines() | contents([content(run())]) | contents(_packed())


def log(drawn: bytes) -> None:
    with file_of(drawn) as path:
        check(path)


def check(path: Path) -> None:
    """Read a log, inspect it, estimate from it, and raise AssertionError where it holds what cannot
    be."""
    application = read(path, missing=0.9)
    for stage in application.stages:
        tasks = stage.tasks
        for name in tasks.dtype.names or ():
            values = tasks[name].astype("f8")
            assert np.isfinite(values).all(), name
            # An executor, partition or attempt may be unknown, hence -1.
            assert (values >= 0).all() or name in ("executor", "partition", "attempt"), name
        span = tasks["finish_s"] - tasks["launch_s"]
        parts = sum(tasks[part].astype("f8") for part in PARTS)
        assert np.allclose(parts, span, rtol=1e-5, atol=1e-3)
        assert (span <= application.last_s + 1e-6).all()
    for job in application.jobs:
        assert job.completed_s is None or 0 <= job.submitted_s <= job.completed_s
    for executor in application.executors:
        assert executor.removed_s is None or 0 <= executor.added_s <= executor.removed_s
    assert all(finding.count > 0 for finding in application.findings)
    json.dumps(document(application, inspect(application)), allow_nan=False)
    check_estimates(application)


def check_estimates(application: Application) -> None:
    """Estimate and recommend by both models, on executors that stay and on those that come and
    go."""
    for paper in (False, True):
        estimator = Estimator(application, paper=paper)
        sizes = [Size(1), Size(3, cores=2), Size(40, memory_bytes=2.0**30)]
        if not paper:
            sizes.append(Size(4, dynamic=dynamic_allocation(application, 0, 4)))
        estimates = estimator.estimates(sizes, jobs=1)
        answer = estimate_document.document(
            estimator, estimates, by_execution=True, warnings=warnings_of(estimator, estimates)
        )
        json.dumps(answer, allow_nan=False)
        for each in answer["estimates"]:
            assert 0.0 <= each["utilisation"] <= 1.0
        for query in answer["executions"]:
            assert query["measured_s"] >= 0.0
        for runtime_s in (
            *(each["runtime_s"] for each in answer["estimates"]),
            *(each["runtime_s"] for query in answer["executions"] for each in query["estimates"]),
        ):
            assert 0.0 <= runtime_s["lower"] <= runtime_s["median"] <= runtime_s["upper"]
        seconds = [
            answer["driver_s"],
            answer["critical_path_s"],
            answer["self_check"]["replayed_s"],
        ]
        for each in answer["estimates"]:
            seconds += [each["machine_s"], each["cost"], *each["baselines"].values()]
        for choice in answer["recommendation"].values():
            seconds += [choice["runtime_s"], choice["cost"]]
        assert min(seconds) >= 0.0, answer


TARGETS = {"spark logs": Target(log_draws, log, 40)}
