"""What a campaign writes, and the limit on it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kongming.probes.aggregation import Chunk, aggregate
from kongming.probes.suite import Suite
from kongming.profiling.write_limit import FASTEST_BYTES_PER_S, WriteLimit
from tests import builders

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
