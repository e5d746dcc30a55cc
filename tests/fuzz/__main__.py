"""Try inputs on everything that reads what others wrote.

    python -m tests.fuzz [--examples COUNT] MINUTES [TARGET...]

Targets take turns until the time is over, or until COUNT inputs of each were tried. One JSON line
for each target says how many were; a defect ends it with status 1, after the smallest input that
shows it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback

from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.servers import server_targets
from tests.fuzz.target import Target, attempt
from tests.fuzz.targets import TARGETS

_ROUND = 200
"""Examples of a target before the next one has its turn."""


def main(minutes: float, names: list[str], most: int) -> int:
    deadline = time.monotonic() + 60.0 * minutes
    tried: dict[str, int] = {}
    broken: set[str] = set()
    with server_targets() as servers:
        targets = {**TARGETS, **servers}
        chosen = {name: targets[name] for name in names} if names else targets
        waiting = list(chosen)
        while waiting and time.monotonic() < deadline:
            name = waiting.pop(0)
            count = tried.get(name, 0)
            try:
                tried[name] = count + _some(chosen[name], min(_ROUND, most - count), deadline)
            except Exception:
                broken.add(name)
                traceback.print_exc()
            else:
                waiting += [name] * (tried[name] < most)
    for name in chosen:
        line = {"target": name, "tried": tried.get(name, 0), "defect": name in broken}
        sys.stdout.write(json.dumps(line) + "\n")
    return 1 if broken else 0


def _some(target: Target, examples: int, deadline: float) -> int:
    count = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(target.draws())
    def run(drawn: object) -> None:
        nonlocal count
        if time.monotonic() < deadline:
            count += 1
            attempt(target, drawn)

    run()
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.fuzz")
    parser.add_argument("minutes", type=float)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--examples", type=int, default=sys.maxsize, metavar="COUNT")
    options = parser.parse_args()
    sys.exit(main(options.minutes, options.targets, options.examples))
