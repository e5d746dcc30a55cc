"""Visit to an environment: create it, and time applications in it one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kongming.inducers import induce_all
from kongming.probes.suite import Suite
from kongming.profiling.cautions import seated_on_one
from kongming.profiling.environments.environment import Environment
from kongming.profiling.environments.fingerprint import fingerprint_inside, throttling_between
from kongming.profiling.environments.limits import Limits
from kongming.profiling.environments.memory_need import RAISE, Peak, limit_bytes, refill
from kongming.profiling.environments.tasks import Task
from kongming.profiling.events import Doing, Dropped, Event, Measured
from kongming.profiling.plans.placement import Seats, choose
from kongming.profiling.runs.load_loop import WARM_UP_LIMIT_S, LoadLoop, loop
from kongming.profiling.runs.page_cache import evict
from kongming.profiling.runs.runner import AnyRunner, Outcome, ServiceRunner, open_runner
from kongming.profiling.runs.settle import settle
from kongming.profiling.runs.site_run import as_run
from kongming.profiling.site import Site
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError, MeasurementError
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.run import Run

STALE_S = 1.0
"""A fingerprint is stale, and taken again, after a longer wait for the disk."""


@dataclass(slots=True)
class Campaign:
    """State that is shared by all visits."""

    apps: Mapping[str, Application]
    node: NodeFacts
    suite: Suite
    placement: str
    work_dir: Path
    io_dir: Path
    campaign: str
    steps: int
    stack: ExitStack
    needs: dict[str, int]
    identities: dict[str, str] = field(default_factory=dict)
    runners: dict[str, AnyRunner] = field(default_factory=dict)
    neighbours: dict[str, AnyRunner] = field(default_factory=dict)
    completed: int = 0

    def doing(self, text: str, app: str | None = None) -> Doing:
        return Doing(text, self.completed, self.steps, app)

    def site(self, app: str, environment: Environment) -> Site:
        """Return the site of ``app``; the environment may change its CPUs."""
        seats = choose(self.node, self.placement, self.apps[app].cpus)
        cpu = environment.parameters.get("cpu")
        if cpu is not None:
            seats = Seats(app=(cpu,), neighbour=seats.neighbour)
        if environment.shares_cpu:
            seats = replace(seats, neighbour=seats.app[0])
        elif environment.loaded and seats.neighbour in seats.app:
            others = [other for other in self.node.cpus if other not in seats.app]
            seats = replace(seats, neighbour=(others or seats.app)[0])
        return Site(
            node=self.node,
            suite=self.suite,
            placement=self.placement,
            seats=seats,
            io_dir=self.io_dir,
        )


def visit_environment(
    state: Campaign, visit: Sequence[Task], stop_when: Callable[[], bool]
) -> Iterator[Event]:
    """Create an environment once; time each application in it between two quick fingerprints."""
    environment = visit[0].environment
    remaining = list(visit)
    before: Fingerprint | None = None
    settled = settle()
    try:
        with ExitStack() as stack:
            limits = stack.enter_context(
                Limits(environment, state.io_dir, memory_bytes=_limit(state, remaining[0]))
            )
            site = replace(
                state.site(remaining[0].app, environment),
                app_procs=limits.app_procs,
                load_procs=limits.load_procs,
                warnings=limits.warnings,
            ).warned(
                *(text for name in environment.programs for text in seated_on_one(state.apps[name]))
            )
            if environment.loaded:
                yield state.doing(f"starting the load of {environment.name}")
            check = _start_load(state, environment, site, stack)
            while remaining:
                task = remaining[0]
                if stop_when():
                    return
                if not environment.loaded:
                    waited_s = settle()
                    settled += waited_s
                    # Reuse the fingerprint after the previous run, unless it is stale.
                    before = before if waited_s < STALE_S else None
                runner = state.runners[task.app]
                if environment.kind == "memory":
                    yield state.doing(f"warming {task.app} up in {environment.name}", task.app)
                    _fit_memory(state, task, runner, site, limits)
                if before is None:
                    yield state.doing(f"timing the quick suite in {environment.name}", task.app)
                    before = fingerprint_inside(site, limits)
                    yield _measured(before, environment)
                yield state.doing(f"{task.app} in {environment.name}", task.app)
                run = _timed_run(state, task, runner, site, limits, before, settled)
                after = fingerprint_inside(site, limits)
                run = replace(run, after=after)
                try:
                    check()
                except MeasurementError as error:
                    run = replace(run, error=run.error or f"its environment ended: {error}")
                remaining.pop(0)
                state.completed += 1
                settled = 0.0
                yield run
                yield from _drop_if_broken(state, task, run)
                check()
                before = after
    except MeasurementError as error:
        for task in remaining:
            state.completed += 1
            yield unmeasured(state, task, str(error))
    if environment.kind == "memory":
        _refill_page_cache(state, visit)


def _start_load(
    state: Campaign, environment: Environment, site: Site, stack: ExitStack
) -> Callable[[], None]:
    """Start the co-located load; return a function that raises when it has ended."""
    loops: list[LoadLoop] = []
    for name in environment.programs:
        if name not in state.neighbours:
            runner = open_runner(state.apps[name], state.work_dir)
            state.neighbours[name] = state.stack.enter_context(runner)
        neighbour = state.neighbours[name]
        cpus = (site.neighbour_cpu,)
        loops.append(
            stack.enter_context(loop(neighbour, cpus, site.load_procs, avoid=site.app_cpus))
        )
    for running in loops:
        running.wait_warm(WARM_UP_LIMIT_S)
    mix = stack.enter_context(
        induce_all(
            environment.levels,
            cpu=site.neighbour_cpu,
            directory=site.io_dir,
            cgroup_procs=site.load_procs,
            node=site.node,
        )
    )

    def check() -> None:
        mix.check()
        for running in loops:
            running.check()

    return check


def _limit(state: Campaign, task: Task) -> int | None:
    need = state.needs.get(task.app)
    if task.environment.kind != "memory" or need is None:
        return None
    return limit_bytes(need, task.environment.parameters)


def _fit_memory(
    state: Campaign,
    task: Task,
    runner: AnyRunner,
    site: Site,
    limits: Limits,
) -> None:
    """Run the application untimed in the memory group, to fill the limited page cache.

    Pages are charged to the group that read them first: pages cached by the set-up or earlier
    runs would not count, so they are evicted. A service's memory is charged to the group that
    it was started in, so it is restarted. An unknown need is measured without a limit.
    """
    if isinstance(runner, ServiceRunner):
        runner.stop()
    if runner.scratch is not None:
        evict(runner.scratch, whole_node=False)
    with Peak(limits.held_bytes) as peak:
        outcome = runner.run(site.app_cpus, cgroup_procs=site.app_procs)
    if not outcome.ok:
        _raise_need(state, task, limits)
        raise ApplicationRunError(f"{task.app} failed while it was warmed up: {outcome.error}")
    if limits.memory_bytes is None:
        state.needs[task.app] = max(peak.bytes, outcome.usage.max_rss_bytes)
        limits.limit_memory(limit_bytes(state.needs[task.app], task.environment.parameters))


def _refill_page_cache(state: Campaign, visit: Sequence[Task]) -> None:
    """Restore the page cache for the next environment, as it was before the limit."""
    for task in visit:
        runner = state.runners.get(task.app)
        if runner is not None and runner.scratch is not None and runner.app.cache == "warm":
            refill(runner.scratch)


def _raise_need(state: Campaign, task: Task, limits: Limits) -> bool:
    """Raise the assumed need of a program that the limit killed; return whether it was."""
    if task.app not in state.needs or not limits.out_of_memory_kills():
        return False
    state.needs[task.app] = int(state.needs[task.app] * RAISE)
    return True


def _measured(fingerprint: Fingerprint, environment: Environment) -> Measured:
    return Measured(fingerprint, "idle" if environment.kind == "idle" else "level")


def _timed_run(
    state: Campaign,
    task: Task,
    runner: AnyRunner,
    site: Site,
    limits: Limits,
    before: Fingerprint,
    settled: float,
) -> Run:
    outcome, throttling = _throttled_run(runner, site, limits)
    run = as_run(
        outcome,
        runner.app,
        site,
        **_fields(state, task, limits),
        fingerprint=before,
        before=before,
        passive={**outcome.signals, **throttling, "settle_s": settled},
    )
    if not run.ok and _raise_need(state, task, limits):
        reason = f"the memory limit was too small, and is raised from now on: {run.error}"
        run = replace(run, error=reason)
    return run


def _throttled_run(
    runner: AnyRunner, site: Site, limits: Limits
) -> tuple[Outcome, dict[str, float]]:
    """Run the application once; return how it was throttled meanwhile, too. The start of a service
    is not of the run, and may be throttled much more."""
    try:
        runner.start(site.app_cpus, site.app_procs)
    except ApplicationRunError as error:
        return Outcome.failed(str(error)), {}
    before = limits.throttled()
    outcome = runner.run(site.app_cpus, cgroup_procs=site.app_procs)
    return outcome, throttling_between(before, limits.throttled())


def _fields(state: Campaign, task: Task, limits: Limits | None = None) -> dict[str, Any]:
    environment = task.environment
    config = {
        "environment": environment.name,
        "kind": environment.kind,
        "synthetic": environment.synthetic,
        "parameters": dict(environment.parameters),
        "round": task.round,
    }
    if limits is not None and limits.memory_bytes is not None:
        config["memory_limit_bytes"] = limits.memory_bytes
    return {
        "identity": state.identities[task.app],
        "kind": "environment",
        "campaign": state.campaign,
        "step": task.step,
        "config": config,
    }


def unmeasured(state: Campaign, task: Task, reason: str) -> Run:
    """Create the failed Run of a task that never started, with the reason."""
    site = state.site(task.app, task.environment)
    return as_run(Outcome.failed(reason), state.apps[task.app], site, **_fields(state, task))


def _drop_if_broken(state: Campaign, task: Task, run: Run) -> Iterator[Dropped]:
    """Drop an application that fails even on the idle node."""
    if task.environment.kind == "idle" and not run.ok:
        state.runners.pop(task.app).close()
        yield Dropped(task.app, run.error or "its run on the idle node failed")
