"""Execute a plan (paper, Algorithm 1) and yield the measurements; stores nothing itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from types import MappingProxyType

from kongming.inducers import Mix, induce_all
from kongming.probes import passive
from kongming.probes.fingerprinting import schedule, take_fingerprint
from kongming.probes.suite import Suite
from kongming.profiling.events import Between, Doing, Dropped, Event, Measured, Short
from kongming.profiling.plans.campaign_plan import Plan, Step
from kongming.profiling.plans.identity import identity
from kongming.profiling.plans.placement import choose
from kongming.profiling.runs.coupling import CouplingLog
from kongming.profiling.runs.load_loop import LoadLoop, loop
from kongming.profiling.runs.runner import AnyRunner, Outcome, open_runner
from kongming.profiling.runs.settle import settle
from kongming.profiling.runs.signature import needed_seconds, take_signature
from kongming.profiling.site import Site, sharing
from kongming.profiling.write_limit import WriteLimit
from kongming.records import control
from kongming.records.application import Application
from kongming.records.errors import (
    ApplicationRunError,
    InducerError,
    MeasurementError,
    ProbeError,
)
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.run import CUT_OFF, WAITING_SHARE, Run, Signature

QUICK = "quick"
"""Suite that is timed right before and right after every run."""

MOST_SLOWDOWN = 5.0
"""A run under load is ended at so many times the program's runtime alone, and kept as that slow."""

LEAST_PATIENCE_S = 1.0
"""How much longer than alone each run may take: what ends within it was not worth ending."""

UNKNOWN_ITERATION_S = 3.0
"""Assumed length of an iteration before the first one was timed."""


@dataclass(slots=True)
class _Campaign:
    """State of a plan's execution."""

    plan: Plan
    apps: Mapping[str, Application]
    names: tuple[str, ...]
    campaign: str
    sites: dict[str, Site]
    identities: dict[str, str]
    work_dir: Path
    stack: ExitStack
    writing: WriteLimit
    runners: dict[str, AnyRunner] = field(default_factory=dict)
    neighbours: dict[str, AnyRunner] = field(default_factory=dict)
    walls: dict[str, float] = field(default_factory=dict)
    alone: dict[str, list[float]] = field(default_factory=dict)
    waits: dict[str, list[float]] = field(default_factory=dict)
    signatures: dict[str, list[Signature]] = field(default_factory=dict)
    watch: control.Watch = field(default_factory=lambda: control.Watch(""))
    couplings: CouplingLog = field(default_factory=CouplingLog)
    completed: int = 0

    def as_neighbour(self, app: str) -> AnyRunner:
        """Return the runner for the application on the neighbour's CPU. A service keeps running on
        its own CPU, so the neighbour is a second instance with its own folder, as in co-runs.

        Raises:
            ApplicationRunError: its set-up failed.
        """
        if self.apps[app].kind != "service" and app in self.runners:
            return self.runners[app]
        if app not in self.neighbours:
            self.neighbours[app] = self.stack.enter_context(
                open_runner(self.apps[app], self.work_dir, evict_node=False)
            )
        return self.neighbours[app]

    def environment_of(self, app: str) -> Fingerprint:
        """Return what a program next to this one sees: its newest undisturbed signature.

        Raises:
            ApplicationRunError: it has none.
        """
        signatures = control.undisturbed(self.signatures.get(app, ()))
        if not signatures:
            raise ApplicationRunError(
                f"{app} has no signature here, so what it inflicts is unknown: see why it failed "
                "('kongming runs --failed')."
            )
        return signatures[-1].fingerprint

    def signals_before(self, site: Site, settled: float) -> tuple[Mapping[str, float], Site]:
        """Return the passive signals from before a block's runs, while the neighbour's CPU is idle
        yet, and the site with a warning if one could not be read; ``settled``: seconds waited."""
        signals, site = self.couplings.read(site)
        return {**signals, "settle_s": settled}, site

    @property
    def needed_s(self) -> float:
        """Return the shortest iteration in which every surrogate is surely seen."""
        shared = self.plan.placement == "same-core"
        return needed_seconds(self.plan.suite, len(self.names), shared_core=shared)

    def doing(self, text: str, app: str | None = None) -> Doing:
        return Doing(text, self.completed, len(self.plan.steps), app)


