"""How soon the drift test finds a change, and how often it finds one that is not there.

    .venv/bin/python benchmarks/drift/power.py > power.json      # the tables go to stderr

Made-up residuals (log measured less log predicted), normal with a standard deviation of 0.1, which
is a median error of 7 %: ``scores`` of the validation, then finished runs that are all
``slowdown`` times as long as before. With ``large`` 3, three of the validation's residuals are as
large as the drift (for slowdown 1: as a drift of 1.5; with 5 scores most of the validation is
then slower than the runs, and to say so is no false alarm). A test looks after each run and has
found the drift when its evidence reaches 1 / 0.01.

Three tests see the same residuals:

- ``new``: ``DriftTest`` as it is in service;
- ``ranks``: its rank bets alone, as it was before it had threshold bets;
- ``normal``: a t-test for normal residuals, anytime-valid by a normal mixture over the size of the
  shift and the same starts (Gonen et al. 2005): what knowing the law would be worth, and what
  it costs where the law is another one.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from kongming_server.quality.drift import FALSE_ALARM, RANK_SHARE, DriftTest

SCORES = (5, 10, 20, 28, 50)
SLOWDOWNS = (1.0, 1.2, 1.5, 2.0)
DEVIATION = 0.1
LOOKS = 200
WITHIN = (20, 50)
SHIFTS = (1.0, 3.0)
"""Standard deviations of the normal test's shifts, in standard deviations of the residuals."""

Law = Callable[[np.random.Generator, int], np.ndarray]
Detector = Callable[[np.ndarray, np.ndarray], int | None]

LAWS: dict[str, Law] = {
    "normal": lambda random, count: DEVIATION * random.standard_normal(count),
    "t, 3 degrees": lambda random, count: DEVIATION * random.standard_t(3, count),
    "one in ten twice as long": lambda random, count: (
        DEVIATION * random.standard_normal(count) + (random.random(count) < 0.1) * math.log(2.0)
    ),
}


def by_ranks(share: float) -> Detector:
    def detect(validation: np.ndarray, runs: np.ndarray) -> int | None:
        test = DriftTest(validation.tolist(), rank_share=share)
        for number, score in enumerate(runs.tolist(), start=1):
            # Without ties the token only places a rank within its share of the unit interval.
            if test.add(score, str(score)).drifted:
                return number
        return None

    return detect


def by_t(validation: np.ndarray, runs: np.ndarray) -> int | None:
    """The number of runs after which a Bayesian t-test's mixture over all starts has found it."""
    every = np.concatenate((validation, runs))
    sums, squares = (np.concatenate(([0.0], np.cumsum(every**power))) for power in (1, 2))
    for number in range(1, len(runs) + 1):
        starts = np.arange(number)
        total = len(validation) + number
        before, after = len(validation) + starts, number - starts
        mean, shifted = sums[before] / before, (sums[total] - sums[before]) / after
        spread = squares[total] - before * mean**2 - after * shifted**2
        degrees, size = total - 2, before * after / total
        t2 = (shifted - mean) ** 2 * size * degrees / np.maximum(spread, 1e-12)
        evidence = 1.0 / (number + 1.0)
        for shift in SHIFTS:
            wider = 1.0 + size * shift**2
            logs = -0.5 * np.log(wider) + (degrees + 1) / 2 * (
                np.log1p(t2 / degrees) - np.log1p(t2 / (degrees * wider))
            )
            evidence += float(np.sum(np.exp(logs) / ((starts + 1) * (starts + 2)))) / len(SHIFTS)
        if evidence >= 1.0 / FALSE_ALARM:
            return number
    return None


DETECTORS: dict[str, Detector] = {
    "ranks": by_ranks(1.0),
    "new": by_ranks(RANK_SHARE),
    "normal": by_t,
}


def shares(
    lives: Sequence[tuple[np.ndarray, np.ndarray]], within: Sequence[int]
) -> dict[str, dict[str, float]]:
    """Of the lives, those in which each test found a drift within so many runs."""
    drifted_after = {name: [detect(*life) for life in lives] for name, detect in DETECTORS.items()}
    return {
        name: {str(w): sum(n is not None and n <= w for n in each) / len(lives) for w in within}
        for name, each in drifted_after.items()
    }


