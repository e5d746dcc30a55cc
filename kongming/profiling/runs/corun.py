"""Co-location runs of two applications, the ground truth for predictions."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kongming.probes.suite import Suite
from kongming.profiling.cautions import seated_on_one
from kongming.profiling.events import Between, Doing, Event
from kongming.profiling.plans.identity import identity
from kongming.profiling.plans.placement import choose
from kongming.profiling.plans.precision import Progress
from kongming.profiling.runs.coupling import CouplingLog
from kongming.profiling.runs.load_loop import loop
from kongming.profiling.runs.retake import least_disturbed
from kongming.profiling.runs.runner import AnyRunner, Outcome, open_runner
from kongming.profiling.runs.settle import settle
from kongming.profiling.runs.site_run import QUICK, as_run, site_fingerprint
from kongming.profiling.site import Site, sharing
from kongming.records import control
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError, ProbeError
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.run import NEIGHBOUR_IDENTITIES, Run

LASTING_FAILURES = 3
"""Runs in a row for which the probes fail, with which a campaign ends."""


def corun(
    pairs: list[tuple[str, str]],
    apps: Mapping[str, Application],
    *,
    placement: str,
    node: NodeFacts,
    suite: Suite,
    work_dir: Path,
    io_dir: Path,
    repeats: int = 2,
    seed: int = 0,
    campaign: str = "",
    done: frozenset[int] = frozenset(),
    solos: bool = True,
    fingerprints: bool | None = None,
    progress: Progress | None = None,
    stop_when: Callable[[], bool] = lambda: False,
) -> Generator[Event, None, None]:
    """Time the first of each pair while the second loops co-located with it, ``repeats`` times.

    Order is random; the repeats of one pair are in different rounds, far apart in time. Each
    round also times every application alone, so that slowdowns relate to recent solo times.
    Yields Doing, Between and Run events, as ``profile`` does; closing it reaps everything.

    Args:
        fingerprints: take a quick one right before and right after each run, while the
            neighbour runs. None: except on a shared core, where it takes longer than most
            programs.
        progress: of the runs so far, ``done`` ones included; it is kept up to date. A run that it
            does not want is left out. Where an application's solo runs differ much, or are few, one
            goes before and after each of its co-runs, with steps beyond those of all rounds.
        stop_when: called before each run; true ends it early.

    Raises:
        ProbeError: the probes failed for the third run in a row. Those runs are not yielded, so
            that they are still to be measured.
    """
    with_fingerprints = placement != "same-core" if fingerprints is None else fingerprints
    rng = random.Random(seed)
    names = sorted({name for pair in pairs for name in pair})
    partners = {name: [other for app, other in pairs if app == name] for name in names}
    tasks = _tasks(pairs, names if solos else [], repeats, rng)
    state = Progress() if progress is None else progress
    identities = {name: identity(apps[name]) for name in names}
    watch = control.Watch(placement)
    couplings, failures = CouplingLog(), _ProbeFailures()
    with ExitStack() as stack:
        runners: dict[tuple[str, str], AnyRunner] = {}
        roles = {("subject", name) for name, _ in tasks} | {
            ("neighbour", other) for _, other in tasks if other is not None
        }
        # The solo runs of its own that a run has stand beyond all tasks.
        begun = next((task for task in range(len(tasks)) if task not in done), len(tasks))
        for role, name in sorted(roles):
            # An application co-located with itself needs two scratch folders: one per role.
            yield Doing(f"setting up {name} ({role})", begun, len(tasks), name)
            runners[role, name] = stack.enter_context(open_runner(apps[name], work_dir))
        for task, (app, company) in enumerate(tasks):
            phase = rng.random()
            if task in done or not state.wants(app, company, partners[app]):
                continue
            yield Between()
            beyond = len(tasks) + 2 * task
            steps = [(task, company)]
            if company is not None and solos and state.wavers(app):
                steps = [(beyond, None), (task, company), (beyond + 1, None)]
            for step, other in steps:
                if step in done:
                    continue
                if stop_when():
                    return
                subject = runners["subject", app]
                site = Site(
                    node=node,
                    suite=suite,
                    placement=placement,
                    seats=choose(node, placement, subject.app.cpus),
                    io_dir=io_dir,
                )
                condition = "alone" if other is None else f"co-located with {other}"
                yield Doing(f"{app} {condition}", task, len(tasks), app)
                settle()
                coupling, site = couplings.read(site)
                neighbour = None if other is None else runners["neighbour", other]
                take = partial(
                    _take,
                    *(subject, neighbour, site, phase, with_fingerprints, coupling, failures),
                    identity=identities[app],
                    config={}
                    if other is None
                    else {NEIGHBOUR_IDENTITIES: {other: identities[other]}},
                    campaign=campaign,
                    step=step,
                )
                run = yield from least_disturbed(
                    take,
                    partial(watch.excess_of, (app, other)),
                    Doing(f"{app} {condition} {control.AGAIN}", task, len(tasks), app),
                )
                state.add(run)
                yield from failures.recorded(run)
        yield from failures.waiting


def _tasks(
    pairs: Sequence[tuple[str, str]], alone: Sequence[str], repeats: int, rng: random.Random
) -> list[tuple[str, str | None]]:
    """Return rounds of all pairs, and of each program ``alone``, each in a random order."""
    tasks: list[tuple[str, str | None]] = []
    for _ in range(repeats):
        round_: list[tuple[str, str | None]] = [*pairs, *((name, None) for name in alone)]
        rng.shuffle(round_)
        tasks += round_
    return tasks


def _take(
    subject: AnyRunner,
    neighbour: AnyRunner | None,
    site: Site,
    phase: float,
    with_fingerprints: bool,
    coupling: Mapping[str, float],
    failures: _ProbeFailures,
    **fields: object,
) -> Run:
    """Run ``subject`` once at a shared site; ``coupling`` joins the run's passive signals, and
    ``fields`` are those of Run that say which one it is."""
    if neighbour is not None:
        site = site.warned(*seated_on_one(neighbour.app))
    with sharing(site) as shared:
        try:
            measurement = _run_with_neighbour(subject, neighbour, shared, phase, with_fingerprints)
        except ProbeError as error:
            # One run of many, unless it goes on: the campaign continues with the next.
            failures.newest = error
            measurement = _Measurement(Outcome.failed(str(error)))
        return as_run(
            measurement.outcome,
            subject.app,
            shared,
            kind="solo" if neighbour is None else "corun",
            neighbours=() if neighbour is None else (neighbour.app.name,),
            before=measurement.before,
            after=measurement.after,
            passive={**measurement.outcome.signals, **coupling},
            **fields,
        )


@dataclass(slots=True)
class _ProbeFailures:
    """Runs that failed since the probes did, until a run shows that they work again. Without the
    probes, as when their binary was removed, each further run would fail too: recorded, these would
    count as attempts, and a campaign of nothing else as finished."""

    newest: ProbeError | None = None
    waiting: list[Run] = field(default_factory=list)

    def recorded(self, run: Run) -> Iterator[Run]:
        """Yield the runs that are to be recorded now that ``run`` has ended. Raises ProbeError."""
        if self.newest is not None and run.error == str(self.newest):
            self.waiting.append(run)
            if len(self.waiting) == LASTING_FAILURES:
                raise self.newest
            return
        if run.ok:
            yield from self.waiting
            self.waiting.clear()
        yield run


@dataclass(frozen=True, slots=True)
class _Measurement:
    """Run, with the fingerprints around it."""

    outcome: Outcome
    before: Fingerprint | None = None
    after: Fingerprint | None = None


def _measure(subject: AnyRunner, site: Site, with_fingerprints: bool) -> _Measurement:
    before = site_fingerprint(site, QUICK) if with_fingerprints else None
    outcome = subject.run(site.app_cpus, cgroup_procs=site.app_procs, neighbour=site.other_cpu)
    return _Measurement(
        outcome, before, site_fingerprint(site, QUICK) if with_fingerprints else None
    )


def _run_with_neighbour(
    subject: AnyRunner,
    neighbour: AnyRunner | None,
    site: Site,
    phase: float,
    with_fingerprints: bool,
) -> _Measurement:
    """Run ``subject`` once, with a warm neighbour at a random phase (0 to 1)."""
    if neighbour is None:
        return _measure(subject, site, with_fingerprints)
    with loop(neighbour, (site.neighbour_cpu,), site.load_procs, avoid=site.app_cpus) as running:
        try:
            running.wait_phase(phase)
            measurement = _measure(subject, site, with_fingerprints)
            running.check()
        except ApplicationRunError as error:
            failed = Outcome.failed(f"the neighbour {neighbour.app.name} failed: {error}")
            return _Measurement(failed)
        return measurement