def profile(
    apps: Mapping[str, Application],
    plan: Plan,
    *,
    node: NodeFacts,
    suite: Suite,
    work_dir: Path,
    io_dir: Path,
    inducer_apps: Mapping[str, Application] = MappingProxyType({}),
    signatures: Mapping[str, Sequence[Signature]] = MappingProxyType({}),
    campaign: str = "",
    done: frozenset[int] = frozenset(),
    walls: Mapping[str, float] | None = None,
    write_limit: WriteLimit | None = None,
    stop_when: Callable[[], bool] = lambda: False,
) -> Generator[Event, None, None]:
    """Execute the steps of ``plan`` that are not in ``done``, and yield events.

    Close the generator (or let an exception through it) to stop: every child is reaped and
    every scratch folder removed. A run that fails is yielded with its reason and the campaign
    goes on; an application whose set-up or first solo run fails is dropped.

    Args:
        inducer_apps: programs that are loads, profiled or not.
        signatures: theirs so far, oldest first.
        walls: seconds per iteration of an application, where known.
        write_limit: blocks whose loads would write more are left out, and not recorded; once it
            is reached, all are.
        stop_when: called before each block that is not done; true ends the campaign early.

    Raises:
        InputError: the node does not have the placement.
        ProbeError: the micro-benchmarks cannot be run.
    """
    known = {**inducer_apps, **apps}
    sites = {
        name: Site(
            node=node,
            suite=suite,
            placement=plan.placement,
            seats=choose(node, plan.placement, app.cpus),
            io_dir=io_dir,
        )
        for name, app in known.items()
    }
    with ExitStack() as stack:
        state = _Campaign(
            plan=plan,
            apps=known,
            names=suite.names_of(plan.suite),
            campaign=campaign,
            sites=sites,
            identities={name: identity(app) for name, app in known.items()},
            work_dir=work_dir,
            stack=stack,
            writing=write_limit or WriteLimit(suite),
            walls=dict(walls or {}),
            signatures={name: list(taken) for name, taken in signatures.items()},
            watch=control.Watch(plan.placement),
            completed=len(done),
        )
        remaining_apps = {step.app for step in plan.steps if step.index not in done}
        for name in sorted(remaining_apps & apps.keys()):
            yield state.doing(f"setting up {name}", name)
            try:
                state.runners[name] = stack.enter_context(open_runner(apps[name], work_dir))
            except ApplicationRunError as error:
                first = next(s for s in plan.steps if s.app == name and s.kind == "solo")
                yield _unmeasured(state, sites[name], first, str(error))
                yield Dropped(name, str(error))
        for block in plan.blocks():
            yield Between()
            steps = [
                s
                for s in block
                if s.index not in done and (s.app in state.runners or s.app not in apps)
            ]
            state.completed += sum(1 for s in block if s.index not in done) - len(steps)
            if not steps:
                continue
            if stop_when():
                return
            writing = state.writing
            if writing.is_reached or not writing.allows(steps[0].levels, _longest_s(state, steps)):
                writing.refused += len(steps)
                continue
            if steps[0].kind == "signature":
                yield from _signature_block(state, steps)
            elif steps[0].neighbour is not None:
                yield from _neighbour_block(state, steps, steps[0].neighbour)
            else:
                yield from _timed_block(state, steps)