def power(lives: int, seed: int) -> Iterator[dict[str, Any]]:
    for scores in SCORES:
        for large in (0, 3):
            for slowdown in SLOWDOWNS:
                random = np.random.default_rng([seed, scores, large, round(10 * slowdown)])
                drawn = []
                for _ in range(lives):
                    validation = LAWS["normal"](random, scores)
                    validation[:large] += math.log(slowdown if slowdown > 1.0 else 1.5)
                    runs = LAWS["normal"](random, max(WITHIN)) + math.log(slowdown)
                    drawn.append((validation, runs))
                yield {
                    "scores": scores,
                    "large": large,
                    "slowdown": slowdown,
                    "found": shares(drawn, WITHIN),
                }


def false_alarms(lives: int, seed: int) -> Iterator[dict[str, Any]]:
    for name, law in LAWS.items():
        for scores in SCORES:
            random = np.random.default_rng([seed, scores, len(name)])
            drawn = [(law(random, scores), law(random, LOOKS)) for _ in range(lives)]
            drift_shares = shares(drawn, (LOOKS,))
            yield {
                "law": name,
                "scores": scores,
                "found": {test: share[str(LOOKS)] for test, share in drift_shares.items()},
            }


def later(lives: int, seed: int) -> Iterator[dict[str, Any]]:
    """Changes after 100 runs as validated: one of the level, one of the spread."""
    for change, factor, shift in (("slowdown 1.2", 1.0, math.log(1.2)), ("spread x 3", 3.0, 0.0)):
        for scores in SCORES:
            random = np.random.default_rng([seed, scores, round(10 * factor)])
            delays: dict[str, list[float]] = {test: [] for test in DETECTORS}
            for _ in range(lives):
                validation, runs = LAWS["normal"](random, scores), LAWS["normal"](random, 200)
                runs[100:] = factor * runs[100:] + shift
                for test, detect in DETECTORS.items():
                    number = detect(validation, runs)
                    if number is None or number > 100:
                        delays[test].append(math.inf if number is None else number - 100.0)
            medians = {test: float(np.median(each)) for test, each in delays.items()}
            yield {
                "change": change,
                "scores": scores,
                "median_runs": {t: m if math.isfinite(m) else None for t, m in medians.items()},
            }


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def power_table(cells: Sequence[dict[str, Any]]) -> str:
    rows = []
    for scores in SCORES:
        for large in (0, 3):
            row = [str(scores), str(large)]
            for cell in cells:
                if (cell["scores"], cell["large"]) == (scores, large):
                    row += [
                        " / ".join(f"{cell['found'][test][str(w)]:.2f}" for w in WITHIN)
                        for test in ("ranks", "new")
                    ]
            rows.append(row)
    head = [f"{slowdown:g} {test}" for slowdown in SLOWDOWNS for test in ("ranks", "new")]
    return table(["scores", "large", *head], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lives", type=int, default=500, help="of each cell of the first table")
    parser.add_argument("--alarm-lives", type=int, default=1000, help="of each false-alarm rate")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begun = time.monotonic()
    document = {
        "schema": 1,
        "lives": options.lives,
        "alarm_lives": options.alarm_lives,
        "seed": options.seed,
        "deviation": DEVIATION,
        "false_alarm": FALSE_ALARM,
        "looks": LOOKS,
        "power": list(power(options.lives, options.seed)),
        "false_alarms": list(false_alarms(options.alarm_lives, options.seed)),
        "later": list(later(max(1, options.lives // 5), options.seed)),
        "python": platform.python_version(),
    }
    document["seconds"] = round(time.monotonic() - begun, 1)
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")
    alarms: Any = document["false_alarms"]
    delays: Any = document["later"]
    tests = list(DETECTORS)
    sections = [
        f"Found within {' / '.join(map(str, WITHIN))} runs:",
        power_table(document["power"]),  # type: ignore[arg-type]
        f"False alarms in {LOOKS} looks:",
        table(
            ["law", "scores", *tests],
            [
                [a["law"], str(a["scores"]), *(f"{a['found'][t]:.4f}" for t in tests)]
                for a in alarms
            ],
        ),
        "Median runs from a change after 100 runs to its being found:",
        table(
            ["change", "scores", *tests],
            [
                [d["change"], str(d["scores"]), *(str(d["median_runs"][t] or "-") for t in tests)]
                for d in delays
            ],
        ),
    ]
    sys.stderr.write("\n\n".join(sections) + "\n")


if __name__ == "__main__":
    main()
