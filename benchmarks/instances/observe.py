"""Adds this machine: ten minutes of eight of the example programs, anonymised, in one small file.

    python -m benchmarks.instances.observe
    python -m benchmarks.instances.observe --for 1h

Run it on a quiet machine, or on one that is as busy as it always is: what others do to it is what
is looked for. The file is named after the CPU and the machine's anonymous id, which is the same
each time, so that a machine has one file. Interrupted, the same command goes on.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from kongming.audit.anonymising import Salt, anonymised
from kongming.audit.readings import machine_of, read_observations, write_observations

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

PROGRAMS = ("nbody", "compile", "xz", "gather", "random-walk", "stencil", "sort", "fsync-log")
"""CPU, caches, memory latency and bandwidth, files and durable writes."""

SALT = Salt("kongming instances")
"""The same for everybody, so that a machine has one id here. What is hashed is random already."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--for", dest="duration", default="10m")
    parser.add_argument("--dir", help="folder on the disk to observe")
    options = parser.parse_args()
    raw = ROOT / "build" / "observed.parquet"
    raw.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "kongming.cli.main", "observe", "examples/apps.toml"]
    command += ["--out", str(raw), "--for", options.duration]
    for name in PROGRAMS:
        command += ["--app", name]
    if options.dir:
        command += ["--dir", options.dir]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status != 0:
        return status
    observations = anonymised(read_observations([raw]), SALT)
    (session,) = observations.sessions.values()
    model = str(machine_of(session)["cpu_model"])
    family = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(.*?\)|@.*|\bCPU\b", "", model).lower())
    target = HERE / f"{family.strip('-')}-{session['machine'][:6]}.parquet"
    write_observations(target, observations.table, observations.sessions, anonymised=True)
    raw.unlink()
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
