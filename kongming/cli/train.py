"""``kongming train``: train models on what was profiled, and say how far to trust them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.models.registry import AUTO, model_kind, model_names

if TYPE_CHECKING:
    from kongming.store import Store


@click.command("train", short_help="Train models on profiled applications.")
@click.argument("apps", metavar="[APP]...", nargs=-1)
@click.option(
    "--model",
    default=AUTO,
    show_default=True,
    metavar="NAME",
    help=f"The model that predictions use: {', '.join(model_names())}, or auto for the best of the "
    "validation. All of them are trained.",
)
@options.placement_filter
@click.option("--seed", type=int, default=0, show_default=True, help="Of the models that draw.")
@options.store_option
@options.json_option
def command(
    apps: tuple[str, ...],
    model: str,
    placement: str | None,
    seed: int,
    store_url: str | None,
    as_json: bool,
) -> int:
    """Train and validate every model on the profile of each APP (default: of all).

    Validation leaves out one resource family of inducers at a time. Errors are printed beside
    those of MEAN, which knows nothing of the environment, and beside the noise floor, which is
    what repeats of the same run differ by.
    """
    from kongming.cli.extras import require
    from kongming.errors import CannotAnswerError, UntrainedError
    from kongming.store import Store

    if model != AUTO:
        model_kind(model)
    for module in ("numpy", "scipy", "sklearn", "lightgbm"):
        require("kongming train", "predict", module)
    trained: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    notes: list[str] = []
    with Store.open(store_url) as store:
        names = _names(store, apps)
        with output.progress("Training", len(names)) as shown:
            for done, name in enumerate(names):
                shown.update(done, text=f"Training {name}")
                try:
                    trained += _train(store, name, placement, model, seed, notes)
                except CannotAnswerError as error:
                    failed.append({"app": name, "error": str(error)})
    if not trained:
        raise UntrainedError(
            failed[0]["error"] if failed else "Nothing was profiled yet.",
            hint=None if failed else "Profile first: kongming profile APPS.toml",
        )
    if as_json:
        output.emit_json({"models": trained, "failed": failed, "notes": notes})
    else:
        for entry in trained:
            _show(entry)
        for line in notes:
            output.error_console().print(f"Note: {line}.", markup=False)
    for failure in failed:
        output.error_console().print(
            f"Not trained: {failure['app']}: {failure['error']}", markup=False
        )
    # An application that was named is an answer that was asked for.
    return UntrainedError.exit_status if failed and apps else 0


def _names(store: Store, apps: tuple[str, ...]) -> list[str]:
    from kongming.cli.trained import check_known

    if not apps:
        return list(dict.fromkeys(entry.name for entry in store.applications()))
    for name in apps:
        check_known(store, name)
    return list(dict.fromkeys(apps))


def _train(
    store: Store, app: str, placement: str | None, model: str, seed: int, notes: list[str]
) -> list[dict[str, Any]]:
    """Train and store a model for each node and placement that the application has runs at."""
    from kongming.errors import UntrainedError
    from kongming.models.training import train_application, training_sets

    sets, left_out = training_sets(store.runs(app=app, placement=placement))
    notes += left_out
    if not sets:
        at = f" at {placement}" if placement else ""
        raise UntrainedError(
            f"{app} has no runs{at}.",
            hint=f"Profile it: kongming profile APPS.toml --app {app}",
        )
    trained = []
    for (node_id, where), runs in sorted(sets.items()):
        document = train_application(runs, placement=where, model=model, random_state=seed)
        version = store.put_model(app, document["identity"], node_id, where, document)
        trained.append(summary(document, version))
    return trained


def summary(document: Mapping[str, Any], version: int) -> dict[str, Any]:
    """What is told about a model: its errors, its choice and what it was trained on."""
    return {
        "app": document["app"],
        "placement": document["placement"],
        "node_id": document["node_id"],
        "version": version,
        "chosen": document["chosen"],
        "solo_s": document["solo"]["median"]
        if document["better"] == "lower"
        else 1.0 / document["solo"]["median"],
        "metric_unit": document["metric_unit"],
        "solo_noise_pct": document["solo"]["noise_pct"],
        "runs": document["runs"],
        "dropped_columns": document["dropped_columns"],
        "variants": {
            name: {
                "columns": len(variant["columns"]),
                "chosen": variant["chosen"],
                "reason": variant["reason"],
                "noise_floor_pct": variant["noise_floor_pct"],
                "left_out": variant["groups"],
                "errors": {key: model["scores"] for key, model in variant["models"].items()},
            }
            for name, variant in document["variants"].items()
        },
    }


def _show(entry: Mapping[str, Any]) -> None:
    console = output.console()
    variants = entry["variants"]
    runs = entry["runs"]
    full = variants["full"]
    title = (
        f"{entry['app']}, {entry['placement']}: {runs['total']} runs "
        f"({runs['solo']} solo, {runs['induced']} induced), model version {entry['version']}"
    )
    columns = ["model"]
    for name, variant in variants.items():
        columns += [f"{name} ({variant['columns']}): median", f"{name}: mean"]
    rows: list[list[str]] = []
    for model in full["errors"]:
        cells = [model]
        for variant in variants.values():
            scores = variant["errors"][model]
            mark = " *" if model == variant["chosen"] else "  "
            cells += [_percent(scores.get("median_pct")), _percent(scores.get("mean_pct")) + mark]
        rows.append(cells)
    floors = [_percent(variant["noise_floor_pct"]) for variant in variants.values()]
    rows.append(["noise floor", *[cell for floor in floors for cell in (floor, "  ")]])
    console.print(output.table(columns, rows, title=title, right=columns[1:]))
    for name, variant in variants.items():
        console.print(f"* {name}: {variant['chosen']}, because {variant['reason']}.", markup=False)
    dropped = len(runs["dropped"])
    if dropped:
        console.print(f"{dropped} runs were left out; --json tells why.", markup=False)
    console.print()


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"
