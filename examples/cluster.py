"""A cluster on one machine: a server, three agents, and what a scheduler would ask of them.

The server and the agents are real; the second agent is put under half a CPU and the third under a
slow disk by control groups. Where this user may not make those, the second and third share their
CPU with a load instead; KONGMING_NO_CGROUPS=1 or --no-cgroups has it so where this user may. What
was once measured of two applications is imported and trained, so that nothing has to be profiled
first. Run it with `make cluster`: it takes a minute and a half.

Exit status: 0 everything came out as it should, 1 something failed, 4 it did not come out so.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import lzma
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parent / "benchmarks/accuracy/recorded/epyc-32M-cross-core.db.xz"
APPS = ("xz", "dd-read")
NODES = ("node-1", "node-2", "node-3")
LIMITS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "node-2": ("half a CPU", "quota", {"cpu_quota": 0.5}),
    "node-3": (
        "a slow disk",
        "io",
        {
            "read_bytes_per_s": 32 << 20,
            "write_bytes_per_s": 32 << 20,
            "read_iops": 2000,
            "write_iops": 2000,
        },
    ),
}
"""What each node gets, the kind of environment, and its parameters."""
LONGEST_S = 170.0
REFERENCE_S = 8.0
"""How long each node may wait for a quiet moment in which its reference is taken."""
SLOWER = 1.3
"""Half a CPU makes what computes twice as slow; much less of it has to be seen."""
NO_CGROUPS = "KONGMING_NO_CGROUPS"
"""Set to anything but nothing and 0: no control groups are made."""
CANNOT_ANSWER = 3
"""Exit status of a question that cannot be answered honestly: no node can be ranked yet."""
_PR_SET_PDEATHSIG = 1

AGENT = """
[server]
address = "{server}"
[node]
id = "{name}"
name = "{name}"
[files]
state = "{folder}/{name}"
io = "{folder}"
# Far more often than on a real node, so that there is something to see within a minute.
[probing]
signals_s = 0.5
period_s = 5.0
start_s = 8.0
least_gap_s = 1.0
idle_s = 1.0
[budget]
cpu_share = 1.0
probe_share = 1.0
[metrics]
listen = ""
"""


class Cluster:
    """What runs, and the folder where it keeps everything. ``close`` ends all of it."""

    def __init__(self, folder: Path, *, control_groups: bool = True) -> None:
        self.folder = folder
        self.control_groups = control_groups
        self.bin = Path(sys.executable).parent
        self.store = f"sqlite:///{folder / 'cluster.db'}"
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.limits = ExitStack()
        self.load_reasons: dict[str, str] = {}
        self.failed: list[str] = []

    def start(self, name: str, *command: str, cpu: int | None = None) -> subprocess.Popen[str]:
        """A process that ends with this one, whatever ends this one; on ``cpu`` if one is given."""
        with (self.folder / f"{name}.log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [str(self.bin / command[0]), *command[1:]],
                stdout=subprocess.PIPE if name == "server" else log,
                stderr=log,
                text=True,
                preexec_fn=partial(_prepare, cpu),
            )
        self.running[name] = process
        return process

    def serve(self) -> None:
        process = self.start(
            *("server", "kongming-server", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"),
            *("--store", self.store),
        )
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 30.0)
        line = process.stdout.readline() if ready else ""
        match = re.match(r"listening grpc=(\S+) http=(\S+)", line)
        if match is None:
            self.fail(f"the server did not start; see {short(self.folder / 'server.log')}")
        os.environ["KONGMING_SERVER"] = match[1]
        print(f"\nexport KONGMING_SERVER={match[1]}    # and http://{match[2]}/metrics, /docs")

    def add_node(self, name: str) -> None:
        settings = self.folder / f"{name}.toml"
        address = os.environ["KONGMING_SERVER"]
        text = AGENT.format(server=address, name=name, folder=self.folder)
        settings.write_text(text, encoding="utf-8")
        print(f"\n$ kongming-agent --config {short(settings)} &", flush=True)
        cpu = max(os.sched_getaffinity(0)) if name in self.load_reasons else None
        self.start(name, "kongming-agent", "--config", str(settings), cpu=cpu)

    def show(self, *arguments: str) -> None:
        """A command whose output is for the person who looks on."""
        print(f"\n$ kongming {' '.join(short(part) for part in arguments)}", flush=True)
        self._run(list(arguments), capture=False)

    def ask(self, *arguments: str) -> Any:
        """The same for this program: one JSON document."""
        return json.loads(self._run([*arguments, "--json"], capture=True))

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["facts"]["name"]: node for node in self.ask("nodes")["nodes"]}

    def check(self, true: bool, what: str) -> None:
        if not true:
            self.failed.append(what)

    def fail(self, why: str) -> Any:
        sys.exit(f"cluster: {why}.")

    def close(self) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 15.0
        for process in self.running.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        # Only now: a control group with a process in it cannot be removed.
        self.limits.close()
        for left in self.folder.glob("kongming-io*"):
            left.unlink()

    def _run(self, arguments: list[str], *, capture: bool) -> str:
        done = subprocess.run(
            [str(self.bin / "kongming"), *arguments],
            stdout=subprocess.PIPE if capture else None,
            text=True,
            check=False,
        )
        if done.returncode not in (0, CANNOT_ANSWER):
            self.fail(f"kongming {arguments[0]} ended with status {done.returncode}")
        return done.stdout or ""


def _prepare(cpu: int | None) -> None:
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def short(path: object) -> str:
    """A path below the current folder as a person would type it."""
    return str(path).replace(f"{Path.cwd()}/", "")


def import_profile(cluster: Cluster) -> None:
    """What another machine measured of two applications, and models made of it."""
    recorded, file = cluster.folder / "recorded.db", cluster.folder / "profile.parquet"
    with lzma.open(RECORDED) as packed, recorded.open("wb") as unpacked:
        shutil.copyfileobj(packed, unpacked)
    only = [part for app in APPS for part in ("--app", app)]
    cluster.show("export", *only, "--out", str(file), "--store", f"sqlite:///{recorded}")
    cluster.show("import", str(file), "--store", cluster.store)
    print(f"\n$ kongming train {' '.join(APPS)} --store {short(cluster.store)}", flush=True)
    cluster.ask("train", *APPS, "--store", cluster.store)


def until(true: Callable[[], Any], longest_s: float) -> bool:
    deadline = time.monotonic() + longest_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def start_nodes(cluster: Cluster) -> bool:
    """One after another, each with its reference of the idle node; whether all have one."""
    known = True
    for name in NODES:
        cluster.add_node(name)

        def has_reference(name: str = name) -> bool:
            node = cluster.nodes().get(name)
            return node is not None and node["general_slowdown"] is not None

        if not until(has_reference, REFERENCE_S):
            known = False
            print(f"  {name}: this machine is not idle, so what is slow on it is not known yet")
    return known


def plan(cluster: Cluster) -> None:
    """Finds out which nodes need a load, since their limit cannot be made, and why.

    What an agent may run on has to be known when it starts.
    """
    from kongming.probes.node import node_facts
    from kongming.profiling.environments.limits import reasons

    why = reasons(node_facts(), cluster.folder)
    for name, (_, kind, _) in LIMITS.items():
        if not cluster.control_groups:
            cluster.load_reasons[name] = "no control groups, as requested"
        elif why[kind] is not None:
            cluster.load_reasons[name] = str(why[kind]).rstrip(".")


def disturb(cluster: Cluster) -> str:
    """Makes the second and the third node slower, each in a way of its own; says how."""
    from kongming.profiling.environments.environment import Environment
    from kongming.profiling.environments.limits import Limits

    changes = []
    for name, (words, kind, parameters) in LIMITS.items():
        if name in cluster.load_reasons:
            changes.append(_load_instead(cluster, name))
            continue
        environment = Environment(words, kind, parameters)
        groups = cluster.limits.enter_context(Limits(environment, cluster.folder))
        for procs in groups.app_procs:
            procs.write_text(str(cluster.running[name].pid), encoding="ascii")
        changes.append(f"{name} has {words}")
    return "; ".join(changes)


def _load_instead(cluster: Cluster, name: str) -> str:
    """A load on the agent's CPU; of two nodes there the third has the smaller share of it."""
    cpu = max(os.sched_getaffinity(0))
    if name == NODES[-1]:
        os.setpriority(os.PRIO_PROCESS, cluster.running[name].pid, 5)
    if "load" not in cluster.running:
        cluster.start(
            *("load", "kongming", "induce", "compute.float", "--cpu", str(cpu)),
            *("--seconds", str(LONGEST_S)),
        )
    share = "a smaller part of" if name == NODES[-1] else "half of"
    return f"{name} has {share} CPU {cpu} next to a load ({cluster.load_reasons[name]})"


