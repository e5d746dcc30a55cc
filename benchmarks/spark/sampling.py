"""The executors that samples of TPC-H recommend, and those that all of it does (Spark thesis,
figures 5.7 to 5.9).

    python -m benchmarks.spark.sampling --spark VENV --data FOLDER --out FOLDER
        [--ratio 0.1] [--seeds 10] [--full 3] [--score-only]

VENV and FOLDER are those of ``record_clusters.py``. TPC-H runs on two executors, on all data
(``full``), and for each seed on two samples: ``stratified`` has orders and their items by the hash
of their join key, where the shares of their dates and categories pass the test; ``random`` has
rows of both by chance. Other tables are complete. The runs are interleaved; what is there already
is not run again. ``--out`` keeps the logs.

Prints one JSON document: for each kind of data the recommended executors of each run by rule
(``cheapest``, ``fastest``, ``knee``), and what taking them costs above the best by the curve of
all data: executors times time for ``cheapest``, else time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.spark.record_clusters import SETTINGS, keep, run
from kongming.spark.estimation import Estimator, Size
from kongming.spark.reading import read_all
from kongming.spark.recommendation import recommend

EXECUTORS = 2
"""Of the recorded runs."""

SIZES = range(1, 17)
"""Executors that are recommended among."""

MASTER = f"local-cluster[{EXECUTORS},1,700]"

PARTITION_BYTES = SETTINGS["spark.sql.files.maxPartitionBytes"]

SAMPLED = {
    "lineitem": ("l_orderkey", "l_shipdate,l_returnflag,l_shipmode"),
    "orders": ("o_orderkey", "o_orderdate,o_orderpriority"),
}
"""Tables with their join key, and the keys whose shares are tested."""

REFUSED = 4
"""Exit status of a sample that differs from its table."""

OTHER_SEED = 1000
"""Added to the seed of a sample that was refused."""

MOST_TRIES = 5
"""Samples of both tables with one seed; fair ones are refused one time in ten."""

Log = tuple[str, int, Path]
"""A kind of data, a seed or repeat, and where the log is."""


def logs_of(out: Path, seeds: int, full: int) -> Iterator[Log]:
    """The runs in their order: kinds by turns, runs on all data spread evenly among them."""
    every = max(1, seeds // max(1, full))
    for seed in range(seeds):
        if seed % every == 0 and seed // every < full:
            repeat = seed // every
            yield "full", repeat, out / f"full-{repeat}.zstd"
        for kind in ("stratified", "random"):
            yield kind, seed, out / f"{kind}-{seed}.zstd"


def kongming_sample(
    submit: str, table: Path, out: Path, seed: int, ratio: float, options: Sequence[str]
) -> dict[str, Any] | None:
    """Sample a table; None where the sample differs from it."""
    command = [sys.executable, "-m", "kongming.cli.main", "spark", "sample", str(table)]
    command += ["--out", str(out), "--ratio", str(ratio), "--seed", str(seed), "--json"]
    done = subprocess.run(
        [*command, *options, "--submit", submit], capture_output=True, text=True, check=False
    )
    if done.returncode == REFUSED:
        return None
    if done.returncode:
        raise SystemExit(f"{table.name} could not be sampled: {done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def sampled(
    submit: str, data: Path, folder: Path, kind: str, seed: int, ratio: float
) -> dict[str, str]:
    """Fill the folder with a sample of the tables; returns Spark's settings for a run on it."""
    for _ in range(MOST_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        reports = []
        for name, (join_key, keys) in SAMPLED.items():
            options = ["--join-key", join_key, "--keys", keys] if kind == "stratified" else []
            # Rows of two tables by one seed would be no more independent than by a join key.
            of_table = seed if options else 2 * seed + len(reports)
            source, target = data / f"{name}.parquet", folder / f"{name}.parquet"
            report = kongming_sample(submit, source, target, of_table, ratio, options)
            if report is None:
                break
            reports.append(report)
        if len(reports) == len(SAMPLED):
            break
        print(f"{kind} sample {seed} differs from its table; another is taken", file=sys.stderr)
        seed += OTHER_SEED
    else:
        raise SystemExit(f"All of {MOST_TRIES} {kind} samples differ from their tables.")
    for source in data.glob("*.parquet"):
        if source.stem not in SAMPLED:
            (folder / source.name).symlink_to(source)
    settings: dict[str, str] = {}
    # The larger table's last: its tasks are most.
    for report in sorted(reports, key=lambda each: int(each["sampled"])):
        settings |= report["conf"]
    return settings


def record(options: argparse.Namespace, logs: Sequence[Log]) -> None:
    """Make the logs that are missing."""
    python = options.spark.absolute() / "bin" / "python"
    spark = next(options.spark.absolute().glob("lib/python*/site-packages/pyspark"))
    cut = f"--conf spark.sql.files.maxPartitionBytes={PARTITION_BYTES}"
    submit = f"{spark / 'bin' / 'spark-submit'} --master local[2] --driver-memory 1g {cut}"
    data, folder = options.data.absolute(), options.out.absolute() / "sample"
    left = [log for log in logs if not log[2].exists()]
    for number, (kind, seed, out) in enumerate(left):
        began = time.monotonic()
        settings: Mapping[str, str] = {}
        if kind != "full":
            settings = sampled(submit, data, folder, kind, seed, options.ratio)
        where = data if kind == "full" else folder
        keep(run(python, spark, MASTER, "tpch", EXECUTORS, where, settings), out)
        shutil.rmtree(folder, ignore_errors=True)
        seconds = time.monotonic() - began
        print(f"{number + 1}/{len(left)} {out.name}: {seconds:.0f} s", file=sys.stderr, flush=True)


def scored(logs: Sequence[Log]) -> dict[str, Any]:
    """Return the document that is printed."""
    sizes = [Size(count) for count in SIZES]
    rules = ("cheapest", "fastest", "knee")
    taken: dict[str, dict[str, list[int]]] = {}
    curves = []
    for kind, _, path in logs:
        (application,) = read_all([path])
        estimates = Estimator(application).estimates(sizes)
        choice = recommend(estimates)
        for rule in rules:
            executors = getattr(choice, rule).executors
            taken.setdefault(kind, {}).setdefault(rule, []).append(executors)
        if kind == "full":
            curves.append([each.median_s for each in estimates])
    times = np.median(curves, axis=0)
    costs = {"cheapest": times * np.array(SIZES), "fastest": times, "knee": times}
    document: dict[str, Any] = {
        "recorded_executors": EXECUTORS,
        "full_s": dict(zip(map(str, SIZES), times.tolist(), strict=True)),
    }
    for kind, by_rule in taken.items():
        document[kind] = {}
        for rule, executors in by_rule.items():
            cost = costs[rule][np.array(executors) - SIZES.start]
            above = 100.0 * (cost / costs[rule].min() - 1.0)
            low, high = np.quantile(executors, [0.25, 0.75])
            document[kind][rule] = {
                "executors": executors,
                "median": float(np.median(executors)),
                "iqr": [float(low), float(high)],
                "above_best_pct": {"median": float(np.median(above)), "worst": float(above.max())},
            }
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spark", type=Path, help="A venv with PySpark.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ratio", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--full", type=int, default=3, help="runs on all data (default: 3)")
    parser.add_argument("--score-only", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if not options.score_only and (options.spark is None or options.data is None):
        parser.error("--spark and --data are needed to measure")
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    logs = list(logs_of(options.out, options.seeds, options.full))
    if not options.score_only:
        record(options, logs)
    there = [log for log in logs if log[2].exists()]
    if not any(kind == "full" for kind, *_ in there):
        parser.error("there is no log of all data yet")
    print(json.dumps(scored(there), indent=1))


if __name__ == "__main__":
    main()
