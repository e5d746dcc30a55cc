"""KONGMING with a real Slurm: exclusions, runtimes, pending jobs, and failures of each part.

One fleet for all tests here, which run in their order; fleet.py describes its nodes. Times are
printed and recorded, never asserted.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kongming_slurm.ranking_file import RankingFile
from kongming_slurm.slurm_commands import OWN_CHANGE

from tests.slurm.cluster import eventually, seconds, timed
from tests.slurm.fleet import (
    APPS,
    CALM,
    COMPUTES,
    DISK,
    HALF,
    LIMIT,
    NODES,
    REFRESH_S,
    START_S,
    WHAT,
    SlurmFleet,
    impossible,
    report,
)

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.alone,
    pytest.mark.thorough,
    pytest.mark.timeout(420),
]

SLOW = {"xz": (HALF, COMPUTES), "dd-read": (DISK,)}
"""Nodes that are slow for an application, whatever else runs here."""
WITH_REPEATS = 2
OUT_OF = "jobs are scheduled without it"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmFleet]:
    folder = tmp_path_factory.mktemp("slurm")
    # munge and jobs of others have to find their way: pytest's folders are for one user alone.
    why = impossible(folder)
    if why is not None:
        pytest.skip(why)
    fleet = SlurmFleet(folder)
    before = os.sched_getaffinity(0)
    try:
        fleet.start()
        if not fleet.differs():
            pytest.skip("a neighbour or a slow disk makes no difference to be seen here")
        os.sched_setaffinity(0, {fleet.slurm.others})
        yield fleet
    finally:
        os.sched_setaffinity(0, before)
        fleet.close()
        assert fleet.slurm.left() == []


def agrees(rankings: RankingFile, app: str) -> bool:
    """Whether rankings agree with SLOW: what else runs on the two CPUs may disturb all nodes."""
    if app not in rankings.apps:
        return False
    slowdowns = dict(zip(rankings.nodes, rankings.apps[app], strict=True))
    calmest = min(slowdowns[name] or 1e9 for name in NODES if name not in SLOW[app])
    return min(slowdowns[name] or 0.0 for name in SLOW[app]) > max(LIMIT, calmest)


def settled(fleet: SlurmFleet, app: str) -> RankingFile:
    """The first rankings that agree with SLOW."""

    def agreeing() -> RankingFile | None:
        rankings = fleet.rankings()
        return rankings if agrees(rankings, app) else None

    return eventually(agreeing, START_S, fleet.describe)


def submit(fleet: SlurmFleet, app: str, *arguments: str) -> str:
    return fleet.slurm.submit(*arguments, script=timed(fleet.command(app)))


def names_of(fleet: SlurmFleet, job: dict[str, str], key: str) -> set[str]:
    hosts = job[key]
    if hosts in ("", "(null)"):
        return set()
    return set(fleet.slurm.command("scontrol", "show", "hostnames", hosts).split())


def test_jobs_that_name_their_application_avoid_slow_nodes(
    fleet: SlurmFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, Any]] = []

    def run(app: str, how: str, *arguments: str) -> RankingFile:
        """Run a job to its end; the rankings when it started."""
        slowdowns = {name: fleet.slowdown(app, name) for name in NODES}
        id_ = submit(fleet, app, *arguments)
        eventually(lambda: fleet.slurm.job(id_)["JobState"] != "PENDING")
        at_start = fleet.rankings()
        job = fleet.slurm.finished(id_)
        assert job["JobState"] == "COMPLETED", job
        took = seconds(fleet.slurm.output(id_))
        excluded = sorted(names_of(fleet, job, "ExcNodeList"))
        rows.append(
            {"app": app, "how": how, "node": job["NodeList"], "seconds": took, "excluded": excluded}
            | {"slowdowns": slowdowns}
        )
        return at_start

    def run_with(app: str) -> bool:
        """Run a job with a tag; whether rankings agreed with SLOW until it started. A node's
        environment is measured anew every few seconds, and a job that was submitted in the moment
        in which another node is slow rightly avoids that one."""
        before = settled(fleet, app)
        after = run(app, "with", f"--comment=kongming:app={app},limit={LIMIT}")
        # No third file was between these two.
        judged = after.written_at - before.written_at < 2.0 * REFRESH_S and agrees(after, app)
        rows[-1]["judged"] = judged
        fleet.tagged.append((app, rows[-1]["node"]))
        return judged

    for app in APPS:
        for at, name in enumerate(NODES):
            # Each node in turn: the average of an uninformed choice.
            run(app, "without", "-w", name)
            if at % (len(NODES) // WITH_REPEATS) == 0:
                eventually(partial(run_with, app), START_S, fleet.describe)
    show(rows, capsys)
    for row in rows:
        if row["how"] == "without":
            assert row["excluded"] == []
        elif row["judged"]:
            slow = set(SLOW[row["app"]])
            assert slow <= set(row["excluded"]) < set(NODES), row
            assert row["node"] not in slow, row


def show(rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    summary = {}
    lines = [
        "",
        f"{'application':12} {'node':4} {'environment':26} {'seconds':>8}  predicted slowdown",
    ]
    for app in APPS:
        mine = [row for row in rows if row["app"] == app]
        without = [row["seconds"] for row in mine if row["how"] == "without"]
        chosen = [row["seconds"] for row in mine if row["how"] == "with"]
        for row in mine:
            name = row["node"]
            tag = " chosen" if row["how"] == "with" else ""
            slowdown = row["slowdowns"][name]
            lines.append(
                f"{app:12} {name:4} {WHAT[name]:26} {row['seconds']:8.2f}  "
                f"{'-' if slowdown is None else f'{slowdown:.2f}'}{tag}"
            )
        summary[app] = {
            "without_s": statistics.fmean(without),
            "without_worst_s": max(without),
            "with_s": statistics.fmean(chosen),
            "gain": statistics.fmean(without) / statistics.fmean(chosen),
        }
        lines.append(
            f"{app}: {summary[app]['without_s']:.2f} s on average over the nodes, "
            f"{summary[app]['with_s']:.2f} s with KONGMING: "
            f"{summary[app]['gain']:.2f} times as fast"
        )
    with capsys.disabled():
        print("\n".join(lines))  # noqa: T201
    report({"limit": LIMIT, "nodes": WHAT, "jobs": rows, "summary": summary})


def test_finished_runs_reach_the_server_and_residents_are_known_meanwhile(
    fleet: SlurmFleet,
) -> None:
    id_ = fleet.slurm.submit("--comment=kongming:app=xz", script="sleep 6")
    failing = fleet.slurm.submit("--comment=kongming:app=xz", script="sleep 0.2; exit 3")
    with fleet.service() as service:
        prefix = f"slurm:{fleet.slurm.name}:{id_}:0:"

        def resident() -> Any:
            held = [
                assignment
                for assignment in service.assignments()
                if assignment.assignment_id.startswith(prefix)
            ]
            return held and held[0]

        held = eventually(resident, 30.0)
        job = fleet.slurm.finished(id_)
        assert (held.app, held.state, held.node_id) == ("xz", "bound", job["NodeList"])
        fleet.slurm.finished(failing)
        eventually(lambda: not resident(), 30.0)

        def ended() -> list[Any]:
            assignments = service.assignments(ended=True)
            return [each for each in assignments if each.state == "released"]

        # Two of this test, and those with a tag of the test before.
        eventually(lambda: len(ended()) == 2 + len(fleet.tagged), 30.0)
        apps = {app.name: app for app in service.applications()}
    rows = runs(fleet)
    mine = [("xz", fleet.slurm.job(each)["NodeList"]) for each in (id_, failing)]
    assert sorted(row[:2] for row in rows) == sorted(fleet.tagged + mine)
    assert sorted(row[2] for row in rows if row[2]) == [3]
    # Predictions at their start were compared with their runtimes.
    assert all(apps[app].realised is not None for app in APPS)
    runs_of = Counter(app for app, _ in fleet.tagged)
    assert apps["dd-read"].realised.runs == runs_of["dd-read"] >= WITH_REPEATS


def runs(fleet: SlurmFleet) -> list[tuple[str, str, int]]:
    """(Application, node, exit status) of the runs that came from Slurm."""
    from kongming.store import Store

    store = Store.open(fleet.server.store_url)
    try:
        environment_runs = store.runs(kind="environment", fingerprints=False)
        return [(run.app, run.node_id, run.exit_status or 0) for run in environment_runs]
    finally:
        store.close()


def test_weights_follow_the_general_slowdown_for_jobs_without_a_tag(fleet: SlurmFleet) -> None:
    def nodes() -> dict[str, tuple[int, str]]:
        """The weight and the state of each."""
        output = fleet.slurm.command("sinfo", "-h", "-N", "-o", "%N|%w|%t")
        fields = (line.split("|") for line in output.split())
        return {name: (int(weight), state) for name, weight, state in fields}

    def general_slowdowns() -> dict[str, float]:
        with fleet.service() as service:
            known = {node.facts.name: node.general_slowdown for node in service.nodes()}
        return {name: known[name] for name in NODES if known.get(name) is not None}

    def follow(weights: dict[str, tuple[int, str]], slowdowns: dict[str, float]) -> bool:
        """Whether a node that is slower than another by a quarter weighs more."""
        return set(slowdowns) == set(NODES) and all(
            weights[slow][0] > weights[fast][0]
            for slow, fast in itertools.permutations(NODES, 2)
            if slowdowns[slow] > 1.25 * slowdowns[fast]
        )

    def lightest(weights: dict[str, tuple[int, str]]) -> str | None:
        """The node with the least weight, unless several share it."""
        first, second = sorted(NODES, key=lambda name: weights[name][0])[:2]
        return first if weights[first][0] < weights[second][0] else None

    def placed() -> tuple[str, dict[str, str]] | None:
        """A job, and the node that had the least weight before and after, and was free: all nodes
        share two CPUs, where whatever else runs makes now this one slow and now that."""
        before = nodes()
        expected = lightest(before)
        if expected is None or before[expected][1] != "idle":
            return None
        if not follow(before, general_slowdowns()):
            return None
        job = fleet.slurm.finished(fleet.slurm.submit(script="true"))
        return (expected, job) if lightest(nodes()) == expected else None

    expected, job = eventually(placed, 60.0, fleet.describe)
    assert names_of(fleet, job, "ExcNodeList") == set()
    assert job["NodeList"] == expected


def test_pending_jobs_follow_the_rankings(fleet: SlurmFleet) -> None:
    settled(fleet, "xz")
    own = fleet.slurm.submit("-H", "-x", DISK, "--comment=kongming:app=xz", script="true")
    other = fleet.slurm.submit("-H", "-x", DISK, script="true")
    array = fleet.slurm.submit("-H", "--array=1-3", "--comment=kongming:app=xz", script="true")

    def excluded(id_: str) -> set[str]:
        return names_of(fleet, fleet.slurm.job(id_), "ExcNodeList")

    eventually(lambda: {HALF, COMPUTES, DISK} <= excluded(own), 60.0, fleet.describe)
    # As if no node had been slow when the job was submitted, and the bridge had seen that.
    words = (f"JobId={own}", f"ExcNodeList={DISK}", OWN_CHANGE)
    fleet.slurm.command("scontrol", "update", *words)
    fleet.slurm.command("scontrol", "update", f"JobId={other}", f"ExcNodeList={CALM}")
    eventually(lambda: {HALF, COMPUTES, DISK} <= excluded(own), 60.0, fleet.describe)
    # The node recovers: the jobs may have it again, and exclusions of users stay.
    fleet.calm(HALF)
    eventually(
        lambda: HALF not in excluded(own) and HALF not in excluded(array), 60.0, fleet.describe
    )
    assert DISK in excluded(own)
    assert excluded(other) == {CALM}
    assert "ArrayTaskId=1-3" in fleet.slurm.command("scontrol", "-o", "show", "job", array)
    fleet.slurm.command("scancel", own, other, array)


def test_the_bridge_survives_restarts_of_slurmctld_and_the_server(fleet: SlurmFleet) -> None:
    fleet.slurm.end("slurmctld")
    fleet.server.stop()
    before = fleet.rankings().written_at
    eventually(lambda: "Slurm:" in (fleet.slurm.folder / "bridge.out").read_text(), 30.0)
    fleet.server.start()
    fleet.slurm.start_controller()
    eventually(lambda: fleet.slurm.states() == dict.fromkeys(NODES, "idle"), 60.0)
    eventually(lambda: fleet.rankings().written_at > before, 60.0)
    eventually(lambda: fleet.rankings().apps["xz"] and fleet.has_slowdown("xz", CALM), 60.0)
    lines = (fleet.slurm.folder / "bridge.out").read_text().splitlines()
    assert 1 <= sum("WARNING Slurm:" in line for line in lines) <= 2, lines


@pytest.mark.parametrize("how", ["stale", "missing", "broken", "a folder"])
def test_without_a_valid_file_jobs_run_as_without_kongming(fleet: SlurmFleet, how: str) -> None:
    if "bridge" in fleet.slurm.running:
        assert fleet.slurm.end("bridge") == 0
    file: Path = fleet.file
    text = file.read_text() if file.is_file() else ""
    if how == "stale":
        age = fleet.rankings().written_at + fleet.rankings().good_for_s - time.time()
        time.sleep(max(0.0, age) + 1.0)
    elif how == "missing":
        file.unlink()
    elif how == "broken":
        file.write_text("kongming-slurm-rankings 1\n\0\xff" + text[: len(text) // 2])
    else:
        file.unlink()
        file.mkdir()
    lines = fleet.slurm.log().count(OUT_OF)
    ids = [
        fleet.slurm.submit("--comment=kongming:app=xz,limit=1.2", script="true") for _ in range(3)
    ]
    jobs = [fleet.slurm.finished(id_) for id_ in ids]
    assert {job["JobState"] for job in jobs} == {"COMPLETED"}
    assert all(names_of(fleet, job, "ExcNodeList") == set() for job in jobs)
    # One line for all three.
    assert fleet.slurm.log().count(OUT_OF) == lines + 1


def test_scale_experiments_run_on_slurms_nodes(fleet: SlurmFleet) -> None:
    folder: Path = fleet.slurm.folder / "scale"
    folder.mkdir(mode=0o755)
    line = f"echo $SLURMD_NODENAME > {folder}/{{machines}}.{{rank}}; sleep 0.2"
    (folder / "apps.toml").write_text(f"[apps.naps]\ncommand = {json.dumps(line)}\n")
    experiments = ["1@1", "3@1"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kongming.cli.main", "scale", "run", "apps.toml"),
            *("--app", "naps", "--runner", "slurm", "--out", "runs.csv"),
            *(part for experiment in experiments for part in ("--experiment", experiment)),
        ],
        cwd=folder,
        env=fleet.slurm.env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with (folder / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted((row["machines"], row["how"]) for row in rows) == [
        ("1", "slurm"),
        ("3", "slurm"),
    ]
    assert all(float(row["seconds"]) >= 0.2 for row in rows)
    names = {path.name: path.read_text().strip() for path in folder.glob("?.?")}
    assert sorted(names) == ["1.0", "3.0", "3.1", "3.2"]
    # A machine is a node of its own.
    assert len({names[f"3.{rank}"] for rank in range(3)}) == 3
    assert set(names.values()) <= set(NODES)
    assert not list(folder.glob("kongming-scale-*"))


def test_nothing_remains(fleet: SlurmFleet) -> None:
    fleet.close()
    assert fleet.slurm.left() == []
    groups = [
        entry
        for controller in ("cpu", "blkio", "")
        for entry in Path("/sys/fs/cgroup", controller).glob(f"**/kongming-*{os.getpid()}*")
    ]
    assert groups == []
    assert sqlite3.connect(fleet.folder / "store.db").execute("SELECT 1").fetchone() == (1,)