def _longest_s(state: _Campaign, steps: Sequence[Step]) -> float:
    """Return for how long the load of a block may have to run: its runs at half speed, and the
    fingerprints around them."""
    shared = state.plan.placement == "same-core"
    timing = schedule(state.plan.suite, len(state.names), steady=shared).seconds
    runs = sum(2.0 * state.walls.get(step.app, UNKNOWN_ITERATION_S) + timing for step in steps)
    return timing + runs


def _timed_block(state: _Campaign, steps: Sequence[Step]) -> Iterator[Event]:
    """Under one load, time the suite, then each application between two quick fingerprints.

    On hosts that migrate virtual CPUs, the interference between two of them changes within
    seconds: the suite characterises the load, the quick fingerprints its effect during a run.
    """
    levels = steps[0].levels
    load = " + ".join(str(level) for level in levels) or "idle node"
    settled = settle()
    remaining = list(steps)
    with sharing(state.sites[steps[0].app]) as site, ExitStack() as stack:
        try:
            inducers = None
            signals, site = state.signals_before(site, settled)
            if levels:
                yield state.doing(f"starting {load}")
                inducers = induce_all(
                    levels,
                    cpu=site.neighbour_cpu,
                    directory=site.io_dir,
                    seconds=state.writing.seconds(levels),
                    cgroup_procs=site.load_procs,
                    node=site.node,
                )
                # Called when they have ended and said what they did.
                stack.callback(_count_written, state.writing, inducers)
                stack.enter_context(inducers)
            yield state.doing(f"timing the suite under {load}", remaining[0].app)
            level = before = _fingerprint(state, site, state.plan.suite, state.names)
            yield Measured(level, "level" if levels else "idle")
            if state.plan.suite != QUICK:
                before = _fingerprint(state, site, QUICK)
            while remaining:
                yield state.doing(f"{remaining[0].app} under {load}", remaining[0].app)
                # A quick suite serves as the quick fingerprint before the first run.
                run, before = yield from _taken(
                    state, remaining[0], site, before, level, signals, inducers
                )
                yield from _finish_step(state, remaining.pop(0), run, inducers)
                if inducers is not None:
                    inducers.check()
        except (InducerError, ProbeError) as error:
            yield from _unmeasured_steps(state, site, remaining, str(error))


def _neighbour_block(state: _Campaign, steps: Sequence[Step], neighbour: str) -> Iterator[Event]:
    """Time each application between two quick fingerprints while a program loops next to it.

    Its signature is the environment of these runs, as it is that of a prediction next to it; a
    suite timed once more would see only a few of its phases.
    """
    settled = settle()
    remaining = list(steps)
    phase = random.Random(f"{state.plan.seed} {steps[0].index}").random()
    with sharing(state.sites[steps[0].app]) as site, ExitStack() as stack:
        try:
            environment = state.environment_of(neighbour)
            signals, site = state.signals_before(site, settled)
            yield state.doing(f"starting {neighbour} as a load")
            load = stack.enter_context(
                loop(
                    state.as_neighbour(neighbour),
                    (site.neighbour_cpu,),
                    site.load_procs,
                    avoid=site.app_cpus,
                )
            )
            _refuse_short(state, neighbour, load.wait_phase(phase))
            before = _fingerprint(state, site, QUICK)
            while remaining:
                app = remaining[0].app
                yield state.doing(f"{app} co-located with {neighbour}", app)
                run, before = yield from _taken(
                    state, remaining[0], site, before, environment, signals, load
                )
                yield from _finish_step(state, remaining.pop(0), run, load)
                load.check()
        except (ApplicationRunError, ProbeError) as error:
            yield from _unmeasured_steps(state, site, remaining, str(error))


def _refuse_short(state: _Campaign, neighbour: str, iteration_s: float | None) -> None:
    """Raise ApplicationRunError if a looping program is too short for a load: its signature would
    be of its starts."""
    needed = state.needed_s
    if iteration_s is not None and iteration_s < needed:
        raise ApplicationRunError(
            f"{neighbour} is too short for an inducer: it runs for {iteration_s:.2g} s, and "
            f"{needed:.2g} s are needed. Give it a larger input, or a loop in its command."
        )


