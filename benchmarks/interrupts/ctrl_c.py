"""How long KONGMING takes to end, and to leave nothing. Prints one JSON document.

    .venv/bin/python benchmarks/interrupts/ctrl_c.py            # a minute or two
    .venv/bin/python benchmarks/interrupts/ctrl_c.py --repeats 10 --only induce-files

Each command is started as from a terminal, in a process group of its own. Once it has come to the
moment that its entry names, the group is sent SIGINT, and the time until the command has ended is
taken. The programs that are profiled ignore SIGINT, SIGTERM and SIGHUP. ``seconds`` are the times
of all repeats; ``met`` says whether the slowest is within ``limit_s``: 1 s.

``statuses`` are the exit statuses (130 is right) and ``left`` how many processes of the command
were alive once it had ended (0 is right). ``execution`` is no command: it is how long closing the
supervisor of one stubborn program takes.

Run it on an idle machine. Exit status 0; 1 if something could not be run; 4 with --check when a
limit is passed, a status is another one, or a process is left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from kongming.profiling.runs.execution import Execution
from kongming.records.errors import KongmingError

LIMIT_S = 1.0
START_S = 90.0
"""How long a command may take to come to its moment."""

END_S = 60.0
MARK = "KONGMING_BENCHMARK_MARK"
STUBBORN = "trap '' INT TERM HUP; sleep 0.3; true"
TABLE = f'[apps.stubborn]\ncommand = "{STUBBORN}"\n'

Moment = Callable[[list[str]], bool]


@dataclass(frozen=True)
class Case:
    """A command, and the words of a child's command line that say it is time. ``pause_s`` is
    waited from then on: for a command that has no child at the moment that is meant."""

    words: tuple[str, ...]
    moment: Moment
    pause_s: float = 0.0


def has(*wanted: str) -> Moment:
    return lambda words: all(word in words for word in wanted)


PROFILE = ("profile", "apps.toml", "--levels", "2", "--suite", "quick", "--placement", "same-core")
OBSERVE = ("observe", "apps.toml", "--out", "o.parquet", "--no-metadata", "--suite", "quick")

CASES = {
    "fingerprint": Case(("fingerprint", "--no-store"), has("probe")),
    "induce-compute": Case(("induce", "compute.int"), has("induce"), 0.5),
    "induce-files": Case(("induce", "metadata.create"), has("induce"), 0.5),
    "profile-probe": Case(PROFILE, has("probe")),
    "profile-run": Case(PROFILE, has("exec")),
    "profile-load": Case(PROFILE, has("induce")),
    "profile-loop": Case(PROFILE, has("exec", "--loop")),
    "corun": Case(
        ("corun", "stubborn", "stubborn", "--apps", "apps.toml", "--placement", "same-core"),
        has("exec", "--loop"),
    ),
    "observe-run": Case((*OBSERVE, "--for", "1h"), has("exec")),
    "observe-wait": Case((*OBSERVE, "--for", "1h", "--every", "30m"), has("exec"), 5.0),
}


class Marked:
    """A command that runs, and all that it started, known by a mark in their environment."""

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        self._mark = uuid.uuid4().hex
        scratch = folder / "io"
        scratch.mkdir()
        (folder / "apps.toml").write_text(TABLE, encoding="utf-8")
        environment = os.environ | {
            MARK: self._mark,
            "KONGMING_STORE": f"sqlite:///{folder / 'store.db'}",
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TMPDIR": str(scratch),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kongming.cli.main", *words],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def alive(self) -> list[psutil.Process]:
        processes = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get(MARK) == self._mark
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
            except psutil.Error:
                continue
        return processes

    def wait_for(self, moment: Moment) -> None:
        """Raises RuntimeError when it has ended before, or does not come to it."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                _, err = self.process.communicate()
                raise RuntimeError(f"it ended by itself: {err.strip()}")
            for process in self.alive():
                try:
                    if process.pid != self.process.pid and moment(process.cmdline()):
                        return
                except psutil.Error:
                    continue
            time.sleep(0.002)
        raise RuntimeError("it did not come to its moment")

    def interrupt(self) -> float:
        """Seconds from Ctrl-C until it has ended."""
        began = time.perf_counter()
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.communicate(timeout=END_S)
        return time.perf_counter() - began

    def end(self) -> None:
        for process in self.alive():
            process.kill()
        self.process.wait()


def timed(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kongming-interrupts-") as folder:
        command = Marked(case.words, Path(folder))
        try:
            command.wait_for(case.moment)
            time.sleep(case.pause_s)
            seconds = command.interrupt()
            return {
                "seconds": seconds,
                "status": command.process.returncode,
                "left": len(command.alive()),
            }
        finally:
            command.end()


def closed() -> dict[str, Any]:
    """Closing the execution of a program that would go on, as leaving a loop does."""
    with tempfile.TemporaryDirectory(prefix="kongming-interrupts-") as folder:
        started = Path(folder) / "started"
        line = f"trap '' INT TERM HUP; echo > {started}; sleep 60; sleep 60"
        with Execution(line) as execution:
            while not started.exists():
                time.sleep(0.002)
            children = psutil.Process(execution.pid).children(recursive=True)
            began = time.perf_counter()
            execution.close()
            seconds = time.perf_counter() - began
        left = sum(child.is_running() and child.status() != "zombie" for child in children)
        return {"seconds": seconds, "status": 130, "left": left}


def summary(repeats: Sequence[dict[str, Any]]) -> dict[str, Any]:
    seconds = [repeat["seconds"] for repeat in repeats]
    return {
        "seconds": [round(value, 3) for value in seconds],
        "limit_s": LIMIT_S,
        "statuses": sorted({repeat["status"] for repeat in repeats}),
        "left": sum(repeat["left"] for repeat in repeats),
        "met": max(seconds) <= LIMIT_S,
    }


def main() -> int:
    names = [*CASES, "execution"]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="append", choices=names, metavar="NAME")
    parser.add_argument("--check", action="store_true", help="exit with 4 if one is not met")
    options = parser.parse_args()
    # In the background a shell has it ignored, and so would all that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    results = {}
    for name in options.only or names:
        case = CASES.get(name)
        try:
            results[name] = summary(
                [closed() if case is None else timed(case) for _ in range(options.repeats)]
            )
        except (KongmingError, RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            print(f"ctrl_c.py: {name}: {error}", file=sys.stderr)
            return 1
    print(json.dumps({"repeats": options.repeats, "results": results}, indent=2))
    wrong = [
        name
        for name, result in results.items()
        if not result["met"] or result["left"] or result["statuses"] != [130]
    ]
    return 4 if options.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
