"""What the agent's probes cost a program next to them. Prints one JSON.

A program of fixed-work steps runs pinned to one CPU and notes the time of each step. Meanwhile
fingerprints are taken as the agent takes them (quick, on the idlest CPU of the cache domain),
much more often than it would, so that there are enough of them. Progress is counted in slots of
10 ms: in probe windows, in the moments after them (written pages, cold caches), and between.

    loss   1 - progress in the windows / progress between, each window against its own surroundings
    share  of the time that is probed, as the schedule allows it with the settings' budget
    harm   loss x share, windows and the moments after them together, in per cent

Programs: cpu (hashes), memory (copies through 256 MiB), disk-read and disk-write (1 MiB, direct
where the file system allows it; a write is followed by fdatasync). --all-cpus runs the program
once on every CPU, so that a probe has to share one.

Exit status 0; 1 when something could not be run; with --check 4 when a harm is above 1 %.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import hashlib
import itertools
import json
import mmap
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from kongming_agent import agent_config as config
from kongming_agent.probing import signals
from kongming_agent.probing.prober import Prober, domains_of
from kongming_agent.probing.schedule import Probe

from kongming.probes.folders import io_folder
from kongming.probes.node import node_facts
from kongming.probes.suite import load_suite
from kongming.records.errors import KongmingError

PROGRAMS = ("cpu", "memory", "disk-read", "disk-write")
LIMIT_PCT = 1.0
SLOT_S = 0.01
AFTER_S = 0.3
"""Moments after a window that count separately: what it left behind is cleaned up then."""

AROUND_S = 1.5
"""How far from a window its surroundings reach."""

OWN_CPU_SHARE = 0.001
_BLOCK = 1 << 20
_FILE_BYTES = 256 << 20


def _cpu_steps() -> Iterator[None]:
    data = bytes(1 << 16)
    while True:
        hashlib.sha256(data).digest()
        yield


def _memory_steps() -> Iterator[None]:
    size, step = 256 << 20, 1 << 20
    source, target = memoryview(bytearray(size)), memoryview(bytearray(size))
    while True:
        for start in range(0, size, step):
            target[start : start + step] = source[start : start + step]
            yield


def _disk_steps(folder: Path, *, write: bool) -> Iterator[None]:
    path = folder / f"kongming-harm-{os.getpid()}"
    block = mmap.mmap(-1, _BLOCK)
    flags = os.O_RDWR | os.O_CREAT
    try:
        handle = os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:
        handle = os.open(path, flags, 0o600)
    path.unlink()
    for _ in range(_FILE_BYTES // _BLOCK):
        os.write(handle, block)
    os.fsync(handle)
    rng = random.Random(1)
    while True:
        at = rng.randrange(_FILE_BYTES // _BLOCK) * _BLOCK
        if write:
            os.pwritev(handle, [block], at)
            os.fdatasync(handle)
        else:
            os.preadv(handle, [block], at)
        yield


def program(name: str, cpu: int, folder: Path, ready: Event, end: Event, out: Path) -> None:
    """Runs in a process of its own; leaves the nanoseconds at which each step ended."""
    os.sched_setaffinity(0, {cpu})
    makers: dict[str, Callable[[], Iterator[None]]] = {
        "cpu": _cpu_steps,
        "memory": _memory_steps,
        "disk-read": lambda: _disk_steps(folder, write=False),
        "disk-write": lambda: _disk_steps(folder, write=True),
    }
    steps, times = makers[name](), array.array("q")
    next(steps)
    ready.set()
    # A semaphore for each step would cost more than a step.
    while len(times) % 16 or not end.is_set():
        next(steps)
        times.append(time.monotonic_ns())
    out.write_bytes(times.tobytes())


@dataclass(frozen=True)
class Window:
    """One fingerprint, by CLOCK_MONOTONIC in seconds, and what it cost."""

    start: float
    end: float
    cpu_s: float
    written_bytes: float


def progress(times: Sequence[int]) -> tuple[float, list[float]]:
    """(start in seconds, steps in each slot of 10 ms); a step is spread over the time it took."""
    start = times[0] * 1e-9
    slots = [0.0] * (int((times[-1] * 1e-9 - start) / SLOT_S) + 1)
    for before, after in itertools.pairwise(times):
        begin, finish = (before * 1e-9 - start) / SLOT_S, (after * 1e-9 - start) / SLOT_S
        if finish <= begin:
            slots[int(begin)] += 1.0
            continue
        for slot in range(int(begin), min(int(finish), len(slots) - 1) + 1):
            part = min(slot + 1.0, finish) - max(float(slot), begin)
            slots[slot] += max(0.0, part) / (finish - begin)
    return start, slots


def losses(times: Sequence[int], windows: Sequence[Window]) -> tuple[list[float], list[float]]:
    """(in the windows, in the moments after): 1 - progress there / progress around each."""
    start, slots = progress(times)

    def rate(spans: Sequence[tuple[float, float]]) -> float | None:
        counts = [
            slots[slot]
            for begin, end in spans
            for slot in range(
                max(0, int((begin - start) / SLOT_S) + 1),
                min(len(slots), int((end - start) / SLOT_S)),
            )
        ]
        return statistics.fmean(counts) if len(counts) >= 5 else None

    inside, after = [], []
    for window in windows:
        around = rate(
            [
                (window.start - AROUND_S, window.start),
                (window.end + AFTER_S, window.end + AFTER_S + AROUND_S),
            ]
        )
        during = rate([(window.start, window.end)])
        then = rate([(window.end, window.end + AFTER_S)])
        if around and during is not None and then is not None:
            inside.append(1.0 - during / around)
            after.append(1.0 - then / around)
    return inside, after


def interval(values: Sequence[float], seed: int = 1) -> tuple[float, float]:
    """95 % interval of the mean, by resampling."""
    rng = random.Random(seed)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(1000))
    return means[25], means[974]


def probes_per_hour(settings: config.Settings, wall_s: float, cpu_s: float) -> float:
    """As many as period and budget let through; five sixths of a budget come in evenly."""
    budget = settings.budget
    return min(
        3600.0 / settings.probing.period_s,
        3600.0 * budget.probe_share / wall_s,
        3600.0 * max(0.0, budget.cpu_share - OWN_CPU_SHARE) / max(cpu_s, 1e-6),
    )


def measure(
    name: str, cpus: Sequence[int], prober: Prober, options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Runs a program on ``cpus`` and probes next to it."""
    context = multiprocessing.get_context("spawn")
    end = context.Event()
    domain_cpus = domains_of(prober.node)[0][1]
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        running = []
        for cpu in cpus:
            ready, out = context.Event(), Path(scratch) / str(cpu)
            process = context.Process(target=program, args=(name, cpu, folder, ready, end, out))
            process.start()
            stack.callback(process.kill)
            running.append((process, ready, out))
        for process, ready, _ in running:
            while not ready.wait(0.1):
                if not process.is_alive():
                    raise RuntimeError(f"the program {name} did not start")
        windows = []
        before = signals.sample()
        for _ in range(options.probes):
            time.sleep(2.0 * AROUND_S + AFTER_S)
            now = signals.sample()
            cpu = signals.idlest(domain_cpus, signals.between(before, now).cpu_busy)
            start = time.monotonic()
            taken = prober.take(Probe(0, "quick", "benchmark"), cpu)
            windows.append(
                Window(start, time.monotonic(), taken.cost.cpu_s, taken.cost.written_bytes)
            )
            before = signals.sample()
        time.sleep(AROUND_S + AFTER_S)
        end.set()
        inside: list[float] = []
        after: list[float] = []
        for process, _, out in running:
            process.join(timeout=30.0)
            times = array.array("q")
            times.frombytes(out.read_bytes())
            lost, lost_after = losses(times, windows)
            inside += lost
            after += lost_after
    if not inside:
        raise RuntimeError(f"the program {name} was too slow to count its steps")
    wall = statistics.fmean(window.end - window.start for window in windows)
    cpu_s = statistics.fmean(window.cpu_s for window in windows)
    hourly = probes_per_hour(options.settings, wall, cpu_s)
    shares = (hourly * wall / 3600.0, hourly * AFTER_S / 3600.0)
    low, high = interval(inside)
    loss, loss_after = statistics.fmean(inside), statistics.fmean(after)
    harm = 100.0 * (loss * shares[0] + loss_after * shares[1])
    return {
        "cpus": list(cpus),
        "probes": len(windows),
        "steps_per_s": round(len(times) / max(1e-9, (times[-1] - times[0]) * 1e-9), 1),
        "loss_pct": round(100.0 * loss, 2),
        "loss_95_pct": [round(100.0 * low, 2), round(100.0 * high, 2)],
        "loss_after_pct": round(100.0 * loss_after, 2),
        "probe_wall_s": round(wall, 3),
        "probe_cpu_s": round(cpu_s, 3),
        "probe_written_bytes": round(statistics.fmean(w.written_bytes for w in windows)),
        "probes_per_hour": round(hourly, 1),
        "share_pct": round(100.0 * shares[0], 3),
        "harm_pct": round(harm, 4),
        "limit_pct": LIMIT_PCT,
        "met": harm <= LIMIT_PCT,
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    node = node_facts()
    folder = io_folder(options.dir)
    suite = load_suite(node, folder)
    probing = options.settings.probing
    prober = Prober(node, suite, folder, write_s=probing.write_s, carry_s=probing.carry_s)
    # The first one on a node may lay out the I/O surrogates' file.
    prober.take(Probe(0, "quick", "warm-up"), node.cpus[0])
    cpus = node.cpus if options.all_cpus else node.cpus[-1:]
    results = {name: measure(name, cpus, prober, options, folder) for name in options.programs}
    return {
        "schema": 1,
        "benchmark": "service.harm",
        "met": all(result["met"] for result in results.values()),
        "results": results,
        "budget": {
            "cpu_share": options.settings.budget.cpu_share,
            "probe_share": options.settings.budget.probe_share,
            "period_s": probing.period_s,
        },
        "suite_version": suite.version,
        "load1": os.getloadavg()[0],
        "node": node.to_dict(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--probes", type=int, default=20, help="fingerprints next to each program")
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--all-cpus", action="store_true", help="the program on every CPU")
    parser.add_argument("--config", type=Path, help="the agent's settings")
    parser.add_argument("--dir", type=Path, help="folder on the disk to measure")
    parser.add_argument("--check", action="store_true", help="exit 4 when a harm is above 1 %%")
    options = parser.parse_args()
    if options.probes < 1:
        parser.error("--probes must be 1 or more")
    try:
        options.settings = config.load(options.config)
        document = run(options)
    except (KongmingError, RuntimeError, OSError) as error:
        print(f"harm: {error}", file=sys.stderr)
        return 1
    print(json.dumps(document, indent=2))
    return 4 if options.check and not document["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
