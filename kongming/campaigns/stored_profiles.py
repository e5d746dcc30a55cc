"""The complete profiles in a store, from which an evaluation trains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kongming.campaigns.profile_campaign import ProfileSettings
    from kongming.records.run import Run, Signature
    from kongming.store import Store
    from kongming.store.campaigns import Campaign


@dataclass(frozen=True, slots=True)
class Place:
    """The properties that profiles and co-runs must share to be combined."""

    node_id: str
    placement: str
    suite_version: str


@dataclass(frozen=True, slots=True)
class Profile:
    """The runs and signatures of one application in one campaign."""

    campaign: str
    document: Mapping[str, Any]
    runs: tuple[Run, ...]
    signatures: tuple[Signature, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the campaign and its counts, without the records."""
        return {
            "campaign": self.campaign,
            "plan": self.document["plan"],
            "levels": self.document.get("levels"),
            "suite": self.document.get("suite"),
            "runs": len(self.runs),
            "failed": sum(not run.ok for run in self.runs),
            "signatures": len(self.signatures),
        }


def profiles_held(
    store: Store,
    identities: Mapping[str, str],
    plan: str,
    place: Place,
    inducers: Mapping[str, str] = MappingProxyType({}),
    layouts: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Profile]:
    """Return the newest complete profile of each application by this plan, with exactly these
    programs as loads (their identities by name), and on CPUs that share what ``layouts`` says
    (``placement.layouts_of``); those without are left out.
    """
    profiles: dict[str, Profile] = {}
    for campaign in _complete(store, plan, place):
        if campaign.document.get("inducers", {}) != inducers:
            continue
        held = campaign.document.get("apps", {})
        seated = campaign.document.get("layouts", {})
        for name, identity in identities.items():
            if seated.get(name) != layouts.get(name):
                continue
            if name not in profiles and held.get(name) == identity:
                profile = profile_of(store, campaign.id, campaign.document, name)
                if any(run.ok for run in profile.runs):
                    profiles[name] = profile
    return profiles


def _complete(store: Store, plan: str, place: Place) -> Iterator[Campaign]:
    for campaign in store.campaigns():
        document = campaign.document
        if campaign.finished_at is not None and (
            document.get("plan"),
            document.get("node"),
            document.get("placement"),
            document.get("suite_version"),
        ) == (plan, place.node_id, place.placement, place.suite_version):
            yield campaign


def profile_of(store: Store, campaign: str, document: Mapping[str, Any], app: str) -> Profile:
    """Return the profile of an application in a campaign."""
    return Profile(
        campaign,
        document,
        tuple(store.runs(app=app, campaign=campaign)),
        tuple(store.signatures(app=app, campaign=campaign)),
    )


def taught_runs(store: Store, settings: ProfileSettings) -> list[Run]:
    """Return the solo and induced runs of other applications that an adaptive plan learns from:
    those of this node, or those of all nodes where this one has none; [] for other plans."""
    from kongming.profiling.plans.identity import identity

    if settings.runs is None:
        return []
    own = {identity(app) for app in settings.apps.values()}
    runs = [
        run
        for run in store.runs(
            placement=settings.placement, ok=True, requested=True, fingerprints=False
        )
        if run.kind in ("solo", "induced") and run.identity not in own
    ]
    here = [run for run in runs if run.node_id == settings.node.id]
    return here or runs
