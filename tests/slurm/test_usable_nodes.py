"""Nodes that jobs cannot use in full, on a real Slurm: no job is refused for lack of the rest."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster, running
from tests.slurm.test_exclusions import HARDWARE, NODES, TAGGED, completes, started_bridge

pytestmark = [pytest.mark.slurm, pytest.mark.thorough, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def reserved() -> Iterator[SlurmCluster]:
    """Nodes of which a core and 4000 MB are reserved for the system."""
    hardware = f"{HARDWARE} CoreSpecCount=1 MemSpecLimit=4000"
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), NODES, "", hardware=hardware, select="CR_CPU_Memory") as slurm,
    ):
        started_bridge(slurm)
        yield slurm


@pytest.mark.parametrize(
    ("options", "excluded"),
    [
        ("-n 6", "n[2-3]"),
        ("-n 8", "n3"),
        ("-n 6 --mem-per-cpu=2000", "n[2-3]"),
        ("-n 4 --mem-per-cpu=4000", "n3"),
        ("-n 1 --mem=12000", "n[2-3]"),
    ],
)
def test_what_is_reserved_for_the_system(
    reserved: SlurmCluster, options: str, excluded: str
) -> None:
    assert_is_excluded(reserved, options, excluded)


@pytest.fixture(scope="module")
def cores() -> Iterator[SlurmCluster]:
    """Nodes that Slurm gives to jobs by cores."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), NODES, "", hardware=HARDWARE, select="CR_Core_Memory") as slurm,
    ):
        started_bridge(slurm)
        yield slurm


@pytest.mark.parametrize(
    ("options", "excluded"),
    [
        ("-n 3 --mem-per-cpu=5000", "n3"),
        ("-n 6 --mem-per-cpu=5000", "(null)"),
        ("-n 6 --mem-per-cpu=4000", "n3"),
        ("-n 4 --cpus-per-task=3", "n3"),
        ("-n 8 --mem-per-cpu=2000", "n[2-3]"),
    ],
)
def test_complete_cores(cores: SlurmCluster, options: str, excluded: str) -> None:
    assert_is_excluded(cores, options, excluded)


def assert_is_excluded(cluster: SlurmCluster, options: str, excluded: str) -> None:
    """Check the nodes that a job is kept from, and that it completes as one without a tag does."""
    for tag, hosts in (((), "(null)"), ((TAGGED,), excluded)):
        id_ = cluster.submit(*options.split(), "-H", *tag, script="true")
        assert cluster.job(id_)["ExcNodeList"] == hosts
        completes(cluster, id_)
