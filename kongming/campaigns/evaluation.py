"""The campaigns of a store that evaluations measure into, or score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kongming.campaigns.campaign import key_of, seed_of

if TYPE_CHECKING:
    from kongming.campaigns.profile_campaign import ProfileSettings
    from kongming.records.application import Application
    from kongming.store import Store
    from kongming.store.campaigns import Campaign


def settings_of(
    kind: str, repeats: int, site: ProfileSettings, apps: Mapping[str, Application]
) -> dict[str, Any]:
    """What a campaign of an evaluation is found again by."""
    from kongming.profiling.plans.identity import identity

    return {
        "evaluate": kind,
        "repeats": repeats,
        "placement": site.placement,
        "suite_version": site.suite.version,
        "node": site.node.id,
        "apps": {name: identity(app) for name, app in sorted(apps.items())},
    }


def newest_campaign(store: Store, settings: Mapping[str, Any]) -> Campaign | None:
    """The newest campaign of these settings, finished or not."""
    key = key_of(settings)
    return next((campaign for campaign in store.campaigns() if campaign.key == key), None)


def campaign_for(
    store: Store, settings: Mapping[str, Any], *, seed: int | None, again: bool, **more: object
) -> Campaign:
    """The newest campaign of these settings, finished or to be resumed; a new one where there is
    none, or none but finished ones and it is to be measured ``again``. ``more`` goes into a new
    one's document and does not tell campaigns apart."""
    newest = newest_campaign(store, settings)
    if newest is not None and newest.finished_at is not None and not again:
        return newest
    document = {**settings, "seed": seed_of(seed), **more}
    return store.open_campaign(key_of(settings), document)


def held_campaign(
    store: Store,
    kind: str,
    apps: Mapping[str, Application],
    *,
    placement: str,
    repeats: int | None,
    **more: object,
) -> Campaign:
    """The campaign of the store to score where nothing is measured.

    Of several one of this node is preferred, then one of these applications alone, then a
    finished one, then the newest. ``more`` are values that its document has to hold.

    Raises:
        UntrainedError: there is none.
    """
    from kongming.probes.node import node_facts
    from kongming.profiling.plans.identity import identity
    from kongming.records.errors import UntrainedError

    identities = {name: identity(app) for name, app in apps.items()}
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
            f"{', '.join(sorted(apps))} as they are now, {placement}{times}.",
            hint="Measure them: the same command without --score-only.",
        )
    return campaigns[0]
