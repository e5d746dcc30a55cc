"""Event logs of Spark that are cut, damaged, without some of their lines or with some twice: what
is read of them has no negative time and no number that is none."""

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
from kongming.spark.inspection import inspect
from kongming.spark.reading import read
from kongming.spark.reading.repairs import PARTS
from tests.fuzz.mutations import contents, documents
from tests.fuzz.target import Target, file_of
from tests.spark.event_lines import content, run
from tests.spark.record import LOGS


@cache
def _events() -> list[Any]:
    recorded = zstandard.decompress((LOGS / "spark-4-killed-executor.zstd").read_bytes())
    return [json.loads(line) for line in recorded.splitlines()]


@cache
def _packed() -> list[bytes]:
    seeds = [path.read_bytes() for path in sorted((LOGS / "codecs").iterdir())]
    return [*seeds, gzip.compress(content(run()))]


@st.composite
def _lines(draw: st.DrawFn) -> bytes:
    """Lines dropped, doubled, out of order, with other values in them; cut at last."""
    events = list(draw(st.sampled_from([_events(), run()])))
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
    """Read a log, inspect it, and raise AssertionError where it holds what cannot be."""
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


TARGETS = {"spark logs": Target(log_draws, log, 40)}
