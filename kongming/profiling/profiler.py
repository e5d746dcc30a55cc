"""Execute a plan (paper, Algorithm 1) and yield the measurements; stores nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

from kongming.probes.fingerprinting import schedule
from kongming.probes.suite import Suite
from kongming.profiling.blocks.loaded import neighbour_block, timed_block
from kongming.profiling.blocks.signature import signature_block
from kongming.profiling.blocks.state import UNKNOWN_ITERATION_S, CampaignState
from kongming.profiling.blocks.timed_run import unmeasured
from kongming.profiling.events import Between, Dropped, Event
from kongming.profiling.plans.identity import identities_of
from kongming.profiling.plans.placement import choose
from kongming.profiling.plans.steps import Plan, Step
from kongming.profiling.runs.runner import open_runner
from kongming.profiling.site import Site
from kongming.profiling.write_limit import WriteLimit
from kongming.records import control
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError
from kongming.records.fingerprint import NodeFacts
from kongming.records.run import Run, Signature


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
    earlier: Sequence[Run] = (),
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
        earlier: the campaign's runs so far, oldest first.
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
        state = CampaignState(
            plan=plan,
            apps=known,
            names=suite.names_of(plan.suite),
            campaign=campaign,
            sites=sites,
            identities=identities_of(known),
            work_dir=work_dir,
            stack=stack,
            writing=write_limit or WriteLimit(suite),
            signatures={name: list(taken) for name, taken in signatures.items()},
            watch=control.Watch(plan.placement),
            completed=len(done),
        )
        for run in earlier:
            if run.ok:
                state.add_run(run)
        remaining_apps = {step.app for step in plan.steps if step.index not in done}
        for name in sorted(remaining_apps & apps.keys()):
            yield state.doing(f"setting up {name}", name)
            try:
                state.runners[name] = stack.enter_context(open_runner(apps[name], work_dir))
            except ApplicationRunError as error:
                state.failed[name] = str(error)
                first = next(s for s in plan.steps if s.app == name and s.kind == "solo")
                if first.index not in done:
                    yield unmeasured(state, sites[name], first, str(error))
                yield Dropped(name, str(error))
        for block in plan.blocks():
            steps = [
                s
                for s in block
                if s.index not in done and (s.app in state.runners or s.app not in apps)
            ]
            state.completed += sum(1 for s in block if s.index not in done) - len(steps)
            if not steps:
                continue
            if not block[0].follows:
                yield Between()
            if stop_when():
                return
            for together in _seated_alike(state, steps):
                yield from _measured(state, together)


def _seated_alike(state: CampaignState, steps: Sequence[Step]) -> Iterable[Sequence[Step]]:
    """Group the steps of a block by the CPUs that their programs begin on and that their neighbour
    has: programs of one and of two CPUs may have different ones, and a load on the one's neighbour
    may lie on a CPU of the other."""
    groups: dict[tuple[int, int], list[Step]] = {}
    for step in steps:
        seats = state.sites[step.app].seats
        groups.setdefault((seats.app[0], seats.neighbour), []).append(step)
    return groups.values()


def _measured(state: CampaignState, steps: Sequence[Step]) -> Iterator[Event]:
    """Measure steps under one load, or count them as left out where that would write too much."""
    writing = state.writing
    if writing.is_reached or not writing.allows(steps[0].levels, _longest_s(state, steps)):
        writing.refused += len(steps)
    elif steps[0].kind == "signature":
        yield from signature_block(state, steps)
    elif steps[0].neighbour is not None:
        yield from neighbour_block(state, steps, steps[0].neighbour)
    else:
        yield from timed_block(state, steps)


def _longest_s(state: CampaignState, steps: Sequence[Step]) -> float:
    """Return for how long the load of a block may have to run: its runs at half speed, and the
    fingerprints around them."""
    shared = state.plan.placement == "same-core"
    timing = schedule(state.plan.suite, len(state.names), steady=shared).seconds
    runs = sum(2.0 * state.walls.get(step.app, UNKNOWN_ITERATION_S) + timing for step in steps)
    return timing + runs
