"""How long a report of many readings takes, and how much memory: one JSON document.

    python benchmarks/audit/report.py                    # a million readings of 20 machines
    python benchmarks/audit/report.py --machines 100     # as many readings, in shorter series

Runs the real command in a process of its own. With --check, exit status 4 where it takes more than
20 s or 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from kongming.audit.readings import write_observations  # noqa: E402
from tests.audit.synthetic import SURROGATES, machines, observe  # noqa: E402

MOST_SECONDS, MOST_BYTES = 20.0, 1 << 30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--readings", type=int, default=1_000_000)
    parser.add_argument("--machines", type=int, default=20)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    surrogates = {f"{name}.{k}": base for name, base in SURROGATES.items() for k in range(6)}
    programs = {f"program-{k}": 1.0 + k for k in range(5)}
    # A run, its fingerprint and a signal.
    step = len(surrogates) + 2
    blocks = max(1, given.readings // (given.machines * len(programs) * step))
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for k, machine in enumerate(machines(given.machines)):
            observations = observe(
                [machine],
                blocks=blocks,
                programs=programs,
                surrogates=surrogates,
                load={"program-0": 0.05, "stream.triad.0": 0.1},
                seed=k,
            )
            files.append(Path(folder) / f"{k}.parquet")
            write_observations(files[-1], observations.table, observations.sessions)
        out = Path(folder) / "report.html"
        command = [sys.executable, "-m", "kongming.cli.main", "audit", "report", *map(str, files)]
        begin = time.perf_counter()
        subprocess.run(
            [*command, "--out", str(out), "--csv", str(Path(folder) / "tables")],
            check=True,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - begin
        page = out.stat().st_size
    count = given.machines * blocks * len(programs) * step
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    met = seconds <= MOST_SECONDS and peak <= MOST_BYTES
    print(
        json.dumps(
            {
                "readings": count,
                "machines": given.machines,
                "names": len(surrogates) + len(programs) + 1,
                "seconds": round(seconds, 2),
                "peak_rss_bytes": peak,
                "readings_per_s": round(count / seconds),
                "page_bytes": page,
                "target": {"seconds": MOST_SECONDS, "bytes": MOST_BYTES},
                "met": met,
            },
            indent=2,
        )
    )
    return 4 if given.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
