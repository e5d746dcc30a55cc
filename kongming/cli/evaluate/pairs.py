"""``kongming evaluate --pairs``: run and predict every ordered pair (Table V)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kongming.campaigns.campaign import Budget
from kongming.cli.evaluate.report import keep, print_cost, report, train_all
from kongming.quantities import count

if TYPE_CHECKING:
    from kongming.campaigns.interleaved import InterleavedCampaign
    from kongming.campaigns.pair_campaign import PairCampaign
    from kongming.campaigns.profile_campaign import ProfileSettings
    from kongming.campaigns.stored_profiles import Profile
    from kongming.cli.evaluate.request import Request
    from kongming.evaluate.predicted_pairs import Scored
    from kongming.records.application import Application
    from kongming.records.fingerprint import NodeFacts
    from kongming.records.run import Run
    from kongming.store import Store
    from kongming.store.campaigns import Campaign

REPEATS = 2
"""Default number of runs of each ordered pair."""


@dataclass(frozen=True, slots=True)
class Held:
    """The runs of an evaluation of pairs, measured now or earlier."""

    node: NodeFacts
    campaign: Campaign
    profiles: Mapping[str, Profile]
    runs: Sequence[Run]
    complete: bool
    dropped: Mapping[str, str] = field(default_factory=dict)

    @property
    def repeats(self) -> int:
        return int(self.campaign.document["repeats"])

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The ordered pairs that were to be measured."""
        from kongming.campaigns.pair_sample import pairs_of

        return pairs_of(self.campaign.document)


def evaluate_pairs(request: Request) -> int:
    """Measure missing runs, train, predict, score and print; return the exit status."""
    from kongming.campaigns.inducer_apps import OPTION, select_inducers, with_signatures
    from kongming.campaigns.preregistration import registered
    from kongming.evaluate.predicted_pairs import read_predictions
    from kongming.profiling.appfile import load, select
    from kongming.records.errors import InputError
    from kongming.store import Store

    budget = Budget(request.budget)
    known = load(request.file)
    apps = select(known, request.names)
    if len(apps) < 2:
        raise InputError(
            "are too few for a pair.", field="applications", value=list(apps), allowed="2 or more"
        )
    inducer_apps = select_inducers(known, request.inducer_names, apps)
    if apps.keys() <= inducer_apps.keys():
        raise InputError(
            "leaves no pair to score: every neighbour would be a load of the profiles.",
            field=OPTION,
            value=list(inducer_apps),
            allowed="some of the programs of the pairs, or others of the file",
        )
    others = read_predictions(request.predictions)
    if request.preregister is not None and request.score_only:
        registered(request.preregister)
    with Store.open(request.store_url, write=not (request.dry_run or request.score_only)) as store:
        if request.score_only:
            held = _held(store, request, apps, inducer_apps)
        else:
            profiling = with_signatures(store, request.settings(apps, inducer_apps))
            if request.dry_run:
                return _print_cost(store, request, profiling, request.least_repeats(REPEATS))
            if request.preregister is not None:
                _register(request, apps, profiling.inducers)
            held = _measure(store, request, profiling, budget)
        document = _score(held, request, others, None if request.score_only else store)
    if request.preregister is not None:
        document["preregistered"] = _registered(request.preregister, held, apps.values())
    report(document, request.out, as_json=request.as_json)
    return 0 if held.complete and not held.dropped and not document["failed"] else 1


def _register(
    request: Request, apps: Mapping[str, Application], inducers: Mapping[str, str]
) -> None:
    """Write or check the pre-registration. Raises InputError if it registers something else."""
    from kongming.campaigns.preregistration import preregister
    from kongming.learning.registry import model_names
    from kongming.profiling.plans.identity import identities_of

    assert request.preregister is not None
    settings = {
        "apps": identities_of(apps),
        "placement": request.placement,
        "plan": request.plan,
        "repeats": request.repeats or (REPEATS if request.precision is None else None),
        "precision": request.precision,
        "sample": request.sample,
        "scored": request.scored,
        **({"inducers": dict(inducers)} if inducers else {}),
    }
    models = request.models or model_names()
    preregister(request.preregister, _code(apps.values()), models, settings)


def _registered(path: Path, held: Held, apps: Iterable[Application]) -> dict[str, Any]:
    """Return what the table states of a pre-registration."""
    from kongming.campaigns.preregistration import registered, statement

    first = min((run.started_at for run in held.runs), default=None)
    return statement(registered(path), _code(apps), first)


