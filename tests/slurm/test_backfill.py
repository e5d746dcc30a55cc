"""--time-min on a real Slurm: jobs start earlier by backfill, and none ends earlier."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kongming_slurm import bridge_config as config
from kongming_slurm.bridge import Bridge
from kongming_slurm.slurm_commands import Slurm

from kongming import settings as declared
from kongming.records.answers import Realised
from tests.slurm.cluster import SlurmCluster, eventually, running
from tests.slurm.test_bridge import Server

pytestmark = [pytest.mark.slurm, pytest.mark.thorough, pytest.mark.timeout(420)]

NODES = tuple(f"n{number}" for number in range(1, 7))
SOLO_S = 25.0
"""One minute with --time-min; the jobs take longer than Slurm needs to notice that they do."""
TAKES_S = 110
LIMIT = "00:08:00"
TAGGED = "--comment=kongming:app=xz"


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with running(tmp_path_factory.mktemp("backfill"), NODES, "") as slurm:
        yield slurm


@pytest.fixture
def bridge(cluster: SlurmCluster) -> Bridge:
    """A bridge of this Slurm; the server's predictions are made up, and far too short."""
    server = Server()
    server.slowdowns = {"xz": dict.fromkeys(NODES, 1.0)}
    server.realised = {"xz": Realised(40, 5.0, 0.9, 0.9)}
    server.solo_s = SOLO_S
    settings = declared.parse(
        config.Settings,
        {
            "rankings": {"file": str(cluster.rankings)},
            "weights": {"follow": False},
            "times": {"set": True},
        },
    )
    slurm = Slurm(configuration=cluster.env["SLURM_CONF"], timeout_s=30.0)
    bridge = Bridge(settings, lambda: server, slurm)
    bridge.step()
    assert not bridge.failing
    return bridge


def reserve(cluster: SlurmCluster, busy: str, idle: str) -> None:
    """Leave a gap of three minutes on ``idle``: a job waits for it and for ``busy``."""
    cluster.submit("-w", busy, "-t", "3", script="sleep 100")
    eventually(lambda: cluster.states()[busy] == "allocated")
    wide = cluster.submit("-N", "2", "-w", f"{busy},{idle}", "-t", "1", script="true")
    eventually(lambda: cluster.job(wide)["StartTime"] != "Unknown")


def only(*nodes: str) -> str:
    return "--exclude=" + ",".join(name for name in NODES if name not in nodes)


def starts(cluster: SlurmCluster, id_: str) -> dict[str, str]:
    return eventually(lambda: (job := cluster.job(id_))["JobState"] == "RUNNING" and job, 30.0)


def test_jobs_start_in_gaps_and_keep_their_users_limits(
    cluster: SlurmCluster, bridge: Bridge
) -> None:
    job = ("-t", "8", TAGGED)
    long = f"sleep {TAKES_S}"
    for busy, idle in (("n1", "n2"), ("n3", "n4"), ("n5", "n6")):
        reserve(cluster, busy, idle)

    # What does not fit into the gap waits, as long as it is not said to take less.
    opted_out = cluster.submit(*job[:2], f"{TAGGED} kongming:no-time", only("n2"), script=long)
    time.sleep(4.0)
    assert cluster.job(opted_out)["JobState"] == "PENDING"
    assert cluster.job(opted_out)["TimeMin"] == "N/A"
    restored = cluster.submit(*job, only("n2"), script=long)
    running = starts(cluster, restored)
    assert (running["Scheduler"], running["TimeMin"]) == ("Backfill", "00:01:00")
    eventually(lambda: cluster.job(restored)["TimeLimit"] == LIMIT, 10.0)
    assert cluster.job(opted_out)["JobState"] == "PENDING"
    array = cluster.submit(*job, "--array=1-2", only("n4", "n6"), script="sleep 2")
    tasks = [cluster.finished(f"{array}_{task}") for task in (1, 2)]
    assert [(task["TimeMin"], task["TimeLimit"]) for task in tasks] == [("00:01:00", LIMIT)] * 2

    # Backfill lowers the limit for good. Where the script at the start fails, the bridge is there.
    (cluster.folder / "restore-limit.sh").write_text("#!/bin/sh\nexit 0\n")
    bridged = cluster.submit(*job, only("n4"), script=long)
    users = cluster.submit("-t", "8", "--time-min=1", only("n6"), script=long)
    for id_ in (bridged, users):
        assert starts(cluster, id_)["TimeLimit"] != LIMIT
    bridge.step()
    assert cluster.job(bridged)["TimeLimit"] == LIMIT
    assert cluster.job(users)["TimeLimit"] != LIMIT

    held = [cluster.submit("-H", *job, *more, script="true") for more in ((), ("--array=1-2",))]
    assert [cluster.job(id_)["TimeMin"] for id_ in held] == ["00:01:00"] * 2
    het = cluster.submit("-H", *job, ":", *job, script="true")
    assert cluster.job(het)["TimeMin"] == "N/A"
    # A limit that its user changes is the user's, below the --time-min as well.
    cluster.command("scontrol", "update", f"JobId={held[0]}", "TimeLimit=1")
    bridge.step()
    changed = cluster.job(held[0])
    assert (changed["TimeLimit"], changed["TimeMin"]) == ("00:01:00", "N/A")

    # The other one, with its tasks, has none once a reservation is ahead.
    reservation = ("StartTime=now+60minutes", "Duration=5", "Users=root", "Nodes=n1")
    cluster.command("scontrol", "create", "reservation", *reservation)
    bridge.step()
    assert cluster.job(held[1])["TimeMin"] == "N/A"
    later = cluster.submit("-H", *job, script="true")
    assert cluster.job(later)["TimeMin"] == "N/A"

    ends = {id_: cluster.finished(id_, 180.0)["JobState"] for id_ in (restored, bridged, users)}
    assert ends == {restored: "COMPLETED", bridged: "COMPLETED", users: "TIMEOUT"}
    assert not bridge.failing
