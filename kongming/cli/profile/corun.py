"""``kongming corun``: run two applications together, and compare with the prediction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.quantities import per_cent

if TYPE_CHECKING:
    from kongming.records.run import Run
    from kongming.store import Store


@click.command(
    "corun",
    short_help="Run applications together in pairs, and compare with the prediction.",
    epilog=examples("kongming corun xz redis --repeats 5", "kongming corun xz redis nginx --json"),
)
@click.argument("names", metavar="A B...", nargs=-1, required=True)
@options.placement_option
@click.option(
    "--repeats", type=int, default=2, show_default=True, help="Number of co-runs in each direction."
)
@click.option(
    "--apps",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Applications file (default: the applications as profiled last).",
)
@options.anyway_option
@click.option("--model", default=None, help="The model to compare with (default: the chosen).")
@click.option(
    "--seed", type=int, default=None, help="Seed of the order and the phases (default: random)."
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder for scratch files.",
)
@options.store_option
@options.wide_option
@options.json_option
def command(
    names: tuple[str, ...],
    placement: str,
    repeats: int,
    file: Path | None,
    anyway: bool,
    model: str | None,
    seed: int | None,
    directory: Path | None,
    store_url: str | None,
    as_json: bool,
) -> int:
    """Time A while B runs in a loop, and B while A does; print predicted and measured slowdowns.

    The neighbour is warmed up first, and the run starts at a random phase of it. Solo runs are
    interleaved, so that the slowdown is over a solo time of the same minutes. Of more than two
    applications every pair is run, and slowdowns are over the solo runs of all these minutes.
    Without a trained model only the measurement is printed.
    """
    from kongming.campaigns.campaign import drive, seed_of
    from kongming.campaigns.this_node import measured_node
    from kongming.cli.profile.campaign_view import CampaignView
    from kongming.cli.profile.stored import applications
    from kongming.probes.folders import work_folder
    from kongming.probes.measuring import measuring
    from kongming.probes.suite import load_suite
    from kongming.profiling.cautions import cautions
    from kongming.profiling.plans.placement import choose
    from kongming.profiling.runs.corun import corun
    from kongming.records.errors import InputError, MeasurementError
    from kongming.store import Store

    if model is not None:
        from kongming.cli.predict.predict import check_model

        check_model(model)
    if repeats < 1:
        raise InputError("is out of range.", field="repeats", value=repeats, allowed="1 or more")
    pairs = pairs_among(names)
    # Without a file the store has the applications: it must be there.
    with Store.open(store_url, create=file is not None, write=True) as store:
        apps = applications(store, list(names), file)
        node = measured_node(placement, [app.cpus for app in apps.values()], anyway=anyway)
        for app in apps.values():
            choose(node, placement, app.cpus)
        output.print_warnings(cautions(apps))
        io_dir = work_folder(directory)
        store.put_node(node)
        events = corun(
            pairs,
            apps,
            placement=placement,
            node=node,
            suite=load_suite(node, io_dir),
            work_dir=io_dir,
            io_dir=io_dir,
            repeats=repeats,
            seed=seed_of(seed),
            campaign=f"corun-{uuid.uuid4().hex[:12]}",
        )
        together = " next to " if len(names) == 2 else ", "
        view = CampaignView(sorted(apps), f"{together.join(names)}, {placement}")
        with measuring("kongming corun", anyway=anyway), view:
            runs = drive(events, store, view.see)
        predictions = [_predicted(store, a, b, placement, model) for a, b in pairs]
    measured = [measured_slowdown(runs, a, b) for a, b in pairs]
    document = compared(placement, predictions, measured)
    if as_json:
        output.emit_json(document)
    else:
        _show(document)
    if any(measurement["slowdown"] is None for measurement in measured):
        reasons = sorted({run.error for run in runs if run.error})
        raise MeasurementError("A co-run failed: " + "; ".join(reasons))
    return 1 if view.failed else 0


def pairs_among(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return both orders of each pair of applications, or the one of an application and itself.

    Raises InputError for fewer than two names, and for a repeated one among more than two.
    """
    from kongming.records.errors import InputError

    if len(names) < 2:
        raise InputError(
            "is an application without a neighbour.",
            field="A B...",
            value=names[0],
            allowed="two applications or more",
            hint=f"'kongming corun {names[0]} {names[0]}' runs it next to itself.",
        )
    if len(names) == 2 and names[0] == names[1]:
        return [(names[0], names[1])]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InputError(
            "is there more than once.",
            field="A B...",
            value=repeated,
            allowed=f"each application once; 'kongming corun {repeated} {repeated}' runs it next "
            "to itself",
        )
    # The two orders of a pair stand next to one another.
    return [
        pair
        for at, first in enumerate(names)
        for second in names[at + 1 :]
        for pair in ((first, second), (second, first))
    ]


