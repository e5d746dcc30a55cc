"""Judge whether a profile can be trained on: what its own runs say about how they were measured.
Pure.

A profile that was disturbed looks like one of a program that nothing slows: the runs alone were
slow already, so that those under load are no slower. Limits are those of the first recorded
profiles in benchmarks/accuracy, in which solo runs differ by 1.02 to 1.34, on a core of their own
and on a shared one alike. Runs are compared within their campaign: slowdowns are over the solo runs
of the same minutes, so that what the machine drifts between campaigns is in none of them. It is in
times, which are over the median of all solo runs: so the medians of campaigns are compared as well.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from kongming.records import control
from kongming.records.judgement import VERDICTS, Judgement, Reason, Verdict
from kongming.records.run import Run, waiting_share

USUAL_SPREAD, SPOILED_SPREAD = 1.25, 1.5
"""``spread`` of the solo runs above which a profile is only usable, and above which it is
spoiled."""

_LEAST_FOR_OUTLIER = 5

_OUTLIERS = 7
"""One of so many runs is left out of their ``spread``. The ends of many are farther apart than
those of few: with one left out of any number, solo runs that differ by 7 % (standard deviation of
logs) would exceed the first limit in 17 % of the cases if they are twelve, and always if they are
many times that. With a seventh left out it is 20 % at the most, whatever their number."""

FELT = 0.4
"""A load on the same core that takes a share of its time must slow a program that computes all the
time by 1 plus this part of the share, at least; a fair scheduler gives 1.0."""

_MUST_BE_FELT = frozenset({"compute", "cache", "memory"})
"""Families of the inducers that compute without waiting."""

_HEAVY = 0.5
"""Share of the core that such a load takes at least."""

_COMPUTES = 0.8
"""Share of its time that a program which hardly waits is on its processor, at least."""

_STOLEN, _WAITING = 0.05, 0.2
"""Shares of the time of solo runs: taken by the host, and with other tasks waiting for a CPU."""

_LEAST_SOLOS = 3

_LARGEST_RATIO = 1e9
"""The most that is said of runs that differ; a quotient of finite times may be infinite."""


def judge(runs: Iterable[Run]) -> Judgement:
    """Judge the solo and induced runs of one application, identity, node and placement.

    Runs that failed count only by their number, and those alone between co-runs not at all
    (``of_profile``).
    """
    members = [run for run in of_profile(runs) if run.kind in ("solo", "induced")]
    solos = [run for run in members if run.kind == "solo" and run.ok and math.isfinite(run.cost)]
    if not solos:
        return Judgement("spoiled", (Reason("no-solo-run", "spoiled"),))
    unit = solos[0].metric_unit
    ended = [run for run in members if run.ok]
    left_out = len(control.left_out([run for run in ended if run.fingerprint]))
    unfelt, expected = _not_felt(members, solos)
    campaigns = [runs for runs in _by_campaign(solos).values() if len(runs) > 1]
    alone = _solo_spread(campaigns, solos, expected - len(unfelt))
    reasons = [alone, *_solo_shift(campaigns)]
    if unfelt:
        counts = {"runs": len(unfelt), "of": expected}
        verdict = _spoiled_if(2 * len(unfelt) >= expected)
        loads = dict.fromkeys(" + ".join(map(str, run.levels)) for run in unfelt)
        reasons.append(Reason("unfelt-loads", verdict, counts, tuple(loads)))
    if disturbed := sum(run.disturbed for run in members):
        verdict = _spoiled_if(2 * disturbed >= len(members))
        reasons.append(Reason("measured-together", verdict, {"runs": disturbed}))
    slowed = len(control.disturbed(ended))
    if 4 * slowed > len(ended):
        counts = {"runs": slowed, "of": len(ended)}
        reasons.append(Reason("slowed-by-others", _spoiled_if(2 * slowed >= len(ended)), counts))
    evicted = len(control.evicted(ended))
    if 4 * evicted > len(ended):
        reasons.append(Reason("evicted-files", "usable", {"runs": evicted, "of": len(ended)}))
    if len(solos) < _LEAST_SOLOS:
        reasons.append(Reason("few-solo-runs", "usable", {"runs": len(solos)}))
    failed = sum(not run.ok for run in members)
    if 4 * failed >= len(members):
        counts = {"runs": failed, "of": len(members)}
        reasons.append(Reason("failed-runs", "usable", counts))
    problems = [reason for reason in reasons if reason.verdict != "good"]
    # The worst first.
    problems.sort(key=lambda reason: -VERDICTS.index(reason.verdict))
    if problems:
        return Judgement(problems[0].verdict, tuple(problems), left_out, unit)
    return Judgement("good", (alone,), left_out, unit)


def of_profile(runs: Iterable[Run]) -> list[Run]:
    """Return the runs without those that succeeded without a fingerprint, where others have one:
    the runs alone between co-runs. No model learns from them, and they say how the co-runs were
    measured, not how the profile was."""
    given = list(runs)
    own = [run for run in given if run.fingerprint is not None or not run.ok]
    return own if any(run.ok for run in own) else given


def learned_from(runs: Iterable[Run]) -> list[Run]:
    """Return the runs of a profile whose cost training learns from: they succeeded, and were not
    disturbed by others."""
    usable = [run for run in of_profile(runs) if run.ok and math.isfinite(run.cost)]
    taken_by_others = control.left_out(usable)
    return [run for run in usable if run.id not in taken_by_others]


def _spoiled_if(is_serious: bool) -> Verdict:
    return "spoiled" if is_serious else "usable"


def _solo_spread(campaigns: Sequence[Sequence[Run]], all_solos: Sequence[Run], felt: int) -> Reason:
    """Return what the runs alone say: those of that campaign in which they differ most, all where
    each has one only. ``felt`` loads that must be felt were."""
    solos = max(campaigns, key=spread) if campaigns else all_solos
    ratio = spread(solos)
    metrics = sorted(run.metric for run in solos if run.metric is not None)
    figures = {
        "ratio": min(ratio, _LARGEST_RATIO),
        "runs": len(solos),
        "shortest": metrics[0],
        "longest": metrics[-1],
    }
    if len(campaigns) > 1:
        figures["campaigns"] = len(campaigns)
    if ratio <= USUAL_SPREAD:
        return Reason("solo-spread", "good", figures | ({"felt": felt} if felt else {}))
    # What the passive signals of the runs say about the reason.
    stolen = max(run.passive.get("steal", 0.0) for run in solos)
    waiting = max(run.passive.get("psi_cpu_some", 0.0) for run in solos)
    if stolen > _STOLEN:
        figures["stolen_share"] = stolen
    if waiting > _WAITING:
        figures["waiting_share"] = waiting
    return Reason("solo-spread", _spoiled_if(ratio > SPOILED_SPREAD), figures)


def _solo_shift(campaigns: Sequence[Sequence[Run]]) -> list[Reason]:
    """Return the reason that campaigns differ in their time alone, where they do. Slowdowns are
    right, but the median over all of them may be a time that the program never had."""
    if len(campaigns) < 2:
        return []
    costs = [statistics.median(run.cost for run in runs) for runs in campaigns]
    ratio = max(costs) / min(costs)
    if ratio <= USUAL_SPREAD:
        return []
    medians = sorted(
        statistics.median(run.metric for run in runs if run.metric is not None)
        for runs in campaigns
    )
    figures = {
        "ratio": min(ratio, _LARGEST_RATIO),
        "campaigns": len(campaigns),
        "runs": sum(map(len, campaigns)),
        "shortest": medians[0],
        "longest": medians[-1],
    }
    return [Reason("solo-shift", "usable", figures)]


def spread(solos: Sequence[Run]) -> float:
    """Return longest over shortest solo run; of five or more the farthest from the median is left
    out, and from fourteen on a seventh of them."""
    costs = sorted(run.cost for run in solos)
    if len(costs) >= _LEAST_FOR_OUTLIER:
        median = statistics.median(costs)
        for _ in range(max(1, len(costs) // _OUTLIERS)):
            costs = costs[:-1] if costs[-1] / median > median / costs[0] else costs[1:]
    return costs[-1] / costs[0]


def _by_campaign(runs: Iterable[Run]) -> dict[str, list[Run]]:
    campaigns: dict[str, list[Run]] = {}
    for run in runs:
        campaigns.setdefault(run.campaign, []).append(run)
    return campaigns


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


def _not_felt(members: Sequence[Run], solos: Sequence[Run]) -> tuple[list[Run], int]:
    """Return the runs under a load that must be felt and was not, and the number of such loads."""
    medians = {
        campaign: statistics.median(run.cost for run in runs)
        for campaign, runs in _by_campaign(solos).items()
    }
    of_all = statistics.median(run.cost for run in solos)
    waiting = waiting_share(solos)
    # Not known of a service, nor of a program on several CPUs, of which a load takes one.
    share = 0.0 if waiting is None else 1.0 - waiting
    if share < _COMPUTES:
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
    # One that was cut off was slower than it was let run for, however short its timeout is.
    unfelt = [
        run
        for run, load in heavy
        if not run.cut_off
        and run.cost / medians.get(run.campaign, of_all) < 1.0 + FELT * load * share
    ]
    return unfelt, len(heavy)
