"""Do the surrogates measure what independent programs measure? Prints one JSON document.

For each of a few surrogates, this runs the surrogate and a reference that shares no code with it,
again and again, all in a random order on one CPU, and compares the medians:

    memory.random.*   seconds per load over those of a Sattolo chase        0.90 to 1.10
    stream.triad      bandwidth over that of a triad by STREAM's rules      0.95 or more
    iobench.read.4M   bandwidth over that of fio (direct, queue depth 1)    0.90 or more

Run it on an idle machine. Exit status 0; 1 if something could not be run; 4 with --check when a
target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import references

from kongming.probes.binary import stream
from kongming.probes.node import node_facts
from kongming.probes.suite import Suite, load_suite
from kongming.records.errors import KongmingError

CHASES = ("1K", "1M", "8M", "128M", "1G")
IO_FILE = "kongming-io.dat"


@dataclass
class Comparison:
    """A surrogate and its reference, in ``unit``; the ratio is surrogate over reference."""

    name: str
    unit: str
    reference: str
    least: float
    most: float | None
    probe: Callable[[], float]
    check: Callable[[], float]
    probed: list[float] = field(default_factory=list)
    checked: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        ratio = statistics.median(self.probed) / statistics.median(self.checked)
        met = ratio >= self.least and (self.most is None or ratio <= self.most)
        return {
            "ratio": round(ratio, 4),
            "target": {"at_least": self.least, "at_most": self.most},
            "met": met,
            "unit": self.unit,
            "reference": self.reference,
            "surrogate_median": statistics.median(self.probed),
            "reference_median": statistics.median(self.checked),
            "surrogate_noise_pct": noise_pct(self.probed),
            "reference_noise_pct": noise_pct(self.checked),
            "runs": len(self.probed),
        }


def noise_pct(values: list[float]) -> float | None:
    """Half the inter-quartile range over the median, in per cent; None below three values."""
    if len(values) < 3:
        return None
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return round(100.0 * (high - low) / 2.0 / middle, 2)


def probe(suite: Suite, name: str, cpu: int, seconds: float) -> float:
    """Seconds per operation: all timed nanoseconds over all operations."""
    arguments = [*suite.probe_arguments(cpu), "--seconds", str(seconds), name]
    ns = ops = 0.0
    for event in stream(arguments):
        if event["event"] == "error":
            raise references.ReferenceError(f"{name}: {event['error']}")
        if event["event"] == "chunk":
            ns += event["ns"]
            ops += event["ops"]
    if not ops:
        raise references.ReferenceError(f"{name}: nothing was timed.")
    return ns * 1e-9 / ops


def comparisons(
    suite: Suite, folder: Path, cpu: int, options: argparse.Namespace, skipped: dict[str, str]
) -> list[Comparison]:
    """One for each surrogate that can be compared here; the others' reasons go to ``skipped``."""
    pairs: list[Comparison] = []
    seconds = options.seconds
    chase = references.build(references.HERE / "chase.c", folder)
    for size in CHASES:
        wanted = f"memory.random.{size}"
        known = next((s for s in suite.surrogates if wanted in (s.name, s.instead_of)), None)
        if known is None or not known.size_bytes:
            skipped[wanted] = "this node has no such surrogate"
            continue
        pairs.append(
            Comparison(
                known.name,
                "s/load",
                "chase.c",
                0.90,
                1.10,
                lambda name=known.name: probe(suite, name, cpu, seconds),
                lambda size=known.size_bytes: references.chase(chase, size, seconds),
            )
        )

    triad = suite.surrogate("stream.triad")
    array_bytes = (triad.size_bytes or 0) // 3
    moved = triad.bytes_per_op or 0
    if options.stream_source:
        stream_c = references.build_stream(options.stream_source, array_bytes, folder)
        name, check = options.stream_source.name, lambda: references.stream_triad(stream_c)
    else:
        triad_c = references.build(references.HERE / "triad.c", folder)
        name, check = "triad.c", lambda: references.triad(triad_c, array_bytes, seconds)
    pairs.append(
        Comparison(
            "stream.triad",
            "B/s",
            name,
            0.95,
            None,
            lambda: moved / probe(suite, "stream.triad", cpu, seconds),
            check,
        )
    )

    file = suite.directory / IO_FILE
    reads = [s for s in suite.surrogates if s.name == "iobench.read.4M"]
    if not shutil.which("fio"):
        skipped["iobench.read.4M"] = "fio is not installed"
    elif not reads:
        skipped["iobench.read.4M"] = "this node has no such surrogate"
    else:
        block = reads[0].bytes_per_op or 4 << 20
        # The first lays the file out; fio then reads the very same blocks.
        probe(suite, "iobench.read.4M", cpu, 0.2)
        pairs.append(
            Comparison(
                "iobench.read.4M",
                "B/s",
                "fio --rw=randread --bs=4M --direct=1 --iodepth=1",
                0.90,
                None,
                lambda: block / probe(suite, "iobench.read.4M", cpu, max(1.0, seconds)),
                lambda: references.fio_read(file, cpu, max(1.0, seconds), "randread"),
            )
        )
    return pairs


def run(options: argparse.Namespace) -> dict[str, Any]:
    cpu = options.cpu if options.cpu is not None else max(os.sched_getaffinity(0))
    node = node_facts()
    suite = load_suite(node, options.dir)
    skipped: dict[str, str] = {}
    rng = random.Random(options.seed)
    # Inherited by every program that is started from here.
    os.sched_setaffinity(0, {cpu})
    with tempfile.TemporaryDirectory(prefix="kongming-parity-") as folder:
        pairs = comparisons(suite, Path(folder), cpu, options, skipped)
        for turn in range(options.runs):
            todo = [(pair, side) for pair in pairs for side in ("probe", "check")]
            rng.shuffle(todo)
            for pair, side in todo:
                if side == "probe":
                    pair.probed.append(pair.probe())
                else:
                    pair.checked.append(pair.check())
            print(f"run {turn + 1} of {options.runs}", file=sys.stderr, flush=True)
    results = {pair.name: pair.to_dict() for pair in pairs}
    return {
        "schema": 1,
        "benchmark": "parity",
        "met": all(result["met"] for result in results.values()),
        "results": results,
        "skipped": skipped,
        "cpu": cpu,
        "seed": options.seed,
        "seconds_per_reading": options.seconds,
        "suite_version": suite.version,
        "compiler": references.compiler_version(),
        "flags": " ".join(references.FLAGS),
        "load1": os.getloadavg()[0],
        "node": node.to_dict(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10, help="readings of each side (default 10)")
    parser.add_argument("--seconds", type=float, default=0.5, help="time of one reading")
    parser.add_argument("--cpu", type=int, help="the CPU to run on (default: the last)")
    parser.add_argument("--dir", type=Path, help="folder of the I/O file (default: the usual one)")
    parser.add_argument("--seed", type=int, default=1, help="of the random order")
    parser.add_argument("--stream-source", type=Path, help="STREAM's stream.c, instead of triad.c")
    parser.add_argument("--check", action="store_true", help="exit 4 when a target is missed")
    options = parser.parse_args()
    if options.runs < 1 or options.seconds <= 0:
        parser.error("--runs must be 1 or more and --seconds more than 0")
    try:
        document = run(options)
    except (references.ReferenceError, KongmingError, subprocess.TimeoutExpired, OSError) as error:
        print(f"parity: {error}", file=sys.stderr)
        return 1
    print(json.dumps(document, indent=2))
    return 4 if options.check and not document["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
