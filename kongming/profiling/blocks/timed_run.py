"""One run of a plan, as a record; also one that never started."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from kongming.profiling.blocks.state import CampaignState
from kongming.profiling.plans.run_limit import limit_s
from kongming.profiling.plans.steps import Step
from kongming.profiling.runs.outcome import Outcome
from kongming.profiling.runs.site_run import as_run
from kongming.profiling.site import Site
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import CUT_OFF, Run


def timed_run(
    state: CampaignState,
    step: Step,
    site: Site,
    fingerprint: Fingerprint,
    earlier: Mapping[str, float],
    *,
    load_left_s: float = math.inf,
) -> Run:
    """Run the program once. ``fingerprint`` is of the environment, ``earlier`` are passive signals
    from before it. A run under load that takes many times longer than alone is ended, and earlier
    where its load will not last so long (``load_left_s``)."""
    runner = state.runners[step.app]
    limit = _cut_off_s(state, step, load_left_s)
    outcome = runner.run(
        state.sites[step.app].app_cpus,
        cgroup_procs=site.app_procs,
        timeout_s=limit,
        neighbour=site.other_cpu,
    )
    signals = outcome.signals
    if limit is not None and outcome.timed_out:
        signals = {**signals, CUT_OFF: 1.0}
        times = limit / median(state.alone[step.app])
        outcome = replace(
            outcome,
            # Ending it takes a while as well, and it may have ended meanwhile.
            metric=min(outcome.wall_s, limit),
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


def _cut_off_s(state: CampaignState, step: Step, load_left_s: float) -> float | None:
    """Return the seconds after which a run under load is ended although its program still runs;
    None where it is not ended for that reason."""
    app = state.apps[step.app]
    alone = state.alone.get(step.app)
    if step.kind != "induced" or not alone or app.metric is not None or app.kind == "service":
        return None
    limit = limit_s(alone, state.overtime_s.get(step.app, 0.0), load_left_s)
    # Alone it ends within its timeout: where it does not under a load, that is how slow it is.
    return min(limit, app.timeout_s)


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
