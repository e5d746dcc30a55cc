"""Whether a profile can be trained on: what its own runs say about how they were measured. Pure.

A profile that was disturbed looks like one of a program that nothing slows: the runs alone were
slow already, so that those under load are no slower. Limits are those of the recorded profiles in
benchmarks/accuracy, in which solo runs differ by 1.02 to 1.34, on a core of their own and on a
shared one alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kongming.records import control
from kongming.records.run import Run, solo_time

Verdict = Literal["good", "usable", "spoiled"]

USUAL_SPREAD, SPOILED_SPREAD = 1.25, 1.5
"""Longest over shortest solo run, without the farthest of five or more: above the first a profile
is only usable, above the second it is spoiled."""

_LEAST_FOR_OUTLIER = 5

FELT = 0.4
"""A load on the same core that takes a share of its time must slow a program that computes all the
time by 1 plus this part of the share, at least; a fair scheduler gives 1.0."""

_MUST_BE_FELT = frozenset({"compute", "cache", "memory"})
"""Families of the inducers that compute without waiting."""

_HEAVY = 0.5
"""Share of the core that such a load takes at least."""

_COMPUTES = (0.8, 1.2)
"""CPU seconds per second of a program on one CPU that hardly waits."""

_STOLEN, _WAITING = 0.05, 0.2
"""Shares of the time of solo runs: taken by the host, and with other tasks waiting for a CPU."""

_LEAST_SOLOS = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one profile, its reasons (clauses without a period), and what to do."""

    verdict: Verdict
    reasons: tuple[str, ...]
    advice: str | None = None

    def __str__(self) -> str:
        return f"{self.verdict}: {'; '.join(self.reasons)}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "advice": self.advice,
        }


def judge(runs: Iterable[Run]) -> Judgement:
    """Judge the solo and induced runs of one application, identity, node and placement.

    Runs that failed count only by their number.
    """
    members = [run for run in runs if run.kind in ("solo", "induced")]
    solos = [run for run in members if run.kind == "solo" and run.ok]
    if not solos:
        return Judgement(
            "spoiled",
            ("no run alone succeeded",),
            "See why ('kongming runs --failed'), then profile it again.",
        )
    spoiled: list[str] = []
    doubtful: list[str] = []
    ratio = spread(solos)
    if ratio > USUAL_SPREAD:
        clause = f"its runs alone differ by {ratio:.2f} times ({_extent(solos)}){_cause(solos)}"
        (spoiled if ratio > SPOILED_SPREAD else doubtful).append(clause)
    unfelt, expected = _not_felt(members, solos)
    if unfelt:
        clause = (
            f"{len(unfelt)} of {expected} loads on the same core that must be felt slowed "
            f"nothing ({_named(unfelt)})"
        )
        (spoiled if 2 * len(unfelt) >= expected else doubtful).append(clause)
    if disturbed := sum(map(was_disturbed, members)):
        clause = f"something else was measured on its CPUs during {disturbed} runs"
        (spoiled if 2 * disturbed >= len(members) else doubtful).append(clause)
    slowed = len(control.disturbed(run for run in members if run.ok))
    if 4 * slowed > len(members):
        clause = f"somebody else slowed the processor during {slowed} of {len(members)} runs"
        (spoiled if 2 * slowed >= len(members) else doubtful).append(clause)
    if len(solos) < _LEAST_SOLOS:
        doubtful.append(f"it ran alone only {_times(len(solos))}")
    failed = sum(not run.ok for run in members)
    if 4 * failed >= len(members):
        doubtful.append(f"{failed} of {len(members)} runs failed")
    if spoiled:
        return Judgement("spoiled", (*spoiled, *doubtful), _ADVICE)
    if doubtful:
        return Judgement("usable", tuple(doubtful), _ADVICE)
    felt = f", and {expected} loads that must be felt were" if expected else ""
    return Judgement("good", (f"{len(solos)} runs alone are within {ratio:.2f} times{felt}",))


_ADVICE = (
    "See what else runs on this machine, and measure again at a quieter time, or at another "
    "--placement: kongming profile APPS.toml --app NAME --again"
)


def spread(solos: Sequence[Run]) -> float:
    """Return longest over shortest solo run; of five or more the farthest from the median is left
    out."""
    costs = sorted(run.cost for run in solos)
    if len(costs) >= _LEAST_FOR_OUTLIER:
        median = statistics.median(costs)
        costs = costs[:-1] if costs[-1] / median > median / costs[0] else costs[1:]
    return costs[-1] / costs[0]


def without_spoiled(runs: Sequence[Run]) -> tuple[list[Run], int]:
    """Return the runs without those of spoiled campaigns, and how many those are, where a campaign
    of the same application, identity, node and placement is not spoiled: it was measured again
    since the first was bad. All runs where every campaign is spoiled."""
    campaigns: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    for run in runs:
        key = (run.app, run.identity, run.node_id, run.placement)
        campaigns.setdefault(key, {}).setdefault(run.campaign, []).append(run)
    left_out: set[str] = set()
    for groups in campaigns.values():
        profiles = {
            name: judge(members).verdict
            for name, members in groups.items()
            if any(run.kind == "induced" for run in members)
        }
        if len(set(profiles.values()) - {"spoiled"}) > 0:
            bad = [name for name, verdict in profiles.items() if verdict == "spoiled"]
            left_out |= {run.id for name in bad for run in groups[name]}
    return [run for run in runs if run.id not in left_out], len(left_out)


def was_disturbed(run: Run) -> bool:
    """Whether another measurement ran on the same CPUs during the run."""
    return any(warning.endswith(DISTURBED) for warning in run.warnings)


DISTURBED = "meanwhile."
"""The end of the warning of a run during which something else was measured."""


def _not_felt(members: Sequence[Run], solos: Sequence[Run]) -> tuple[list[Run], int]:
    """Return the runs under a load that must be felt and was not, and the number of such loads."""
    solo = solo_time(solos)
    assert solo is not None
    shares = [run.usage.cpu_s / run.wall_s for run in solos if run.wall_s > 0]
    share = statistics.median(shares) if shares else 0.0
    if not _COMPUTES[0] <= share <= _COMPUTES[1]:
        return [], 0
    heavy = [
        (run, load)
        for run in members
        if run.ok
        and run.kind == "induced"
        and run.placement == "same-core"
        and run.families <= _MUST_BE_FELT
        and (load := min(1.0, sum(level.intensity * level.copies for level in run.levels)))
        >= _HEAVY
    ]
    unfelt = [run for run, load in heavy if run.cost / solo.median < 1.0 + FELT * load * share]
    return unfelt, len(heavy)


def _extent(solos: Sequence[Run]) -> str:
    metrics = sorted(run.metric for run in solos if run.metric is not None)
    return f"{metrics[0]:.3g} to {metrics[-1]:.3g} {solos[0].metric_unit}"


def _cause(solos: Sequence[Run]) -> str:
    """What the passive signals of the runs say about the reason."""
    stolen = max(run.passive.get("steal", 0.0) for run in solos)
    if stolen > _STOLEN:
        return f", while the host took up to {100 * stolen:.0f} % of the CPU time"
    waiting = max(run.passive.get("psi_cpu_some", 0.0) for run in solos)
    if waiting > _WAITING:
        return f", while tasks waited for a CPU up to {100 * waiting:.0f} % of the time"
    return ""


def _named(runs: Sequence[Run]) -> str:
    names = list(dict.fromkeys(" + ".join(map(str, run.levels)) for run in runs))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
