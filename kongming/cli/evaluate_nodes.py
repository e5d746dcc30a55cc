"""``kongming evaluate --nodes``: applications in environments, each left out (Table IV)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kongming.cli import output
from kongming.cli.campaign import budget, carry_out, seed_of
from kongming.cli.evaluate_campaign import (
    campaign_for,
    held_campaign,
    newest_campaign,
    settings_of,
    site_of,
)
from kongming.cli.evaluate_training import train_all

if TYPE_CHECKING:
    from kongming.application import Application
    from kongming.cli.evaluate import Asked
    from kongming.cli.profile_campaign import Profiling
    from kongming.fingerprint import NodeFacts
    from kongming.profiling.environments import Environment
    from kongming.run import Run
    from kongming.store import Store
    from kongming.store.campaigns import Campaign

REPEATS = 3
"""Runs in each environment, unless more are asked for."""

KIND = "nodes"


@dataclass(frozen=True, slots=True)
class Held:
    """What the store holds for an evaluation over environments, measured now or earlier."""

    node: NodeFacts
    campaign: Campaign
    apps: Sequence[str]
    runs: Sequence[Run]
    complete: bool
    dropped: Mapping[str, str] = field(default_factory=dict)


def evaluate_nodes(asked: Asked) -> int:
    """Measure what is lacking, train, predict, score and print; returns the exit status."""
    from kongming.cli.evaluate_report import report
    from kongming.profiling.appfile import load, select
    from kongming.store import Store

    stop_when = budget(asked.budget)
    apps = select(load(asked.file), asked.names)
    with Store.open(asked.store_url) as store:
        if asked.score_only:
            held = _held(store, asked, apps)
        else:
            site = site_of(asked, apps)
            settings = _settings(asked, site)
            if asked.dry_run:
                from kongming.cli.evaluate_dry_run import tell_nodes

                newest = newest_campaign(store, settings)
                made = _made_of(newest) if newest is not None else _make(store, asked, site)
                return tell_nodes(store, asked, site, asked.repeats or REPEATS, made)
            held = _measure(store, asked, site, settings, stop_when)
    document = _score(held, asked)
    report(document, asked.out, as_json=asked.as_json)
    return 0 if held.complete and not held.dropped and not document["failed"] else 1


def _settings(asked: Asked, site: Profiling) -> dict[str, Any]:
    from kongming.profiling.environments import DEFAULT

    settings = settings_of(KIND, asked.repeats or REPEATS, site, site.apps)
    return settings | {"environments": asked.environments or DEFAULT}


def _make(store: Store, asked: Asked, site: Profiling, seed: int = 0) -> tuple[Environment, ...]:
    """Environments that this node can have; the idle one is always among them."""
    from kongming.profiling.environments import DEFAULT, Environment, environments
    from kongming.profiling.limits import reasons

    found = environments(
        asked.environments or DEFAULT,
        site.node,
        sorted(site.apps),
        reasons=reasons(site.node, site.io_dir),
        inducers=site.suite.inducers(),
        reference=_idle_times(store, site),
        seed=seed,
    )
    if any(environment.kind == "idle" for environment in found):
        return found
    return (*found, Environment("idle", "idle"))


def _idle_times(store: Store, site: Profiling) -> dict[str, float]:
    """Seconds per operation on the idle node: as it was learnt, or else as it is now."""
    from kongming.probes.fingerprinting import take_fingerprint

    known = store.reference(site.node.id, site.suite.version)
    if known is not None:
        return dict(known.times)
    return take_fingerprint(node=site.node, suite="quick", directory=site.io_dir).times()


def _made_of(campaign: Campaign) -> tuple[Environment, ...]:
    """The environments of a campaign: what they are limited to was decided when it began."""
    from kongming.profiling.environments import Environment

    return tuple(Environment(**document) for document in campaign.document["made"])


def _campaign(store: Store, asked: Asked, site: Profiling, settings: Mapping[str, Any]) -> Campaign:
    """The campaign to score, or to go on with; a new one gets its environments here."""
    newest = newest_campaign(store, settings)
    if newest is not None and (newest.finished_at is None or not asked.again):
        return newest
    made = _make(store, asked, site, seed_of(asked.seed))
    return campaign_for(store, settings, asked, made=[one.to_dict() for one in made])


def _measure(
    store: Store,
    asked: Asked,
    site: Profiling,
    settings: Mapping[str, Any],
    stop_when: Callable[[], bool],
) -> Held:
    """Run the applications in the environments, or what is left of that."""
    from kongming.cli.campaign_view import CampaignView
    from kongming.profiling.environment_runs import measure_environments
    from kongming.profiling.environment_tasks import tasks

    store.put_node(site.node)
    for name, app in site.apps.items():
        store.put_application(name, settings["apps"][name], app.to_dict())
    campaign = _campaign(store, asked, site, settings)
    made = _made_of(campaign)
    repeats, seed = int(campaign.document["repeats"]), int(campaign.document["seed"])
    plan = tasks(sorted(site.apps), made, repeats=repeats, seed=seed)
    view = CampaignView(sorted(site.apps), f"environments, {site.placement}")
    done = store.campaign_steps_done(campaign.id)
    if campaign.finished_at is None:
        if done and not asked.as_json:
            output.error_console().print(f"resuming: {len(done)} of {len(plan)} runs are done")
        for run in store.runs(campaign=campaign.id, fingerprints=False):
            view.see(run)
        events = measure_environments(
            site.apps,
            made,
            node=site.node,
            suite=site.suite,
            work_dir=site.io_dir,
            io_dir=site.io_dir,
            placement=site.placement,
            campaign=campaign.id,
            done=frozenset(done),
            repeats=repeats,
            seed=seed,
            stop_when=stop_when,
        )
        carry_out(store, events, view)
        done = store.campaign_steps_done(campaign.id)
    dropped = {app: row.dropped for app, row in view.rows.items() if row.dropped is not None}
    complete = all(task.step in done or task.app in dropped for task in plan)
    if complete and not dropped:
        store.finish_campaign(campaign.id)
    runs = store.runs(campaign=campaign.id)
    return Held(site.node, campaign, sorted(site.apps), runs, complete, dropped)


def _held(store: Store, asked: Asked, apps: Mapping[str, Application]) -> Held:
    """What the store holds; nothing is measured or written. Raises UntrainedError for nothing."""
    more = {} if asked.environments is None else {"environments": asked.environments}
    campaign = held_campaign(store, KIND, asked, apps, **more)
    return Held(
        store.node(campaign.document["node"]),
        campaign,
        sorted(apps),
        [run for run in store.runs(campaign=campaign.id) if run.app in apps],
        campaign.finished_at is not None,
    )


def _score(held: Held, asked: Asked) -> dict[str, Any]:
    """The document: what ``score_environments`` says, and what it rests on.

    Raises:
        MeasurementError: no application ran in two environments.
    """
    from kongming.cli import evaluate_environments as scores
    from kongming.cli.evaluate_scores import span_s
    from kongming.errors import MeasurementError
    from kongming.evaluate import score_environments

    seed = asked.seed or 0
    cases = scores.by_environment(held.runs, held.apps)
    todo = list(scores.training_tasks(cases, asked.placement, asked.models, seed))
    if not todo:
        raise MeasurementError(
            "No application has run in two environments yet.",
            hint="The same command goes on where this one stopped.",
        )
    trained = train_all(todo)
    predicted = scores.predicted_environments(cases, trained.files)
    document = score_environments(
        scores.measured_environments(cases),
        predicted.environments,
        solo=scores.solo_costs(cases),
        chosen=scores.chosen_most(trained.files),
        node=held.node.to_dict(),
        runs=len(held.runs),
        elapsed_s=span_s(held.runs),
        scored="raw",
        placement=asked.placement,
        seed=seed,
    )
    untrained = [f"{app} without {name}: {why}" for (app, name), why in trained.failed.items()]
    return document | {
        "complete": held.complete,
        "failed": sum(not run.ok for run in held.runs),
        "reasons": sorted({run.error for run in held.runs if run.error}),
        "campaign": held.campaign.id,
        "dropped": dict(held.dropped),
        "not_predicted": predicted.reasons + untrained,
        "unavailable": {
            made.name: made.unavailable
            for made in _made_of(held.campaign)
            if made.unavailable is not None
        },
        "chosen_by_environment": {
            app: {
                name: file.variants["full"].chosen
                for (one, name), file in trained.files.items()
                if one == app
            }
            for app in held.apps
        },
        "selected": {},
    }
