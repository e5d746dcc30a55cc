"""The campaign that profiles applications: its settings and its plan."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.campaigns.campaign import Sink, complete, drive, key_of, seed_of, steps_done
from kongming.records.errors import InputError

if TYPE_CHECKING:
    from kongming.campaigns.adaptive_levels import LevelChooser
    from kongming.probes.suite import Suite
    from kongming.profiling.events import Event
    from kongming.profiling.plans.steps import Plan
    from kongming.profiling.write_limit import WriteLimit
    from kongming.records.application import Application
    from kongming.records.fingerprint import NodeFacts
    from kongming.records.run import Run, Signature


ORDER = "solo runs beside loads"
"""The order of the steps of a plan, in the settings: a campaign that was begun in another order is
not resumed in this one, as its steps have other numbers. Stored: a campaign compares it by its
characters, so that it is never reworded."""


@dataclass(frozen=True)
class ProfileSettings:
    """The settings of a profile. ``suite_name`` None: the default of the placement; ``levels``
    None: all of the plan; ``asked_seed`` None: a random one; ``runs``: starts of each application
    in an adaptive plan, which learns from the ``taught`` runs of other applications;
    ``inducer_apps``: programs that are loads of the others, with their ``signatures`` so far."""

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
    runs: int | None = None
    taught: Sequence[Run] = ()
    inducer_apps: Mapping[str, Application] = field(default_factory=dict)
    signatures: Mapping[str, Sequence[Signature]] = field(default_factory=dict)

    @property
    def timed(self) -> str:
        """Return the suite that is timed under each load."""
        return self.suite_name or ("quick" if self.placement == "same-core" else "standard")

    @property
    def key(self) -> str:
        return key_of(self.document())

    def document(self) -> dict[str, Any]:
        """Return the settings that identify the campaign."""
        from kongming.profiling.plans.identity import identities_of

        return {
            "plan": self.plan_name,
            "order": ORDER,
            "placement": self.placement,
            "suite": self.timed,
            "suite_version": self.suite.version,
            "repeats": self.repeats,
            "levels": self.levels,
            "node": self.node.id,
            "apps": identities_of(self.apps),
            **({} if self.asked_seed is None else {"asked_seed": self.asked_seed}),
            **({} if self.runs is None else {"runs": self.runs}),
            **({"inducers": self.inducers} if self.inducer_apps else {}),
            **self.layouts({**self.inducer_apps, **self.apps}),
        }

    def layouts(self, apps: Mapping[str, Application]) -> dict[str, Any]:
        """Return what the CPUs of these applications share, as a part of a campaign's settings:
        empty where it is the usual, so that it has the key that it had before there was this."""
        from kongming.profiling.plans.placement import layouts_of

        sizes = {name: app.cpus for name, app in apps.items()}
        layouts = layouts_of(self.node, self.placement, sizes)
        return {"layouts": layouts} if layouts else {}

    @property
    def inducers(self) -> dict[str, str]:
        """Return the identities of the programs that are loads, by name."""
        from kongming.profiling.plans.identity import identities_of

        return identities_of(self.inducer_apps)

    @property
    def unchecked(self) -> tuple[int, int] | None:
        """Return two CPUs that are measured before the first run: whether they share a core."""
        from kongming.campaigns.this_node import unchecked_pair

        everybody = (*self.apps.values(), *self.inducer_apps.values())
        return unchecked_pair(self.node, self.placement, [app.cpus for app in everybody])

    @property
    def unsigned(self) -> list[str]:
        """Return the programs that are loads and have no signature."""
        return sorted(name for name in self.inducer_apps if not self.signatures.get(name))

    def chooser(self, runs: Sequence[Run] = ()) -> LevelChooser:
        """Return the chooser of an adaptive plan's levels, which knows ``runs`` of the campaign."""
        from kongming.campaigns.adaptive_levels import LevelChooser
        from kongming.profiling.plans.campaign_plan import levels_of

        ladder = levels_of(self.plan_name, self.suite.inducers(), placement=self.placement)
        return LevelChooser(ladder, self.taught, runs)

    def plan(
        self,
        seed: int,
        chooser: LevelChooser | None = None,
        unsigned: Sequence[str] | None = None,
    ) -> Plan:
        """``unsigned``: the inducer applications whose signatures are part of the plan; None: those
        that have none now.

        Raises:
            InputError: a plan, repeats, levels or runs that do not exist.
        """
        from kongming.profiling.plans.campaign_plan import (
            ADAPTIVE,
            levels_of,
            make_adaptive_plan,
            make_plan,
        )

        if (self.plan_name == ADAPTIVE) != (self.runs is not None):
            raise InputError(
                "belongs to the adaptive plan, which has no other size.",
                field="runs",
                value=self.runs,
                hint="Give both: --plan adaptive --runs N",
            )
        if self.runs is not None:
            if self.levels is not None or self.repeats != 1:
                raise InputError("has neither levels nor repeats, only runs.", field="plan")
            if self.inducer_apps:
                raise InputError(
                    "is of plans whose loads are known before.",
                    field="--inducer-app",
                    value=f"--plan {ADAPTIVE}",
                    allowed="--plan quick or paper",
                )
            return make_adaptive_plan(
                sorted(self.apps),
                levels_of(ADAPTIVE, self.suite.inducers(), placement=self.placement),
                chooser or self.chooser(),
                runs=self.runs,
                placement=self.placement,
                seed=seed,
                suite=self.timed,
            )
        return make_plan(
            self.plan_name,
            sorted(self.apps),
            self.suite.inducers(),
            placement=self.placement,
            seed=seed,
            suite=self.timed,
            repeats=self.repeats,
            levels=self.levels,
            inducer_apps=sorted(self.inducer_apps),
            unsigned=self.unsigned if unsigned is None else unsigned,
        )


