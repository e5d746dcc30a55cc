"""``kongming profile``: run applications under load, and time the suite beside them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output

if TYPE_CHECKING:
    from kongming.cli.profile_campaign import Profiled, Profiling
    from kongming.profiling.plans import Plan
    from kongming.store import Store


@click.command("profile", short_help="Run applications under load levels and keep the runs.")
@click.argument("file", metavar="APPS.toml", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--app", "names", metavar="NAME", multiple=True, help="Only this one (repeatable).")
@options.placement_option
@click.option("--plan", "plan_name", default="quick", show_default=True, help="quick or paper.")
@click.option("--repeats", type=int, default=1, show_default=True, help="Times each level.")
@click.option("--levels", type=int, default=None, help="Only the N most telling load levels.")
@click.option(
    "--suite",
    "suite_name",
    type=click.Choice(["quick", "standard"]),
    default=None,
    help="Surrogates timed under each level (default: standard; quick where cores are shared).",
)
@click.option("--budget", type=float, metavar="MINUTES", help="Stop after this; resumable.")
@click.option("--dry-run", is_flag=True, help="Tell runs, time and bytes written, and stop.")
@click.option("--again", is_flag=True, help="Measure anew what is already complete.")
@click.option("--seed", type=int, default=None, help="Order of the runs (default: drawn, kept).")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder for scratch files and I/O surrogates: on the disk that matters.",
)
@options.store_option
@options.json_option
def command(
    file: Path,
    names: Sequence[str],
    placement: str,
    plan_name: str,
    repeats: int,
    levels: int | None,
    suite_name: str | None,
    budget: float | None,
    dry_run: bool,
    again: bool,
    seed: int | None,
    directory: Path | None,
    store_url: str | None,
    as_json: bool,
) -> int:
    """Profile the applications of APPS.toml on this node.

    Each one runs alone, under every load level of the plan, and in a loop while the suite is
    timed beside it. Everything is kept in the store as it is measured; the same command resumes
    an interrupted campaign. Exit status 1 when runs failed.
    """
    from kongming.cli import campaign
    from kongming.cli.node import measured_node
    from kongming.cli.profile_campaign import Profiling, profile_applications
    from kongming.probes.folders import io_folder
    from kongming.probes.suite import load_suite
    from kongming.profiling.appfile import load, select
    from kongming.profiling.placement import choose
    from kongming.store import Store

    stop_when = campaign.budget(budget)
    apps = select(load(file), names)
    io_dir = io_folder(directory)
    node = measured_node(placement)
    for app in apps.values():
        choose(node, placement, app.cpus)  # refuses what this node does not have
    asked = Profiling(
        apps=apps,
        node=node,
        suite=load_suite(node, io_dir),
        placement=placement,
        io_dir=io_dir,
        plan_name=plan_name,
        repeats=repeats,
        levels=levels,
        suite_name=suite_name,
        asked_seed=seed,
    )
    plan = asked.plan(campaign.seed_of(seed))
    with Store.open(store_url) as store:
        if dry_run:
            return _dry_run(store, asked, plan, as_json=as_json)
        key = campaign.key_of(asked.settings())
        finished = [c for c in store.campaigns() if c.key == key and c.finished_at is not None]
        if finished and not again:
            return _already(finished[0].id, apps, as_json=as_json)
        started = time.monotonic()
        profiled = profile_applications(store, asked, stop_when, quiet=as_json)
    units = {name: app.metric_unit for name, app in apps.items()}
    _report(profiled, units, time.monotonic() - started, as_json=as_json)
    return 1 if profiled.view.failed else 0


def _report(
    profiled: Profiled, units: Mapping[str, str], elapsed_s: float, *, as_json: bool
) -> None:
    from kongming.run import solo_time

    view, plan = profiled.view, profiled.plan
    document: dict[str, Any] = {
        "campaign": profiled.campaign,
        "plan": plan.name,
        "placement": plan.placement,
        "seed": plan.seed,
        "complete": profiled.complete,
        "elapsed_s": elapsed_s,
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
            "worst_slowdown": row.worst if row.solo else None,
            "dropped": row.dropped,
            "reasons": sorted(set(row.reasons)),
        }
    if as_json:
        output.emit_json(document)
        return
    from rich.table import Table

    table = Table(title=f"Profiled in {elapsed_s / 60:.1f} min, {plan.placement}")
    for heading in ("application", "solo", "repeat noise", "worst slowdown", "runs", "failed"):
        table.add_column(heading, justify="left" if heading == "application" else "right")
    for app, seen in document["apps"].items():
        table.add_row(
            app,
            "-" if seen["solo_s"] is None else f"{seen['solo_s']:.3g} {seen['metric_unit']}",
            "-" if seen["noise_pct"] is None else f"{seen['noise_pct']:.1f} %",
            "-" if seen["worst_slowdown"] is None else f"{seen['worst_slowdown']:.2f}",
            str(seen["runs"]),
            str(seen["failed"]),
        )
    console = output.console()
    console.print(table)
    for app, seen in document["apps"].items():
        if seen["signature_lacks"]:
            console.print(
                f"{app}: its signature lacks {', '.join(seen['signature_lacks'])}: its iterations "
                "are too short to see them. Let it work longer, or fewer predictions can be made.",
                style="yellow",
            )
        for reason in seen["reasons"]:
            console.print(f"{app}: {reason}", style="red", markup=False, highlight=False)
        if seen["dropped"]:
            console.print(f"{app} was left out; the same command tries it again.", style="red")
    if view.failed:
        console.print(
            f"{view.failed} of {sum(row.runs for row in view.rows.values())} runs failed."
        )
    if not profiled.complete:
        console.print("The budget is spent; the same command goes on where this one stopped.")
    elif kept := [app for app, row in view.rows.items() if row.solo and row.dropped is None]:
        console.print(f"Next: kongming train {' '.join(kept)}")


def _already(campaign: str, apps: Iterable[str], *, as_json: bool) -> int:
    if as_json:
        output.emit_json({"campaign": campaign, "complete": True, "failed": 0, "apps": {}})
    else:
        output.console().print(
            f"This plan is complete for {', '.join(sorted(apps))}. "
            "--again measures it anew and adds to what is there."
        )
    return 0


def _dry_run(store: Store, asked: Profiling, plan: Plan, *, as_json: bool) -> int:
    from kongming.cli.profile_campaign import ASSUMED_APP_S, cost_of, solo_seconds

    cost = cost_of(store, asked, plan)
    _, assumed = solo_seconds(store, asked.apps, asked.node.id)
    document = {
        "plan": plan.name,
        "placement": plan.placement,
        "steps": len(plan.steps),
        "runs": dict(cost.runs),
        "seconds": cost.seconds,
        "written_bytes": round(cost.written_bytes),
        "assumed_seconds": {name: ASSUMED_APP_S for name in assumed},
    }
    if as_json:
        output.emit_json(document)
        return 0
    console = output.console()
    console.print(
        f"{sum(cost.runs.values())} runs of {len(asked.apps)} applications at the most, "
        f"about {cost.seconds / 60:.0f} min, up to {cost.written_bytes / 1e9:.0f} GB written."
    )
    if assumed:
        console.print(
            f"Not yet run here and taken to last {ASSUMED_APP_S:g} s: {', '.join(sorted(assumed))}."
        )
    return 0
