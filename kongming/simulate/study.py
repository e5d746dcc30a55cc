"""One trace under several policies: what ``kongming simulate`` computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from kongming.dataset import Floats
from kongming.errors import UnknownNameError, UntrainedError
from kongming.simulate.aware import Aware, Rules
from kongming.simulate.fleet import Fleet
from kongming.simulate.merit import beside, captured, held, merit, slowdowns
from kongming.simulate.pairs import Beliefs, PairTable, known_truth
from kongming.simulate.policies import (
    Exclusive,
    FirstFit,
    LeastLoaded,
    Policy,
    RandomNode,
    SlurmBestFit,
    World,
)
from kongming.simulate.replay import Outcome, Told, replay
from kongming.simulate.states import States
from kongming.simulate.trace import Trace
from kongming.simulate.waiting import Queueing

__all__ = ["DEFAULT", "NAMES", "Study", "documented"]

RANDOM, ORACLE = "random", "oracle"

_SIMPLE: dict[str, Callable[[World], Policy]] = {
    RANDOM: RandomNode,
    "least-loaded": LeastLoaded,
    "first-fit": FirstFit,
    "slurm": SlurmBestFit,
    "exclusive": Exclusive,
}

_PREDICTING = {"kongming": "median", "kongming-upper": "upper"}
"""What has to keep the limits: the predicted median, as in the service's ranking, or the upper
end of its interval."""

_AWARE = (*_PREDICTING, ORACLE)

NAMES = (*_SIMPLE, *_AWARE)
DEFAULT = (RANDOM, "least-loaded", "slurm", "kongming", ORACLE)

CDF_POINTS = 400
"""Points of a slowdown's distribution that a document keeps."""

TargetTold = Callable[[str, int], None]


@dataclass(frozen=True, eq=False, slots=True)
class Study:
    """What is the same for all policies. ``beliefs`` are KONGMING's, None where there are none;
    ``seed`` draws ties, policy by policy alike."""

    trace: Trace
    fleet: Fleet
    table: PairTable
    beliefs: Beliefs | None
    rules: Rules = field(default_factory=Rules)
    queueing: Queueing = field(default_factory=Queueing)
    seed: int = 0

    def run(self, name: str, told: Told = lambda started: None) -> Outcome:
        """The trace under one policy.

        Raises:
            UnknownNameError: there is no such policy.
            UntrainedError: KONGMING's is asked for without predictions.
        """
        if name not in NAMES:
            raise UnknownNameError("policy", name, NAMES)
        _, class_app, class_limit = self.trace.classes()
        states = States(self.fleet.kinds, self.table.logs, class_app)
        # Of a string, Python's own generator is seeded by a hash that is the same everywhere.
        world = World(self.fleet, states, Random(f"{self.seed} {name}"))
        policy = self._policy(name, world, class_limit)
        return replay(self.trace, self.fleet, states, policy, self.queueing, told)

    def _policy(self, name: str, world: World, limits: Sequence[float]) -> Policy:
        if name in _SIMPLE:
            return _SIMPLE[name](world)
        if name == ORACLE:
            rules = replace(self.rules, constraint="median", tie_share=0.0)
            return Aware(world, known_truth(self.table), limits, rules)
        if self.beliefs is None:
            raise UntrainedError(
                "KONGMING places by predicted slowdowns, and there are none.",
                hint="Take those of stored models (--predicted store), give the table of pairs a "
                "column 'predicted', or make errors up and say so (--prediction-error 0.1).",
            )
        rules = replace(self.rules, constraint=_PREDICTING[name])
        return Aware(world, self.beliefs, limits, rules)

    def at_quality(self, target: float) -> Study:
        """The same, every job's limit being that its quality is ``target``, kept however long it
        waits, and packed: beside others as long as the limits allow it. What Bubble-Up asks."""
        limit = np.full(len(self.trace), 1.0 / target)
        return replace(
            self,
            trace=replace(self.trace, limit=limit),
            rules=replace(self.rules, pack=True),
            queueing=replace(self.queueing, patience=math.inf),
        )


def documented(
    study: Study,
    names: Sequence[str],
    targets: Sequence[float] = (),
    told: TargetTold = lambda text, started: None,
) -> dict[str, Any]:
    """Figures of merit by policy, each beside random's and the oracle's, and by quality target.

    ``told`` gets what is being replayed and how many of its jobs have started.
    """
    figures: dict[str, dict[str, Any]] = {}
    curves: dict[str, list[list[float]]] = {}
    for name in names:
        outcome = study.run(name, lambda started, name=name: told(name, started))  # type: ignore[misc]
        figures[name] = merit(study.trace, outcome, study.fleet)
        curves[name] = _curve(slowdowns(study.trace, outcome))
    beside(figures, (RANDOM, ORACLE))
    for name, own in figures.items():
        own["captured"] = {
            "slowdown.mean": captured(figures, name, ("slowdown", "mean")),
            "stretch.mean": captured(figures, name, ("stretch", "mean")),
        }
    return {
        "policies": figures,
        "quality": [_at_target(study, names, figures, target, told) for target in targets],
        "slowdown_cdf": curves,
    }


def _at_target(
    study: Study,
    names: Sequence[str],
    figures: Mapping[str, Mapping[str, Any]],
    target: float,
    told: TargetTold,
) -> dict[str, Any]:
    """Those that heed limits are replayed with the target as everybody's; the others as is."""
    asked = study.at_quality(target)
    found = {}
    for name in names:
        if name not in _AWARE:
            kept = figures[name]["quality"]["held"].get(f"{target:.2f}")
            if kept is None:
                kept = held(slowdowns(study.trace, study.run(name)), target)
            found[name] = _utilised(figures[name], kept)
            continue
        text = f"{name}, quality {target:g}"
        outcome = asked.run(name, lambda started, text=text: told(text, started))  # type: ignore[misc]
        own = merit(asked.trace, outcome, asked.fleet)
        found[name] = _utilised(own, held(slowdowns(asked.trace, outcome), target))
    return {"target": target, "policies": found}


def _utilised(figures: Mapping[str, Any], kept: float) -> dict[str, Any]:
    return {
        "gained_pct": figures["gained_pct"],
        "work_per_busy_node": figures["work_per_busy_node"],
        "held_share": kept,
        "violated_share": 1.0 - kept,
        "waiting_s": figures["waiting_s"]["mean"],
        "makespan_s": figures["makespan_s"],
        "forced_jobs": figures["forced_jobs"],
    }


def _curve(slowed: Floats) -> list[list[float]]:
    """Quantiles: [slowdown, share of jobs that are no slower]."""
    shares = np.linspace(0.0, 1.0, min(CDF_POINTS, len(slowed)) + 1)
    return [
        [float(value), float(share)]
        for value, share in zip(np.quantile(slowed, shares), shares, strict=True)
    ]