def _unmeasured_steps(
    state: _Campaign, site: Site, steps: Sequence[Step], reason: str
) -> Iterator[Run]:
    for step in steps:
        state.completed += 1
        yield _unmeasured(state, site, step, reason)


def _taken(
    state: _Campaign,
    step: Step,
    site: Site,
    before: Fingerprint,
    level: Fingerprint,
    signals: Mapping[str, float],
    load: Mix | LoadLoop | None,
) -> Generator[Event, None, tuple[Run, Fingerprint]]:
    """Time one run between two quick fingerprints, again where somebody else was there; returns it
    and the last fingerprint. ``level`` is of the plan's suite, under the same load or of it;
    ``signals`` are passive signals from before it."""
    takes: list[tuple[float, Run]] = []
    while True:
        # A quick suite serves as the quick fingerprint before the first run.
        quick = state.plan.suite == QUICK and step.neighbour is None
        fingerprint = before if quick else level
        run = _timed_run(state, step, site, fingerprint, signals)
        after = _fingerprint(state, site, QUICK)
        excess = state.watch.excess((step.levels, step.neighbour), (before, after))
        takes.append((excess, replace(run, before=before, after=after)))
        before = after
        if excess <= control.LIMIT or not run.ok or len(takes) == control.TAKES:
            return control.least_disturbed(takes), after
        if load is not None:
            try:
                load.check()
            except MeasurementError:
                # The caller finds it too, and marks the run.
                return takes[-1][1], after
        yield state.doing(f"{step.app} again: somebody else slowed the processor", step.app)


def _finish_step(
    state: _Campaign, step: Step, run: Run, load: Mix | LoadLoop | None
) -> Iterator[Run | Dropped | Short]:
    """Yield the run, marked as failed if its load ended; drop the application if needed, and say
    after its first run whether it is too short."""
    if load is not None:
        try:
            load.check()
        except MeasurementError as error:
            run = replace(run, error=f"the load ended during the run: {error}")
    state.completed += 1
    yield run
    if run.ok:
        first = step.app not in state.walls
        state.walls[step.app] = run.wall_s
        if first and run.wall_s < state.needed_s:
            yield Short(step.app, run.wall_s, state.needed_s)
        if step.kind == "solo":
            state.alone.setdefault(step.app, []).append(run.wall_s)
        if step.kind == "solo" and run.waiting_share is not None:
            state.waits.setdefault(step.app, []).append(run.waiting_share)
    elif step.kind == "solo" and step.repeat == 0:
        state.runners.pop(step.app).close()
        yield Dropped(step.app, run.error or "its first solo run failed")


def _fingerprint(
    state: _Campaign, site: Site, suite: str, names: Sequence[str] | None = None
) -> Fingerprint:
    taken = site_fingerprint(site, suite, names)
    state.writing.add_fingerprint(taken)
    return taken


def _count_written(writing: WriteLimit, inducers: Mix) -> None:
    writing.add_operations(
        (inducer.level.surrogate, inducer.result.ops)
        for inducer in inducers.inducers
        if inducer.result is not None
    )


def site_fingerprint(site: Site, suite: str, names: Sequence[str] | None = None) -> Fingerprint:
    """Take a fingerprint on the application's CPU, under the same conditions."""
    return take_fingerprint(
        node=site.node,
        suite=suite,
        names=names,
        cpu=site.app_cpus[0],
        directory=site.io_dir,
        shared_core=site.shared_core,
        cgroup_procs=site.app_procs,
    )


