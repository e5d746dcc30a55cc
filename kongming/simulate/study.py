"""Replay one trace under several policies and compare them, for ``kongming simulate``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.records.errors import InputError, UnknownNameError, UntrainedError
from kongming.simulate.aware import Aware, Rules
from kongming.simulate.fleet import Fleet
from kongming.simulate.merit import add_ratios, captured, held, merit, slowdowns
from kongming.simulate.pairs import Beliefs, PairTable, known_truth
from kongming.simulate.policies import (
    Exclusive,
    FirstFit,
    LeastLoaded,
    Policy,
    PolicyContext,
    RandomNode,
    SlurmBestFit,
)
from kongming.simulate.replay import Outcome, Progress, replay
from kongming.simulate.states import States
from kongming.simulate.trace import Trace
from kongming.simulate.waiting import Queueing

RANDOM, ORACLE = "random", "oracle"

_SIMPLE: dict[str, Callable[[PolicyContext], Policy]] = {
    RANDOM: RandomNode,
    "least-loaded": LeastLoaded,
    "first-fit": FirstFit,
    "slurm": SlurmBestFit,
    "exclusive": Exclusive,
}

_PREDICTING = {"kongming": "median", "kongming-upper": "upper"}
"""Which prediction must keep the limits: the median, as in the service's ranking, or the upper end
of its interval."""

_AWARE = (*_PREDICTING, ORACLE)

NAMES = (*_SIMPLE, *_AWARE)
DEFAULT = (RANDOM, "least-loaded", "slurm", "kongming", ORACLE)

QUALITIES = (0.90, 0.95, 0.98, 0.99)
"""Quality targets of a plot for which none were given."""

CDF_POINTS = 400
"""Points of each slowdown distribution in the document."""

_ROUNDING = 1e-9
"""A speed that is below a quality by this share equals it."""

LabelledProgress = Callable[[str, int], None]
"""Called with the name of the replay and the number of jobs that have arrived."""


@dataclass(frozen=True, eq=False, slots=True)
class Study:
    """Inputs common to all policies. ``beliefs`` are KONGMING's predictions, None if there are
    none; ``seed`` seeds the draws of each policy."""

    trace: Trace
    fleet: Fleet
    table: PairTable
    beliefs: Beliefs | None
    rules: Rules = field(default_factory=Rules)
    queueing: Queueing = field(default_factory=Queueing)
    seed: int = 0

    def check(self, name: str) -> None:
        """Raise what ``run`` would raise at once.

        Raises:
            UnknownNameError: there is no such policy.
            UntrainedError: a KONGMING policy without predictions.
        """
        if name not in NAMES:
            raise UnknownNameError("policy", name, NAMES)
        if name in _PREDICTING and self.beliefs is None:
            raise UntrainedError(
                "KONGMING places by predicted slowdowns, but there are none.",
                hint="Use those of stored models (--predicted store), add a column 'predicted' to "
                "the table of pairs, or simulate prediction errors (--prediction-error 0.1).",
            )

    def run(self, name: str, progress: Progress = lambda arrived: None) -> Outcome:
        """Replay the trace under one policy. Raises as ``check``."""
        self.check(name)
        _, class_app, class_limit = self.trace.classes()
        states = States(self.fleet.kinds, self.table.logs, class_app)
        # Random seeds itself from a string by SHA-512, which does not differ between processes.
        context = PolicyContext(self.fleet, states, Random(f"{self.seed} {name}"))
        policy = self._policy(name, context, class_limit)
        return replay(self.trace, self.fleet, states, policy, self.queueing, progress)

    def _policy(self, name: str, context: PolicyContext, limits: Sequence[float]) -> Policy:
        if name in _SIMPLE:
            return _SIMPLE[name](context)
        if name == ORACLE:
            rules = replace(self.rules, constraint="median", tie_share=0.0)
            return Aware(context, known_truth(self.table), limits, rules)
        assert self.beliefs is not None
        rules = replace(self.rules, constraint=_PREDICTING[name])
        return Aware(context, self.beliefs, limits, rules)

    def default_targets(self, names: Sequence[str]) -> tuple[float, ...]:
        """Return the quality targets that policies which respect limits can keep on this fleet; all
        of them where no policy in ``names`` does."""
        if not _respect_limits(names):
            return QUALITIES
        return tuple(target for target in QUALITIES if not self._is_slower(self._fastest, target))

    def too_slow(self, target: float) -> tuple[str, ...]:
        """Return the kinds of nodes on which a job does not reach this quality even alone: a
        quality is relative to a node of speed 1.

        Raises:
            InputError: they are all too slow.
        """
        if self._is_slower(self._fastest, target):
            raise InputError(
                "cannot be kept: even alone, a job is slower on each node of the fleet.",
                field="--quality",
                value=target,
                allowed=f"up to {self._fastest:g}, the speed of the fastest node",
                hint="Quality is relative to a node of speed 1. Give lower ones, or speeds that "
                "are relative to the fastest node.",
            )
        return tuple(kind.name for kind in self.fleet.kinds if self._is_slower(kind.speed, target))

    @property
    def _fastest(self) -> float:
        return max(kind.speed for kind in self.fleet.kinds)

    @staticmethod
    def _is_slower(speed: float, target: float) -> bool:
        return speed < target * (1.0 - _ROUNDING)

    def at_quality(self, target: float) -> Study:
        """Return the study for a quality target, as in Bubble-Up: every job's limit is a quality
        of ``target``, kept however long the job waits, and nodes are packed within the limits."""
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
    progress: LabelledProgress = lambda text, arrived: None,
) -> dict[str, Any]:
    """Compute the figures of merit by policy, relative to random and to the oracle, and by quality
    target."""
    for name in names:
        study.check(name)
    # The other policies do not depend on a target, and use every node.
    respecting = _respect_limits(names)
    too_slow = {target: study.too_slow(target) if respecting else () for target in targets}
    figures: dict[str, dict[str, Any]] = {}
    slowed: dict[str, Floats] = {}
    for name in names:
        outcome = study.run(name, lambda arrived, name=name: progress(name, arrived))  # type: ignore[misc]
        figures[name] = merit(study.trace, outcome, study.fleet)
        slowed[name] = slowdowns(study.trace, outcome)
    add_ratios(figures, (RANDOM, ORACLE))
    for name, own in figures.items():
        own["captured"] = {
            "slowdown.mean": captured(figures, name, ("slowdown", "mean")),
            "stretch.mean": captured(figures, name, ("stretch", "mean")),
        }
    return {
        "policies": figures,
        "quality": [
            _at_target(study, slowed, figures, target, progress)
            | {"too_slow": list(too_slow[target])}
            for target in targets
        ],
        "slowdown_cdf": {name: _curve(values) for name, values in slowed.items()},
    }


def _respect_limits(names: Iterable[str]) -> bool:
    return not set(names).isdisjoint(_AWARE)


def _at_target(
    study: Study,
    slowed: Mapping[str, Floats],
    figures: Mapping[str, Mapping[str, Any]],
    target: float,
    progress: LabelledProgress,
) -> dict[str, Any]:
    """Figures at a quality target. Policies that check limits are replayed with the target as every
    job's limit; the others do not depend on it."""
    targeted = study.at_quality(target)
    policies = {}
    for name, values in slowed.items():
        if name not in _AWARE:
            policies[name] = _utilisation(figures[name], held(values, target))
            continue
        text = f"{name}, quality {target:g}"
        outcome = targeted.run(name, lambda arrived, text=text: progress(text, arrived))  # type: ignore[misc]
        own = merit(targeted.trace, outcome, targeted.fleet)
        held_share = held(slowdowns(targeted.trace, outcome), target)
        policies[name] = _utilisation(own, held_share)
    return {"target": target, "policies": policies}


def _utilisation(figures: Mapping[str, Any], held_share: float) -> dict[str, Any]:
    return {
        "gained_pct": figures["gained_pct"],
        "work_per_busy_node": figures["work_per_busy_node"],
        "held_share": held_share,
        "violated_share": 1.0 - held_share,
        "waiting_s": figures["waiting_s"]["mean"],
        "makespan_s": figures["makespan_s"],
        "forced_jobs": figures["forced_jobs"],
    }


def _curve(slowed: Floats) -> list[list[float]]:
    """Empirical distribution: [slowdown, share of jobs that are no slower] at quantiles."""
    shares = np.linspace(0.0, 1.0, min(CDF_POINTS, len(slowed)) + 1)
    return [
        [float(value), float(share)]
        for value, share in zip(np.quantile(slowed, shares), shares, strict=True)
    ]
