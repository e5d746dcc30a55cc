"""``kongming profile``: run applications under load, and time the suite beside them."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output

if TYPE_CHECKING:
    from kongming.application import Application
    from kongming.cli.campaign_view import CampaignView
    from kongming.fingerprint import NodeFacts
    from kongming.probes.suite import Suite
    from kongming.profiling.plans import Plan
    from kongming.run import Run
    from kongming.store import Store

ASSUMED_APP_S = 5.0
"""What a dry run takes an application to last that never ran here."""


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
    from kongming.cli.node import measured_node
    from kongming.errors import InputError
    from kongming.probes.folders import io_folder
    from kongming.probes.suite import load_suite
    from kongming.profiling.appfile import load, select
    from kongming.profiling.identity import identity
    from kongming.profiling.placement import choose
    from kongming.profiling.plans import make_plan
    from kongming.store import Store

    if budget is not None and not 0 < budget < float("inf"):
        raise InputError("is out of range.", field="budget", found=budget, allowed="above 0")
    apps = select(load(file), names)
    io_dir = io_folder(directory)
    node = measured_node(placement)
    for app in apps.values():
        choose(node, placement, app.cpus)  # refuses what this node does not have
    suite = load_suite(node, io_dir)
    suite_name = suite_name or ("quick" if placement == "same-core" else "standard")
    settings: dict[str, Any] = {
        "plan": plan_name,
        "placement": placement,
        "suite": suite_name,
        "suite_version": suite.version,
        "repeats": repeats,
        "levels": levels,
        "node": node.id,
        "apps": {name: identity(app) for name, app in sorted(apps.items())},
        **({} if seed is None else {"asked_seed": seed}),
    }
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    settings["seed"] = random.SystemRandom().randrange(2**31) if seed is None else seed

    def planned(seed: int) -> Plan:
        return make_plan(
            plan_name,
            sorted(apps),
            suite.inducers(),
            placement=placement,
            seed=seed,
            suite=suite_name,
            repeats=repeats,
            levels=levels,
        )

    plan = planned(settings["seed"])
    with Store.open(store_url) as store:
        if dry_run:
            return _dry_run(store, plan, apps, node, suite, as_json=as_json)
        finished = [c for c in store.campaigns() if c.key == key and c.finished_at is not None]
        if finished and not again:
            return _already(finished[0].id, apps, as_json=as_json)
        store.put_node(node)
        for name, app in apps.items():
            store.put_application(name, settings["apps"][name], app.to_dict())
        campaign = store.open_campaign(key, settings)
        plan = planned(int(campaign.document["seed"]))
        return _carry_out(
            store, campaign.id, plan, apps, node, suite, io_dir, budget, as_json=as_json
        )


def _carry_out(
    store: Store,
    campaign: str,
    plan: Plan,
    apps: dict[str, Application],
    node: NodeFacts,
    suite: Suite,
    io_dir: Path,
    budget: float | None,
    *,
    as_json: bool,
) -> int:
    from kongming.cli.campaign_view import CampaignView
    from kongming.profiling.events import Measured
    from kongming.profiling.profiler import profile
    from kongming.run import Run, Signature

    started = time.monotonic()
    earlier = store.runs(campaign=campaign)
    done = store.campaign_steps_done(campaign) - _to_try_again(plan, earlier)
    walls = {run.app: run.wall_s for run in earlier if run.ok}
    if done and not as_json:
        output.error_console().print(f"resuming: {len(done)} of {len(plan.steps)} steps are done")
    events = profile(
        apps,
        plan,
        node=node,
        suite=suite,
        work_dir=io_dir,
        io_dir=io_dir,
        campaign=campaign,
        done=frozenset(done),
        walls=walls,
        stop_when=lambda: budget is not None and time.monotonic() - started > 60.0 * budget,
    )
    title = f"{plan.name} plan, {plan.placement}, seed {plan.seed}"
    with CampaignView(sorted(apps), title) as view, closing(events):
        for run in earlier:
            if run.ok or run.step in done:
                view.see(run)
        for event in events:
            if isinstance(event, Measured):
                store.add_fingerprint(event.fingerprint, purpose=event.purpose)
            elif isinstance(event, Run):
                store.add_run(event)
            elif isinstance(event, Signature):
                store.add_signature(event)
            view.see(event)
    behind = store.campaign_steps_done(campaign)
    dropped = {app for app, row in view.rows.items() if row.dropped is not None}
    complete = all(s.index in behind or s.app in dropped for s in plan.steps)
    if complete and not dropped:
        store.finish_campaign(campaign)
    units = {name: app.metric_unit for name, app in apps.items()}
    _report(view, units, campaign, plan, time.monotonic() - started, complete, as_json=as_json)
    return 1 if view.failed else 0


def _to_try_again(plan: Plan, earlier: Sequence[Run]) -> set[int]:
    """First runs that failed: what their applications were left out for may work by now."""
    first = {step.index for step in plan.steps if step.kind == "solo" and step.repeat == 0}
    return first - {run.step for run in earlier if run.ok}


def _report(
    view: CampaignView,
    units: dict[str, str],
    campaign: str,
    plan: Plan,
    elapsed_s: float,
    complete: bool,
    *,
    as_json: bool,
) -> None:
    from kongming.run import solo_time

    document: dict[str, Any] = {
        "campaign": campaign,
        "plan": plan.name,
        "placement": plan.placement,
        "seed": plan.seed,
        "complete": complete,
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
    if not complete:
        console.print("The budget is spent; the same command goes on where this one stopped.")
    elif kept := [app for app, row in view.rows.items() if row.solo and row.dropped is None]:
        console.print(f"Next: kongming train {' '.join(kept)}")


def _already(campaign: str, apps: dict[str, Application], *, as_json: bool) -> int:
    if as_json:
        output.emit_json({"campaign": campaign, "complete": True, "failed": 0, "apps": {}})
    else:
        output.console().print(
            f"This plan is complete for {', '.join(sorted(apps))}. "
            "--again measures it anew and adds to what is there."
        )
    return 0


def _dry_run(
    store: Store,
    plan: Plan,
    apps: dict[str, Application],
    node: NodeFacts,
    suite: Suite,
    *,
    as_json: bool,
) -> int:
    from kongming.probes.fingerprinting import schedule
    from kongming.profiling.plans import estimate
    from kongming.run import solo_time

    seconds, assumed = {}, []
    for name in apps:
        solo = solo_time(
            run for run in store.runs(app=name, node_id=node.id) if run.metric_unit == "s"
        )
        if solo is None:
            assumed.append(name)
        seconds[name] = ASSUMED_APP_S if solo is None else solo.median
    latest = store.fingerprints(node_id=node.id, suite_version=suite.version, limit=20)
    rates = {}
    for surrogate in suite.surrogates:
        times = [f.times()[surrogate.name] for f in latest if surrogate.name in f.times()]
        if surrogate.family == "write" and surrogate.bytes_per_op:
            # Never timed here: a gigabyte a second, so that the estimate errs on the high side.
            rates[surrogate.name] = surrogate.bytes_per_op / min(times) if times else 1e9
    names = suite.names_of(plan.suite)
    steady = plan.placement == "same-core"
    window = schedule(plan.suite, len(names), steady=steady)
    around = schedule("quick", len(suite.names_of("quick")), steady=steady)
    cost = estimate(
        plan,
        app_seconds=seconds,
        suite_seconds=window.seconds,
        quick_seconds=around.seconds,
        suite_bytes=sum(rates[name] for name in names if name in rates)
        * window.chunk
        * window.rounds,
        write_bytes_per_second=rates,
    )
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
        f"{sum(cost.runs.values())} runs of {len(apps)} applications at the most, "
        f"about {cost.seconds / 60:.0f} min, up to {cost.written_bytes / 1e9:.0f} GB written."
    )
    if assumed:
        console.print(
            f"Not yet run here and taken to last {ASSUMED_APP_S:g} s: {', '.join(sorted(assumed))}."
        )
    return 0