def measured_slowdown(runs: list[Run], app: str, other: str) -> dict[str, Any]:
    """Return the geometric means of the repeats of one ordered pair, and their noise floor.
    ``runtime_s`` and ``solo_s`` are in the application's metric unit. None if all failed.
    ``disturbed_runs`` of its runs, solo ones included, ran while somebody else measured here.
    """
    from kongming.records.run import geometric_mean, noise_floor_pct

    coruns = [r for r in runs if r.app == app and r.neighbours == (other,) and r.ok]
    alone = [r for r in runs if r.app == app and r.kind == "solo" and r.ok]
    measurement: dict[str, Any] = {
        "app": app,
        "neighbour": other,
        "runtime_s": None,
        "solo_s": None,
        "slowdown": None,
        "runs": len(coruns),
        "noise_floor_pct": noise_floor_pct([run.cost for run in coruns]),
        "disturbed_runs": sum(run.disturbed for run in (*coruns, *alone)),
    }
    if alone and coruns:
        measurement["runtime_s"] = geometric_mean(
            [r.metric for r in coruns if r.metric is not None]
        )
        measurement["solo_s"] = geometric_mean([r.metric for r in alone if r.metric is not None])
        measurement["slowdown"] = geometric_mean([r.cost for r in coruns]) / geometric_mean(
            [r.cost for r in alone]
        )
    return measurement


def compared(
    placement: str, predictions: list[dict[str, Any]], measured: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the document of ``kongming pair``, with the measurement for each prediction."""
    floors = [m["noise_floor_pct"] for m in measured if m["noise_floor_pct"] is not None]
    for predicted, measurement in zip(predictions, measured, strict=True):
        interval, slowdown = predicted.get("slowdown"), measurement["slowdown"]
        predicted["measured"] = measurement
        predicted["noise_floor_pct"] = measurement["noise_floor_pct"]
        predicted["error_pct"] = None
        if interval is not None and slowdown is not None:
            predicted["error_pct"] = 100.0 * abs(interval["median"] - slowdown) / slowdown
    return {
        "placement": placement,
        "predictions": predictions,
        "measured": measured,
        "noise_floor_pct": sum(floors) / len(floors) if floors else None,
    }


def _predicted(
    store: Store, app: str, other: str, placement: str, model: str | None
) -> dict[str, Any]:
    """Return the prediction as JSON, or the reason why there is none."""
    from kongming.records.errors import KongmingError

    try:
        from kongming.cli.predict.forecast import colocation_document
        from kongming.cli.predict.pair import predict_next_to

        return colocation_document(predict_next_to(store, app, other, placement, model))
    except (KongmingError, ModuleNotFoundError) as error:
        # The measurement is shown even if there is no prediction.
        unknown = [{"app": other, "slowdown": None}]
        return {"app": app, "neighbours": unknown, "slowdown": None, "warnings": [str(error)]}


def _show(document: dict[str, Any]) -> None:
    rows = []
    for predicted, measurement in zip(document["predictions"], document["measured"], strict=True):
        interval = predicted.get("slowdown")
        rows.append(
            (
                measurement["app"],
                measurement["neighbour"],
                "-" if interval is None else f"{interval['median']:.2f}",
                "" if interval is None else f"{interval['lower']:.2f} to {interval['upper']:.2f}",
                "-" if measurement["slowdown"] is None else f"{measurement['slowdown']:.2f}",
                _percent(predicted["error_pct"]),
                _percent(measurement["noise_floor_pct"]),
            )
        )
    columns = (
        "application",
        "neighbour",
        "predicted",
        "interval",
        "measured",
        "error",
        "noise floor",
    )
    table = output.table(
        columns,
        rows,
        title=f"Slowdown, {document['placement']}",
        right=columns[2:],
        minor=("noise floor", "error"),
    )
    console = output.console()
    console.print(table)
    if any(measurement["noise_floor_pct"] is None for measurement in document["measured"]):
        console.print(
            "The noise floor, what repeats differ by, is known from --repeats 2 on.", markup=False
        )
    if any(measurement["disturbed_runs"] for measurement in document["measured"]):
        console.print(
            "Something else measured on these CPUs meanwhile: runs may be too slow. Each of these "
            "has a warning in 'kongming runs --json'.",
            markup=False,
            highlight=False,
        )
    unpredicted = [p for p in document["predictions"] if p.get("slowdown") is None]
    for text in dict.fromkeys(text for p in document["predictions"] for text in p.get("notes", ())):
        console.print(text, markup=False, highlight=False)
    for reason in dict.fromkeys(text for p in unpredicted for text in p["warnings"]):
        console.print(f"Not predicted: {reason}", markup=False, highlight=False)


def _percent(value: float | None) -> str:
    return "-" if value is None else per_cent(value)