def walk_through(cluster: Cluster) -> None:
    import_profile(cluster)
    cluster.serve()
    plan(cluster)
    known = start_nodes(cluster)
    cluster.show("nodes")

    print(f"\nNow {disturb(cluster)}.")
    disturbed = time.time()
    until(lambda: min(map(_seen_at, cluster.nodes().values())) > disturbed, 30.0)
    cluster.show("nodes")
    nodes = cluster.nodes()
    # Without an idle moment a node has no reference: it is there, but not ready.
    there = [n for n, node in nodes.items() if node["state"] in ("ready", "unreferenced")]
    cluster.check(sorted(there) == sorted(NODES), f"only {there} report")
    if known:
        calm, slow = (nodes[name]["general_slowdown"] for name in NODES[:2])
        cluster.check(slow > SLOWER * calm, "node-2 is not seen to be slower than node-1")

    for app in APPS:
        cluster.show("rank", app)
    ranked = cluster.ask("rank", APPS[0])["nodes"]
    best = ranked[0]["name"] if ranked else NODES[0]
    if ranked:
        cluster.show("predict", APPS[0], "--node", best)
        cluster.show("explain", APPS[0], "--node", best)
    else:
        print("This machine was never idle: without a reference no node is predicted.")

    print(f"\nA scheduler places {APPS[0]} on {best}: it reserves, starts the job, and binds.")
    cluster.show("assignments", "reserve", "job-1", APPS[0], best)
    cluster.show("rank", APPS[1])
    cluster.show("assignments", "bind", "job-1")
    cluster.show("assignments")
    held = [placed["assignment_id"] for placed in cluster.nodes()[best]["assignments"]]
    cluster.check(held == ["job-1"], f"{best} does not show the assignment that was bound")

    print(f"\nWhile it is watched, the job on {best} ends.")
    print(f"\n$ kongming watch {best} --for 8 &", flush=True)
    watching = subprocess.Popen([str(cluster.bin / "kongming"), "watch", best, "--for", "8"])
    cluster.running["watch"] = watching
    time.sleep(4.0)
    cluster.show("assignments", "release", "job-1")
    cluster.check(watching.wait(30.0) == 0, "watching failed")
    cluster.show("assignments")
    cluster.check(not cluster.nodes()[best]["assignments"], f"{best} still shows the assignment")
    for name, process in cluster.running.items():
        cluster.check(name == "watch" or process.poll() is None, f"{name} has ended by itself")


def _seen_at(node: dict[str, Any]) -> float:
    from kongming.records import moments

    at = node["last_fingerprint_at"]
    return 0.0 if at is None else moments.unix(at)


def _too_long(signum: int, frame: FrameType | None) -> None:
    sys.exit(f"cluster: not done after {LONGEST_S:g} s; this machine may be too busy.")


def _terminated(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=HERE.parent / ".cluster")
    parser.add_argument(
        "--no-cgroups",
        action="store_true",
        default=os.environ.get(NO_CGROUPS, "") not in ("", "0"),
        help=f"load the CPU of the second and third agent in place of limits; so does {NO_CGROUPS}",
    )
    options = parser.parse_args()
    folder = options.dir.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    signal.signal(signal.SIGALRM, _too_long)
    signal.signal(signal.SIGTERM, _terminated)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    started = time.monotonic()
    cluster = Cluster(folder, control_groups=not options.no_cgroups)
    try:
        walk_through(cluster)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        cluster.close()
    for what in cluster.failed:
        print(f"cluster: {what}.", file=sys.stderr)
    if not cluster.failed:
        seconds = time.monotonic() - started
        print(f"\nDone in {seconds:.0f} s, and all of it ended. Logs are in {short(folder)}.")
    return 4 if cluster.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
