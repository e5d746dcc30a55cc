"""Where an evaluation measures, and the campaign of the store that it measures into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kongming.cli.campaign import key_of, seed_of

if TYPE_CHECKING:
    from kongming.application import Application
    from kongming.cli.evaluate import Asked
    from kongming.cli.profile_campaign import Profiling
    from kongming.store import Store
    from kongming.store.campaigns import Campaign


def site_of(asked: Asked, apps: Mapping[str, Application]) -> Profiling:
    """This node, and how its applications would be profiled here.

    Raises:
        InputError: the placement cannot exist here.
        ProbeError: the micro-benchmarks cannot be run.
    """
    from kongming.cli.node import measured_node
    from kongming.cli.profile_campaign import Profiling
    from kongming.probes.folders import io_folder
    from kongming.probes.suite import load_suite
    from kongming.profiling.placement import choose

    io_dir = io_folder(asked.directory)
    node = measured_node(asked.placement)
    for app in apps.values():
        choose(node, asked.placement, app.cpus)
    return Profiling(
        apps=apps,
        node=node,
        suite=load_suite(node, io_dir),
        placement=asked.placement,
        io_dir=io_dir,
        plan_name=asked.plan,
        asked_seed=asked.seed,
    )


def settings_of(
    kind: str, repeats: int, site: Profiling, apps: Mapping[str, Application]
) -> dict[str, Any]:
    """What a campaign of an evaluation is found again by."""
    from kongming.profiling.identity import identity

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
    store: Store, settings: Mapping[str, Any], asked: Asked, **more: object
) -> Campaign:
    """The newest campaign of these settings, finished or to be resumed; a new one where there is
    none, or none but finished ones and ``--again`` was given. ``more`` goes into a new one's
    document and does not tell campaigns apart."""
    newest = newest_campaign(store, settings)
    if newest is not None and newest.finished_at is not None and not asked.again:
        return newest
    document = {**settings, "seed": seed_of(asked.seed), **more}
    return store.open_campaign(key_of(settings), document)


def held_campaign(
    store: Store, kind: str, asked: Asked, apps: Mapping[str, Application], **more: object
) -> Campaign:
    """The campaign of the store to score where nothing is measured.

    Of several one of this node is preferred, then one of these applications alone, then a
    finished one, then the newest. ``more`` are values that its document has to hold.

    Raises:
        UntrainedError: there is none.
    """
    from kongming.errors import UntrainedError
    from kongming.probes.node import node_facts
    from kongming.profiling.identity import identity

    identities = {name: identity(app) for name, app in apps.items()}
    wanted = {"evaluate": kind, "placement": asked.placement, **more}
    if asked.repeats is not None:
        wanted["repeats"] = asked.repeats

    def fits(campaign: Campaign) -> bool:
        document = campaign.document
        return (
            wanted.items() <= {key: document.get(key) for key in wanted}.items()
            and identities.items() <= document.get("apps", {}).items()
        )

    here = node_facts().id
    found = sorted(
        filter(fits, store.campaigns()),
        key=lambda campaign: (
            campaign.document["node"] != here,
            campaign.document["apps"] != identities,
            campaign.finished_at is None,
        ),
    )
    if not found:
        times = "" if asked.repeats is None else f", {asked.repeats} times each"
        raise UntrainedError(
            f"The store holds no {'pairs' if kind == 'pairs' else 'runs in environments'} of "
            f"{', '.join(sorted(apps))} as they are now, {asked.placement}{times}.",
            hint="Measure them: the same command without --score-only.",
        )
    return found[0]
