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


SMALL = "CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=8000"
PARTITIONS = {
    "alone": "MaxNodes=1",
    "heavy": "DefMemPerNode=12000",
    "thin": "MaxMemPerCPU=1000",
}


@pytest.fixture(scope="module")
def mixed() -> Iterator[SlurmCluster]:
    """Two nodes that are predicted to be faster, and a slower one that is twice as large."""
    hardware = {"n1": SMALL, "n2": SMALL, "n3": HARDWARE}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), NODES, "", hardware=hardware, select="CR_CPU_Memory") as slurm,
    ):
        for name, bounds in PARTITIONS.items():
            words = [f"PartitionName={name}", "Nodes=n1,n2,n3", *bounds.split()]
            slurm.command("scontrol", "create", *words)
        started_bridge(slurm)
        yield slurm


@pytest.mark.parametrize(
    ("options", "excluded"),
    [
        ("-p main -n 8", "n3"),
        ("-p alone -n 8", "(null)"),
        ("-p alone -n 4", "n[2-3]"),
        ("-p heavy -n 1", "(null)"),
        ("-p heavy -n 1 --mem=5000", "n[2-3]"),
        ("-p thin -n 1 --mem=6000", "(null)"),
        ("-p thin -n 1 --mem=4000", "n[2-3]"),
        ("-p thin -n 2 --mem-per-cpu=3000", "(null)"),
    ],
)
def test_bounds_of_a_partition(mixed: SlurmCluster, options: str, excluded: str) -> None:
    assert_is_excluded(mixed, options, excluded)


def test_a_job_that_moves_to_a_partition_with_other_bounds(mixed: SlurmCluster) -> None:
    id_ = mixed.submit("-p", "main", "-n", "8", "-H", TAGGED, script="true")
    assert mixed.job(id_)["ExcNodeList"] == "n3"
    mixed.command("scontrol", "update", f"JobId={id_}", "Partition=alone")
    job = mixed.job(id_)
    assert job["ExcNodeList"] == ","
    assert "kongming:no-exclusions" in mixed.command("squeue", "-h", "-j", id_, "-O", "comment:")
    assert completes(mixed, id_)["NodeList"] == "n3"


def assert_is_excluded(cluster: SlurmCluster, options: str, excluded: str) -> None:
    """Check the nodes that a job is kept from, and that it completes as one without a tag does."""
    for tag, hosts in (((), "(null)"), ((TAGGED,), excluded)):
        id_ = cluster.submit(*options.split(), "-H", *tag, script="true")
        assert cluster.job(id_)["ExcNodeList"] == hosts
        completes(cluster, id_)
