"""Excluded nodes on a real Slurm: no job is refused, or has to wait, because of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kongming_slurm import bridge_config as config
from kongming_slurm.bridge import Bridge
from kongming_slurm.slurm_commands import Slurm

from kongming import settings as declared
from tests.slurm.cluster import SlurmCluster, running
from tests.slurm.test_bridge import Server

pytestmark = [pytest.mark.slurm, pytest.mark.thorough, pytest.mark.timeout(300)]

NODES = ("n1", "n2", "n3")
HARDWARE = "CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000"
TAGGED = "--comment=kongming:app=xz,limit=1.2"
NOBODY = ("--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """Three nodes of four cores with two threads. Other users may read its folder."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), NODES, "", hardware=HARDWARE, select="CR_CPU_Memory") as slurm,
    ):
        slurm.command("scontrol", "create", "PartitionName=few", "Nodes=n2,n3")
        yield slurm


@pytest.fixture(scope="module")
def bridge(cluster: SlurmCluster) -> Bridge:
    return started_bridge(cluster)


def started_bridge(cluster: SlurmCluster) -> Bridge:
    """A bridge with predictions by which xz is too slow on each node; its file is there."""
    server = Server()
    server.slowdowns = {"xz": {"n1": 2.0, "n2": 2.1, "n3": 2.2}}
    file = {"file": str(cluster.rankings), "good_for_s": 3600.0}
    settings = declared.parse(config.Settings, {"rankings": file, "weights": {"follow": False}})
    slurm = Slurm(configuration=cluster.env["SLURM_CONF"], timeout_s=30.0)
    bridge = Bridge(settings, lambda: server, slurm)
    bridge.step()
    assert not bridge.failing
    return bridge


def completes(cluster: SlurmCluster, id_: str) -> dict[str, str]:
    """The held job once it has ended: whether its nodes suffice shows where Slurm looks for
    them."""
    cluster.command("scontrol", "release", id_)
    job = cluster.finished(id_, 60.0)
    assert job["JobState"] == "COMPLETED"
    return job


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
@pytest.mark.usefixtures("bridge")
def test_a_job_gets_as_many_nodes_as_it_needs(
    cluster: SlurmCluster, options: str, excluded: str
) -> None:
    id_ = cluster.submit(*options.split(), "-H", TAGGED, script="true")
    assert cluster.job(id_)["ExcNodeList"] == excluded
    completes(cluster, id_)


@pytest.mark.parametrize("user", [NOBODY, ("--reuid=0",)], ids=["user", "root"])
@pytest.mark.parametrize(
    ("change", "excluded", "nodes"),
    [
        ("ExcNodeList=n1", "n1", {"n2", "n3"}),
        ("ExcNodeList=n1,n3", "n1,n3", {"n2"}),
        ("NumNodes=3", ",", {"n[1-3]"}),
        ("MinMemoryNode=15000", ",", set(NODES)),
        ("MinMemoryNode=0", ",", set(NODES)),
        ("ReqNodeList=n2", ",", {"n2"}),
        ("Comment=kongming:app=xz,kongming:no-exclusions", "n[2-3]", {"n1"}),
        ("Comment=kongming:app=xz kongming:no-exclusions", ",", set(NODES)),
    ],
)
def test_a_job_that_its_user_changes_is_theirs(
    cluster: SlurmCluster,
    bridge: Bridge,
    user: tuple[str, ...],
    change: str,
    excluded: str,
    nodes: set[str],
) -> None:
    own = ("--uid=65534", "--gid=65534") if user == NOBODY else ()
    options = ("-H", "-n", "1", "--chdir=/", "-o", "/dev/null")
    id_ = cluster.submit(*own, *options, TAGGED, script="true")
    assert cluster.job(id_)["ExcNodeList"] == "n[2-3]"
    cluster.command("setpriv", *user, "scontrol", "update", f"JobId={id_}", change)
    for _ in range(2):
        job = cluster.job(id_)
        assert job["ExcNodeList"] == excluded
        bridge.step()
    assert not bridge.failing
    assert completes(cluster, id_)["NodeList"] in nodes


def test_a_split_array_in_another_partition_gets_the_exclusions_for_that(
    cluster: SlurmCluster, bridge: Bridge
) -> None:
    options = ("-n", "1", "--array=1-3", "--exclude=n1")
    id_ = cluster.submit("-H", *options, "--comment=kongming:app=xz,limit=2.1", script="true")
    # Each task that is changed alone is a job of its own from then on.
    cluster.command("scontrol", "update", f"JobId={id_}_1", "Comment=of the first kongming:app=xz")
    cluster.command("scontrol", "update", f"JobId={id_}_2", "ExcNodeList=n3")
    cluster.command("scontrol", "update", f"JobId={id_}", "Partition=few")

    def excluded() -> list[str]:
        return [cluster.job(f"{id_}_{task}")["ExcNodeList"] for task in (1, 2, 3)]

    def comments() -> list[str]:
        output = cluster.command("squeue", "-h", "-r", "-S", "i", "-j", id_, "-O", "comment:")
        return [line.strip() for line in output.splitlines()]

    assert excluded() == ["n1", "n3", "n1"]
    bridge.step()
    assert excluded() == ["n1,n3", "n3", "n1,n3"]
    tag = "kongming:app=xz,limit=2.1"
    left = f"{tag} kongming:no-exclusions"
    assert comments() == ["of the first kongming:app=xz", left, tag]
    cluster.command("scancel", id_)


def test_a_job_in_another_partition_gets_the_exclusions_for_that(
    cluster: SlurmCluster, bridge: Bridge
) -> None:
    id_ = cluster.submit("-H", "-n", "1", TAGGED, script="true")
    cluster.command("scontrol", "update", f"JobId={id_}", "Partition=few")
    assert cluster.job(id_)["ExcNodeList"] == ","
    bridge.step()
    assert cluster.job(id_)["ExcNodeList"] == "n3"
    assert completes(cluster, id_)["NodeList"] == "n2"
