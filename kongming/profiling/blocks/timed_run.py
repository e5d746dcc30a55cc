"""One run of a plan, as a record; also one that never started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from kongming.probes import passive
from kongming.profiling.blocks.state import CampaignState
from kongming.profiling.plans.campaign_plan import Step
from kongming.profiling.runs.outcome import Outcome
from kongming.profiling.runs.site_run import as_run
from kongming.profiling.site import Site
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import CUT_OFF, Run

MOST_SLOWDOWN = 5.0
"""A run under load is ended at so many times the program's runtime alone, as a lower bound, once
its program's patience is used up."""

LONGEST_SLOWDOWN = 30.0
"""Even with patience left a run is ended at so many times its program's runtime alone."""

PATIENCE = 60.0
"""How long a program's runs under load may go on beyond ``MOST_SLOWDOWN`` together, in runtimes
alone. Those that end tell how slow the others would have been: a program that waits its turn
behind a busy neighbour each time it wakes takes more than ten times as long."""

LEAST_PATIENCE_S = 1.0
"""How much longer than alone each run may take: what ends within it was not worth ending."""


def timed_run(
    state: CampaignState,
    step: Step,
    site: Site,
    fingerprint: Fingerprint,
    earlier: Mapping[str, float],
) -> Run:
    """Run the program once. ``fingerprint`` is of the environment, ``earlier`` are passive signals
    from before it. A run under load that takes many times longer than alone is ended."""
    runner = state.runners[step.app]
    limit = _cut_off_s(state, step)
    before = passive.snapshot(neighbour=site.other_cpu)
    outcome = runner.run(
        state.sites[step.app].app_cpus, cgroup_procs=site.app_procs, timeout_s=limit
    )
    signals = passive.difference(before, passive.snapshot(neighbour=site.other_cpu))
    if limit is not None:
        _use_patience(state, step.app, outcome.wall_s)
    if limit is not None and outcome.timed_out:
        signals = {**signals, CUT_OFF: 1.0}
        times = limit / median(state.alone[step.app])
        outcome = replace(
            outcome,
            metric=outcome.wall_s,
            error=None,
            warnings=(*outcome.warnings, f"cut off at {times:.3g} times its runtime alone"),
        )
    return as_run(
        outcome,
        runner.app,
        site,
        identity=state.identities[step.app],
        kind=step.kind,
        levels=step.levels,
        neighbours=() if step.neighbour is None else (step.neighbour,),
        fingerprint=fingerprint,
        passive={**signals, **earlier},
        campaign=state.campaign,
        step=step.index,
    )


def _cut_off_s(state: CampaignState, step: Step) -> float | None:
    """After how long a run under load is ended, though its program may run for longer. None: not
    for that reason."""
    app = state.apps[step.app]
    alone = state.alone.get(step.app)
    if step.kind != "induced" or not alone or app.metric is not None or app.kind == "service":
        return None
    limit = limit_s(alone, state.overtime_s.get(step.app, 0.0))
    if app.timeout_s is None:
        return limit
    return min(limit, app.timeout_s) if _usual_limit_s(alone) < app.timeout_s else None


def limit_s(alone: Sequence[float], overtime_s: float) -> float:
    """Return after how many seconds a run under load is ended, from its program's runtimes
    ``alone`` and what its runs under load have taken beyond the usual limit so far."""
    usual = _usual_limit_s(alone)
    patience = max(PATIENCE * median(alone) - overtime_s, 0.0)
    return min(usual + patience, max(usual, LONGEST_SLOWDOWN * median(alone)))


def _usual_limit_s(alone: Sequence[float]) -> float:
    return max(MOST_SLOWDOWN * median(alone), median(alone) + LEAST_PATIENCE_S)


def _use_patience(state: CampaignState, app: str, wall_s: float) -> None:
    """Count what a run under load took beyond the usual limit."""
    beyond = wall_s - _usual_limit_s(state.alone[app])
    state.overtime_s[app] = state.overtime_s.get(app, 0.0) + max(beyond, 0.0)


def unmeasured(state: CampaignState, site: Site, step: Step, reason: str) -> Run:
    """Create the failed Run of a step that never started, with the reason."""
    return as_run(
        Outcome.failed(reason),
        state.apps[step.app],
        site,
        identity=state.identities[step.app],
        kind=step.kind,
        levels=step.levels,
        neighbours=() if step.neighbour is None else (step.neighbour,),
        campaign=state.campaign,
        step=step.index,
    )
