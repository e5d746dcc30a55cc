"""Policies on generated programs (``program_worlds.py``): what may choose between versions of
``auto``, as the measured tables and the seeds of the bars may not.

    nice ../../.venv/bin/python generated_programs.py --seeds 12 --first 1000 --keep FOLDER

One profile of each world by each policy; prints one JSON document: errors over those of ``uni``,
as geometric means over the worlds where runs fail and where none does, with the factor of one
standard error, and the models that were chosen.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

import numpy as np
from program_worlds import FIRST_SEED, program
from replays import add_options, over_seeds, take_options

from kongming.explore.policies import POLICIES
from kongming.explore.replay import Replayed, ReplaySettings, replay

BUDGET, BATCH = 60, 6
METRICS = ("mse", "mre_pct")


def profile(policy: str, first: int, place: int) -> Replayed:
    """Profile the world of the seed ``first`` + ``place``."""
    world = program(first + place).world
    budget = min(BUDGET, len(world.table) // 3)
    how = ReplaySettings(budget, budget if policy == "uni" else BATCH)
    return replay(world, policy, how, first + place)


def compared(runs: list[Replayed], uniform: list[Replayed]) -> dict[str, Any]:
    """Errors of profiles over those of uniform draws in the same worlds."""
    ratios: dict[str, Any] = {"worlds": len(runs)}
    for metric in METRICS:
        own, others = ([run.all[metric] for run in each] for each in (runs, uniform))
        logs = np.log(np.array(own, dtype=np.float64) / np.array(others, dtype=np.float64))
        error = np.std(logs, ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else None
        ratios[metric] = {
            "over_uni": float(np.exp(np.mean(logs))),
            "standard_error_factor": None if error is None else float(np.exp(error)),
            "worst": float(np.exp(np.max(logs))),
        }
    ratios["failed_runs"] = float(np.mean([sum(run.failures) for run in runs]))
    ratios["models"] = dict(Counter(run.model for run in runs).most_common())
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="seed of the first world")
    parser.add_argument("--policy", choices=sorted(POLICIES), action="append")
    add_options(parser)
    options = parser.parse_args()
    take_options(options)
    runs_by_policy = {
        policy: over_seeds(profile, (policy, options.first), options.seeds)
        for policy in ("uni", *(options.policy or ("auto", "dta")))
    }
    failing = [bool((options.first + place) % 2) for place in range(options.seeds)]
    document: dict[str, Any] = {"first": options.first, "seeds": options.seeds}
    for name, wanted in (("no_failures", False), ("failures", True)):
        rows = [place for place, fails in enumerate(failing) if fails == wanted]
        if rows:
            document[name] = {
                policy: compared(
                    [runs[row] for row in rows], [runs_by_policy["uni"][row] for row in rows]
                )
                for policy, runs in runs_by_policy.items()
            }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
