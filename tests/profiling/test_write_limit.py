"""What a campaign writes, and the limit on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kongming.probes.aggregation import Chunk, aggregate
from kongming.probes.suite import Suite
from kongming.profiling import profiler
from kongming.profiling.blocks import signature
from kongming.profiling.plans.steps import Plan, Step
from kongming.profiling.write_limit import FASTEST_BYTES_PER_S, WriteLimit
from kongming.records.application import Application
from kongming.records.run import Signature
from tests import builders
from tests.profiling.scripted import Runner

WRITE = "iobench.write.4M"


def limited(limit: float | None) -> WriteLimit:
    surrogates: Any = [
        SimpleNamespace(name=WRITE, family="write", bytes_per_op=4_000_000),
        SimpleNamespace(name="stream.triad", family="memory", bytes_per_op=24),
    ]
    return WriteLimit(cast("Suite", SimpleNamespace(surrogates=surrogates)), limit)


def test_only_loads_that_write_are_held_back() -> None:
    writing = limited(1e9)
    assert writing.seconds([builders.level(WRITE)]) == pytest.approx(1e9 / FASTEST_BYTES_PER_S)
    assert not writing.allows([builders.level(WRITE)], 2.0)
    assert writing.allows([builders.level(WRITE, intensity=0.5)], 2.0)
    assert writing.allows([builders.level("stream.triad")], 1e6)
    assert writing.allows([], 1e6)
    assert not writing.is_reached
    assert limited(None).allows([builders.level(WRITE)], 1e6)


def test_what_was_written_counts() -> None:
    writing = limited(1e9)
    taken = builders.fingerprint({WRITE: 0.04, "stream.triad": 1e-9})
    slow = replace(taken.surrogates[WRITE], ops=10, elapsed_s=0.4)
    writing.add_fingerprint(replace(taken, surrogates={**taken.surrogates, WRITE: slow}))
    assert writing.written_bytes == pytest.approx(10 * 4e6)
    # The disk is known by now: 100 MB/s, of the 960 MB that are left.
    assert writing.seconds([builders.level(WRITE)]) == pytest.approx(9.6)
    writing.add_operations([(WRITE, 240.0), ("stream.triad", 1e9)])
    assert writing.written_bytes == pytest.approx(1e9)
    assert writing.is_reached
    assert writing.seconds([builders.level(WRITE)]) == 0.0
    assert not writing.allows([builders.level(WRITE)], 0.001)


def test_a_part_of_a_block_counts_as_what_it_is() -> None:
    writing = limited(None)
    chunk = Chunk(WRITE, 0, 100_000_000, 0.25, 100_000_000, ((0.25, 100_000_000),), partial=True)
    (reading,) = aggregate([chunk]).values()
    taken = builders.fingerprint({WRITE: 0.4})
    writing.add_fingerprint(replace(taken, surrogates={WRITE: reading}))
    assert writing.written_bytes == pytest.approx(0.25 * 4e6)


def test_signatures_count_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(app: Application, *_: object, **__: object) -> Iterator[Runner]:
        yield Runner(app, lambda _: 1.0)

    reading = builders.fingerprint({WRITE: 0.04})
    slow = replace(reading.surrogates[WRITE], ops=10, elapsed_s=0.4)
    taken = replace(reading, surrogates={WRITE: slow})
    monkeypatch.setattr(profiler, "open_runner", opened)
    monkeypatch.setattr(signature, "settle", lambda: 0.0)
    monkeypatch.setattr(signature, "take_signature", lambda *_, **__: (taken, 3))
    silent = "kongming.profiling.runs.coupling.CouplingLog.read"
    monkeypatch.setattr(silent, lambda _, site: ({}, site))
    writing = limited(60e6)
    suite: Any = SimpleNamespace(
        surrogates=writing.suite.surrogates, names_of=lambda _: (WRITE,), version="1"
    )
    apps = {name: Application(name=name, command="true") for name in ("a", "b", "c")}
    steps = tuple(Step(index, index, "signature", app) for index, app in enumerate(apps))
    events = profiler.profile(
        apps,
        Plan("quick", "cross-core", "quick", 1, steps),
        node=builders.node(),
        suite=suite,
        work_dir=Path(),
        io_dir=Path(),
        write_limit=writing,
    )
    assert [event.app for event in events if isinstance(event, Signature)] == ["a", "b"]
    assert writing.written_bytes == pytest.approx(2 * 10 * 4e6)
    assert writing.refused == 1