def _code(apps: Iterable[Application]) -> dict[str, str]:
    """Digests of all that decides what comes out."""
    import kongming
    from kongming.campaigns.preregistration import (
        MICROBENCH,
        PROGRAMS,
        code_digests,
        files_digest,
    )
    from kongming.probes.binary import locate
    from kongming.profiling.plans.identity import files_named
    from kongming.records.errors import ProbeError

    try:
        microbench = [locate()]
    except ProbeError:  # what is measured already is scored without it
        microbench = []
    return {
        **code_digests(Path(kongming.__file__).parent),
        MICROBENCH: files_digest(microbench),
        PROGRAMS: files_digest(file for app in apps for file in files_named(app)),
    }


@dataclass(frozen=True, slots=True)
class _Cost:
    """Runs to be measured, and about how long they take. ``round_s``: one run of each pair and
    one of each application alone, which are ``round_runs``."""

    profile_runs: int
    profile_s: float
    likely: float
    """Bytes that are written as a rule."""
    written: float
    """Bytes that are written at the most."""
    pairs: int
    round_runs: int
    round_s: float
    assumed: Sequence[str]


def _profiles(store: Store, site: ProfileSettings) -> dict[str, Profile]:
    """Return the complete profiles that the store holds."""
    from kongming.campaigns.stored_profiles import Place, profiles_held

    place = Place(site.node.id, site.placement, site.suite.version)
    document = site.document()
    layouts = document.get("layouts", {})
    return profiles_held(store, document["apps"], site.plan_name, place, site.inducers, layouts)


def _cost(
    store: Store, request: Request, site: ProfileSettings, lacking: Mapping[str, Application]
) -> _Cost:
    """Estimate the cost of the profiles that are lacking and of one round of all pairs."""
    from kongming.campaigns.campaign import seed_of
    from kongming.campaigns.cost import cost_of, solo_seconds, suite_seconds
    from kongming.campaigns.pair_sample import balanced_pairs

    runs, seconds, likely, written = 0, 0.0, 0.0, 0.0
    if lacking:
        missing = replace(site, apps=lacking)
        cost = cost_of(store, missing, missing.plan(seed_of(request.seed)))
        runs, seconds = sum(cost.runs.values()), cost.seconds
        likely, written = cost.written_bytes, cost.most_written_bytes
    solo, assumed = solo_seconds(store, site.apps, site.node.id)
    around = 0.0
    if request.placement != "same-core":
        around = 2.0 * suite_seconds(site.suite, "quick", shared_core=False)
    pairs = balanced_pairs(list(site.apps), request.sample, seed_of(request.seed))
    # A neighbour is warmed up for an iteration; the run starts at a random moment of the next one.
    each = sum(1.5 * solo[other] + solo[app] + around for app, other in pairs)
    each += sum(solo[app] + around for app in site.apps)
    rounds = len(pairs) + len(site.apps)
    return _Cost(runs, seconds, likely, written, len(pairs), rounds, each, assumed)


def _print_cost(store: Store, request: Request, site: ProfileSettings, repeats: int) -> int:
    """Estimate the cost of the missing profiles and of all pairs."""
    from kongming.records.control import TAKES

    lacking = sorted(site.apps.keys() - _profiles(store, site).keys())
    cost = _cost(store, request, site, {name: site.apps[name] for name in lacking})
    co_runs = repeats * cost.round_runs
    least = "" if request.precision is None else "at least "
    sentences = [
        f"{cost.pairs} ordered pairs {least}{count(repeats, 'time')}, and a round of solo runs "
        "with each: "
        f"{least}{co_runs} runs, about {repeats * cost.round_s / 60:.0f} min.",
        f"A run that is disturbed is taken up to {TAKES} times.",
    ]
    if lacking:
        sentences.insert(
            0,
            f"Profiles of {', '.join(lacking)}: {cost.profile_runs} runs "
            f"planned, about {cost.profile_s / 60:.0f} min, about {cost.likely / 1e9:.1f} GB "
            f"written, {cost.written / 1e9:.1f} GB at the most.",
        )
    document = {
        "kind": "pairs",
        "placement": request.placement,
        "profile": {
            "apps": lacking,
            "runs": cost.profile_runs,
            "seconds": cost.profile_s,
        },
        "pairs": {"pairs": cost.pairs, "runs": co_runs, "seconds": repeats * cost.round_s},
        "runs": cost.profile_runs + co_runs,
        "seconds": cost.profile_s + repeats * cost.round_s,
        "written_bytes": round(cost.written),
        "assumed_seconds": cost.assumed,
    }
    return print_cost(document, sentences, site.unchecked, as_json=request.as_json)


