"""The stored campaigns of evaluations: find, begin, or choose one to score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kongming.campaigns.campaign import key_of, seed_of

if TYPE_CHECKING:
    from kongming.campaigns.profile_campaign import ProfileSettings
    from kongming.records.application import Application
    from kongming.records.run import Run
    from kongming.store import Store
    from kongming.store.campaigns import Campaign


class StoredCampaign:
    """Stored state of a campaign: whether it is finished, its steps and its runs so far."""

    settings: ProfileSettings
    store: Store
    stored: Campaign

    @property
    def moved(self) -> list[str]:
        """Return a sentence for each application whose earlier runs were on other CPUs."""
        from kongming.campaigns.other_seats import other_seats

        site, runs = self.settings, self.store.runs(campaign=self.stored.id)
        return other_seats(site.node, site.placement, site.apps, runs)

    @property
    def finished(self) -> bool:
        return self.stored.finished_at is not None

    @property
    def done(self) -> frozenset[int]:
        return frozenset(self.store.campaign_steps_done(self.stored.id))

    @property
    def earlier(self) -> list[Run]:
        return self.store.runs(campaign=self.stored.id, fingerprints=False)


def settings_of(
    kind: str, repeats: int, site: ProfileSettings, apps: Mapping[str, Application]
) -> dict[str, Any]:
    """The key of a campaign of an evaluation."""
    from kongming.profiling.plans.identity import identities_of

    return {
        "evaluate": kind,
        "repeats": repeats,
        "placement": site.placement,
        "suite_version": site.suite.version,
        "node": site.node.id,
        "apps": identities_of(apps),
        **site.layouts(apps),
    }


def newest_campaign(store: Store, settings: Mapping[str, Any]) -> Campaign | None:
    """Return the newest campaign of these settings, finished or not."""
    key = key_of(settings)
    return next((campaign for campaign in store.campaigns() if campaign.key == key), None)


def campaign_for(
    store: Store, settings: Mapping[str, Any], *, seed: int | None, again: bool, **more: object
) -> Campaign:
    """Return the newest campaign of these settings, finished or not; a new one if there is none, or
    if all are finished and ``again`` is true. ``more`` goes into a new one's document and is not
    part of its key."""
    newest = newest_campaign(store, settings)
    if newest is not None and newest.finished_at is not None and not again:
        return newest
    document = {**settings, "seed": seed_of(seed), **more}
    return store.open_campaign(key_of(settings), document)


def held_campaign(
    store: Store,
    kind: str,
    identities: Mapping[str, str],
    *,
    placement: str,
    repeats: int | None,
    **more: object,
) -> Campaign:
    """Return the stored campaign to score without measuring, of applications of these
    ``identities``, by name. Of several, one of this node is
    preferred, then one of only these applications, then a finished one, then the newest. ``more``
    are values that its document must have.

    Raises:
        UntrainedError: there is none.
    """
    from kongming.probes.node import node_facts
    from kongming.records.errors import UntrainedError

    wanted = {"evaluate": kind, "placement": placement, **more}
    if repeats is not None:
        wanted["repeats"] = repeats

    def fits(campaign: Campaign) -> bool:
        document = campaign.document
        return (
            wanted.items() <= {key: document.get(key) for key in wanted}.items()
            and identities.items() <= document.get("apps", {}).items()
        )

    here = node_facts().id
    campaigns = sorted(
        filter(fits, store.campaigns()),
        key=lambda campaign: (
            campaign.document["node"] != here,
            campaign.document["apps"] != identities,
            campaign.finished_at is None,
        ),
    )
    if not campaigns:
        times = "" if repeats is None else f", {repeats} times each"
        raise UntrainedError(
            f"The store holds no {'pairs' if kind == 'pairs' else 'runs in environments'} of "
            f"{', '.join(sorted(identities))} as they are now, {placement}{times}.",
            hint="Measure them: the same command without --score-only.",
        )
    return campaigns[0]
