"""How many reported fingerprints a second the store takes. Prints one JSON document.

    python -m benchmarks.service.ingest [--seconds 3] [--store postgresql://...] [--check]

A recorded quick fingerprint is varied for 10,000 nodes and given to ``Store.add_reported`` in
transactions of 1, 20 and 200, on SQLite (WAL, each commit synced) and on a PostgreSQL of its own
with its durable defaults, both in the folder for temporary files. Figures by backend and batch:

    per_second           fingerprints committed, one writer
    cpu_us               CPU time of this process for each, in microseconds
    database_cpu_us      CPU time of PostgreSQL's processes for each (SQLite runs in this one)
    core_at_10000_nodes  share of one core that a fingerprint a minute from each of 10,000 takes
    bytes_written        by this process or PostgreSQL, for each

What decoding the messages costs is not in it. Exit status 4 with --check when batches of 200 need
a quarter of a core or more for 10,000 nodes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from benchmarks.service.samples import nodes, recorded, varied
from kongming.records.fingerprint import Fingerprint
from kongming.store import Reported, Store

FLEET = 10_000
PERIOD_S = 60.0
BATCHES = (1, 20, 200)
LIMIT = 0.25
START = 1_770_000_000.0
_SAMPLES = 2_000

Usage = Callable[[], tuple[float, int]]
"""CPU seconds and bytes written so far by the database's own processes."""


def stream(seed: int) -> Iterator[Reported]:
    """Fingerprints without end, of one node after another, each with an id of its own."""
    like, source = recorded(), random.Random(seed)
    fleet = nodes(FLEET, like.node)
    # Generated in advance: generating them costs more than storing them.
    samples = [varied(like, fleet[0], START, source) for _ in range(_SAMPLES)]
    turn = 0
    while True:
        node = fleet[turn % FLEET]
        base = samples[turn % _SAMPLES]
        taken = Fingerprint(
            node,
            base.suite,
            base.suite_version,
            base.cpu,
            time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(START + turn * PERIOD_S / FLEET)),
            base.elapsed_s,
            base.surrogates,
            base.passive,
            base.warnings,
            f"{source.getrandbits(128):032x}",
        )
        yield Reported(node.id, turn // FLEET + 1, taken)
        turn += 1


def measure(url: str, usage: Usage, seconds: float) -> dict[str, dict[str, float]]:
    figures = {}
    me = psutil.Process()
    with Store.open(url) as store:
        for size in BATCHES:
            source = stream(size)
            # Every node's facts are known to a server that has run for a minute.
            known = [next(source) for _ in range(FLEET)] if size == BATCHES[0] else []
            for start in range(0, len(known), 500):
                store.add_reported(known[start : start + 500])
            count = 0
            cpu, written = _own(me)
            other_cpu, other_written = usage()
            began = time.perf_counter()
            making = 0.0
            while time.perf_counter() - began - making < seconds:
                before = time.perf_counter()
                batch = [next(source) for _ in range(size)]
                making += time.perf_counter() - before
                count += len(store.add_reported(batch).new)
            wall = time.perf_counter() - began - making
            cpu_after, written_after = _own(me)
            other_cpu_after, other_written_after = usage()
            own = max(0.0, cpu_after - cpu - making)
            other = other_cpu_after - other_cpu
            figures[str(size)] = {
                "fingerprints": count,
                "per_second": round(count / wall, 1),
                "cpu_us": round(1e6 * own / count, 1),
                "database_cpu_us": round(1e6 * other / count, 1),
                "core_at_10000_nodes": round((own + other) / count * FLEET / PERIOD_S, 4),
                "bytes_written": round(
                    (written_after - written + other_written_after - other_written) / count
                ),
            }
    return figures


def _own(process: psutil.Process) -> tuple[float, int]:
    times = process.cpu_times()
    return times.user + times.system, process.io_counters().write_bytes


def _family(pid: int) -> tuple[float, int]:
    """Of a process, its children, and those of them that ended."""
    parent = psutil.Process(pid)
    cpu, written = 0.0, 0
    for process in (parent, *parent.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            cpu += times.user + times.system
            written += process.io_counters().write_bytes
    ended = parent.cpu_times()
    return cpu + ended.children_user + ended.children_system, written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="for each batch size")
    parser.add_argument("--store", help="a PostgreSQL database to use; its CPU time is not known")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="kongming-ingest-") as folder:
        url = f"sqlite:///{Path(folder) / 'store.db'}"
        results["sqlite"] = measure(url, lambda: (0.0, 0), arguments.seconds)
    if arguments.store:
        results["postgresql"] = measure(arguments.store, lambda: (0.0, 0), arguments.seconds)
    else:
        from tests.postgres.server import started

        server = started(durable=True)
        if server is not None:
            try:
                pid = server.pid
                usage: Usage = lambda: _family(pid)  # noqa: E731
                results["postgresql"] = measure(server.url(), usage, arguments.seconds)
            finally:
                server.remove()
    met = all(
        figures["200"]["core_at_10000_nodes"] < LIMIT
        for figures in results.values()
        if isinstance(figures, dict)
    )
    print(json.dumps({"schema": 1, "results": results, "limit_core": LIMIT, "met": met}, indent=2))
    return 4 if arguments.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
