"""``kongming runs``: the runs with their load and runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.quantities import format_slowdown
from kongming.records.run import RUN_KINDS, Run, solo_time

if TYPE_CHECKING:
    from kongming.store import Store

SHOWN = 50
"""Default number of rows of the table."""


@click.command(
    "runs", epilog=examples("kongming runs --app xz --limit 10", "kongming runs --failed")
)
@click.option("--app", metavar="NAME", help="Only this application.")
@click.option("--kind", type=click.Choice(RUN_KINDS), help="Only runs of this kind.")
@options.placement_filter
@click.option("--failed", is_flag=True, help="Only runs that failed.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Only the newest N; 0 for all. Default: {SHOWN}, and all with --json.",
)
@click.option("--fingerprints", is_flag=True, help="With --json: include each run's fingerprints.")
@options.store_option
@options.wide_option
@options.json_option
def command(
    app: str | None,
    kind: str | None,
    placement: str | None,
    failed: bool,
    limit: int | None,
    fingerprints: bool,
    store_url: str | None,
    as_json: bool,
) -> None:
    """List runs, oldest first.

    The slowdown is over the median of the application's solo runs on the same node and at the
    same placement.
    """
    from kongming.records.errors import UnknownNameError
    from kongming.store import Store

    if limit is None:
        limit = 0 if as_json else SHOWN
    with Store.open(store_url, create=False) as store:
        known = {entry.name for entry in store.applications()}
        if app is not None and app not in known:
            raise UnknownNameError("profiled application", app, known)
        runs = store.runs(
            app=app,
            kind=kind,
            placement=placement,
            ok=False if failed else None,
            fingerprints=as_json and fingerprints,
        )
        solo = _solo_costs(store, app)
        where = store.url
    shown = runs[-limit:] if limit else runs
    if as_json:
        output.emit_json(
            {
                "total": len(runs),
                "runs": [_document(run, solo, with_fingerprints=fingerprints) for run in shown],
            }
        )
        return
    console = output.console()
    if not shown:
        what = "runs" if app is kind is placement is None and not failed else "such runs"
        console.print(f"No {what} in the store {where}.", markup=False)
        return
    console.print(
        output.table(
            (
                "started (UTC)",
                "application",
                "kind",
                "placement",
                "under",
                "metric",
                "slowdown",
                "reason",
            ),
            [
                (
                    run.started_at[:19].replace("T", " "),
                    run.app,
                    run.kind,
                    run.placement,
                    _load_of(run),
                    _metric_of(run),
                    _times(_slowdown(run, solo), run.cut_off),
                    # A cell is one line: the end of a program's output has several.
                    " ".join((run.error or "").split()),
                )
                for run in shown
            ],
            right=("metric", "slowdown"),
            minor=("placement", "started (UTC)", "reason", "kind"),
        )
    )
    if len(shown) < len(runs):
        console.print(f"The newest {len(shown)} of {len(runs)} runs; --limit 0 shows all.")


Key = tuple[str, str, str, str]


def _key(run: Run) -> Key:
    return run.app, run.identity, run.node_id, run.placement


def _solo_costs(store: Store, app: str | None) -> dict[Key, float]:
    groups: dict[Key, list[Run]] = {}
    for run in store.runs(app=app, kind="solo", ok=True, fingerprints=False):
        groups.setdefault(_key(run), []).append(run)
    times = {key: solo_time(runs) for key, runs in groups.items()}
    return {key: time.median for key, time in times.items() if time is not None}


def _slowdown(run: Run, solo: dict[Key, float]) -> float | None:
    median = solo.get(_key(run))
    return None if median is None or not run.ok else run.cost / median


def _document(run: Run, solo: dict[Key, float], *, with_fingerprints: bool) -> dict[str, Any]:
    document = run.to_dict()
    if not with_fingerprints:
        del document["fingerprint"], document["before"]
    return document | {"ok": run.ok, "slowdown": _slowdown(run, solo)}


def _load_of(run: Run) -> str:
    return ", ".join([*map(str, run.levels), *run.neighbours]) or "-"


def _metric_of(run: Run) -> str:
    if run.metric is None:
        return "-"
    if run.metric_unit == "s":
        return (">=" if run.cut_off else "") + output.format_seconds(run.metric)
    return f"{run.metric:.4g} {run.metric_unit}"


def _times(factor: float | None, at_least: bool) -> str:
    return "-" if factor is None else format_slowdown(factor, at_least)
