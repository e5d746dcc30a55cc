"""Calls of the servers of two checkouts, both up at the same time, by turns. Prints one JSON
document.

    python -m benchmarks.service.by_turns OTHER [--starts 3] [--turns 60] [--check]

OTHER is the folder of the older checkout; the newer is the one that this file is in. Both servers
know 1,000 nodes with a fresh fingerprint each; nothing else is asked of them. A turn is a number of
calls of one server, one after the other, and then as many of the other, in random order, so that
what the machine does in one minute hits both: a server that is measured minutes after another may
seem ten per cent slower than itself.

For each call: the medians in milliseconds, and the median over the turns of their ratio (newer over
older) with its 95 % interval. That is of these two processes: two starts of one server may differ
too, so give several ``--starts``; then it is the median over all turns of all starts, and
``starts`` has each. Exit status 4 with --check where the lower end of the interval is above the
limit; 1 where something could not be run.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

from scipy.stats import binom

from benchmarks.service.compare import (
    RATIO,
    Checkout,
    checkouts_of,
    document,
    parsed,
    parser_of,
    printed,
)

SERVER = Path(__file__).with_name("by_turns_server.py")
_END_S = 60.0


class Server:
    """A process with a server of one checkout; ends with it."""

    def __init__(self, checkout: Checkout, options: argparse.Namespace) -> None:
        self._checkout = checkout.folder
        fleet = ("--agents", "1000", "--apps", "40", "--seed", str(options.seed))
        self._process = subprocess.Popen(
            **checkout.started(str(SERVER), *fleet, "--calls", str(options.calls)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self) -> Any:
        """The next line of output. Raises RuntimeError."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The server of {self._checkout} ended.")
        return json.loads(line)

    def call(self, name: str) -> list[float]:
        """Seconds of each call of a turn."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        times: list[float] = self.read()
        return times

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait(_END_S)


Turns = dict[str, dict[str, list[list[float]]]]
"""Seconds of each call of each turn, by call and checkout."""


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    order = random.Random(options.seed)
    checkouts = checkouts_of(options, scratch)
    starts = [started(options, checkouts, order, n) for n in range(options.starts)]
    figures = {}
    for call in starts[0]:
        older, newer = (
            list(chain.from_iterable(start[call][key] for start in starts))
            for key in ("older", "newer")
        )
        figures[call] = compared(older, newer)
        figures[call]["starts"] = [
            compared(start[call]["older"], start[call]["newer"])["ratio"] for start in starts
        ]
    parameters = {"starts": options.starts, "turns": options.turns, "calls": options.calls}
    return document("by_turns", options, figures, **parameters)


def started(
    options: argparse.Namespace, checkouts: dict[str, Checkout], order: random.Random, number: int
) -> Turns:
    """Start both servers and call them by turns."""
    with ExitStack() as stack:
        servers = {}
        for key, checkout in checkouts.items():
            servers[key] = Server(checkout, options)
            stack.callback(servers[key].close)
        # Both are ready then.
        calls, _ = (server.read() for server in servers.values())
        times: Turns = {call: {key: [] for key in servers} for call in calls}
        for turn in range(options.turns):
            progress = f"start {number + 1} of {options.starts}, turn {turn + 1} of {options.turns}"
            print(progress, end="\r", file=sys.stderr)
            for call in calls:
                for key in order.sample(list(servers), 2):
                    times[call][key].append(servers[key].call(call))
        print(file=sys.stderr)
    return times


def compared(older: list[list[float]], newer: list[list[float]]) -> dict[str, Any]:
    """Compare times by turn."""
    ratios = sorted(
        statistics.median(after) / statistics.median(before)
        for before, after in zip(older, newer, strict=True)
    )
    # Of the median, by order statistics: without an assumption about the shape of the noise.
    beyond = int(binom.ppf(0.025, len(ratios), 0.5))
    lower, upper = ratios[max(beyond - 1, 0)], ratios[min(len(ratios) - beyond, len(ratios) - 1)]
    return {
        "older_ms": round(1e3 * statistics.median(chain(*older)), 3),
        "newer_ms": round(1e3 * statistics.median(chain(*newer)), 3),
        "ratio": round(statistics.median(ratios), 3),
        "interval": [round(lower, 3), round(upper, 3)],
        "limit": RATIO,
        "worse": lower > RATIO,
    }


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--starts", type=int, default=3, help="of both servers")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--calls", type=int, default=60, help="in a turn, of each kind and server")
    options = parsed(parser)
    if options.turns < 6 or options.calls < 1 or options.starts < 1:
        parser.error("--turns must be 6 or more, --calls and --starts 1 or more")
    return printed("by_turns", measure, options)


if __name__ == "__main__":
    sys.exit(main())
