"""A real Grid Engine on this machine: a master and one host, in a temporary folder."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_ports
from tests.server.process import eventually
from tests.system import GRID_ENGINE

HOST = socket.gethostname()
_PROGRAMS = GRID_ENGINE / "usr/lib/gridengine"
_SHARED = GRID_ENGINE / "usr/share/gridengine"
_PR_SET_PDEATHSIG = 1

_BOOTSTRAP = """\
admin_user none
default_domain none
ignore_fqdn false
spooling_method classic
spooling_lib libspoolc
spooling_params {spool}
binary_path {folder}/bin
qmaster_spool_dir {folder}/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""


class GridEngine:
    """``command("qhost")`` and so on, as root, who may do anything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        master, host = free_ports(2)
        self.env = os.environ | {
            "SGE_ROOT": str(folder),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(master),
            "SGE_EXECD_PORT": str(host),
            "SGE_ND": "1",
            "LD_LIBRARY_PATH": str(_PROGRAMS),
        }

    def command(self, name: str, *arguments: object) -> str:
        done = subprocess.run(
            [_PROGRAMS / name, *map(str, arguments)],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{name} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def changed(self, shown: str, taken: str, values: Mapping[str, str], name: str) -> None:
        """Give ``values`` to fields of what ``qconf`` shows by one option and takes by another."""
        lines = []
        for line in self.command("qconf", *shown.split()).splitlines():
            field = line.split(" ")[0]
            lines.append(f"{field} {values[field]}" if field in values else line)
        # The name of a configuration is that of its file.
        file = self.folder / name
        file.write_text("\n".join([*lines, ""]))
        self.command("qconf", taken, file)

    def submit(self, name: str, request: str) -> None:
        script = self.folder / "job.sh"
        script.write_text(f"echo done >{self.folder}/$JOB_NAME.done\n")
        self.command("qsub", "-o", "/dev/null", "-j", "y", "-N", name, "-l", request, script)

    def done(self, name: str) -> bool:
        return (self.folder / f"{name}.done").exists()

    def reason(self, name: str) -> str:
        """Why a job waits."""
        return self.command("qstat", "-j", name).partition("scheduling info:")[2]

    def loads(self, *names: str) -> dict[str, float]:
        """What the host's sensor reported, as the master knows it."""
        output = self.command("qhost", "-h", HOST, "-F", *names)
        fields = (
            line.strip().removeprefix("Host Resource(s):").strip() for line in output.split("\n")
        )
        pairs = (field.removeprefix("hl:").split("=") for field in fields if field[:3] == "hl:")
        return {name: float(value) for name, value in pairs}


@contextmanager
def running(
    folder: Path, sensor: Path, complexes: list[str], env: Mapping[str, str]
) -> Iterator[GridEngine]:
    """Started with a load sensor and complexes, and a queue of two slots."""
    engine = GridEngine(folder)
    spool = f"{folder}/default/common;{folder}/qmaster"
    for part in ("default/common", "qmaster/job_scripts", "execd", "bin", "utilbin"):
        (folder / part).mkdir(parents=True)
    architecture = subprocess.check_output(["sh", _SHARED / "util/arch"], text=True).strip()
    for part in ("bin", "utilbin"):
        (folder / part / architecture).symlink_to(_PROGRAMS)
    common = folder / "default/common"
    (common / "bootstrap").write_text(_BOOTSTRAP.format(folder=folder, spool=spool))
    (common / "act_qmaster").write_text(f"{HOST}\n")
    (common / "host_aliases").write_text(f"{HOST} localhost\n")
    engine.command("spoolinit", "classic", "libspoolc", spool, "init")
    for kind, source in (
        ("configuration", _SHARED / "default-configuration"),
        ("complexes", _SHARED / "util/resources/centry"),
        ("usersets", _SHARED / "util/resources/usersets"),
        ("managers", "root"),
    ):
        engine.command("spooldefaults.bin", kind, source)
    started = [_start(engine, "sge_qmaster", {})]
    try:
        eventually(lambda: _lists(engine, "-sm"))
        engine.command("qconf", "-as", HOST)
        file = folder / "complexes"
        file.write_text("\n".join([engine.command("qconf", "-sc"), *complexes, ""]))
        engine.command("qconf", "-Mc", file)
        of_all = {
            "load_sensor": str(sensor),
            "load_report_time": "00:00:01",
            "execd_spool_dir": f"{folder}/execd",
            "min_uid": "0",
            "min_gid": "0",
        }
        engine.changed("-sconf", "-Mconf", of_all, "global")
        pace = {"schedule_interval": "0:0:1", "flush_submit_sec": "1"}
        engine.changed("-ssconf", "-Msconf", pace, "scheduler")
        started.append(_start(engine, "sge_execd", env))
        eventually(lambda: _lists(engine, "-sel"))
        queue = {"qname": "all.q", "hostlist": HOST, "slots": "2", "qtype": "BATCH"}
        queue |= {"pe_list": "NONE", "load_thresholds": "NONE"}
        engine.changed("-sq", "-Aq", queue, "queue")
        yield engine
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def _lists(engine: GridEngine, what: str) -> bool:
    """False while there is none, and while the master starts, both of which are errors."""
    try:
        return bool(engine.command("qconf", what))
    except AssertionError:
        return False


def _start(engine: GridEngine, name: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with (engine.folder / f"{name}.out").open("wb") as out:
        return subprocess.Popen(
            [_PROGRAMS / name],
            env=engine.env | dict(env),
            cwd=engine.folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=lambda: ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )
