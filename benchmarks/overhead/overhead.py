"""What KONGMING itself costs, and whether its loads are as strong as requested. Prints one JSON.

    help        wall time of `kongming --help`, next to that of a bare Python
    imports     time and modules of an import in a fresh process, and heavy modules that came along
    fingerprint wall time of the whole command less its measuring time, for two suites
    duty        duty cycle of inducers over the requested one

Run it on an idle machine. Exit status 0; 1 if something could not be run; 4 with --check when a
target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kongming.probes.binary import stream
from kongming.probes.node import node_facts
from kongming.probes.suite import load_suite
from kongming.records.errors import KongmingError

HELP_LIMIT_S = 0.3
COMMAND_LIMIT_S = 1.0
DUTY_LIMIT = 0.05
HEAVY = ("sklearn", "lightgbm", "deap", "pyarrow", "scipy", "numpy", "grpc")
MODULES = (
    "kongming",
    "kongming.probes.fingerprinting",
    "kongming.profiling",
    "kongming.store",
    "kongming.cli.main",
)
DUTIES = (0.2, 0.5, 0.8)
SURROGATES = ("compute.int", "memory.random.8M", "stream.triad", "os.syscall", "iobench.read.4M")


def wall(arguments: Sequence[str]) -> tuple[float, str]:
    """Wall seconds of a command from start to end, and its output."""
    start = time.monotonic()
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=180, check=False)
    took = time.monotonic() - start
    if done.returncode != 0:
        last = (done.stderr.strip() or "no output").splitlines()[-1]
        raise RuntimeError(f"{' '.join(arguments)} failed with {done.returncode}: {last}")
    return took, done.stdout


def median_wall(arguments: Sequence[str], runs: int) -> float:
    wall(arguments)  # the first reads its files from disk
    return statistics.median(wall(arguments)[0] for _ in range(runs))


def kongming_command() -> str:
    """The command of this very Python, wherever the PATH points."""
    script = Path(sys.executable).parent / "kongming"
    return str(script) if script.exists() else "kongming"


def measure_help(runs: int) -> dict[str, Any]:
    bare = median_wall([sys.executable, "-c", "pass"], runs)
    took = median_wall([kongming_command(), "--help"], runs)
    return {
        "wall_s": round(took, 4),
        "bare_python_s": round(bare, 4),
        "ratio": round(took / bare, 2),
        "limit_s": HELP_LIMIT_S,
        "met": took < HELP_LIMIT_S,
    }


def measure_imports(runs: int) -> dict[str, Any]:
    bare = median_wall([sys.executable, "-c", "pass"], runs)
    results: dict[str, Any] = {}
    for module in MODULES:
        took = median_wall([sys.executable, "-c", f"import {module}"], runs)
        listing = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
        loaded = json.loads(wall([sys.executable, "-c", listing])[1])
        heavy = sorted({name.split(".")[0] for name in loaded} & set(HEAVY))
        results[module] = {
            "import_s": round(took - bare, 4),
            "modules": len(loaded),
            "heavy": heavy,
            "met": not heavy,
        }
    return results


def measure_fingerprint(suite: str, runs: int, cpu: int) -> dict[str, Any]:
    command = [kongming_command(), "fingerprint", "--suite", suite, "--cpu", str(cpu), "--json"]
    wall(command)  # the first on a node may lay out its files
    walls, measuring = [], []
    for _ in range(runs):
        took, output = wall(command)
        walls.append(took)
        measuring.append(float(json.loads(output)["elapsed_s"]))
    extra = [w - m for w, m in zip(walls, measuring, strict=True)]
    return {
        "wall_s": round(statistics.median(walls), 3),
        "measuring_s": round(statistics.median(measuring), 3),
        "overhead_s": round(statistics.median(extra), 3),
        "worst_overhead_s": round(max(extra), 3),
        "wall_over_measuring": round(statistics.median(walls) / statistics.median(measuring), 3),
        "limit_s": COMMAND_LIMIT_S,
        "met": statistics.median(extra) <= COMMAND_LIMIT_S,
    }


def measure_duty(name: str, requested: float, cpu: int, seconds: float, sizes: list[str]) -> Any:
    arguments = ["induce", *sizes, "--cpu", str(cpu)]
    arguments += ["--intensity", str(requested), "--seconds", str(seconds), name]
    end: dict[str, Any] = {}
    for event in stream(arguments):
        if event["event"] == "error":
            return {"error": event["error"], "met": False}
        if event["event"] == "end":
            end = event
    if not end:
        return {"error": "the inducer did not end in order", "met": False}
    ratio = float(end["duty"]) / requested
    return {
        "asked": requested,
        "duty": round(float(end["duty"]), 4),
        "ratio": round(ratio, 4),
        "cpu_share": round(float(end["cpu_s"]) / float(end["elapsed_s"]), 4),
        "met": abs(ratio - 1.0) <= DUTY_LIMIT,
    }


def all_met(results: Any) -> bool:
    if isinstance(results, dict):
        return results.get("met", True) and all(all_met(value) for value in results.values())
    return True


def run(options: argparse.Namespace) -> dict[str, Any]:
    cpu = options.cpu if options.cpu is not None else max(os.sched_getaffinity(0))
    node = node_facts()
    suite = load_suite(node)
    known = {surrogate.name for surrogate in suite.surrogates}
    sizes = [*suite.arguments, "--dir", str(suite.directory)]
    results: dict[str, Any] = {
        "help": measure_help(options.runs),
        "imports": measure_imports(options.runs),
        "fingerprint": {
            name: measure_fingerprint(name, options.runs, cpu) for name in ("quick", "standard")
        },
        "duty": {
            name: {
                str(requested): measure_duty(name, requested, cpu, options.seconds, sizes)
                for requested in DUTIES
            }
            for name in SURROGATES
            if name in known
        },
    }
    return {
        "schema": 1,
        "benchmark": "overhead",
        "met": all_met(results),
        "results": results,
        "runs": options.runs,
        "cpu": cpu,
        "suite_version": suite.version,
        "python": sys.version.split()[0],
        "load1": os.getloadavg()[0],
        "node": node.to_dict(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="of each timed command (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time of one inducer")
    parser.add_argument("--cpu", type=int, help="the CPU to measure on (default: the last)")
    parser.add_argument("--check", action="store_true", help="exit 4 when a target is missed")
    options = parser.parse_args()
    if options.runs < 1 or options.seconds <= 0:
        parser.error("--runs must be 1 or more and --seconds more than 0")
    try:
        document = run(options)
    except (RuntimeError, KongmingError, subprocess.TimeoutExpired, OSError) as error:
        print(f"overhead: {error}", file=sys.stderr)
        return 1
    print(json.dumps(document, indent=2))
    return 4 if options.check and not document["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
