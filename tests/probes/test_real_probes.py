"""The real micro-benchmarks: what they say, not how fast this machine is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kongming.probes.binary import locate
from kongming.probes.fingerprinting import take_fingerprint
from kongming.probes.node import node_facts
from kongming.probes.suite import load_suite
from kongming.probes.topology import SHARES_CORE_RATIO, check_siblings
from kongming.probes.watching import watch
from kongming.records.errors import ProbeError
from kongming.records.fingerprint import FAMILIES

pytestmark = pytest.mark.real

TABLE_I = [
    *(f"memory.{kind}.{size}" for kind in ("streaming", "random") for size in ("1K", "1M", "1G")),
    *(f"stream.{kernel}" for kernel in ("add", "copy", "scale", "triad")),
    *(f"iobench.{way}.{size}" for way in ("read", "write") for size in ("4M", "64M", "1G")),
    "metadata.create",
    "metadata.delete",
]
NO_FILES = ["memory.random.1K", "memory.random.8M", "compute.int", "os.syscall"]


@pytest.fixture(autouse=True)
def binary() -> Path:
    try:
        return locate()
    except ProbeError as error:
        pytest.skip(str(error))


def test_table_i_is_there(tmp_path: Path) -> None:
    listed = load_suite(directory=tmp_path).surrogates
    names = {known.instead_of or known.name for known in listed if known.paper}
    assert names == set(TABLE_I)
    assert {known.family for known in listed} == set(FAMILIES)


def test_a_dozen_surrogates_are_quick(tmp_path: Path) -> None:
    suite = load_suite(directory=tmp_path)
    assert 12 <= len(suite.names_of("quick")) <= 15
    assert set(suite.names_of("standard")) < set(suite.names_of("full"))
    assert {known.name for known in suite.surrogates} == set(suite.names_of("full"))


@pytest.mark.alone
def test_readings_grow_with_the_working_set(tmp_path: Path) -> None:
    fingerprint = take_fingerprint(names=NO_FILES, directory=tmp_path, seconds=0.4)
    times = fingerprint.times()
    assert set(times) == set(NO_FILES)
    assert times["memory.random.1K"] < times["memory.random.8M"]
    assert fingerprint.elapsed_s > 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_costs_only_its_surrogates() -> None:
    # Not even root can make a file there.
    names = ["iobench.read.4M", "metadata.create", "compute.int"]
    fingerprint = take_fingerprint(names=names, directory="/proc", seconds=0.2)
    assert set(fingerprint.times()) == {"compute.int"}
    assert fingerprint.surrogates["iobench.read.4M"].error


@pytest.mark.alone
def test_chunks_of_a_watch_lie_between_its_start_and_its_end(tmp_path: Path) -> None:
    with watch(NO_FILES, directory=tmp_path, chunk=0.01) as probe:
        start = time.monotonic_ns()
        time.sleep(0.3)
        end = time.monotonic_ns()
        seen = probe.stop([(start, end)])
    assert {chunk.name for chunk in seen.chunks} == set(NO_FILES)
    assert set(seen.fingerprint.times()) == set(NO_FILES)


@pytest.mark.alone
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_two_cpus_are_checked() -> None:
    first, second = node_facts().cpus[:2]
    checked = check_siblings(first, second)
    # What the ratio is depends on the machine and on what else runs there.
    assert checked.ratio > 0.0
    if checked.ratio != SHARES_CORE_RATIO:  # It is rounded.
        assert checked.shares_core is (checked.ratio > SHARES_CORE_RATIO)
