"""A real Slurm on this machine: munged, slurmctld and several slurmd, in a temporary folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports
from tests.server.process import python_path

ROOT = Path(__file__).resolve().parents[2]
DEPLOYED = ROOT / "daemon/deploy/slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "sinfo", "squeue", "sbatch", "scancel")
OWNER = "KONGMING_TEST_SLURM_OWNER"
"""In the environment of all that a cluster starts: which process of the tests it belongs to."""
SMALL = "CPUs=1 RealMemory=1000"
_PR_SET_PDEATHSIG = 1
_PLUGINS = ("/usr/lib/x86_64-linux-gnu/slurm-wlm", "/usr/lib/slurm-wlm", "/usr/lib/slurm")

CONFIGURATION = """
ClusterName={cluster}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters={select}
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
JobSubmitPlugins=lua
PrologSlurmctld={folder}/restore-limit.sh
Prolog={folder}/prolog.sh
Epilog={folder}/epilog.sh
PrologFlags=Alloc
SlurmdParameters=config_overrides
ReturnToService=2
InactiveLimit=0
KillWait=2
MinJobAge=300
PartitionName=main Nodes={names} Default=YES MaxTime=10 State=UP
"""


def missing() -> str | None:
    """Why Slurm cannot be started here, or None."""
    if os.geteuid() != 0:
        return "Slurm is started as root, and this is another user"
    lacking = [name for name in PROGRAMS if program(name) is None]
    if lacking:
        return f"{', '.join(lacking)} not found: install slurm-wlm and munge"
    if not any((Path(folder) / "job_submit_lua.so").exists() for folder in _PLUGINS):
        return "Slurm's plugin job_submit/lua not found"
    return None


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class SlurmCluster:
    """``start()`` it, then ``command("sinfo")`` and so on; ``close()`` ends every process.

    ``cpus`` gives for each node the CPU that it is on. ``hooks`` is the settings file of prolog
    and epilog, and ``others`` the CPU of what is no node. ``hardware`` is what each node, or
    which node, is in slurm.conf to have, and ``select`` what of it jobs are given.
    """

    def __init__(
        self,
        folder: Path,
        cpus: Mapping[str, int],
        rankings: Path,
        hooks: Path,
        others: int,
        *,
        hardware: str | Mapping[str, str] = SMALL,
        select: str = "CR_CPU",
    ) -> None:
        self.folder, self.cpus, self.others = folder, dict(cpus), others
        self.rankings = rankings
        self.name = f"kongming{secrets.token_hex(3)}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._configuration = folder / "slurm.conf"
        self.env = os.environ | {
            "SLURM_CONF": str(self._configuration),
            "PYTHONPATH": python_path(),
            "KONGMING_SLURM_RANKINGS": str(rankings),
            OWNER: str(_identity(os.getpid())),
        }
        # Slurm refuses folders that others may write to, munge those that others may not search.
        for part in (folder, *(folder / name for name in ("munge", "state", "spool"))):
            part.mkdir(mode=0o755, parents=True, exist_ok=True)
            part.chmod(0o755)
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        port, *ports = free_ports(len(cpus) + 1)
        text = CONFIGURATION.format(
            cluster=self.name, port=port, folder=folder, names=",".join(cpus), select=select
        )
        for name, own in zip(cpus, ports, strict=True):
            (folder / "spool" / name).mkdir()
            has = hardware if isinstance(hardware, str) else hardware[name]
            text += f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={own} {has}\n"
        self._configuration.write_text(text)
        shutil.copy(DEPLOYED / "job_submit.lua", folder / "job_submit.lua")
        run = folder / "kongming-slurm"
        _write_script(
            run,
            f'#!/bin/sh\nPYTHONPATH="{python_path()}" exec "{sys.executable}" '
            f'-m kongming_slurm.bridge_commands "$@" 2>>"{folder}/hooks.err"\n',
        )
        for hook in ("prolog", "epilog"):
            paths: dict[str, Path | str] = {
                "/usr/bin/kongming-slurm": run,
                "/etc/kongming/slurm.toml": hooks,
                # What a hook does in time is reported, and what not is not: that has tests of its
                # own. With other tests on both CPUs Python may not have begun by then.
                "timeout --kill-after=0.1 2 ": "timeout --kill-after=0.1 30 ",
            }
            self._install(f"{hook}.sh", paths)
        self._install("restore-limit.sh", {"/etc/slurm/slurm.conf": self._configuration})

    def start(self) -> None:
        end_abandoned()
        folder = self.folder
        self.spawn(
            "munged",
            [
                *(str(program("munged")), "--foreground", "--force", "--num-threads=2"),
                *(f"--socket={folder}/munge/socket", f"--key-file={folder}/munge.key"),
                *(f"--pid-file={folder}/munge/pid", f"--seed-file={folder}/munge/seed"),
                f"--log-file={folder}/munge/log",
            ],
        )
        eventually((folder / "munge/socket").exists)
        self.start_controller()
        for name, cpu in self.cpus.items():
            self.spawn(name, [str(program("slurmd")), "-D", "-N", name], cpu=cpu)
        eventually(lambda: self.states() == dict.fromkeys(self.cpus, "idle"), 30.0)

    def start_controller(self) -> None:
        self.spawn("slurmctld", [str(program("slurmctld")), "-D"])

    def states(self) -> dict[str, str]:
        done = self.command("sinfo", "-h", "-N", "-o", "%N|%T", check=False)
        return dict(line.split("|") for line in done.splitlines() if "|" in line)

    def command(self, name: str, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [str(program(name)), *arguments],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert not check or done.returncode == 0, f"{name} {arguments}: {done.stderr}"
        return done.stdout

    def submit(self, *arguments: str, script: str) -> str:
        """Submits a script; returns the job's id."""
        out = str(self.folder / "job-%j.out")
        output = self.command("sbatch", "--parsable", "-o", out, *arguments, "--wrap", script)
        return output.strip().partition(";")[0]

    def job(self, id_: str) -> dict[str, str]:
        """The fields of scontrol for a job."""
        output = self.command("scontrol", "-o", "show", "job", id_)
        return {
            key: value
            for key, equals, value in (w.partition("=") for w in output.split())
            if equals
        }

    def finished(self, id_: str, timeout_s: float = 180.0) -> dict[str, str]:
        """The job, once it has ended."""
        done = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL")
        return eventually(
            lambda: (job := self.job(id_))["JobState"] in done and job,
            timeout_s,
            lambda: f"for {self.job(id_)}",
        )

    def output(self, id_: str) -> str:
        return (self.folder / f"job-{id_}.out").read_text()

    def log(self, name: str = "slurmctld") -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def spawn(
        self, name: str, command: Sequence[str], *, cpu: int | None = None
    ) -> subprocess.Popen[bytes]:
        """A process that ends with this one; its output goes to NAME.out."""
        with (self.folder / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(
                command,
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=_prepared(self.others if cpu is None else cpu),
            )
        self.running[name] = process
        return process

    def python(
        self, name: str, module: str, *arguments: str, cpu: int | None = None
    ) -> subprocess.Popen[bytes]:
        return self.spawn(name, [sys.executable, "-m", module, *arguments], cpu=cpu)

    def end(self, name: str, timeout_s: float = 15.0) -> int:
        process = self.running.pop(name)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def close(self) -> None:
        """Jobs first: their steps are processes of their own."""
        if "slurmctld" in self.running:
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                self.command("scancel", "--user=root", check=False)
                eventually(lambda: not self.command("squeue", "-h", check=False).strip(), 15.0)
        for name in ("bridge", *self.cpus, "slurmctld"):
            if name in self.running:
                self.end(name)
        for name in list(self.running):
            self.end(name)
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # A process that an epilog has left behind is there for a moment yet.
        with contextlib.suppress(AssertionError):
            eventually(lambda: not self.left(), 10.0)

    def left(self) -> list[int]:
        """Processes of this cluster that are there still, by what they were started with."""
        wanted = f"SLURM_CONF={self._configuration}"
        return [pid for pid, variables in _environments() if wanted in variables]

    def _install(self, name: str, paths: Mapping[str, Path | str]) -> None:
        """The script that is deployed, with this cluster's paths in it."""
        text = (DEPLOYED / name).read_text()
        for before, after in paths.items():
            assert text.count(before) == 1
            text = text.replace(before, str(after))
        _write_script(self.folder / name, text)


@contextlib.contextmanager
def running(
    folder: Path,
    nodes: Sequence[str],
    settings: str,
    *,
    hardware: str | Mapping[str, str] = SMALL,
    select: str = "CR_CPU",
) -> Iterator[SlurmCluster]:
    """A cluster of nodes on the first CPU of this process, with these settings of its hooks; it
    leaves nothing behind. Skips the test where Slurm is missing."""
    why = missing()
    if why is not None:
        pytest.skip(why)
    hooks = folder / "slurm.toml"
    hooks.write_text(settings)
    cpu = min(os.sched_getaffinity(0))
    rankings = folder / "rankings" / "rankings"
    cpus = dict.fromkeys(nodes, cpu)
    cluster = SlurmCluster(
        folder, cpus, rankings, hooks, others=cpu, hardware=hardware, select=select
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        assert cluster.left() == []


def _write_script(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def end_abandoned() -> None:
    """Kill what clusters of tests that are no more have left, as after SIGKILL: steps of jobs are
    nobody's children, and keep the control groups that they are in from being removed."""
    marked = f"{OWNER}="
    for pid, variables in _environments():
        owner = next((v.removeprefix(marked) for v in variables if v.startswith(marked)), None)
        if owner is not None and _identity(int(owner.partition(":")[0])) != owner:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _environments() -> Iterator[tuple[int, list[str]]]:
    """Every other process, with the environment that it was started with."""
    for entry in Path("/proc").glob("[0-9]*"):
        if int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                yield int(entry.name), (entry / "environ").read_text(errors="replace").split("\0")


def _identity(pid: int) -> str | None:
    """``PID:START`` of a process that runs: its pid alone may be another's later."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "XZ" else f"{pid}:{fields[18]}"


def _prepared(cpu: int) -> Callable[[], None]:
    def prepare() -> None:
        os.sched_setaffinity(0, {cpu})
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return prepare


def timed(command: str) -> str:
    """A script that runs a command and writes how many seconds it took, and its status."""
    return (
        "began=$(date +%s%N); "
        f"{command} >/dev/null 2>&1; status=$?; "
        'echo "took $(( ($(date +%s%N) - began) / 1000000 )) ms"; exit $status'
    )


def seconds(output: str) -> float:
    """What ``timed`` wrote."""
    (line,) = [line for line in output.splitlines() if line.startswith("took ")]
    return int(line.split()[1]) / 1000.0


def eventually(
    what: Callable[[], Any], timeout_s: float = 20.0, describe: Callable[[], str] = lambda: ""
) -> Any:
    """The first true value of ``what()``; if there is none in time, fails with ``describe()``.

    It asks seldom: each question is a process, and would disturb the jobs that are timed.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, f"it never came true {describe()}"
        time.sleep(0.3)
