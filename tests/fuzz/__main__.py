"""Try inputs on everything that reads what others wrote: python -m tests.fuzz MINUTES [TARGET...].

One JSON line for each target says how many were tried; a defect ends it with status 1, after the
smallest input that shows it.
"""

from __future__ import annotations

import json
import sys
import time
import traceback

from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.http import http_target
from tests.fuzz.targets import TARGETS, Target, attempt

_ROUND = 200
"""Examples of a target before the next one has its turn."""


def main(minutes: float, names: list[str]) -> int:
    deadline = time.monotonic() + 60.0 * minutes
    tried: dict[str, int] = {}
    broken: set[str] = set()
    with http_target() as http:
        targets = {**TARGETS, "http": http}
        chosen = {name: targets[name] for name in names} if names else targets
        while time.monotonic() < deadline and broken != set(chosen):
            for name, target in chosen.items():
                if name in broken or time.monotonic() >= deadline:
                    continue
                try:
                    tried[name] = tried.get(name, 0) + _some(target, deadline)
                except Exception:
                    broken.add(name)
                    traceback.print_exc()
    for name in chosen:
        line = {"target": name, "tried": tried.get(name, 0), "defect": name in broken}
        sys.stdout.write(json.dumps(line) + "\n")
    return 1 if broken else 0


def _some(target: Target, deadline: float) -> int:
    count = 0

    @settings(
        max_examples=_ROUND,
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
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
