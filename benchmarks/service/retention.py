"""What a year of 1,000 nodes at one fingerprint a minute takes on disk. Prints one JSON document.

    python -m benchmarks.service.retention [--nodes 6] [--hours 96] [--backends sqlite ...]

A real store is filled with a recorded quick fingerprint, varied, as the agents of a few nodes
would over some hours; then it is thinned to hourly figures by ``Store.retain``. What a row takes
is measured with its indexes: on SQLite the growth of the file over the rows that made it grow, on
PostgreSQL the size of the table over its rows, both after VACUUM (a busy PostgreSQL has some
free space in its tables as well). **The year is extrapolated** from that by counting rows, not
filled: the defaults of ``Retention`` say how many live fingerprints and hourly figures there are
at its end.

    live_bytes, hourly_bytes   one live fingerprint; one hour of one CPU
    document_bytes             the complete JSON form of one fingerprint, for comparison
    year_gib                   all of it at the end of a year, and its parts
    thinned_per_second         live fingerprints that ``retain`` takes in a second
    core_for_thinning          share of one core that thinning takes at this rate of reports
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.service.samples import nodes, recorded, varied
from kongming.store import Reported, Retention, Store
from kongming.store.retention import DAY_S

FLEET = 1_000
PERIOD_S = 60.0
YEAR_S = 365 * DAY_S
START = 1_770_000_000.0 // 3600 * 3600
CHANGE_BYTES = 150
"""A row of the feed of changes with its index: small, and kept for an hour."""

_NO_ROWS = 3 * 8192
"""An empty table of PostgreSQL with one index: its pages that hold no row."""


def measure(url: str, node_count: int, hours: int) -> dict[str, Any]:
    like, source = recorded(), random.Random(1)
    fleet = nodes(node_count, like.node)
    minutes = hours * 60
    with Store.open(url) as store:
        for node in fleet:
            store.add_reported([Reported(node.id, 1, varied(like, node, START, source))])
        empty = _size(store, "fingerprint")
        began = time.perf_counter()
        for first in range(1, minutes, 20):
            at = [START + PERIOD_S * minute for minute in range(first, min(minutes, first + 20))]
            store.add_reported(
                [Reported(n.id, 2, varied(like, n, moment, source)) for moment in at for n in fleet]
            )
        filled_s = time.perf_counter() - began
        end = START + hours * 3600.0
        store.retain(Retention(changes_s=60.0), now=START + 2 * DAY_S)
        full = _size(store, "fingerprint")
        rows = node_count * (minutes - 1)
        cpu, began = time.process_time(), time.perf_counter()
        retention = Retention(live_s=3600.0, hourly_s=10 * YEAR_S, changes_s=60.0)
        done = store.retain(retention, now=end + 3600.0)
        thinned_s, thinned_cpu_s = time.perf_counter() - began, time.process_time() - cpu
        thin = _size(store, "fingerprint_hour")
        none = _NO_ROWS if store.url.startswith("postgresql") else empty
        figures = sum(len(store.hourly_fingerprints(node.id)) for node in fleet)
    live_bytes = (full - empty) / rows
    hourly_bytes = (thin - none) / figures
    default = Retention()
    live = FLEET * default.live_s / PERIOD_S * live_bytes
    hourly = FLEET * (min(YEAR_S, default.hourly_s) - default.live_s) / 3600 * hourly_bytes
    changes = FLEET * default.changes_s / PERIOD_S * CHANGE_BYTES
    return {
        "sample_rows": rows,
        "filled_s": round(filled_s, 1),
        "live_bytes": round(live_bytes),
        "hourly_bytes": round(hourly_bytes),
        "document_bytes": len(json.dumps(like.to_dict(), separators=(",", ":"))),
        "year_gib": {
            "all": round((live + hourly + changes) / 2**30, 1),
            "live": round(live / 2**30, 1),
            "hourly": round(hourly / 2**30, 1),
            "if_nothing_were_thinned": round(FLEET * YEAR_S / PERIOD_S * live_bytes / 2**30),
        },
        "thinned_per_second": round(done.rolled_up / thinned_s),
        "core_for_thinning": round(thinned_cpu_s / done.rolled_up * FLEET / PERIOD_S, 4),
    }


def _size(store: Store, table: str) -> int:
    """Bytes of the table with its indexes; on SQLite of the whole file."""
    engine = store._engine
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"VACUUM FULL {table}")
            query = f"SELECT pg_total_relation_size('{table}')"
            return int(connection.exec_driver_sql(query).scalar() or 0)
    raw = engine.raw_connection()
    try:
        cursor: Any = raw.cursor()
        cursor.execute("VACUUM")
    finally:
        raw.close()
    return store.size_bytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--hours", type=int, default=96)
    parser.add_argument(
        "--backends", nargs="+", default=["sqlite", "postgresql"], choices=["sqlite", "postgresql"]
    )
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    if "sqlite" in arguments.backends:
        with tempfile.TemporaryDirectory(prefix="kongming-retention-") as folder:
            url = f"sqlite:///{Path(folder) / 'store.db'}"
            results["sqlite"] = measure(url, arguments.nodes, arguments.hours)
    if "postgresql" in arguments.backends:
        from tests.postgres.server import started

        server = started()
        if server is not None:
            try:
                results["postgresql"] = measure(server.url(), arguments.nodes, arguments.hours)
            finally:
                server.remove()
    default = Retention()
    print(
        json.dumps(
            {
                "schema": 1,
                "extrapolated": f"from {arguments.nodes} nodes over {arguments.hours} hours",
                "fleet": FLEET,
                "period_s": PERIOD_S,
                "live_days": default.live_s / DAY_S,
                "hourly_days": default.hourly_s / DAY_S,
                "results": results,
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
