"""The campaign that runs applications in changing environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kongming.campaigns.campaign import drive, seed_of
from kongming.campaigns.evaluation import StoredCampaign, campaign_for, newest_campaign, settings_of

if TYPE_CHECKING:
    from kongming.campaigns.profile_campaign import ProfileSettings
    from kongming.profiling.environments.environment import Environment
    from kongming.profiling.environments.tasks import Task
    from kongming.profiling.events import Event
    from kongming.store import Store
    from kongming.store.campaigns import Campaign

KIND = "nodes"


@dataclass
class EnvironmentCampaign(StoredCampaign):
    """A campaign of a store; its environments and their limits were chosen when it began.
    ``dropped`` applications could not be run by this command, each with the reason."""

    settings: ProfileSettings
    store: Store
    stored: Campaign
    dropped: dict[str, str] = field(default_factory=dict)

    @classmethod
    def begin(
        cls,
        store: Store,
        settings: ProfileSettings,
        *,
        count: int | None,
        repeats: int,
        again: bool,
        anyway: bool = False,
    ) -> EnvironmentCampaign:
        """Return the newest campaign of ``count`` environments; a new one if there is none, or if
        all are finished and ``again`` is true. The disk of a new one is measured if the store has
        no reference.

        Raises:
            BusyError: something else measures on these CPUs, and ``anyway`` is false.
        """
        document = campaign_settings(settings, count, repeats)
        store.put_node(settings.node)
        for name, app in settings.apps.items():
            store.put_application(name, document["apps"][name], app.to_dict())
        newest = newest_campaign(store, document)
        if newest is not None and (newest.finished_at is None or not again):
            return cls(settings, store, newest)
        seed = settings.asked_seed
        reference = known_times(store, settings)
        if reference is None:
            reference = _idle_times(settings, anyway=anyway)
        environments = possible_environments(settings, count, reference, seed_of(seed))
        stored = campaign_for(
            store,
            document,
            seed=seed,
            again=again,
            made=[environment.to_dict() for environment in environments],
        )
        return cls(settings, store, stored)

    @property
    def environments(self) -> tuple[Environment, ...]:
        return environments_of(self.stored)

    @property
    def steps(self) -> Sequence[Task]:
        from kongming.profiling.environments.tasks import tasks

        document = self.stored.document
        return tasks(
            sorted(self.settings.apps),
            self.environments,
            repeats=int(document["repeats"]),
            seed=int(document["seed"]),
        )

    @property
    def done(self) -> frozenset[int]:
        """Return the steps that are not measured again; an application that failed on the idle node
        is tried again, as nothing can be said without that run."""
        idle = {task.step for task in self.steps if task.environment.kind == "idle"}
        return super().done - (idle - {run.step for run in self.earlier if run.ok})

    @property
    def complete(self) -> bool:
        done = self.done
        return all(task.step in done or task.app in self.dropped for task in self.steps)

    def drive(self, stop_when: Callable[[], bool], observe: Callable[[Event], object]) -> None:
        """Run the remaining steps, until ``stop_when``."""
        from kongming.profiling.environments.runs import measure_environments
        from kongming.profiling.events import Dropped

        def see(event: Event) -> None:
            if isinstance(event, Dropped):
                self.dropped[event.app] = event.reason
            observe(event)

        document = self.stored.document
        events = measure_environments(
            self.settings.apps,
            self.environments,
            node=self.settings.node,
            suite=self.settings.suite,
            work_dir=self.settings.io_dir,
            io_dir=self.settings.io_dir,
            placement=self.settings.placement,
            campaign=self.stored.id,
            done=self.done,
            repeats=int(document["repeats"]),
            seed=int(document["seed"]),
            stop_when=stop_when,
        )
        drive(events, self.store, see)
        if self.complete and not self.dropped:
            self.store.finish_campaign(self.stored.id)


def campaign_settings(settings: ProfileSettings, count: int | None, repeats: int) -> dict[str, Any]:
    """Return the settings that identify the campaign; ``count`` None is the default number."""
    from kongming.profiling.environments.environment import DEFAULT

    document = settings_of(KIND, repeats, settings, settings.apps)
    return document | {"environments": count or DEFAULT}


def environments_of(campaign: Campaign) -> tuple[Environment, ...]:
    """Return the environments that were chosen when a campaign began."""
    from kongming.profiling.environments.environment import Environment

    return tuple(Environment(**document) for document in campaign.document["made"])


def possible_environments(
    settings: ProfileSettings, count: int | None, reference: Mapping[str, float], seed: int = 0
) -> tuple[Environment, ...]:
    """Return the environments that are possible on this node; the idle one is always among them.
    ``reference``: seconds per operation on the idle node; limits of a disk that is not among them
    are the nominal ones."""
    from kongming.profiling.environments.environment import DEFAULT, Environment, environments
    from kongming.profiling.environments.limits import reasons

    chosen = environments(
        count or DEFAULT,
        settings.node,
        sorted(settings.apps),
        reasons=reasons(settings.node, settings.io_dir),
        inducers=settings.suite.inducers(),
        reference=reference,
        seed=seed,
    )
    if any(environment.kind == "idle" for environment in chosen):
        return chosen
    return (*chosen, Environment("idle", "idle"))


def known_times(store: Store, settings: ProfileSettings) -> dict[str, float] | None:
    """Return the seconds per operation on the idle node from its reference, None without any."""
    known = store.reference(settings.node.id, settings.suite.version)
    return None if known is None else dict(known.times)


def _idle_times(settings: ProfileSettings, *, anyway: bool) -> dict[str, float]:
    """Measure the seconds per operation on the idle node."""
    from kongming.probes.fingerprinting import take_fingerprint
    from kongming.probes.measuring import measuring

    with measuring("kongming evaluate", anyway=anyway):
        taken = take_fingerprint(node=settings.node, suite="quick", directory=settings.io_dir)
    return taken.times()
