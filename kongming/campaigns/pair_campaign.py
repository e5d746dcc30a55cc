"""The campaign that runs every ordered pair of applications."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kongming.campaigns.campaign import drive
from kongming.campaigns.evaluation import StoredCampaign, campaign_for, settings_of
from kongming.campaigns.pair_sample import pairs_of
from kongming.profiling.plans.precision import Progress

if TYPE_CHECKING:
    from kongming.campaigns.profile_campaign import ProfileSettings
    from kongming.profiling.events import Event
    from kongming.records.application import Application
    from kongming.store import Store
    from kongming.store.campaigns import Campaign

KIND = "pairs"


@dataclass
class PairCampaign(StoredCampaign):
    """A campaign of a store. ``settings`` are of the profiles: the same node, suite and folder."""

    settings: ProfileSettings
    apps: Mapping[str, Application]
    store: Store
    stored: Campaign

    @classmethod
    def begin(
        cls,
        store: Store,
        settings: ProfileSettings,
        apps: Mapping[str, Application],
        *,
        repeats: int,
        again: bool,
        precision: float | None = None,
        sample: int | None = None,
        drawn_from: Collection[str] = (),
    ) -> PairCampaign:
        """Return the newest campaign of these pairs; a new one if there is none, or if all are
        finished and ``again`` is true. ``precision``: the standard error of a pair's log mean at
        which it is not repeated further; ``repeats`` are then the most. ``sample``: so many pairs
        instead of all, drawn from ``drawn_from`` where some of these are dropped."""
        document = settings_of(KIND, repeats, settings, apps)
        if precision is not None:
            document["precision"] = precision
        if sample is not None:
            document["sample"] = sample
            if drawn_from and set(drawn_from) != apps.keys():
                document["drawn_from"] = sorted(drawn_from)
        stored = campaign_for(store, document, seed=settings.asked_seed, again=again)
        return cls(settings, apps, store, stored)

    @property
    def repeats(self) -> int:
        return int(self.stored.document["repeats"])

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return pairs_of(self.stored.document)

    @property
    def steps(self) -> frozenset[int]:
        """Return the steps: the runs of all pairs, and a solo run of each application in every
        round; of rounds that depend on what is measured, the most.
        """
        return frozenset(range(self.repeats * (len(self.pairs) + len(self.apps))))

    @property
    def progress(self) -> Progress:
        """Return what the runs so far still call for."""
        return Progress.of(self.earlier, self.stored.document.get("precision"))

    @property
    def complete(self) -> bool:
        if self.finished or self.steps <= self.done:
            return True
        if "precision" not in self.stored.document:
            return False
        progress = self.progress
        return not any(
            progress.attempts.get(pair, 0) < self.repeats and progress.wants(*pair, ())
            for pair in self.pairs
        )

    def events(self, stop_when: Callable[[], bool]) -> Generator[Event, None, None]:
        """Measure the remaining steps, until ``stop_when``."""
        from kongming.profiling.runs.corun import corun

        return corun(
            self.pairs,
            self.apps,
            placement=self.settings.placement,
            node=self.settings.node,
            suite=self.settings.suite,
            work_dir=self.settings.io_dir,
            io_dir=self.settings.io_dir,
            repeats=self.repeats,
            seed=int(self.stored.document["seed"]),
            campaign=self.stored.id,
            done=self.done,
            progress=self.progress,
            stop_when=stop_when,
        )

    def finish(self) -> None:
        """Mark the campaign as finished if it is complete."""
        if self.complete:
            self.store.finish_campaign(self.stored.id)

    def drive(self, stop_when: Callable[[], bool], observe: Callable[[Event], object]) -> None:
        """Run the remaining steps, until ``stop_when``."""
        if not self.complete:
            drive(self.events(stop_when), self.store, observe)
        self.finish()