def _timed_run(
    state: _Campaign,
    step: Step,
    site: Site,
    fingerprint: Fingerprint,
    earlier: Mapping[str, float],
) -> Run:
    runner = state.runners[step.app]
    limit = _cut_off_s(state, step)
    before = passive.snapshot(neighbour=site.other_cpu)
    outcome = runner.run(
        state.sites[step.app].app_cpus, cgroup_procs=site.app_procs, timeout_s=limit
    )
    signals = passive.difference(before, passive.snapshot(neighbour=site.other_cpu))
    if limit is not None and outcome.timed_out:
        signals = {**signals, CUT_OFF: 1.0}
        outcome = replace(
            outcome,
            metric=outcome.wall_s,
            error=None,
            warnings=(*outcome.warnings, f"cut off at {MOST_SLOWDOWN:g} times its runtime alone"),
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


def _cut_off_s(state: _Campaign, step: Step) -> float | None:
    """After how long a run under load is ended, though its program may run for longer: how many
    times slower it is says little more, and costs minutes. None: not for that reason."""
    app = state.apps[step.app]
    alone = state.alone.get(step.app)
    if step.kind != "induced" or not alone or app.metric is not None or app.kind == "service":
        return None
    limit = max(MOST_SLOWDOWN * median(alone), median(alone) + LEAST_PATIENCE_S)
    return limit if app.timeout_s is None or limit < app.timeout_s else None


def as_run(outcome: Outcome, app: Application, site: Site, **fields: object) -> Run:
    """Create the Run of an outcome at a site; ``fields`` are the remaining fields of Run."""
    warnings = (*site.warnings, *outcome.warnings)
    return Run(
        app=app.name,
        node_id=site.node.id,
        placement=site.placement,
        started_at=outcome.started_at,
        wall_s=outcome.wall_s,
        metric=outcome.metric,
        metric_unit=app.metric_unit,
        better=app.better,
        usage=outcome.usage,
        exit_status=outcome.exit_status,
        error=outcome.error,
        warnings=warnings,
        **fields,  # type: ignore[arg-type]
    )


def _unmeasured(state: _Campaign, site: Site, step: Step, reason: str) -> Run:
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


def _with_signals(
    fingerprint: Fingerprint, waits: Sequence[float], coupling: Mapping[str, float]
) -> Fingerprint:
    """Return the signature's fingerprint with how much the program waits, if that is known, and
    the coupling before it."""
    waiting = {WAITING_SHARE: median(waits)} if waits else {}
    return replace(fingerprint, passive={**fingerprint.passive, **waiting, **coupling})


def _signature_block(state: _Campaign, steps: Sequence[Step]) -> Iterator[Event]:
    for step in steps:
        settle()
        yield state.doing(f"timing the suite co-located with {step.app}", step.app)
        takes: list[tuple[float, tuple[Fingerprint, int]]] = []
        with sharing(state.sites[step.app]) as site:
            coupling, site = state.couplings.read(site)
            try:
                while not takes or (takes[-1][0] > control.LIMIT and len(takes) < control.TAKES):
                    if takes:
                        yield state.doing(
                            f"the suite co-located with {step.app}, again: somebody else was there",
                            step.app,
                        )
                    taken = take_signature(
                        state.as_neighbour(step.app),
                        site,
                        state.names,
                        suite=state.plan.suite,
                        iteration_s=state.walls.get(step.app, UNKNOWN_ITERATION_S),
                    )
                    # Among its own: the interrupts of a program's device do slow arithmetic.
                    takes.append((state.watch.excess(step.app, (taken[0],)), taken))
            except MeasurementError as error:
                state.completed += 1
                yield _unmeasured(state, site, step, str(error))
                continue
        fingerprint, iterations = control.least_disturbed(takes)
        state.completed += 1
        signature = Signature(
            app=step.app,
            identity=state.identities[step.app],
            node_id=site.node.id,
            placement=site.placement,
            fingerprint=_with_signals(fingerprint, state.waits.get(step.app, ()), coupling),
            iterations=iterations,
            campaign=state.campaign,
            step=step.index,
        )
        state.signatures.setdefault(step.app, []).append(signature)
        yield signature
