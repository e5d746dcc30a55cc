"""How fast event logs are read, and in how much memory.

    python -m benchmarks.spark.reading [--tasks N] [--rounds N] [--gigabytes N] [--log FILE]

Prints one JSON document: the speed of reading over that of ``json.loads`` over all lines of the
same log, plain (target 3) and zstd (target 2), the medians of rounds that take turns; bytes a task
(target 150), from the peaks of two processes that read logs of N and 5 N tasks of one stage; with
``--gigabytes`` the peak of a process that reads so much (target 512 MiB); with ``--log`` only the
speed, of a plain log that Spark wrote. For an idle machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import zstandard

from kongming.spark.reading import read
from tests.spark import event_lines

ACCUMULABLES = 25
"""Of a task of SQL: with them its end is 4 to 5 kB, as in logs of Spark 3.5 and 4."""


def lines(tasks: int, accumulables: int = ACCUMULABLES) -> Iterator[bytes]:
    """A log of one stage with so many tasks on 64 executors."""
    events = event_lines.run(stages=1, tasks=1, executors=64)
    first = next(at for at, event in enumerate(events) if event["Event"].endswith("TaskStart"))
    for event in events:
        if "Stage Info" in event:
            event["Stage Info"]["Number of Tasks"] = tasks
    yield from event_lines.content(events[:first]).splitlines(keepends=True)
    # Numbers differ from task to task, and the rest is made once.
    start = event_lines.content([event_lines.task_start(7, 0, 7, 77_777, 5)])
    end = event_lines.content([event_lines.task_end(7, 0, 7, 77_777, 1000, 5, accumulables)])
    for task in range(tasks):
        launch_ms = event_lines.START_MS + 2000 + 16 * task
        for line in (start, end):
            yield (
                line.replace(b":77777", b":%d" % launch_ms)
                .replace(b":78777", b":%d" % (launch_ms + 1000))
                .replace(b'"Task ID":7,"Index":7', b'"Task ID":%d,"Index":%d' % (task, task))
                .replace(b'"Partition ID":7', b'"Partition ID":%d' % task)
                .replace(b'"Executor ID":"5"', b'"Executor ID":"%d"' % (1 + task % 64))
            )
    # The driver's events after them come after them.
    longer_ms = 16 * tasks
    for event in events[first + 2 :]:
        for holder in (event, event.get("Stage Info", {})):
            for name in ("Completion Time", "Timestamp"):
                if name in holder:
                    holder[name] += longer_ms
    yield from event_lines.content(events[first + 2 :]).splitlines(keepends=True)


def write(path: Path, content: Iterator[bytes], compressed: bool) -> None:
    with path.open("wb") as raw:
        if not compressed:
            raw.writelines(content)
            return
        with zstandard.ZstdCompressor().stream_writer(raw) as file:
            while batch := b"".join(islice(content, 2000)):
                file.write(batch)


def seconds(work: Callable[[], object]) -> float:
    """Of the CPU: all is in memory, and what waits for it is not measured."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def parse(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def speeds(folder: Path, tasks: int, rounds: int) -> dict[str, object]:
    plain = folder / "plain"
    write(plain, lines(tasks), compressed=False)
    return {"tasks": tasks, **speeds_of(plain, folder, rounds)}


def speeds_of(plain: Path, folder: Path, rounds: int) -> dict[str, object]:
    packed = folder / "packed"
    with plain.open("rb") as file:
        write(packed, file, compressed=True)
    works: dict[str, Callable[[], object]] = {
        "json": lambda: parse(plain),
        "plain": lambda: read(plain),
        "zstd": lambda: read(packed),
    }
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(seconds(work))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    ratio = {name: medians["json"] / medians[name] for name in ("plain", "zstd")}
    return {
        "bytes": plain.stat().st_size,
        "zstd_bytes": packed.stat().st_size,
        "seconds": medians,
        "speed_over_json": ratio,
        "targets": {"plain": 3.0, "zstd": 2.0},
        "met": {"plain": ratio["plain"] >= 3.0, "zstd": ratio["zstd"] >= 2.0},
    }


def peak_bytes(path: Path) -> int:
    """The peak of a process that reads a log."""
    completed = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark.reading", "--peak", str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    return int(completed.stdout)


def memory(folder: Path, tasks: int) -> dict[str, object]:
    peaks = []
    for times in (1, 5):
        path = folder / f"tasks-{times}"
        write(path, lines(times * tasks, 0), compressed=True)
        peaks.append(peak_bytes(path))
    each = (peaks[1] - peaks[0]) / (4 * tasks)
    return {"bytes_a_task": each, "target": 150.0, "met": each <= 150.0, "peak_bytes": peaks}


def large(folder: Path, gigabytes: float) -> dict[str, object]:
    task_bytes = sum(map(len, islice(lines(1000), 2000))) / 1000
    tasks = int(gigabytes * 1e9 / task_bytes)
    path = folder / "large"
    write(path, lines(tasks), compressed=True)
    peak = peak_bytes(path)
    return {
        "gigabytes": gigabytes,
        "tasks": tasks,
        "peak_bytes": peak,
        "target": 512 << 20,
        "met": peak <= 512 << 20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.reading", description=__doc__)
    parser.add_argument("--tasks", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=0.0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak is not None:
        read(options.peak)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.log is not None:
            print(json.dumps(speeds_of(options.log, folder, options.rounds), indent=2))
            return
        document: dict[str, object] = {
            "speed": speeds(folder, options.tasks, options.rounds),
            "memory": memory(folder, 5 * options.tasks),
        }
        if options.gigabytes:
            document["large"] = large(folder, options.gigabytes)
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
