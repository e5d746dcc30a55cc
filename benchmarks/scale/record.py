"""Record the tables of the cluster programs: 1 to 12 machines, three scales, repeats over hours.

    python benchmarks/scale/record.py [--hours 4] [--repeats 5] [--program NAME ...]

Machines are control groups of an eighth of a CPU, as for ``kongming scale run``; needs groups that
can be written, and an otherwise idle machine. All programs are interleaved, and a round (each
configuration once) begins every ``hours / repeats``, so that what the host does at one time does
not hit one program or one configuration alone. Rows are written to ``tables/NAME.csv`` as they are
measured; after Ctrl-C or a crash the same command goes on. It refuses to mix two versions of a
program in one table.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from kongming.campaigns.local_machines import LocalRunner
from kongming.campaigns.other_machines import on_groups
from kongming.profiling.plans.identity import identity
from kongming.records.application import Application
from kongming.scale.design.experiments import Experiment, RunTable, remaining
from kongming.scale.points import Configuration

HERE = Path(__file__).resolve().parent
PROGRAMS = ("shuffle", "join", "solver", "waves", "allreduce")
MACHINES = (1, 2, 3, 4, 6, 8, 12)
SCALES = (0.25, 0.5, 1.0)
SHARE = 0.125
ENV = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def application(name: str) -> Application:
    """Return the program, with {machines} and {scale} to be filled in."""
    program = str(HERE / "programs" / "cluster.py")
    command = (sys.executable, program, name, "{machines}", "{scale}")
    return Application(name=name, command=command, env=ENV, timeout_s=300.0)


def due(tables: dict[str, RunTable], round_: int) -> list[tuple[str, Experiment]]:
    """Return what the first ``round_`` rounds still lack, in random order."""
    design = [
        Experiment(Configuration(float(machines), scale), repeat)
        for repeat in range(round_)
        for machines in MACHINES
        for scale in SCALES
    ]
    missing = [(name, each) for name in tables for each in remaining(design, tables[name].done)]
    random.Random(round_).shuffle(missing)
    return missing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--program", action="append", choices=PROGRAMS)
    parser.add_argument("--out", type=Path, default=HERE / "tables")
    options = parser.parse_args()
    apps = {name: application(name) for name in options.program or PROGRAMS}
    tables = {
        name: RunTable(options.out / f"{name}.csv", identity(app)) for name, app in apps.items()
    }
    began, failed = time.monotonic(), 0
    for round_ in range(1, options.repeats + 1):
        missing = due(tables, round_)
        starts = began + 3600.0 * options.hours * (round_ - 1) / options.repeats
        if missing and round_ > 1:
            time.sleep(max(starts - time.monotonic(), 0.0))
        for number, (name, each) in enumerate(missing, 1):
            print(
                f"round {round_}, {number} of {len(missing)}: {name} on {each.at}", file=sys.stderr
            )
            with LocalRunner(apps[name], options.out, share=SHARE) as runner:
                measured = runner.run(each)
            if measured.seconds is None:
                failed += 1
                print(f"{name} on {each.at} failed: {measured.error}", file=sys.stderr)
                continue
            if not on_groups(measured.how):
                print("Control groups cannot be written: these are no machines.", file=sys.stderr)
                return 1
            tables[name].add(each, measured)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
