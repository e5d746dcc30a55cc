"""Excluded nodes on a real Slurm: no job is refused, or has to wait, because of them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kongming_slurm import ranking_file
from kongming_slurm.ranking_file import RankingFile

from tests.slurm.cluster import SlurmCluster, running

pytestmark = [pytest.mark.slurm, pytest.mark.thorough, pytest.mark.timeout(300)]

NODES = ("n1", "n2", "n3")
HARDWARE = "CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000"
TAGGED = "--comment=kongming:app=xz,limit=1.2"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Three nodes of four cores with two threads, on each of which xz is too slow."""
    folder = tmp_path_factory.mktemp("exclusions")
    with running(folder, NODES, "", hardware=HARDWARE, select="CR_CPU_Memory") as slurm:
        file = RankingFile(
            written_at=time.time(),
            good_for_s=3600.0,
            limit=1.5,
            nodes=NODES,
            up=(True,) * 3,
            cpus=(8,) * 3,
            memory_mb=(16000,) * 3,
            partitions={"main": (0, 1, 2)},
            apps={"xz": (2.0, 2.1, 2.2)},
        )
        slurm.rankings.parent.mkdir(exist_ok=True)
        ranking_file.write(slurm.rankings, file.text()[0])
        yield slurm


@pytest.mark.parametrize(
    ("options", "excluded"),
    [
        ("-n 8", "n[2-3]"),
        ("-N 1 -n 8", "n[2-3]"),
        ("-n 8 --mem-per-cpu=4G", "(null)"),
        ("-n 8 --mem-per-cpu=2G", "n3"),
        ("-n 8 --ntasks-per-node=4", "n3"),
        ("-n 4 --cpus-per-task=3", "n3"),
        ("-n 8 --threads-per-core=1", "(null)"),
        ("-n 8 --hint=nomultithread", "(null)"),
        ("-n 8 --ntasks-per-core=1", "(null)"),
        ("-n 6 --ntasks-per-socket=2", "(null)"),
    ],
)
def test_a_job_gets_as_many_nodes_as_it_needs(
    cluster: SlurmCluster, options: str, excluded: str
) -> None:
    id_ = cluster.submit(*options.split(), "-H", TAGGED, script="true")
    assert cluster.job(id_)["ExcNodeList"] == excluded
    # Whether its nodes suffice shows where Slurm looks for them.
    cluster.command("scontrol", "release", id_)
    job = cluster.finished(id_, 60.0)
    assert job["JobState"] == "COMPLETED"
