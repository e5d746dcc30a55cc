"""``kongming profile``: run applications under load, and time the suite next to them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.durations import DURATION
from kongming.cli.examples import examples
from kongming.cli.help_groups import GroupedCommand
from kongming.cli.profile.request import request_options
from kongming.cli.sizes import SIZE
from kongming.quantities import count, per_cent

if TYPE_CHECKING:
    from kongming.campaigns.campaign import Sink
    from kongming.campaigns.profile_campaign import ProfileCampaign, ProfileSettings
    from kongming.cli.profile.campaign_view import CampaignView
    from kongming.profiling.plans.steps import Plan
    from kongming.records.judgement import Judgement
    from kongming.store import Store


@click.command(
    "profile",
    cls=GroupedCommand,
    short_help="Run applications under load levels and keep the runs.",
    epilog=examples(
        "kongming profile apps.toml --dry-run",
        "kongming profile apps.toml --app xz --placement same-core --inducer-app redis",
    ),
)
@click.argument("file", metavar="APPS.toml|APP", type=click.Path(path_type=Path))
@click.option("--app", "names", metavar="NAME", multiple=True, help="Only this one (repeatable).")
@options.placement_option
@click.option(
    "--plan",
    "plan_name",
    default="quick",
    show_default=True,
    help="Plan of load levels: quick, paper, or adaptive (with --runs).",
)
@click.option(
    "--runs",
    type=int,
    default=None,
    metavar="N",
    help="With --plan adaptive: planned starts of each application, all included; a disturbed run "
    "is taken up to three times. Its load levels are chosen by what applications profiled before "
    "taught.",
)
@click.option(
    "--repeats", type=int, default=1, show_default=True, help="Number of runs at each load level."
)
@click.option(
    "--levels", type=int, default=None, help="Use only the N most informative load levels."
)
@click.option(
    "--suite",
    "suite_name",
    type=click.Choice(["quick", "standard"]),
    default=None,
    help="Surrogates timed under each level (default: standard; quick where cores are shared).",
)
@options.inducer_app_option
@click.option("--budget", type=DURATION, metavar="TIME", help="Stop after this time; resumable.")
@click.option(
    "--write-limit",
    "write_limit_bytes",
    type=SIZE,
    metavar="SIZE",
    help="Write about this much (as 5G) in this command: loads that would write more are left "
    "out, and when fingerprints have written it too, it stops; resumable.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the number of runs, their time and the bytes written, and stop.",
)
@click.option("--again", is_flag=True, help="Repeat a complete measurement.")
@options.anyway_option
@options.order_option
@options.scratch_option
@click.option(
    "--journal",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Share unfinished campaigns with this node's agent: the folder 'campaigns' of its state.",
)
@options.store_option
@options.wide_option
@options.json_option
@request_options
def command(
    file: Path,
    names: Sequence[str],
    placement: str,
    plan_name: str,
    runs: int | None,
    repeats: int,
    levels: int | None,
    suite_name: str | None,
    inducer_names: Sequence[str],
    budget: float | None,
    write_limit_bytes: float | None,
    dry_run: bool,
    again: bool,
    anyway: bool,
    seed: int | None,
    directory: Path | None,
    journal: Path | None,
    store_url: str | None,
    as_json: bool,
) -> int:
    """Profile the applications of APPS.toml on this node.

    Each one runs alone, under every load level of the plan, and in a loop while the suite is timed
    next to it. With --inducer-app it also runs next to programs of the file, in a loop as loads.
    Every run is stored at once; the same command resumes an interrupted campaign. Exit
    status 1 if runs failed.

    With --node and --server, the agent of that node profiles the application APP.
    """
    from kongming.campaigns.campaign import Budget, seed_of
    from kongming.campaigns.inducer_apps import select_inducers, with_signatures
    from kongming.campaigns.journaled_store import JournaledStore
    from kongming.campaigns.profile_campaign import profile_settings
    from kongming.campaigns.stored_profiles import taught_runs
    from kongming.cli.profile.profiling import profile_applications
    from kongming.profiling.appfile import load, select
    from kongming.profiling.cautions import cautions
    from kongming.store import Store

    limit = Budget(budget)
    known = load(file)
    apps = select(known, names)
    settings = profile_settings(
        apps,
        placement,
        directory,
        plan_name=plan_name,
        repeats=repeats,
        levels=levels,
        suite_name=suite_name,
        asked_seed=seed,
        runs=runs,
        inducer_apps=select_inducers(known, inducer_names, apps),
        anyway=anyway,
        dry_run=dry_run,
    )
    output.print_warnings(cautions({**settings.inducer_apps, **apps}))
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(store_url, write=not dry_run))
        settings = replace(settings, taught=taught_runs(store, settings))
        settings = with_signatures(store, settings)
        plan = settings.plan(seed_of(seed))
        if dry_run:
            return _dry_run(store, settings, plan, write_limit_bytes, as_json=as_json)
        finished = [
            campaign
            for campaign in store.campaigns()
            if campaign.key == settings.key and campaign.finished_at is not None
        ]
        if finished and not again:
            return _already(store, finished[0].id, apps, as_json=as_json)
        started = time.monotonic()
        sink: Sink = store
        if journal is not None:
            sink = stack.enter_context(closing(JournaledStore(store, journal)))
        campaign, view = profile_applications(
            sink,
            settings,
            limit,
            quiet=as_json,
            anyway=anyway,
            write_limit_bytes=write_limit_bytes,
        )
    units = {name: app.metric_unit for name, app in apps.items()}
    _report(campaign, view, units, time.monotonic() - started, as_json=as_json)
    return 1 if view.failed else 0


def _report(
    campaign: ProfileCampaign,
    view: CampaignView,
    units: Mapping[str, str],
    elapsed_s: float,
    *,
    as_json: bool,
) -> None:
    from kongming.cli.profile.apps import shown_metric
    from kongming.cli.profile.campaign_view import worst_text
    from kongming.profiling.runs.signature import needed_seconds
    from kongming.records.judging import judge
    from kongming.records.run import solo_time

    plan = campaign.plan
    settings = campaign.settings
    needed_s = needed_seconds(
        plan.suite,
        len(settings.suite.names_of(plan.suite)),
        shared_core=plan.placement == "same-core",
    )
    judged = {app: judge(row.measured) for app, row in view.rows.items()}
    document: dict[str, Any] = {
        "campaign": campaign.id,
        "plan": plan.name,
        "placement": plan.placement,
        "seed": plan.seed,
        "complete": campaign.complete,
        "elapsed_s": elapsed_s,
        "written_bytes": round(campaign.written_bytes),
        "left_out_steps": campaign.left_out,
        "failed": view.failed,
        "apps": {},
    }
    for app, row in view.rows.items():
        solo = solo_time(row.solo)
        document["apps"][app] = {
            "runs": row.runs,
            "failed": row.failed,
            "signatures": row.signatures,
            "signature_lacks": sorted(row.lacking),
            "solo_s": row.solo_metric,
            "metric_unit": units[app],
            "noise_pct": None if solo is None else solo.noise_pct,
            "worst_slowdown": row.worst,
            "worst_at_least": row.worst_at_least,
            "judged": judged[app].described(app),
            "dropped": row.dropped,
            "reasons": sorted(set(row.reasons)),
        }
    if as_json:
        output.emit_json(document)
        return
    columns = ("application", "solo", "repeat noise", "worst slowdown", "runs", "failed")
    rows = [
        (
            app,
            shown_metric(seen["solo_s"], seen["metric_unit"]),
            None if seen["noise_pct"] is None else per_cent(seen["noise_pct"]),
            worst_text(seen["worst_slowdown"], seen["worst_at_least"]),
            seen["runs"],
            seen["failed"],
        )
        for app, seen in document["apps"].items()
    ]
    title = f"Profiled in {elapsed_s / 60:.1f} min, {plan.placement}"
    console = output.console()
    console.print(
        output.table(columns, rows, title=title, right=columns[1:], minor=("runs", "repeat noise"))
    )
    for app, seen in document["apps"].items():
        if seen["signature_lacks"]:
            console.print(
                f"{app}: its signature lacks {', '.join(seen['signature_lacks'])}: its runs are "
                f"too short to see them, so that programs next to {app} may not be predicted. Let "
                f"a run last {output.format_seconds(needed_s)} or more (a larger input, or a loop "
                "in its command), then profile it again.",
                style="yellow",
            )
        for reason in seen["reasons"]:
            console.print(f"{app}: {reason}", style="red", markup=False, highlight=False)
        if seen["dropped"]:
            console.print(f"{app} was left out; the same command tries it again.", style="red")
    if view.failed:
        console.print(
            f"{view.failed} of {count(sum(row.runs for row in view.rows.values()), 'run')} failed."
        )
    if campaign.left_out:
        console.print(
            f"{count(campaign.left_out, 'step')} would write more than --write-limit allows "
            f"({campaign.written_bytes / 1e9:.1f} GB are written); the same command measures "
            "what is left."
        )
    elif not campaign.complete:
        console.print("The budget is spent; the same command continues where this one stopped.")
        return
    show_judged(judged)
    trainable = [
        app
        for app, row in view.rows.items()
        if row.dropped is None and judged[app].verdict != "spoiled"
    ]
    if trainable:
        console.print(f"Next: kongming train {' '.join(trainable)}")


def show_judged(judged: Mapping[str, Judgement]) -> None:
    """Print the verdict on each application's profile, and once what to do about those that are
    not good."""
    from kongming.records.judgement import measure_again

    console = output.console()
    styles = {"good": "green", "usable": "yellow", "spoiled": "red"}
    for verdict, style in styles.items():
        for app, judgement in judged.items():
            if judgement.verdict == verdict:
                console.print(f"The profile of {app} is {judgement}", style=style, markup=False)
    again = [
        app for app, judgement in judged.items() if judgement.advice(app) == measure_again([app])
    ]
    if again:
        console.print(measure_again(again), markup=False)
    others = (judgement.advice(app) for app, judgement in judged.items() if app not in again)
    for advice in dict.fromkeys(filter(None, others)):
        console.print(advice, markup=False)


def _already(store: Store, campaign: str, apps: Iterable[str], *, as_json: bool) -> int:
    from kongming.records.judging import judge

    # With fingerprints: what somebody else slowed is seen in them alone.
    runs = store.runs(campaign=campaign)
    judged = {app: judge(run for run in runs if run.app == app) for app in sorted(apps)}
    if as_json:
        apps_document = {
            app: {"judged": judgement.described(app)} for app, judgement in judged.items()
        }
        output.emit_json(
            {"campaign": campaign, "complete": True, "failed": 0, "apps": apps_document}
        )
    else:
        show_judged(judged)
        output.console().print(
            f"This plan is complete for {', '.join(judged)}. --again repeats it; of a spoiled "
            "profile the runs are then left out, of others they are added."
        )
    return 0


def _dry_run(
    store: Store,
    settings: ProfileSettings,
    plan: Plan,
    write_limit_bytes: float | None,
    *,
    as_json: bool,
) -> int:
    from kongming.campaigns.cost import ASSUMED_APP_S, cost_of, solo_seconds
    from kongming.campaigns.this_node import unchecked_text
    from kongming.cli.profile.preflight import problems
    from kongming.records.control import TAKES

    cost = cost_of(store, settings, plan)
    known = {**settings.inducer_apps, **settings.apps}
    _, assumed = solo_seconds(store, known, settings.node.id)
    limit = float("inf") if write_limit_bytes is None else write_limit_bytes
    likely, most = min(cost.written_bytes, limit), min(cost.most_written_bytes, limit)
    missing = problems(known)
    unchecked = settings.unchecked
    document = {
        "plan": plan.name,
        "placement": plan.placement,
        "steps": len(plan.steps),
        "runs": dict(cost.runs),
        "seconds": cost.seconds,
        "most_seconds": cost.most_seconds,
        "written_bytes": {"likely": round(likely), "at_most": round(most)},
        "problems": missing,
        "assumed_seconds": {name: ASSUMED_APP_S for name in assumed},
        "unchecked_cpus": list(unchecked or ()),
    }
    if as_json:
        output.emit_json(document)
        return 0
    console = output.console()
    console.print(
        f"{sum(cost.runs.values())} runs of {count(len(settings.apps), 'application')} planned, "
        f"about {cost.seconds / 60:.0f} min ({cost.most_seconds / 60:.0f} min where all loads slow "
        f"them by far and each run is disturbed and taken {TAKES} times), about "
        f"{likely / 1e9:.1f} GB written, {most / 1e9:.1f} GB at the most (--write-limit caps it)."
    )
    for name, reason in missing.items():
        console.print(f"! {name}: {reason}", markup=False)
    if assumed:
        console.print(
            f"Not yet run here, assumed to take {ASSUMED_APP_S:g} s: {', '.join(sorted(assumed))}."
        )
    if unchecked is not None:
        console.print(unchecked_text(unchecked))
    return 0
