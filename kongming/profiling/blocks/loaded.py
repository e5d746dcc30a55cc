"""The blocks of runs: under one load, or next to one program.

All programs of a block have the same first CPU and the same neighbour's CPU.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from kongming.inducers import Mix, induce_all
from kongming.profiling.blocks.state import CampaignState
from kongming.profiling.blocks.timed_run import timed_run, unmeasured
from kongming.profiling.cautions import seated_on_one
from kongming.profiling.events import Dropped, Event, Measured, Short
from kongming.profiling.plans.steps import Step
from kongming.profiling.runs.load_loop import LoadLoop, loop
from kongming.profiling.runs.settle import settle
from kongming.profiling.runs.site_run import QUICK, site_fingerprint
from kongming.profiling.site import Site, sharing
from kongming.profiling.write_limit import WriteLimit
from kongming.records import control
from kongming.records.errors import (
    ApplicationRunError,
    InducerError,
    MeasurementError,
    ProbeError,
)
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run


def timed_block(state: CampaignState, steps: Sequence[Step]) -> Iterator[Event]:
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
            inducers, until = None, math.inf
            signals, site = state.signals_before(site, settled)
            if levels:
                yield state.doing(f"starting {load}")
                seconds = state.writing.seconds(levels)
                # A little before it really ends, as it has yet to start.
                until = math.inf if seconds is None else time.monotonic() + seconds
                inducers = induce_all(
                    levels,
                    cpu=site.neighbour_cpu,
                    directory=site.io_dir,
                    seconds=seconds,
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
                    state, remaining[0], site, before, level, signals, inducers, until
                )
                yield from _finish_step(state, remaining.pop(0), run)
                if inducers is not None:
                    inducers.check()
        except (InducerError, ProbeError) as error:
            yield from _unmeasured_steps(state, site, remaining, str(error))


def neighbour_block(state: CampaignState, steps: Sequence[Step], neighbour: str) -> Iterator[Event]:
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
            site = site.warned(*seated_on_one(state.apps[neighbour]))
            yield state.doing(f"starting {neighbour} as a load")
            load = stack.enter_context(
                loop(
                    state.as_neighbour(neighbour),
                    (site.neighbour_cpu,),
                    site.load_procs,
                    avoid=[cpu for step in steps for cpu in state.sites[step.app].app_cpus],
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
                yield from _finish_step(state, remaining.pop(0), run)
                load.check()
        except (ApplicationRunError, ProbeError) as error:
            yield from _unmeasured_steps(state, site, remaining, str(error))


def _refuse_short(state: CampaignState, neighbour: str, iteration_s: float | None) -> None:
    """Raise ApplicationRunError if a looping program is too short for a load: its signature would
    be of its starts."""
    needed = state.needed_s
    if iteration_s is not None and iteration_s < needed:
        raise ApplicationRunError(
            f"{neighbour} is too short for an inducer: it runs for {iteration_s:.2g} s, and "
            f"{needed:.2g} s are needed. Give it a larger input, or a loop in its command."
        )


def _unmeasured_steps(
    state: CampaignState, site: Site, steps: Sequence[Step], reason: str
) -> Iterator[Run]:
    for step in steps:
        state.completed += 1
        yield unmeasured(state, site, step, reason)


def _taken(
    state: CampaignState,
    step: Step,
    site: Site,
    before: Fingerprint,
    level: Fingerprint,
    signals: Mapping[str, float],
    load: Mix | LoadLoop | None,
    until: float = math.inf,
) -> Generator[Event, None, tuple[Run, Fingerprint]]:
    """Time one run between two quick fingerprints, again where it was disturbed; returns it and the
    last fingerprint. ``level`` is of the plan's suite, under the same load or of it;
    ``signals`` are passive signals from before it; ``until`` is when the load will have written
    what it may (``time.monotonic``)."""
    takes: list[tuple[float, Run]] = []
    while True:
        # A quick suite serves as the quick fingerprint before the first run.
        quick = state.plan.suite == QUICK and step.neighbour is None
        fingerprint = before if quick else level
        # The fingerprint after it is under the load as well, and may be slower than the last.
        left_s = until - time.monotonic() - 2.0 * before.elapsed_s
        run = timed_run(state, step, site, fingerprint, signals, load_left_s=left_s)
        after = _fingerprint(state, site, QUICK)
        run = _ended_with(replace(run, before=before, after=after), load, until)
        takes.append((state.watch.excess_of((step.levels, step.neighbour), run), run))
        before = after
        # There is no time for another one where the load's end has ended this one.
        is_last = run.cut_off and run.wall_s >= left_s
        if control.is_enough(takes) or not run.ok or is_last:
            return control.least_disturbed(takes), after
        yield state.doing(f"{step.app} {control.AGAIN}", step.app)


def _ended_with(run: Run, load: Mix | LoadLoop | None, until: float) -> Run:
    """Return the run, as failed if its load has ended. ``until``: as in ``_taken``."""
    if load is not None:
        try:
            load.check()
        except MeasurementError as error:
            why = "" if time.monotonic() < until else ", as it had written what it may in all"
            return replace(run, error=f"the load ended during the run{why}: {error}")
    return run


def _finish_step(state: CampaignState, step: Step, run: Run) -> Iterator[Run | Dropped | Short]:
    """Yield the run; drop the application if needed, and say after its first run whether it is too
    short."""
    state.completed += 1
    yield run
    if run.ok:
        first = step.app not in state.walls
        state.add_run(run)
        if first and run.wall_s < state.needed_s:
            yield Short(step.app, run.wall_s, state.needed_s)
    elif step.kind == "solo" and step.repeat == 0:
        state.runners.pop(step.app).close()
        yield Dropped(step.app, run.error or "its first solo run failed")


def _fingerprint(
    state: CampaignState, site: Site, suite: str, names: Sequence[str] | None = None
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
