"""The campaign that runs every ordered pair of applications."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

from kongming.campaigns.campaign import drive
from kongming.campaigns.evaluation import campaign_for, settings_of

if TYPE_CHECKING:
    from kongming.campaigns.profile_campaign import ProfileSettings
    from kongming.profiling.events import Event
    from kongming.records.application import Application
    from kongming.records.run import Run
    from kongming.store import Store
    from kongming.store.campaigns import Campaign

KIND = "pairs"


@dataclass
class PairCampaign:
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
    ) -> PairCampaign:
        """Return the newest campaign of these pairs; a new one if there is none, or if all are
        finished and ``again`` is true."""
        document = settings_of(KIND, repeats, settings, apps)
        stored = campaign_for(store, document, seed=settings.asked_seed, again=again)
        return cls(settings, apps, store, stored)

    @property
    def finished(self) -> bool:
        return self.stored.finished_at is not None

    @property
    def repeats(self) -> int:
        return int(self.stored.document["repeats"])

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return list(permutations(sorted(self.apps), 2))

    @property
    def steps(self) -> frozenset[int]:
        """Return the steps: the runs of all pairs, and a solo run of each application in every
        round.
        """
        return frozenset(range(self.repeats * (len(self.pairs) + len(self.apps))))

    @property
    def done(self) -> frozenset[int]:
        return frozenset(self.store.campaign_steps_done(self.stored.id))

    @property
    def earlier(self) -> list[Run]:
        return self.store.runs(campaign=self.stored.id, fingerprints=False)

    @property
    def complete(self) -> bool:
        return self.finished or self.steps <= self.done

    def drive(self, stop_when: Callable[[], bool], observe: Callable[[Event], object]) -> None:
        """Run the remaining steps, until ``stop_when``."""
        from kongming.profiling.runs.corun import corun

        done = self.done
        if not self.steps <= done:
            events = corun(
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
                done=done,
                stop_when=stop_when,
            )
            drive(events, self.store, observe)
        if self.complete:
            self.store.finish_campaign(self.stored.id)