def profile_settings(
    apps: Mapping[str, Application],
    placement: str,
    directory: str | Path | None,
    *,
    identified: Callable[[NodeFacts], NodeFacts] = lambda node: node,
    anyway: bool | None = None,
    dry_run: bool = False,
    **more: Any,
) -> ProfileSettings:
    """Return the settings on this node; measure the node if the placement needs it, except for a
    ``dry_run``.

    ``identified`` gives the node another name or id; ``anyway`` as in ``measured_node``; ``more``
    are further fields of the settings.

    Raises:
        InputError: the folder does not exist, no file can be made there, or the node has too few
            CPUs for an application.
        ProbeError: the micro-benchmarks cannot be run.
        BusyError: something else measures on CPUs that have to be measured.
    """
    from kongming.campaigns.this_node import measured_node
    from kongming.probes.folders import work_folder
    from kongming.probes.node import node_facts
    from kongming.probes.suite import load_suite
    from kongming.profiling.plans.placement import choose

    io_dir = work_folder(directory)
    everybody = (*apps.values(), *more.get("inducer_apps", {}).values())
    sizes = [app.cpus for app in everybody]
    node = identified(node_facts() if dry_run else measured_node(placement, sizes, anyway=anyway))
    for app in everybody:
        choose(node, placement, app.cpus)
    return ProfileSettings(apps, node, load_suite(node, io_dir), placement, io_dir, **more)


