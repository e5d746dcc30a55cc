"""The profiles that an evaluation trains on: those in the store, or measured where one lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kongming.cli.profile_campaign import Profiling
    from kongming.run import Run, Signature
    from kongming.store import Store
    from kongming.store.campaigns import Campaign


@dataclass(frozen=True, slots=True)
class Place:
    """Where profiles and co-runs have to be of to go together."""

    node_id: str
    placement: str
    suite_version: str


@dataclass(frozen=True, slots=True)
class Profile:
    """One application's runs and signatures of one campaign."""

    campaign: str
    document: Mapping[str, Any]
    runs: tuple[Run, ...]
    signatures: tuple[Signature, ...]

    def told(self) -> dict[str, Any]:
        """What the JSON says about it."""
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
    store: Store, identities: Mapping[str, str], plan: str, place: Place
) -> dict[str, Profile]:
    """The newest complete profile of each application by this plan; those without are left out."""
    found: dict[str, Profile] = {}
    for campaign in _complete(store, plan, place):
        held = campaign.document.get("apps", {})
        for name, identity in identities.items():
            if name not in found and held.get(name) == identity:
                profile = profile_of(store, campaign.id, campaign.document, name)
                if any(run.ok for run in profile.runs):
                    found[name] = profile
    return found


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
    """What a campaign holds of an application."""
    return Profile(
        campaign,
        document,
        tuple(store.runs(app=app, campaign=campaign)),
        tuple(store.signatures(app=app, campaign=campaign)),
    )


@dataclass(frozen=True, slots=True)
class Gathered:
    """``complete`` is False where the budget was spent first; ``dropped`` applications could not
    be run, each with the reason."""

    profiles: Mapping[str, Profile]
    dropped: Mapping[str, str]
    complete: bool


def gather_profiles(
    store: Store, asked: Profiling, stop_when: Callable[[], bool], *, quiet: bool
) -> Gathered:
    """The profiles in the store; applications that lack one are profiled in one campaign."""
    from kongming.cli.profile_campaign import profile_applications

    settings = asked.settings()
    place = Place(asked.node.id, asked.placement, asked.suite.version)
    profiles = profiles_held(store, settings["apps"], asked.plan_name, place)
    lacking = {name: app for name, app in asked.apps.items() if name not in profiles}
    if not lacking:
        return Gathered(profiles, {}, True)
    made = profile_applications(store, replace(asked, apps=lacking), stop_when, quiet=quiet)
    if made.complete:
        for name in lacking.keys() - made.dropped.keys():
            profiles[name] = profile_of(store, made.campaign, settings, name)
    return Gathered(profiles, made.dropped, made.complete)
