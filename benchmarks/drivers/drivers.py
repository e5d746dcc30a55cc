"""Is the resource that a program is made to use the first that is named? Prints one JSON.

    stream  a triad over arrays far beyond the caches                     memory, or cache
    chase   a pointer chase over half of the last-level cache             cache, or memory
    read    reads of 4 MiB past the page cache                            read
    log     a write-ahead log, each record made durable                   write

Each program is profiled by the quick plan and trained, and asked what drives it where every
surrogate is as slow as it was seen in training, all at once. A program that nothing slows there
has no drivers; that is reported, and counts neither way.

Run it on an idle machine. Exit status 0; 1 if something could not be run; 4 with --check when
another resource comes first.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kongming.learning.model_file import read
from kongming.learning.predict import predict_environment
from kongming.probes.node import node_facts
from kongming.records.errors import KongmingError
from kongming.records.fingerprint import PLACEMENTS
from kongming.store import Store

ROOT = Path(__file__).resolve().parents[2]
PARITY = ROOT / "benchmarks" / "parity"
PREFIX = "kongming-drivers-"
SECONDS = "0.7"
SLOWED = 1.05
"""Below this slowdown shares of next to nothing mislead."""
DEFAULT_LLC = 32 << 20


@dataclass(frozen=True)
class Program:
    """An application table, and the families of which one has to come first."""

    table: str
    expected: tuple[str, ...]


def programs(folder: Path) -> dict[str, Program]:
    """Builds what has to be built in ``folder``. Raises CalledProcessError, OSError."""
    llc = node_facts().llc_bytes or DEFAULT_LLC
    for name in ("triad", "chase"):
        build = ["cc", "-std=c11", "-O3", "-o", str(folder / name), str(PARITY / f"{name}.c")]
        subprocess.run([*build, "-lm"], check=True, capture_output=True, text=True)
    # Three arrays of doubles, together eight times the last-level cache, at most 1.5 GiB.
    elements = min(8 * llc, 3 << 29) // 24
    reader = [sys.executable, str(Path(__file__).with_name("direct_read.py")), "{dir}/blocks"]
    log = [sys.executable, str(ROOT / "examples" / "programs" / "fsync_log.py"), "{dir}", "400"]

    def timed(command: Sequence[str], key: str, more: str = "") -> str:
        metric = f"""{{ pattern = '"{key}": ([0-9.e+-]+)', unit = "s" }}"""
        return f"command = {json.dumps(command)}\nmetric = {metric}\n{more}"

    return {
        "stream": Program(
            timed([str(folder / "triad"), str(elements), SECONDS], "seconds_per_element"),
            ("memory", "cache"),
        ),
        "chase": Program(
            timed([str(folder / "chase"), str(llc // 2), SECONDS], "seconds_per_op"),
            ("cache", "memory"),
        ),
        "read": Program(
            timed(
                [*reader, "300"],
                "seconds_per_block",
                f"setup = {json.dumps([*reader, '--lay-out'])}\n",
            ),
            ("read",),
        ),
        "log": Program(f"command = {json.dumps(log)}\n", ("write",)),
    }


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder of its own, removed at the end; what a run that was killed left is removed first."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as place, _locked(Path(place)):
        yield Path(place)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The lock that a run holds on its folder until its process ends, however it ends.

    Raises:
        OSError: another run holds it.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def kongming(*arguments: str) -> None:
    """Runs the command of this very Python. Raises RuntimeError with its error output."""
    command = [sys.executable, "-m", "kongming.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # 1: some runs failed, and the rest of the campaign was kept.
    if done.returncode not in (0, 1):
        raise RuntimeError(f"kongming {arguments[0]} failed: {done.stderr.strip()}")


def judged(store: Store, name: str, program: Program, placement: str) -> dict[str, Any]:
    """What drives the program under everything at once."""
    document = store.model(name, placement)
    if document is None:
        return {"error": "it has no model: its runs failed", "met": False}
    file = read(document)
    full = file.variants["full"]
    most = dict(zip(full.columns, full.high.tolist(), strict=True))
    prediction = predict_environment(file, most, variant="full")
    slowdown = prediction.slowdown.median
    first = prediction.drivers[0].family if prediction.drivers and slowdown >= SLOWED else None
    return {
        "expected": list(program.expected),
        "first": first,
        "met": None if first is None else first in program.expected,
        "drivers": {driver.family: round(driver.share, 3) for driver in prediction.drivers},
        "slowdown": round(slowdown, 3),
        "model": prediction.model,
        "noise_pct": file.solo.noise_pct,
        "runs": document["runs"]["total"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="one program (repeatable)")
    parser.add_argument("--placement", choices=PLACEMENTS, default="cross-core")
    parser.add_argument("--levels", type=int, help="only the N most telling load levels")
    parser.add_argument("--suite", choices=("quick", "standard"), default="standard")
    parser.add_argument("--dir", type=Path, help="folder of the I/O, on the disk that matters")
    parser.add_argument("--check", action="store_true", help="exit with 4 if one is not met")
    options = parser.parse_args()
    began = time.monotonic()
    # So that what is begun is ended and removed, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with scratch() as folder:
        try:
            available = programs(folder)
            unknown = set(options.only or ()) - set(available)
            if unknown:
                parser.error(
                    f"no program {', '.join(sorted(unknown))}; there are {', '.join(available)}"
                )
            chosen = {n: p for n, p in available.items() if not options.only or n in options.only}
            tables = [f"[apps.{name}]\n{program.table}" for name, program in chosen.items()]
            file = folder / "apps.toml"
            file.write_text("\n".join(tables), encoding="utf-8")
            url = f"sqlite:///{folder / 'store.db'}"
            profile = ["profile", str(file), "--placement", options.placement, "--store", url]
            profile += ["--suite", options.suite, "--seed", "1"]
            if options.levels is not None:
                profile += ["--levels", str(options.levels)]
            if options.dir is not None:
                profile += ["--dir", str(options.dir)]
            kongming(*profile)
            kongming("train", "--placement", options.placement, "--store", url)
            with Store.open(url) as store:
                results = {n: judged(store, n, p, options.placement) for n, p in chosen.items()}
        except (KongmingError, RuntimeError, OSError, subprocess.CalledProcessError) as error:
            print(f"drivers.py: {error}", file=sys.stderr)
            return 1
    document = {
        "placement": options.placement,
        "levels": options.levels,
        "elapsed_s": round(time.monotonic() - began, 1),
        "programs": results,
    }
    print(json.dumps(document, indent=2))
    missed = any(outcome["met"] is False for outcome in results.values())
    return 4 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