def _measure(store: Store, request: Request, profiling: ProfileSettings, budget: Budget) -> Held:
    """Run the pairs, interleaved with the profiles of applications without one, or the remaining
    part of both.

    Raises:
        MeasurementError: the budget was spent before all applications were profiled, or too few
            of them work.
    """
    from kongming.campaigns.interleaved import InterleavedCampaign, runs_among
    from kongming.campaigns.pair_campaign import PairCampaign
    from kongming.campaigns.profile_campaign import ProfileCampaign
    from kongming.campaigns.stored_profiles import profile_of
    from kongming.cli.profile.campaign_view import CampaignView
    from kongming.cli.profile.profiling import drive_shown
    from kongming.records.errors import MeasurementError

    store.put_node(profiling.node)

    def begin_pairs(names: Sequence[str]) -> PairCampaign:
        apps = {name: profiling.apps[name] for name in sorted(names)}
        return PairCampaign.begin(
            store,
            profiling,
            apps,
            repeats=request.most_repeats(REPEATS),
            precision=request.precision,
            sample=request.sample,
            drawn_from=profiling.apps,
            again=request.again,
        )

    profiles = _profiles(store, profiling)
    lacking = {name: app for name, app in profiling.apps.items() if name not in profiles}
    dropped: Mapping[str, str] = {}
    campaign: PairCampaign | None = None
    if lacking:
        cost = _cost(store, request, profiling, lacking)
        begun = ProfileCampaign.begin(replace(profiling, apps=lacking), store)
        left = 1.0 - len(begun.done) / len(begun.plan.steps)
        both = InterleavedCampaign(
            begun,
            store,
            begin_pairs,
            sorted(profiling.apps),
            runs_among(
                request.least_repeats(REPEATS) * cost.round_runs,
                cost.round_s / cost.round_runs,
                left * cost.profile_s,
                request.budget,
            ),
        )
        _drive(both, sorted(profiling.apps), request, budget)
        if not both.profiles.complete:
            raise MeasurementError(
                "The budget was spent before every application was profiled.",
                hint="The same command continues where this one stopped.",
            )
        dropped, campaign = both.profiles.dropped, both.pairs
        for name in lacking.keys() - dropped.keys():
            profiles[name] = profile_of(store, both.profiles.id, profiling.document(), name)
    if len(profiles) < 2:
        reasons = "; ".join(f"{app}: {reason}" for app, reason in dropped.items())
        raise MeasurementError(
            f"Too few applications could be profiled. {reasons}",
            hint="The same command tries them again.",
        )
    if campaign is None:
        campaign = begin_pairs(list(profiles))
        if not campaign.finished:
            view = CampaignView(sorted(profiles), f"pairs, {profiling.placement}")
            drive_shown(campaign, view, budget, quiet=request.as_json, anyway=request.anyway)
    runs = store.runs(campaign=campaign.stored.id)
    return Held(profiling.node, campaign.stored, profiles, runs, campaign.complete, dropped)


def _drive(
    both: InterleavedCampaign,
    names: Sequence[str],
    request: Request,
    budget: Budget,
) -> None:
    from kongming.cli.profile.campaign_view import CampaignView
    from kongming.cli.profile.profiling import drive_shown

    plan = both.profiles.plan
    view = CampaignView(names, f"{plan.name} plan and pairs, {plan.placement}, seed {plan.seed}")
    drive_shown(both, view, budget, quiet=request.as_json, anyway=request.anyway)


