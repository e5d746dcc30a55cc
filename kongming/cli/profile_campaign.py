"""The campaign that profiles applications: what it is, what it costs, and carrying it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.cli import output
from kongming.cli.campaign import carry_out, key_of, seed_of

if TYPE_CHECKING:
    from kongming.application import Application
    from kongming.cli.campaign_view import CampaignView
    from kongming.fingerprint import NodeFacts
    from kongming.probes.suite import Suite
    from kongming.profiling.plans import Estimate, Plan
    from kongming.run import Run
    from kongming.store import Store

ASSUMED_APP_S = 5.0
"""What a dry run takes an application to last that never ran here."""


@dataclass(frozen=True)
class Profiling:
    """What is asked of a campaign that profiles. ``suite_name`` None: what suits the placement;
    ``levels`` None: all of the plan; ``asked_seed`` None: one is drawn."""

    apps: Mapping[str, Application]
    node: NodeFacts
    suite: Suite
    placement: str
    io_dir: Path
    plan_name: str = "quick"
    repeats: int = 1
    levels: int | None = None
    suite_name: str | None = None
    asked_seed: int | None = None

    @property
    def timed(self) -> str:
        """The suite that is timed under each load."""
        return self.suite_name or ("quick" if self.placement == "same-core" else "standard")

    def settings(self) -> dict[str, Any]:
        """What the campaign is found again by."""
        from kongming.profiling.identity import identity

        return {
            "plan": self.plan_name,
            "placement": self.placement,
            "suite": self.timed,
            "suite_version": self.suite.version,
            "repeats": self.repeats,
            "levels": self.levels,
            "node": self.node.id,
            "apps": {name: identity(app) for name, app in sorted(self.apps.items())},
            **({} if self.asked_seed is None else {"asked_seed": self.asked_seed}),
        }

    def plan(self, seed: int) -> Plan:
        """Raises InputError for a plan, repeats or levels that do not exist."""
        from kongming.profiling.plans import make_plan

        return make_plan(
            self.plan_name,
            sorted(self.apps),
            self.suite.inducers(),
            placement=self.placement,
            seed=seed,
            suite=self.timed,
            repeats=self.repeats,
            levels=self.levels,
        )


@dataclass(frozen=True)
class Profiled:
    """What came of it. ``complete`` says that no step is left but those of dropped ones."""

    campaign: str
    plan: Plan
    view: CampaignView
    complete: bool

    @property
    def dropped(self) -> dict[str, str]:
        """Applications that were left out, and why."""
        return {app: row.dropped for app, row in self.view.rows.items() if row.dropped is not None}


def profile_applications(
    store: Store, asked: Profiling, stop_when: Callable[[], bool], *, quiet: bool = False
) -> Profiled:
    """Carry the campaign out, or what is left of it; ``quiet`` says no word of resuming."""
    from kongming.cli.campaign_view import CampaignView
    from kongming.profiling.profiler import profile

    settings = asked.settings()
    asked.plan(0)  # refuses what cannot be planned before anything is kept
    store.put_node(asked.node)
    for name, app in asked.apps.items():
        store.put_application(name, settings["apps"][name], app.to_dict())
    kept = store.open_campaign(key_of(settings), settings | {"seed": seed_of(asked.asked_seed)})
    plan = asked.plan(int(kept.document["seed"]))
    earlier = store.runs(campaign=kept.id)
    done = store.campaign_steps_done(kept.id) - _to_try_again(plan, earlier)
    if done and not quiet:
        output.error_console().print(f"resuming: {len(done)} of {len(plan.steps)} steps are done")
    view = CampaignView(sorted(asked.apps), f"{plan.name} plan, {plan.placement}, seed {plan.seed}")
    for run in earlier:
        if run.ok or run.step in done:
            view.see(run)
    events = profile(
        asked.apps,
        plan,
        node=asked.node,
        suite=asked.suite,
        work_dir=asked.io_dir,
        io_dir=asked.io_dir,
        campaign=kept.id,
        done=frozenset(done),
        walls={run.app: run.wall_s for run in earlier if run.ok},
        stop_when=stop_when,
    )
    carry_out(store, events, view)
    behind = store.campaign_steps_done(kept.id)
    dropped = {app for app, row in view.rows.items() if row.dropped is not None}
    complete = all(step.index in behind or step.app in dropped for step in plan.steps)
    if complete and not dropped:
        store.finish_campaign(kept.id)
    return Profiled(kept.id, plan, view, complete)


def _to_try_again(plan: Plan, earlier: Sequence[Run]) -> set[int]:
    """First runs that failed: what their applications were left out for may work by now."""
    first = {step.index for step in plan.steps if step.kind == "solo" and step.repeat == 0}
    return first - {run.step for run in earlier if run.ok}


def cost_of(store: Store, asked: Profiling, plan: Plan) -> Estimate:
    """What carrying ``plan`` out from its start would cost, from what the store knows."""
    from kongming.profiling.plans import estimate

    seconds, _ = solo_seconds(store, asked.apps, asked.node.id)
    latest = store.fingerprints(node_id=asked.node.id, suite_version=asked.suite.version, limit=20)
    rates = {}
    for surrogate in asked.suite.surrogates:
        times = [f.times()[surrogate.name] for f in latest if surrogate.name in f.times()]
        if surrogate.family == "write" and surrogate.bytes_per_op:
            # Never timed here: a gigabyte a second, so that the estimate errs on the high side.
            rates[surrogate.name] = surrogate.bytes_per_op / min(times) if times else 1e9
    names = asked.suite.names_of(plan.suite)
    shared = plan.placement == "same-core"
    chunks = _chunk_seconds(plan.suite, len(names), shared)
    return estimate(
        plan,
        app_seconds=seconds,
        suite_seconds=suite_seconds(asked.suite, plan.suite, shared_core=shared),
        quick_seconds=suite_seconds(asked.suite, "quick", shared_core=shared),
        suite_bytes=sum(rates[name] for name in names if name in rates) * chunks,
        write_bytes_per_second=rates,
    )


def suite_seconds(suite: Suite, name: str, *, shared_core: bool) -> float:
    """How long one fingerprint of a suite takes."""
    from kongming.probes.fingerprinting import schedule

    return schedule(name, len(suite.names_of(name)), steady=shared_core).seconds


def _chunk_seconds(suite: str, surrogates: int, shared_core: bool) -> float:
    from kongming.probes.fingerprinting import schedule

    window = schedule(suite, surrogates, steady=shared_core)
    return window.chunk * window.rounds


def solo_seconds(
    store: Store, apps: Mapping[str, Application], node_id: str
) -> tuple[dict[str, float], list[str]]:
    """The solo seconds of each application, and those that never ran here (taken to last
    ``ASSUMED_APP_S``)."""
    from kongming.run import solo_time

    seconds, assumed = {}, []
    for name in apps:
        solo = solo_time(
            run
            for run in store.runs(app=name, node_id=node_id, fingerprints=False)
            if run.metric_unit == "s"
        )
        if solo is None:
            assumed.append(name)
        seconds[name] = ASSUMED_APP_S if solo is None else solo.median
    return seconds, assumed
