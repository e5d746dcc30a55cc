"""What the epilog reports of jobs that end in different ways, on a real Slurm."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kongming.rpc import handover
from kongming.rpc.handover import Report
from tests.slurm.cluster import SlurmCluster, eventually, running

pytestmark = [pytest.mark.slurm, pytest.mark.thorough, pytest.mark.timeout(300)]

NODES = ("n1", "n2", "n3")
TAGGED = "--comment=kongming:app=xz"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    folder = tmp_path_factory.mktemp("ends")
    for name in NODES:
        handover.make(folder / f"inbox-{name}")
    settings = (
        f'[hooks]\ninbox = "{folder}/inbox-%n"\nstate = "{folder}/state-%n"\n'
        f'[slurm]\nconfiguration = "{folder}/slurm.conf"\n'
    )
    with running(folder, NODES, settings) as slurm:
        yield slurm


def reports(cluster: SlurmCluster, id_: str, kind: str = "run") -> list[Report]:
    """Of one job, on all nodes."""
    folders = (Path(cluster.folder, f"inbox-{name}") for name in NODES)
    return [
        report
        for folder in folders
        for _, report in handover.waiting(folder)
        if isinstance(report, Report)
        and report.kind == kind
        and report.assignment_id.split(":")[2] == id_
    ]


def ended(cluster: SlurmCluster, id_: str, count: int = 1) -> list[Report]:
    """What was reported of a job's end."""
    eventually(
        lambda: len(reports(cluster, id_)) == count,
        60.0,
        lambda: f"{reports(cluster, id_)} {cluster.job(id_)} {hooks_errors(cluster)}",
    )
    return reports(cluster, id_)


def hooks_errors(cluster: SlurmCluster) -> str:
    """What prologs and epilogs wrote where slurmd would put it."""
    return Path(cluster.folder, "hooks.err").read_text(encoding="utf-8")


def begun(cluster: SlurmCluster, id_: str, count: int = 1) -> None:
    eventually(lambda: len(reports(cluster, id_, "assignment")) == count, 60.0)
    eventually(lambda: cluster.job(id_)["JobState"] == "RUNNING", 60.0)


def test_only_a_job_that_ran_to_its_end_is_reported_without_an_error(
    cluster: SlurmCluster,
) -> None:
    limited = cluster.submit(TAGGED, "--time=1", script="sleep 600")
    completed = cluster.submit(TAGGED, script="sleep 2")
    cancelled = cluster.submit(TAGGED, script="sleep 600")
    begun(cluster, cancelled)
    cluster.command("scancel", cancelled)
    (run,) = ended(cluster, completed)
    assert (run.exit_status, run.error) == (0, "")
    assert run.wall_s >= 2.0
    (run,) = ended(cluster, cancelled)
    assert "CANCELLED" in run.error
    requeued = cluster.submit(TAGGED, "--requeue", script="sleep 600")
    begun(cluster, requeued)
    cluster.command("scontrol", "requeue", requeued)
    eventually(lambda: cluster.job(requeued)["JobState"] == "PENDING", 60.0)
    cluster.command("scancel", requeued)
    assert all(run.error for run in reports(cluster, requeued))
    # Slurm looks at time limits now and then.
    eventually(lambda: cluster.job(limited)["JobState"] == "TIMEOUT", 150.0)
    (run,) = ended(cluster, limited)
    assert "TIMEOUT" in run.error


def test_jobs_of_several_nodes_and_suspended_ones_are_reported_with_an_error(
    cluster: SlurmCluster,
) -> None:
    wide = cluster.submit(TAGGED, "-N", "2", script="sleep 1")
    suspended = cluster.submit(TAGGED, script="sleep 3")
    begun(cluster, suspended)
    cluster.command("scontrol", "suspend", suspended)
    runs = ended(cluster, wide, count=2)
    assert all("on 2 nodes" in run.error for run in runs)
    time.sleep(8.0)
    cluster.command("scontrol", "resume", suspended)
    (run,) = ended(cluster, suspended)
    assert "suspended" in run.error
