"""A server, agents and a bridge with a real Slurm, on nodes of different speed.

All nodes are this machine: n1 gets half a CPU, n2 shares its CPU with a neighbour that computes, n3
reads from a throttled disk, and n4 is undisturbed. On each node slurmd, its jobs and the agent are
in the same control groups, so that an agent measures the environment of a job there.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from kongming_agent.agent_config import Node as NodeSettings
from kongming_agent.probing.prober import Prober
from kongming_agent.probing.schedule import Probe
from kongming_agent.reporting.spool import Spool
from kongming_slurm import ranking_file
from kongming_slurm.ranking_file import RankingFile

from kongming.probes.node import node_facts
from kongming.probes.suite import load_suite
from kongming.profiling.environments.environment import Environment
from kongming.profiling.environments.limits import Limits, reasons
from kongming.rpc.channel import Connection
from kongming.rpc.client import RemoteService
from tests.server.process import ROOT, ServerProcess, python_path
from tests.slurm.cluster import SlurmCluster, eventually, missing
from tests.slurm.own_disk import MEMORY, own_disk

RECORDED = ROOT / "benchmarks/accuracy/recorded/epyc-32M-same-core.db.xz"
HALF, COMPUTES, DISK, CALM = NODES = ("n1", "n2", "n3", "n4")
WHAT = {
    HALF: "half a CPU",
    COMPUTES: "a neighbour that computes",
    DISK: "a slow disk",
    CALM: "nothing",
}
APPS = ("xz", "dd-read")
PROGRAMS = ROOT / "examples/programs"
COMMANDS = {
    "xz": f"'{sys.executable}' '{PROGRAMS}/compress.py' lzma {{disk}}/text 1",
    "dd-read": "dd if={disk}/blob of=/dev/null bs=16K iflag=direct",
}
"""As in examples/apps.toml, with which they were profiled."""
INPUTS = {"text": ("text", "16"), "blob": ("blob", "384")}
"""Kind and size: smaller than when profiled, for a shorter test. Slowdowns are the same."""
LIMIT = 1.6
"""Slowdown above which a node is excluded."""
REFRESH_S = 1.5
"""Time from one file of rankings to the next."""
START_S = 180.0
"""Longest time until a node that was disturbed is seen to be, with other tests on both CPUs."""
SERVERS_NICENESS = -10

AGENT = """
[server]
address = "{server}"
longest_retry_s = 1.0
least_heartbeat_s = 1.0
[node]
id = "{name}"
name = "{name}"
[files]
state = "{memory}/agent-{name}"
io = "{disk}"
inbox = "{memory}/agent-{name}/local"
# Far more often than on a real node, so that a test takes no longer than minutes.
[probing]
signals_s = 0.5
period_s = 15.0
start_s = 1.0
least_gap_s = 8.0
# Other tests may run here: the reference is measured once, and given to all.
idle_s = 3600.0
io_pressure = 1.0
memory_pressure = 1.0
[budget]
cpu_share = 1.0
probe_share = 1.0
[metrics]
listen = ""
"""

BRIDGE = """
[server]
longest_retry_s = 2.0
[rankings]
file = "{folder}/rankings/rankings"
refresh_s = {refresh_s}
good_for_s = 8.0
limit = {limit}
[slurm]
configuration = "{folder}/slurm.conf"
[hooks]
inbox = "{memory}/agent-%n/local"
state = "{memory}/hooks-%n"
"""


def impossible(folder: Path) -> str | None:
    """The reason why the fleet cannot be started here, or None."""
    why = missing()
    if why is not None:
        return why
    if len(os.sched_getaffinity(0)) < 2:
        return "two CPUs are needed: one for the nodes, one for the node with a neighbour"
    unsupported = reasons(node_facts(), folder)
    return unsupported["quota"] or unsupported["io"]


class SlurmFleet:
    """``start()`` takes half a minute: idle references, models, first fingerprints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A commit must not wait where a node's disk is slow: it may be the only disk.
        self.memory = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else folder))
        self._disks = ExitStack()
        self.disk = self._disks.enter_context(own_disk(folder))
        self.file = folder / "rankings" / "rankings"
        self.hooks = folder / "slurm.toml"
        first, *_, last = sorted(os.sched_getaffinity(0))
        self.cpus = {HALF: first, COMPUTES: last, DISK: first, CALM: first}
        self.slurm = SlurmCluster(folder, self.cpus, self.file, self.hooks, others=last)
        self.server = ServerProcess(
            folder,
            store_url=f"sqlite:///{self.memory / 'store.db'}",
            settings={"fleet.heartbeat_period_s": 1.0},
        )
        self.limits = {name: ExitStack() for name in NODES}
        # Application and node of each job with a tag.
        self.tagged: list[tuple[str, str]] = []

    def start(self) -> None:
        places = {"folder": self.folder, "memory": self.memory}
        self.hooks.write_text(BRIDGE.format(limit=LIMIT, refresh_s=REFRESH_S, **places))
        self._give_references()
        self._prepare()
        self.slurm.start()
        self.server.start()
        # Calm nodes have their CPU to themselves: all else runs on the neighbour's, and does not
        # wait for it.
        for task in Path(f"/proc/{self.server.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {self.slurm.others})
            os.setpriority(os.PRIO_PROCESS, int(task.name), SERVERS_NICENESS)
        for name in NODES:
            self.start_agent(name)
        self._disturb()
        self.start_bridge()
        eventually(lambda: self.has_slowdown(APPS[0], HALF, above=LIMIT), START_S, self.describe)

    def differs(self) -> bool:
        """Whether the neighbour and the slow disk slow jobs down: on some machines they do not."""
        try:
            eventually(lambda: self.has_slowdown(APPS[0], COMPUTES, above=LIMIT), START_S)
            eventually(lambda: self.has_slowdown(APPS[1], DISK, above=LIMIT), START_S)
        except AssertionError:
            return False
        return True

    def start_bridge(self) -> None:
        self.slurm.python(
            *("bridge", "kongming_slurm.bridge_commands", "bridge", "--server", self.server.grpc),
            *("--config", str(self.hooks)),
        )

    def start_agent(self, name: str) -> None:
        settings = self.folder / f"agent-{name}.toml"
        places = {"server": self.server.grpc, "disk": self.disk, "memory": self.memory}
        settings.write_text(AGENT.format(name=name, **places))
        self.slurm.python(
            *(f"agent-{name}", "kongming_agent.agent_command", "--config", str(settings)),
            cpu=self.cpus[name],
        )

    def service(self) -> RemoteService:
        return RemoteService(Connection(self.server.grpc))

    def rankings(self) -> RankingFile:
        return ranking_file.parse(self.file.read_text())

    def describe(self) -> str:
        """What the bridge has last written and Slurm has in its queue, for an assertion."""
        jobs = self.slurm.command("scontrol", "-o", "show", "job", check=False)
        rankings = self.file.read_text() if self.file.is_file() else "no rankings"
        return f"at {time.time():.0f}\n{rankings}\n{jobs}"

    def slowdown(self, app: str, node: str) -> float | None:
        rankings = self.rankings()
        return rankings.apps[app][rankings.nodes.index(node)] if app in rankings.apps else None

    def has_slowdown(self, app: str, node: str, *, above: float = 0.0, below: float = 1e9) -> bool:
        """Whether the slowdown in the file is within these bounds, now."""
        with contextlib.suppress(FileNotFoundError):
            slowdown = self.slowdown(app, node)
            return slowdown is not None and above < slowdown < below
        return False

    def command(self, app: str) -> str:
        return COMMANDS[app].format(disk=self.disk)

    def close(self) -> None:
        try:
            self.slurm.close()
        finally:
            self.server.close()
            # Only now: a control group with a process in it cannot be removed.
            for stack in self.limits.values():
                stack.close()
            self._disks.close()
            if self.memory.is_dir():
                shutil.copy(self.memory / "store.db", self.folder)
                shutil.rmtree(self.memory)

    def _give_references(self) -> None:
        """Give each node the fingerprint of this machine without load as its idle reference, as its
        agent would have measured it when the node was idle."""
        facts = node_facts()
        suite = load_suite(facts, self.disk)
        taken = []
        for cpu in (self.cpus[CALM], self.cpus[COMPUTES], self.cpus[CALM]):
            here = replace(facts, cpus=(cpu,))
            prober = Prober(here, suite, self.disk, write_s=0.03, carry_s=0.0)
            taken.append(prober.take(Probe(0, "standard", "asked"), cpu).fingerprint)
        for name in NODES:
            node = NodeSettings(id=name, name=name).identified(facts)
            cpu = self.cpus[name]
            readings = [replace(e, id=uuid.uuid4().hex, node=node, cpu=cpu) for e in taken]
            spool = Spool(self.memory / f"agent-{name}" / "spool.db")
            spool.put("idle:0", [each.to_dict() for each in readings])
            spool.close()

    def _prepare(self) -> None:
        """Train models of two applications from recorded runs, and make the programs' inputs."""
        with lzma.open(RECORDED) as packed, (self.memory / "store.db").open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
        self._call_suite_this_machines()
        environment = os.environ | {"PYTHONPATH": python_path()}
        making = [
            subprocess.Popen(
                [sys.executable, str(PROGRAMS / "generate.py"), kind, self.disk / name, size],
                stdout=subprocess.DEVNULL,
            )
            for name, (kind, size) in INPUTS.items()
        ]
        trained = subprocess.run(
            [
                *(sys.executable, "-m", "kongming.cli.main", "train", *APPS, "--json"),
                *("--placement", "same-core", "--store", self.server.store_url),
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert [process.wait() for process in making] == [0] * len(making)
        assert trained.returncode == 0, trained.stderr
        # On the disk before a node's is throttled, and before anybody waits for a file of his own:
        # a file system may write all that is new at once, which takes minutes on a busy disk.
        for name in INPUTS:
            with (self.disk / name).open("rb") as file:
                os.fsync(file.fileno())

    def _call_suite_this_machines(self) -> None:
        """Say that the recorded fingerprints are of this machine's suite. Where its caches have
        other sizes some of its surrogates have, too, and models of the one refuse readings of the
        other, rightly; how these nodes differ does not depend on that."""
        version = load_suite(node_facts(), self.disk).version
        with contextlib.closing(sqlite3.connect(self.memory / "store.db")) as database, database:
            recorded = database.execute("SELECT DISTINCT suite_version FROM fingerprint")
            for (other,) in recorded.fetchall():
                for table in ("fingerprint", "campaign"):
                    database.execute(
                        f"UPDATE {table} SET document = replace(document, ?, ?)", (other, version)
                    )
                database.execute("UPDATE fingerprint SET suite_version = ?", (version,))

    def _disturb(self) -> None:
        environments = {
            HALF: Environment(WHAT[HALF], "quota", {"cpu_quota": 0.5}),
            DISK: Environment(
                WHAT[DISK],
                "io",
                {
                    "read_bytes_per_s": 48 << 20,
                    "write_bytes_per_s": 48 << 20,
                    "read_iops": 3000,
                    "write_iops": 3000,
                },
            ),
        }
        for name, environment in environments.items():
            groups = self.limits[name].enter_context(Limits(environment, self.disk))
            for procs in groups.app_procs:
                for process in (name, f"agent-{name}"):
                    procs.write_text(str(self.slurm.running[process].pid))
        self.slurm.python(
            *("neighbour", "kongming.cli.main", "induce", "compute.float"),
            *("--cpu", str(self.cpus[COMPUTES]), "--seconds", "600"),
        )

    def calm(self, name: str) -> None:
        """Remove the limits of a node."""
        self.limits[name].close()


def report(document: dict[str, Any]) -> None:
    """Write the figures to the file that KONGMING_SLURM_REPORT names, if any."""
    file = os.environ.get("KONGMING_SLURM_REPORT")
    if file:
        Path(file).write_text(json.dumps(document, indent=2) + "\n")
