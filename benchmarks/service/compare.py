"""Two checkouts of the project, measured by turns. Prints one JSON document.

    python -m benchmarks.service.compare OTHER [--rounds 5] [--only NAME ...] [--check]

OTHER is the folder of the older checkout; the newer is the one that this file is in. In each round
every measurement runs in a fresh process of both, in random order and with the same seed. Both run
in this interpreter with the packages that are installed for it, each with its own modules.

    rank        the engine's answers over 10,000 nodes, and its memory (benchmarks.service.rank)
    ingest      the server's share of a core, and its memory, under agents (benchmarks.service.load)
    wire        what Predict, RankNodes and reports cost over gRPC, of a small fleet that reports as
                often as 10,000 nodes do (benchmarks.service.predict and .load): two minutes a round
    training    200 runs, 35 surrogates, all models (benchmarks.training.train_speed)
    commands    CPU time of ``kongming --help`` and of ``kongming predict`` from a store
    agent       memory of a running agent (benchmarks/service/agent_cost.py)

For each figure: the median in both checkouts, their ratio (newer over older), its noise (half the
inter-quartile range over the median, of both together), the limit of the ratio, and of the figure
itself where there is one. Exit status 0; 4 with --check where a ratio is above its limit by more
than the noise; 1 where something could not be run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import resource
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2]
RATIO = 1.05
_STARTS = 5
"""Starts of a command in a round: the least CPU time of them counts."""

_TIMEOUT_S = 900.0

Measured = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Checkout:
    folder: Path
    store: Path

    def started(self, *arguments: str) -> dict[str, Any]:
        """How a Python process of this checkout is started: for ``subprocess``."""
        paths = [self.folder, self.folder / "daemon", sysconfig.get_path("purelib")]
        return {
            # Not that of the virtual environment, in which one checkout is installed.
            "args": [getattr(sys, "_base_executable", sys.executable), *arguments],
            "cwd": self.folder,
            # A run that is killed leaves its folders where they are removed.
            "env": _environment(paths) | {"TMPDIR": str(self.store.parent)},
        }

    def run(self, *arguments: str) -> str:
        """What a Python process of this checkout prints.

        Raises:
            RuntimeError: it failed.
        """
        done = subprocess.run(
            **self.started(*arguments),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode not in (0, 4):
            raise RuntimeError(f"{' '.join(arguments)} in {self.folder}: {done.stderr[-2000:]}")
        return done.stdout

    def module(self, name: str, *options: str) -> dict[str, Any]:
        """The document of one of its benchmarks."""
        document: dict[str, Any] = json.loads(self.run("-m", name, *options))
        return document

    def command_cpu_s(self, *arguments: str) -> float:
        """Least CPU time of one of its ``kongming`` commands, start and end included."""
        project = tomllib.loads((self.folder / "pyproject.toml").read_text())["project"]
        module, _, function = project["scripts"]["kongming"].partition(":")
        code = f"import sys; from {module} import {function}; sys.argv = sys.argv[1:]; "
        started = ("-c", f"{code}sys.exit({function}())", "kongming", *arguments)
        return min(self._cpu_s(*started) for _ in range(_STARTS))

    def _cpu_s(self, *arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.run(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _environment(paths: Sequence[Path | str]) -> dict[str, str]:
    path = {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    built = Path(sysconfig.get_path("scripts")) / "kongming-microbench"
    # One binary for both: what it costs is not compared here.
    return {"KONGMING_MICROBENCH": str(built)} | dict(os.environ) | path


def rank(checkout: Checkout, seed: int) -> Measured:
    options = ("--seed", str(seed), "--repeats", "400")
    output = checkout.module("benchmarks.service.rank", *options)
    return _named("rank", output)


def ingest(checkout: Checkout, seed: int) -> Measured:
    return _named("ingest", checkout.module("benchmarks.service.load", "--seed", str(seed)))


def wire(checkout: Checkout, seed: int) -> Measured:
    fleet = ("--agents", "1000", "--period", "6", "--heartbeat", "7.5", "--apps", "40")
    times = ("--seconds", "12", "--burst", "3", "--settle", "1")
    predict = ("--rounds", "12", "--seconds", "0.3", "--seed", str(seed))
    return _named(
        "wire",
        {
            "load": checkout.module("benchmarks.service.load", *fleet, *times, "--seed", str(seed)),
            "predict": checkout.module("benchmarks.service.predict", *predict),
        },
    )


def training(checkout: Checkout, seed: int) -> Measured:
    options = ("--seed", str(seed), "--runs", "1")
    return _named("training", checkout.module("benchmarks.training.train_speed", *options))


def commands(checkout: Checkout, seed: int) -> Measured:
    store = checkout.store / "server.db"
    if not store.exists():
        # Each its own: an older one does not read a newer schema.
        preparation = f"from pathlib import Path; prepare(Path({str(checkout.store)!r}))"
        checkout.run("-c", f"from benchmarks.service.predict import prepare; {preparation}")
    prediction = ("predict", "fft", "--with", "fft", "--json", "--store", f"sqlite:///{store}")
    return {
        "help_cpu_s": checkout.command_cpu_s("--help"),
        "predict_command_cpu_s": checkout.command_cpu_s(*prediction),
    }


def agent(checkout: Checkout, seed: int) -> Measured:
    options = ("--minutes", "0.25", "--settle", "10")
    return _named("agent", checkout.module("benchmarks.service.agent_cost", *options))


MEASUREMENTS: dict[str, Callable[[Checkout, int], Measured]] = {
    "rank": rank,
    "ingest": ingest,
    "wire": wire,
    "training": training,
    "commands": commands,
    "agent": agent,
}

FIGURES: dict[str, dict[str, str | tuple[str, ...]]] = {
    "rank": {
        "rank_p50_ms": "rank_ms.p50",
        "rank_p99_ms": "rank_ms.p99",
        "after_assignment_p50_ms": "rank_after_placement_ms.p50",
        "after_assignment_p99_ms": "rank_after_placement_ms.p99",
        "unknown_p50_ms": "rank_unknown_ms.p50",
        "unknown_p99_ms": "rank_unknown_ms.p99",
        "set_8_p50_ms": "rank_set_8_ms.p50",
        "set_8_p99_ms": "rank_set_8_ms.p99",
        "set_64_p50_ms": "rank_set_64_ms.p50",
        "set_64_p99_ms": "rank_set_64_ms.p99",
        "predict_p50_ms": "predict_ms.p50",
        "predict_cached_p50_ms": "predict_cached_ms.p50",
        "build_s": "build_s",
        "engine_memory_mib": "memory_mib",
    },
    "ingest": {
        "ingest_core": "steady.server_core",
        "server_memory_mib": "memory_mib.proportional",
    },
    "wire": {
        "wire_predict_p50_us": "predict.callers.1.predict.p50_us",
        "wire_predict_8_callers_p50_us": "predict.callers.8.predict.p50_us",
        "wire_rank_p50_ms": "load.rank.ms.rank.p50",
        "wire_reports_core": "load.steady.server_core",
        "wire_burst_cpu_us": "load.burst.server_cpu_us_each",
    },
    "training": {"training_wall_s": "whole.wall_s", "training_cpu_s": "whole.cpu_s"},
    "agent": {"agent_memory_bytes": "pss_bytes"},
}
"""Where each figure is in a benchmark's document: the one place to say so where checkouts differ,
by several paths of which the first that is there counts."""

LIMITS = {
    "rank_p99_ms": 4.0,
    "after_assignment_p99_ms": 5.0,
    "set_8_p99_ms": 15.0,
    "set_64_p99_ms": 25.0,
    "ingest_core": 0.25,
    "training_wall_s": 6.0,
}
"""Of the newer checkout's figures themselves: they hold on an idle machine, and are only
reported."""


def _named(measurement: str, document: Mapping[str, Any]) -> Measured:
    return {name: _at(document, path) for name, path in FIGURES[measurement].items()}


def _at(document: Mapping[str, Any], paths: str | Sequence[str]) -> float:
    for path in [paths] if isinstance(paths, str) else paths:
        value: Any = document
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            return float(value)
    raise RuntimeError(f"No {paths} in what a benchmark printed.")


def compared(name: str, older: Sequence[float], newer: Sequence[float]) -> dict[str, Any]:
    """Of one figure, a value of each round."""
    before, after = statistics.median(older), statistics.median(newer)
    ratio = after / before
    noise = math.hypot(_noise(older), _noise(newer))
    limit = LIMITS.get(name)
    return {
        "older": before,
        "newer": after,
        "ratio": round(ratio, 3),
        "noise": round(noise, 3),
        "ratio_limit": RATIO,
        "worse": ratio > RATIO * (1.0 + noise),
        **({} if limit is None else {"limit": limit, "met": after <= limit}),
    }


def _noise(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / 2.0 / middle


def checkouts_of(options: argparse.Namespace, scratch: Path) -> dict[str, Checkout]:
    """The older and the newer, each with a folder for its store."""
    checkouts = {}
    for key, folder in (("older", options.other.resolve()), ("newer", HERE)):
        store = scratch / key
        store.mkdir()
        checkouts[key] = Checkout(folder, store)
    return checkouts


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    checkouts = checkouts_of(options, scratch)
    order = random.Random(options.seed)
    values: dict[str, dict[str, list[float]]] = {}
    for number in range(options.rounds):
        turns = [(name, key) for name in options.only for key in checkouts]
        order.shuffle(turns)
        for name, key in turns:
            print(f"round {number + 1}: {name}, {key}", file=sys.stderr)
            for figure, value in MEASUREMENTS[name](checkouts[key], options.seed + number).items():
                values.setdefault(figure, {"older": [], "newer": []})[key].append(value)
    figures = {name: compared(name, both["older"], both["newer"]) for name, both in values.items()}
    return document("compare", options, figures, rounds=options.rounds)


def document(
    name: str, options: argparse.Namespace, figures: dict[str, dict[str, Any]], **parameters: int
) -> dict[str, Any]:
    """What a comparison prints: ``figures``, the ``parameters`` they were taken with, and the
    machine."""
    return {
        "schema": 1,
        "benchmark": f"service.{name}",
        "met": not any(figure["worse"] for figure in figures.values()),
        **parameters,
        "seed": options.seed,
        "figures": figures,
        "machine": {
            "processor": _processor(),
            "cpus": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "load1": os.getloadavg()[0],
        },
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "")


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options of every comparison with an older checkout."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, metavar="OTHER", help="folder of the older checkout")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="exit 4 when one is slower")
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options; ends the program where OTHER is no checkout."""
    options = parser.parse_args()
    if not (options.other / "pyproject.toml").is_file():
        parser.error(f"{options.other} is no checkout of the project")
    return options


def printed(
    name: str,
    measure: Callable[[argparse.Namespace, Path], dict[str, Any]],
    options: argparse.Namespace,
) -> int:
    """Print what ``measure`` returns, given a folder of its own; returns the exit status."""
    # So that what is begun is ended and removed, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix=f"kongming-{name}-") as scratch:
            comparison = measure(options, Path(scratch))
    except (RuntimeError, BrokenPipeError, subprocess.TimeoutExpired) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(comparison, indent=2))
    return 4 if options.check and not comparison["met"] else 0


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=tuple(MEASUREMENTS), default=[*MEASUREMENTS])
    options = parsed(parser)
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return printed("compare", measure, options)


if __name__ == "__main__":
    sys.exit(main())
