"""``kongming evaluate --nodes`` and ``--instances``: single-task accuracy (paper, Table IV), over
environments of this node or over machines, each left out once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.campaigns.campaign import Budget
from kongming.cli import output
from kongming.cli.evaluate.report import fitting, print_cost, report, train_all

if TYPE_CHECKING:
    from kongming.audit.instances.leave_out import Leave
    from kongming.campaigns.profile_campaign import ProfileSettings
    from kongming.cli.evaluate.request import Request
    from kongming.profiling.environments.environment import Environment
    from kongming.records.application import Application
    from kongming.records.fingerprint import NodeFacts
    from kongming.records.run import Run
    from kongming.store import Store
    from kongming.store.campaigns import Campaign

REPEATS = 3
"""Default number of runs in each environment."""

WORDS = {
    "instance": "each machine left out in turn",
    "session": "each session left out in turn: a machine may have been seen in another one",
    "block": "FALLBACK, NOT TABLE IV: blocks of time left out; the models knew the machine",
}
"""Title of the errors, by what was left out."""

PAPER = ("MEAN", "LM", "LM.GA", "CART", "CART.GA", "SVM", "GBM")
"""The columns of Table IV, in its order, followed by auto and the others by their errors."""


@dataclass(frozen=True, slots=True)
class Held:
    """The runs of an evaluation over environments, measured now or earlier."""

    node: NodeFacts
    campaign: Campaign
    apps: Sequence[str]
    runs: Sequence[Run]
    complete: bool
    dropped: Mapping[str, str] = field(default_factory=dict)


def evaluate_nodes(request: Request) -> int:
    """Measure missing runs, train, predict, score and print; return the exit status."""
    from kongming.profiling.appfile import load, select
    from kongming.store import Store

    budget = Budget(request.budget)
    apps = select(load(request.file), request.names)
    with Store.open(request.store_url, write=not (request.dry_run or request.score_only)) as store:
        if request.score_only:
            held = _held(store, request, apps)
        else:
            settings = request.settings(apps)
            if request.dry_run:
                return _print_cost(store, request, settings, request.repeats or REPEATS)
            held = _measure(store, request, settings, budget)
    document = _score(held, request)
    report(document, request.out, as_json=request.as_json)
    return 0 if held.complete and not held.dropped and not document["failed"] else 1


def _print_cost(
    store: Store,
    request: Request,
    site: ProfileSettings,
    repeats: int,
) -> int:
    """Estimate the cost of all runs in all environments that are possible here."""
    from kongming.campaigns.cost import solo_seconds, suite_seconds
    from kongming.campaigns.environment_campaign import (
        campaign_settings,
        environments_of,
        known_times,
        possible_environments,
    )
    from kongming.campaigns.evaluation import newest_campaign

    count = request.environments
    newest = newest_campaign(store, campaign_settings(site, count, repeats))
    reference = known_times(store, site)
    if newest is None:
        environments = possible_environments(site, count, reference or {})
    else:
        environments = environments_of(newest)
    possible = [environment for environment in environments if environment.unavailable is None]
    solo, assumed = solo_seconds(store, site.apps, site.node.id)
    seconds = 0.0
    for environment in possible:
        around = suite_seconds(site.suite, "quick", shared_core=environment.in_slices)
        seconds += around + max((solo[name] for name in environment.programs), default=0.0)
        seconds += sum(solo[app] * _longer(environment) + around for app in site.apps)
    runs = repeats * len(possible) * len(site.apps)
    sentences = [
        f"{len(site.apps)} applications in {len(possible)} environments {repeats} times: "
        f"{runs} runs, about {repeats * seconds / 60:.0f} min.",
        f"Environments: {', '.join(environment.name for environment in possible)}.",
    ]
    sentences += [
        f"Not possible here: {environment.name}: {environment.unavailable}"
        for environment in environments
        if environment.unavailable is not None
    ]
    if newest is None and reference is None and any(each.kind == "io" for each in possible):
        sentences.append(
            "The disk's speed is not known: if it is slow, the limits on it will be lower."
        )
    document = {
        "kind": "nodes",
        "placement": request.placement,
        "environments": [environment.to_dict() for environment in environments],
        "runs": runs,
        "seconds": repeats * seconds,
        "assumed_seconds": assumed,
    }
    return print_cost(document, sentences, site.unchecked, as_json=request.as_json)


def _longer(environment: Environment) -> float:
    """Return the estimated runtime there as a multiple of the solo time."""
    if environment.kind == "quota":
        return 1.0 / float(environment.parameters["cpu_quota"])
    # Under a memory limit a run before fills the page cache.
    return 2.0 if environment.kind == "memory" or environment.shares_cpu else 1.0


def _measure(store: Store, request: Request, settings: ProfileSettings, budget: Budget) -> Held:
    """Run the applications in the environments, or the remaining part."""
    from kongming.campaigns.environment_campaign import EnvironmentCampaign
    from kongming.cli.profile.campaign_view import CampaignView
    from kongming.cli.profile.profiling import drive_shown

    campaign = EnvironmentCampaign.begin(
        store,
        settings,
        count=request.environments,
        repeats=request.repeats or REPEATS,
        again=request.again,
        anyway=request.anyway,
    )
    if not campaign.finished:
        view = CampaignView(sorted(settings.apps), f"environments, {settings.placement}")
        drive_shown(campaign, view, budget, quiet=request.as_json, anyway=request.anyway)
    return Held(
        settings.node,
        campaign.stored,
        sorted(settings.apps),
        _standing(store.runs(campaign=campaign.stored.id)),
        campaign.complete,
        campaign.dropped,
    )


def _held(store: Store, request: Request, apps: Mapping[str, Application]) -> Held:
    """Return the stored runs; measure and write nothing. Raises UntrainedError without any."""
    from kongming.campaigns.environment_campaign import KIND
    from kongming.campaigns.evaluation import held_campaign
    from kongming.profiling.plans.identity import identities_of

    identities = identities_of(apps)
    more = {} if request.environments is None else {"environments": request.environments}
    campaign = held_campaign(
        store, KIND, identities, placement=request.placement, repeats=request.repeats, **more
    )
    return Held(
        store.node(campaign.document["node"]),
        campaign,
        sorted(apps),
        _standing(run for run in store.runs(campaign=campaign.id) if run.app in apps),
        campaign.finished_at is not None,
    )


def _standing(runs: Iterable[Run]) -> list[Run]:
    """Return the runs without the failed ones that were repeated with success."""
    every = list(runs)
    answered = {run.step for run in every if run.ok}
    return [run for run in every if run.ok or run.step not in answered]


def _score(held: Held, request: Request) -> dict[str, Any]:
    """Return the document: the result of ``score_environments``, and its inputs.

    Raises:
        MeasurementError: no application ran in two environments.
    """
    from kongming.campaigns.environment_campaign import environments_of
    from kongming.evaluate import predicted_environments as scores
    from kongming.evaluate import score_environments
    from kongming.evaluate.predicted_pairs import span_s
    from kongming.records.errors import MeasurementError

    seed = request.seed or 0
    cases = scores.by_environment(held.runs, held.apps)
    todo = list(scores.training_tasks(cases, request.placement, request.models, seed))
    if not todo:
        raise MeasurementError(
            "No application has run in two environments yet.",
            hint="The same command continues where this one stopped.",
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
        placement=request.placement,
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
            environment.name: environment.unavailable
            for environment in environments_of(held.campaign)
            if environment.unavailable is not None
        },
        "chosen_by_environment": {
            app: {
                name: file.variants["full"].chosen
                for (name_of_app, name), file in trained.files.items()
                if name_of_app == app
            }
            for app in held.apps
        },
        "selected": {},
    }


def evaluate_instances(
    files: Sequence[Path],
    leave: Leave,
    *,
    programs: Sequence[str],
    models: Sequence[str] | None,
    seed: int | None,
    jobs: int,
    as_json: bool,
) -> int:
    """Score the models on observations, print the result, and return 0.

    Raises:
        CannotAnswerError: there is only one machine (or session).
        InputError: a file is not an observation, or a name is unknown.
    """
    from kongming.audit.anonymising import apart
    from kongming.audit.instances.accuracy import Task, accuracy
    from kongming.audit.readings import read_observations
    from kongming.processes.pool import in_order

    observations = read_observations(files)
    if (text := apart(observations)) is not None:
        output.error_console().print(f"note: {text}", markup=False)
    with output.progress("leaving out") as bar:

        def mapper(
            function: Callable[[Task], dict[str, Any]], tasks: Iterable[Task]
        ) -> Iterable[tuple[Task, dict[str, Any]]]:
            listed = list(tasks)
            with closing(in_order(function, listed, jobs)) as shared:
                for k, (task, scores) in enumerate(shared):
                    bar.update(k + 1, total=len(listed), text=f"{task[0].program} is done")
                    yield task, scores

        document = accuracy(
            observations,
            leave,
            programs=programs,
            models=models,
            random_state=seed or 0,
            mapper=mapper,
        )
    if as_json:
        output.emit_json(document)
    else:
        _show_instances(document)
    return 0


def _show_instances(document: dict[str, Any]) -> None:
    console = output.console()
    geomeans, programs = document["geomean_pct"], document["programs"]
    others = sorted((m for m in geomeans if m not in PAPER), key=lambda m: geomeans[m])
    models = [m for m in PAPER if m in geomeans] + others
    columns = ["program", *models, "noise", "runs"]
    rows = [
        [
            name,
            *(f"{program['error_pct'][m]:.1f} / {program['iqr_pct'][m]:.1f}" for m in models),
            "-" if program["floor_pct"] is None else f"{program['floor_pct']:.1f}",
            str(program["runs"]),
        ]
        for name, program in programs.items()
    ]
    spreads, floor = document["geomean_iqr_pct"], document["noise_floor_pct"]
    rows.append(
        [
            "geo.mean",
            *(f"{geomeans[m]:.1f} / {spreads[m]:.1f}" for m in models),
            "-" if floor is None else f"{floor:.1f}",
            "",
        ]
    )
    machines = document["machines"]
    title = (
        f"{len(programs)} programs on {machines} machine{'' if machines == 1 else 's'}; error in "
        "%, median / IQR"
    )
    for these, cells in fitting(columns, rows, console.width, ends=2):
        console.print(output.table(these, cells, title=title, right=these[1:]))
    console.print(f"{WORDS[document['leave']][:1].upper()}{WORDS[document['leave']][1:]}.")
    console.print(
        "Noise: the difference between consecutive runs. auto is chosen separately for each "
        "left-out part:",
        highlight=False,
    )
    for name, program in programs.items():
        chosen = sorted(program["auto"].items(), key=lambda item: -item[1])
        console.print(f"  {name}: {'; '.join(f'{c} ({n})' for c, n in chosen)}", markup=False)
    # A surrogate may be left out of one program alone, for lack of readings before its runs.
    dropped = {
        (name, reason)
        for program in programs.values()
        for name, reason in program["dropped_surrogates"].items()
    }
    for name, reason in sorted(dropped):
        console.print(f"Not used: {name}, which {reason}.", markup=False, soft_wrap=True)
    if document["left_out"]:
        console.print(f"Too few runs: {', '.join(document['left_out'])}.", markup=False)
    mixed = [name for name, program in programs.items() if program["identities"] > 1]
    if mixed:
        console.print(
            f"Not the same program everywhere (another executable or command): {', '.join(mixed)}.",
            markup=False,
        )
