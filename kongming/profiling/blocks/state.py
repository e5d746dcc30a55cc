"""The state of a plan's execution."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from kongming.profiling.events import Doing
from kongming.profiling.plans.run_limit import overtime_s
from kongming.profiling.plans.steps import Plan
from kongming.profiling.runs.coupling import CouplingLog
from kongming.profiling.runs.runner import AnyRunner, open_runner
from kongming.profiling.runs.signature import needed_seconds
from kongming.profiling.site import Site
from kongming.profiling.write_limit import WriteLimit
from kongming.records import control
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run, Signature

UNKNOWN_ITERATION_S = 3.0
"""Assumed length of an iteration before the first one was timed."""


@dataclass(slots=True)
class CampaignState:
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
    overtime_s: dict[str, float] = field(default_factory=dict)
    waits: dict[str, list[float]] = field(default_factory=dict)
    signatures: dict[str, list[Signature]] = field(default_factory=dict)
    watch: control.Watch = field(default_factory=lambda: control.Watch(""))
    couplings: CouplingLog = field(default_factory=CouplingLog)
    failed: dict[str, str] = field(default_factory=dict)
    """Why the set-up of a program failed, which is not tried again for each of its blocks."""
    completed: int = 0

    def as_neighbour(self, app: str) -> AnyRunner:
        """Return the runner for the application on the neighbour's CPU. A service keeps running on
        its own CPU, so the neighbour is a second instance with its own folder, as in co-runs.

        Raises:
            ApplicationRunError: its set-up failed.
        """
        if self.apps[app].kind != "service" and app in self.runners:
            return self.runners[app]
        if app in self.failed:
            raise ApplicationRunError(self.failed[app])
        if app not in self.neighbours:
            try:
                self.neighbours[app] = self.stack.enter_context(
                    open_runner(self.apps[app], self.work_dir)
                )
            except ApplicationRunError as error:
                self.failed[app] = str(error)
                raise
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

    def add_run(self, run: Run) -> None:
        """Learn from a successful run how long its program takes alone, how much it waits, and how
        much of its patience under load is used up."""
        if run.kind == "solo":
            self.walls[run.app] = run.wall_s
            self.alone.setdefault(run.app, []).append(run.wall_s)
            if run.waiting_share is not None:
                self.waits.setdefault(run.app, []).append(run.waiting_share)
        elif run.kind == "induced" and run.app in self.alone:
            # Of what was ended only the time until then: ending it is not the program's doing.
            took_s = run.cost if run.cut_off else run.wall_s
            beyond = overtime_s(self.alone[run.app], took_s)
            self.overtime_s[run.app] = self.overtime_s.get(run.app, 0.0) + beyond

    @property
    def needed_s(self) -> float:
        """Return the shortest iteration in which every surrogate is surely seen."""
        shared = self.plan.placement == "same-core"
        return needed_seconds(self.plan.suite, len(self.names), shared_core=shared)

    def doing(self, text: str, app: str | None = None) -> Doing:
        return Doing(text, self.completed, len(self.plan.steps), app)