@dataclass
class ProfileCampaign:
    """An unfinished campaign in a sink: ``earlier`` runs are of previous commands."""

    settings: ProfileSettings
    sink: Sink
    id: str
    plan: Plan
    earlier: Sequence[Run]
    done: frozenset[int]
    chooser: LevelChooser | None = None
    dropped: dict[str, str] = field(default_factory=dict)
    complete: bool = False
    written_bytes: float = 0.0
    """Written by loads and probes in this command."""
    left_out: int = 0
    """Steps that the limit on writing left out."""

    @classmethod
    def begin(cls, settings: ProfileSettings, sink: Sink) -> ProfileCampaign:
        """Return the unfinished campaign of these settings, or a new one.

        Raises:
            InputError: the settings cannot be planned; nothing is kept.
        """
        settings.plan(0)
        document = settings.document()
        sink.put_node(settings.node)
        identities = {**settings.inducers, **document["apps"]}
        for name, app in {**settings.inducer_apps, **settings.apps}.items():
            sink.put_application(name, identities[name], app.to_dict())
        begun: dict[str, Any] = {"seed": seed_of(settings.asked_seed)}
        if settings.inducer_apps:
            # What the plan depends on beyond the settings: a resumed campaign has the same steps.
            begun["unsigned"] = settings.unsigned
        campaign = sink.open_campaign(settings.key, document | begun)
        runs = sink.runs(campaign=campaign.id)
        chooser = settings.chooser(runs) if settings.runs is not None else None
        unsigned = campaign.document.get("unsigned")
        plan = settings.plan(int(campaign.document["seed"]), chooser, unsigned)
        done = steps_done(plan.steps, sink.campaign_steps_done(campaign.id), runs)
        return cls(settings, sink, campaign.id, plan, runs, done, chooser)

    @property
    def moved(self) -> list[str]:
        """Return a sentence for each application whose earlier runs were on other CPUs."""
        from kongming.campaigns.other_seats import other_seats

        settings = self.settings
        return other_seats(settings.node, settings.placement, settings.apps, self.earlier)

    def drive(
        self,
        stop_when: Callable[[], bool],
        observe: Callable[[Event], object],
        write_limit_bytes: float | None = None,
    ) -> ProfileCampaign:
        """Measure the remaining steps, until ``stop_when``; return the campaign. A campaign with
        applications that were left out stays unfinished: they are tried again. So are steps whose
        load would write more than ``write_limit_bytes`` in this command.
        """
        from kongming.profiling.write_limit import WriteLimit

        writing = WriteLimit(self.settings.suite, write_limit_bytes)
        try:
            drive(self.events(stop_when, writing), self.sink, self.seeing(observe))
        finally:
            self.written_bytes, self.left_out = writing.written_bytes, writing.refused
        self.finish()
        return self

    def seeing(self, observe: Callable[[Event], object]) -> Callable[[Event], None]:
        """Return ``observe``, with applications that are dropped noted here, and runs by the
        chooser of an adaptive plan."""
        from kongming.profiling.events import Dropped
        from kongming.records.run import Run

        def see(event: Event) -> None:
            if isinstance(event, Dropped):
                self.dropped[event.app] = event.reason
            elif isinstance(event, Run) and self.chooser is not None:
                self.chooser.add(event)
            observe(event)

        return see

    def events(
        self, stop_when: Callable[[], bool], writing: WriteLimit | None = None
    ) -> Generator[Event, None, None]:
        """Measure the remaining steps, until ``stop_when``, within the limit on ``writing``."""
        from kongming.profiling.profiler import profile

        # Another command may have gone on with it while this one waited for the CPUs.
        self._read_again()
        yield from profile(
            self.settings.apps,
            self.plan,
            node=self.settings.node,
            suite=self.settings.suite,
            work_dir=self.settings.io_dir,
            io_dir=self.settings.io_dir,
            inducer_apps=self.settings.inducer_apps,
            signatures=self.settings.signatures,
            campaign=self.id,
            done=self.done,
            earlier=self.earlier,
            write_limit=writing,
            stop_when=stop_when,
        )

    def _read_again(self) -> None:
        known = {run.id for run in self.earlier}
        self.earlier = self.sink.runs(campaign=self.id)
        if self.chooser is not None:
            for run in self.earlier:
                if run.id not in known:
                    self.chooser.add(run)
        recorded = self.sink.campaign_steps_done(self.id)
        self.done = steps_done(self.plan.steps, recorded, self.earlier)

    def finish(self) -> None:
        """Mark the campaign as finished if it is complete, with no application left out."""
        recorded = self.sink.campaign_steps_done(self.id)
        self.complete = complete(self.plan.steps, recorded, self.dropped)
        if self.complete and not self.dropped:
            self.sink.finish_campaign(self.id)
