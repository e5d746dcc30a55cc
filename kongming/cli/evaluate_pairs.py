"""``kongming evaluate --pairs``: every ordered pair, really run and predicted (Table V)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING, Any, cast

from kongming.cli import output
from kongming.cli.campaign import budget, carry_out
from kongming.cli.evaluate_campaign import campaign_for, held_campaign, settings_of, site_of
from kongming.cli.evaluate_training import Task, keep, train_all

if TYPE_CHECKING:
    from kongming.application import Application
    from kongming.cli.evaluate import Asked
    from kongming.cli.evaluate_profiles import Profile
    from kongming.cli.evaluate_scores import Scored
    from kongming.cli.profile_campaign import Profiling
    from kongming.fingerprint import NodeFacts
    from kongming.run import Run
    from kongming.store import Store
    from kongming.store.campaigns import Campaign

REPEATS = 2
"""Runs of each ordered pair, unless more are asked for."""

KIND = "pairs"


@dataclass(frozen=True, slots=True)
class Held:
    """What the store holds for an evaluation of pairs, measured now or earlier."""

    node: NodeFacts
    campaign: Campaign
    profiles: Mapping[str, Profile]
    runs: Sequence[Run]
    complete: bool
    dropped: Mapping[str, str] = field(default_factory=dict)

    @property
    def repeats(self) -> int:
        return int(self.campaign.document["repeats"])


def evaluate_pairs(asked: Asked) -> int:
    """Measure what is lacking, train, predict, score and print; returns the exit status."""
    from kongming.cli.evaluate_report import report
    from kongming.cli.evaluate_scores import read_predictions
    from kongming.errors import InputError
    from kongming.profiling.appfile import load, select
    from kongming.store import Store

    stop_when = budget(asked.budget)
    apps = select(load(asked.file), asked.names)
    if len(apps) < 2:
        raise InputError(
            "are too few for a pair.", field="applications", found=list(apps), allowed="2 or more"
        )
    others = read_predictions(asked.predictions)
    with Store.open(asked.store_url) as store:
        if asked.score_only:
            held = held_pairs(store, asked, apps)
        else:
            profiling = site_of(asked, apps)
            if asked.dry_run:
                from kongming.cli.evaluate_dry_run import tell_pairs

                return tell_pairs(store, asked, profiling, asked.repeats or REPEATS)
            held = _measure(store, asked, profiling, stop_when)
        document = _score(held, asked, others, None if asked.score_only else store)
    report(document, asked.out, as_json=asked.as_json)
    return 0 if held.complete and not held.dropped and not document["failed"] else 1


def _measure(
    store: Store, asked: Asked, profiling: Profiling, stop_when: Callable[[], bool]
) -> Held:
    """Profile what lacks a profile, then run the pairs, or what is left of either.

    Raises:
        MeasurementError: the budget was spent before all applications were profiled, or too few
            of them work.
    """
    from kongming.cli.evaluate_profiles import gather_profiles
    from kongming.errors import MeasurementError

    store.put_node(profiling.node)
    gathered = gather_profiles(store, profiling, stop_when, quiet=asked.as_json)
    if not gathered.complete:
        raise MeasurementError(
            "The budget was spent before every application was profiled.",
            hint="The same command goes on where this one stopped.",
        )
    apps = {name: app for name, app in profiling.apps.items() if name in gathered.profiles}
    if len(apps) < 2:
        reasons = "; ".join(f"{app}: {reason}" for app, reason in gathered.dropped.items())
        raise MeasurementError(
            f"Too few applications could be profiled. {reasons}",
            hint="The same command tries them again.",
        )
    settings = settings_of(KIND, asked.repeats or REPEATS, profiling, apps)
    campaign = campaign_for(store, settings, asked)
    complete = _run_pairs(store, campaign, apps, profiling, stop_when, quiet=asked.as_json)
    runs = store.runs(campaign=campaign.id)
    return Held(profiling.node, campaign, gathered.profiles, runs, complete, gathered.dropped)


def _run_pairs(
    store: Store,
    campaign: Campaign,
    apps: Mapping[str, Application],
    profiling: Profiling,
    stop_when: Callable[[], bool],
    *,
    quiet: bool,
) -> bool:
    """Run what is left of the campaign; tells whether nothing is."""
    from kongming.cli.campaign_view import CampaignView
    from kongming.profiling.corun import corun

    if campaign.finished_at is not None:
        return True
    repeats = int(campaign.document["repeats"])
    pairs = list(permutations(sorted(apps), 2))
    steps = set(range(repeats * (len(pairs) + len(apps))))
    done = store.campaign_steps_done(campaign.id)
    if done and not quiet:
        output.error_console().print(f"resuming: {len(done)} of {len(steps)} runs are done")
    view = CampaignView(sorted(apps), f"pairs, {profiling.placement}")
    for run in store.runs(campaign=campaign.id, fingerprints=False):
        view.see(run)
    if not steps <= done:
        events = corun(
            pairs,
            apps,
            placement=profiling.placement,
            node=profiling.node,
            suite=profiling.suite,
            work_dir=profiling.io_dir,
            io_dir=profiling.io_dir,
            repeats=repeats,
            seed=int(campaign.document["seed"]),
            campaign=campaign.id,
            done=frozenset(done),
            stop_when=stop_when,
        )
        carry_out(store, events, view)
    complete = steps <= store.campaign_steps_done(campaign.id)
    if complete:
        store.finish_campaign(campaign.id)
    return complete


def held_pairs(store: Store, asked: Asked, apps: Mapping[str, Application]) -> Held:
    """What the store holds of the pairs of ``apps``; nothing is measured or written.

    Raises:
        UntrainedError: there are no such pairs, or an application lacks a profile.
    """
    from kongming.cli.evaluate_profiles import Place, profiles_held
    from kongming.errors import UntrainedError

    campaign = held_campaign(store, KIND, asked, apps)
    document = campaign.document
    identities = {name: document["apps"][name] for name in apps}
    place = Place(document["node"], asked.placement, document["suite_version"])
    profiles = profiles_held(store, identities, asked.plan, place)
    if missing := sorted(apps.keys() - profiles.keys()):
        raise UntrainedError(
            f"The store holds no complete {asked.plan} profile of {', '.join(missing)}, "
            f"{asked.placement}, with the suite of the pairs.",
            hint="Measure it: the same command without --score-only.",
        )
    runs = [
        run
        for run in store.runs(campaign=campaign.id)
        if run.app in apps and set(run.neighbours) <= apps.keys()
    ]
    complete = campaign.finished_at is not None
    return Held(store.node(document["node"]), campaign, profiles, runs, complete)


def _score(
    held: Held, asked: Asked, others: Sequence[Mapping[str, Any]], store: Store | None
) -> dict[str, Any]:
    """The document: what ``score_pairs`` says, and what it rests on.

    Raises:
        MeasurementError: no pair has succeeded yet.
        UntrainedError: no application can be trained.
    """
    from kongming.cli import evaluate_scores as scores
    from kongming.errors import MeasurementError, UntrainedError
    from kongming.evaluate import score_pairs

    seed = asked.seed or 0
    trained = train_all(
        [
            Task((app,), profile.runs, asked.placement, asked.models, seed)
            for app, profile in sorted(held.profiles.items())
        ]
    )
    files = {app: file for (app,), file in trained.files.items()}
    untrained = {app: reason for (app,), reason in trained.failed.items()}
    if not files:
        raise UntrainedError("; ".join(f"{app}: {why}" for app, why in untrained.items()))
    # A document with only some models would hide those that predictions may ask for.
    if store is not None and asked.models is None:
        for made in trained.documents.values():
            keep(store, made)
    scale = scores.Scale.of(cast("Scored", asked.scored), files)
    apps = sorted(files)
    measured = scores.measured_pairs(held.runs, apps, scale)
    if not any(pair.values for pair in measured):
        reasons = sorted({run.error for run in held.runs if run.error})
        raise MeasurementError(
            " ".join(["No pair can be scored yet.", *reasons]),
            hint=None if held.complete else "The same command goes on where this one stopped.",
        )
    signatures = {app: held.profiles[app].signatures for app in apps}
    predicted = scores.predicted_pairs(files, signatures, measured, scale)
    profile_runs = [run for app in apps for run in held.profiles[app].runs]
    document = score_pairs(
        measured,
        predicted.pairs + scores.others_predictions(others, apps, scale),
        solo=scale.solo,
        training_mean={
            app: scores.training_mean(held.profiles[app].runs, files[app], scale) for app in apps
        },
        repeats=held.repeats,
        chosen={app: file.variants["full"].chosen for app, file in files.items()},
        placement=asked.placement,
        node=held.node.to_dict(),
        runs=len(profile_runs) + len(held.runs),
        elapsed_s=scores.span_s(profile_runs) + scores.span_s(held.runs),
        scored=scale.scored,
        seed=seed,
    )
    return document | {
        "complete": held.complete,
        "failed": sum(not run.ok for run in held.runs),
        "reasons": sorted({run.error for run in held.runs if run.error}),
        "campaign": held.campaign.id,
        "profiles": {app: profile.told() for app, profile in sorted(held.profiles.items())},
        "dropped": dict(held.dropped) | untrained,
        "not_predicted": predicted.reasons,
        "widening": {
            app: {"factor": w.factor, "groups": w.groups, "pairs": w.pairs}
            for app, w in predicted.widenings.items()
        },
        "selected": scores.selected(files),
        "sensitivity": {
            app: scores.worst_slowdown(held.profiles[app].runs, file) for app, file in files.items()
        },
    }
