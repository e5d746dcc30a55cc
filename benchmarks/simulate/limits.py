"""What do limits from predictions do to a queue: waits, utilisation and killed jobs?

    python -m benchmarks.simulate.limits [--jobs 10000] [--seeds 20] [--load 0.9] [--json]
    python -m benchmarks.simulate.limits --trace FILE.swf [--trace ...]

Runs ``kongming simulate --limits all`` on three kinds of generated traces, or on recorded ones, and
prints the table of README.md, or with --json the documents of that command in a list.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ARRIVALS = ("poisson", "bursty", "daily")
COLUMNS = (
    *(
        "trace",
        "limits",
        "mean wait",
        "over users' limits",
        "p95 wait",
        "wide jobs' wait, over users'",
        "used",
    ),
    *("useful", "killed", "by a prediction", "work lost"),
)


def simulated(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kongming.cli.main", "simulate", "--limits", "all", "--json"),
            *arguments,
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def table(documents: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [" | ".join(COLUMNS), " | ".join("---" for _ in COLUMNS)]
    for trace, document in documents.items():
        for name, own in document["limits"].items():
            cells = (
                trace,
                f"`{name}`",
                _with_interval(own["wait_mean_s"], 1.0 / 60.0, "{:.0f}", " min"),
                _with_interval(own["wait_over_user"], 1.0, "{:.2f}"),
                f"{own['wait_p95_s']['mean'] / 60.0:.0f} min",
                _with_interval(own["wide_wait_over_user"], 1.0, "{:.2f}"),
                *(
                    f"{100.0 * own[key]['mean']:.1f} %"
                    for key in (
                        *("utilisation", "useful", "killed_share", "ended_early_share"),
                        "lost_share",
                    )
                ),
            )
            lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def _with_interval(
    value: Mapping[str, float | None], factor: float, form: str, unit: str = ""
) -> str:
    mean, low, high = (
        None if part is None else form.format(factor * part)
        for part in (value["mean"], value["low"], value["high"])
    )
    if mean is None:
        return "-"
    return f"{mean}{unit}" if low is None else f"{mean}{unit} ({low} to {high})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--trace", type=Path, action="append", default=[], metavar="FILE.swf")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.trace:
        documents = {path.stem: simulated("--trace", str(path)) for path in options.trace}
    else:
        given = (
            "--jobs",
            str(options.jobs),
            "--seeds",
            str(options.seeds),
            "--load",
            str(options.load),
        )
        documents = {arrivals: simulated("--synthetic", arrivals, *given) for arrivals in ARRIVALS}
    print(json.dumps(list(documents.values()), indent=2) if options.json else table(documents))
    return 0


if __name__ == "__main__":
    sys.exit(main())