def _held(
    store: Store,
    request: Request,
    apps: Mapping[str, Application],
    inducer_apps: Mapping[str, Application],
) -> Held:
    """Return the stored runs of the pairs of ``apps``; measure and write nothing.

    A pre-registration names the programs that were measured: its identities count, so that its
    runs can be scored where these programs are not installed, or of another version.

    Raises:
        UntrainedError: there are no such pairs, or an application has no profile.
    """
    from kongming.campaigns.evaluation import held_campaign
    from kongming.campaigns.pair_campaign import KIND
    from kongming.campaigns.preregistration import registered
    from kongming.campaigns.stored_profiles import Place, profiles_held
    from kongming.profiling.plans.identity import identities_of
    from kongming.records.errors import UntrainedError

    identities = identities_of(apps)
    if request.preregister is not None:
        own = registered(request.preregister)["settings"]["apps"]
        identities |= {name: own[name] for name in apps.keys() & own.keys()}
    campaign = held_campaign(
        store,
        KIND,
        identities,
        placement=request.placement,
        repeats=request.repeats,
        **({} if request.precision is None else {"precision": request.precision}),
        **({} if request.sample is None else {"sample": request.sample}),
    )
    document = campaign.document
    place = Place(document["node"], request.placement, document["suite_version"])
    inducers = identities_of(inducer_apps)
    layouts = document.get("layouts", {})
    profiles = profiles_held(store, identities, request.plan, place, inducers, layouts)
    if missing := sorted(apps.keys() - profiles.keys()):
        raise UntrainedError(
            f"The store holds no complete {request.plan} profile of {', '.join(missing)}, "
            f"{request.placement}, with the suite of the pairs and "
            f"{'the same' if inducers else 'no'} programs as loads.",
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
    held: Held, request: Request, others: Sequence[Mapping[str, Any]], store: Store | None
) -> dict[str, Any]:
    """Return the document: the result of ``score_pairs``, and its inputs.

    Raises:
        MeasurementError: no pair has succeeded yet.
        UntrainedError: no application can be trained.
    """
    from kongming.evaluate import predicted_pairs as scores
    from kongming.evaluate import score_pairs
    from kongming.evaluate.coupling import coupling_section
    from kongming.evaluate.training import Task
    from kongming.learning.registry import AUTO
    from kongming.records.errors import MeasurementError, UntrainedError
    from kongming.records.run import trained_on

    seed = request.seed or 0
    trained = train_all(
        [
            Task((app,), profile.runs, request.placement, request.models, seed)
            for app, profile in sorted(held.profiles.items())
        ]
    )
    files = {app: file for (app,), file in trained.files.items()}
    untrained = {app: reason for (app,), reason in trained.failed.items()}
    if not files:
        raise UntrainedError("; ".join(f"{app}: {why}" for app, why in untrained.items()))
    # A document with only some models would hide others that predictions may use.
    if store is not None and request.models is None:
        for model_document in trained.documents.values():
            keep(store, model_document)
    scale = scores.Scale.of(cast("Scored", request.scored), files)
    apps = sorted(files)
    seen = trained_on(run for app in apps for run in held.profiles[app].runs)
    pairs = [p for p in held.pairs if files.keys() >= set(p) and p not in seen]
    measured = scores.measured_pairs(held.runs, pairs, scale)
    if not any(pair.values for pair in measured):
        reasons = sorted({run.error for run in held.runs if run.error})
        raise MeasurementError(
            " ".join(["No pair can be scored yet.", *reasons]),
            hint=None if held.complete else "The same command continues where this one stopped.",
        )
    signatures = {app: held.profiles[app].signatures for app in apps}
    predicted = scores.predicted_pairs(files, signatures, measured, scale)
    profile_runs = [run for app in apps for run in held.profiles[app].runs]
    profiles = {app: held.profiles[app] for app in apps}
    awake = scores.awake_predictions(files, {app: p.runs for app, p in profiles.items()}, scale)
    document = score_pairs(
        measured,
        predicted.pairs + awake + scores.others_predictions(others, apps, scale),
        solo=scale.solo,
        training_mean={
            app: scores.training_mean(held.profiles[app].runs, files[app], scale) for app in apps
        },
        repeats=held.repeats,
        chosen={app: file.variants["full"].chosen for app, file in files.items()},
        placement=request.placement,
        node=held.node.to_dict(),
        runs=len(profile_runs) + len(held.runs),
        elapsed_s=scores.span_s([*profile_runs, *held.runs]),
        scored=scale.scored,
        minutes=scores.minutes_of(
            [(*profile.runs, *profile.signatures) for profile in profiles.values()],
            held.runs,
            {prediction.model for prediction in predicted.pairs},
            others,
        ),
        seed=seed,
    )
    coupling = coupling_section(
        document["pairs"],
        held.runs,
        {app: (*profile.runs, *profile.signatures) for app, profile in profiles.items()},
        AUTO,
    )
    return document | {
        "metrics": {
            app: {"unit": file.metric_unit, "better": file.better} for app, file in files.items()
        },
        **({} if coupling is None else {"coupling": coupling}),
        "complete": held.complete,
        "failed": sum(not run.ok for run in held.runs),
        "reasons": sorted({run.error for run in held.runs if run.error}),
        "campaign": held.campaign.id,
        "seed": held.campaign.document.get("seed"),
        "precision": held.campaign.document.get("precision"),
        "sample": held.campaign.document.get("sample"),
        "order": scores.order_measured(
            itertools.chain.from_iterable((*p.runs, *p.signatures) for p in profiles.values()),
            held.runs,
        ),
        "profiles": {app: profile.to_dict() for app, profile in sorted(held.profiles.items())},
        "trained_on": sorted(map(list, seen)),
        "dropped": dict(held.dropped) | untrained,
        "not_predicted": predicted.reasons,
        "widening": {
            app: {
                "factor": w.factor,
                "expected": w.expected,
                "groups": w.groups,
                "pairs": w.pairs,
            }
            for app, w in predicted.widenings.items()
        },
        "selected": scores.selected(files),
        "sensitivity": {
            app: scores.worst_slowdown(held.profiles[app].runs, file) for app, file in files.items()
        },
    }
