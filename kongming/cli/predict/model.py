"""``kongming model``: description, origin and errors of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.trained import placement_of_model

if TYPE_CHECKING:
    from kongming.learning.intervals import Widening
    from kongming.learning.model_file import FrozenModel, ModelFile, Variant
    from kongming.learning.sensitivity import Curve
    from kongming.records.fingerprint import NodeFacts
    from kongming.store import ModelEntry, Store

PLOT_SUFFIXES = (".svg", ".png")


@click.command(
    "model",
    short_help="Show a model: errors, selection, sensitivity, origin.",
    epilog=examples("kongming model xz", "kongming model xz --plot sensitivity.svg"),
)
@click.argument("app", metavar="APP")
@placement_of_model
@click.option("--node", "node", metavar="ID", help="The node it was trained on (id or name).")
@click.option(
    "--model", default=None, metavar="NAME", help="Model of the curves. Default: the chosen one."
)
@click.option(
    "--version",
    type=click.IntRange(1),
    help="Default: the version in service; with --node, its newest.",
)
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the sensitivity curves to this file (.svg or .png).",
)
@options.store_option
@options.wide_option
@options.json_option
def command(
    app: str,
    placement: str | None,
    node: str | None,
    model: str | None,
    version: int | None,
    plot_file: Path | None,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Show the model of APP in service: errors of each kind, selected surrogates, origin.

    Errors are over resource families that were left out of training in turn; compare them with
    those of MEAN and with the noise floor. Sensitivity is the predicted slowdown when one family's
    surrogates go from idle to their maximum in training, all others idle.
    """
    from kongming.cli.predict.predict import check_model
    from kongming.cli.trained import placement_for
    from kongming.engine.load.models import ModelFiles, site_of
    from kongming.learning.model_file import read
    from kongming.learning.sensitivity import family_curves, surrogate_curves
    from kongming.records.errors import InputError
    from kongming.store import Store

    check_model(model)
    if plot_file is not None and plot_file.suffix.lower() not in PLOT_SUFFIXES:
        raise InputError(
            "is not a supported image format.",
            field="--plot",
            value=str(plot_file),
            allowed="a name that ends in .svg or .png",
        )
    with Store.open(store_url, create=False) as store:
        where = placement_for(store, app, placement)
        in_service = store.in_service(app, where)
        if version is None and node is None:
            version = in_service
        entry, document = _of_version(store, app, where, node, version)
        file = read(document)
        variant = file.variants["full"]
        frozen = variant.model(model)
        curves = [*family_curves(variant, frozen), *surrogate_curves(variant, frozen)]
        widening = ModelFiles(store).calibration(site_of(file)).widening(app)
        if frozen.name != variant.chosen or entry.version != in_service:
            # Of predictions: co-runs were compared with the chosen model in service.
            widening = widening.repeats_alone()
        card = _card(store, entry, document, file, frozen, curves, widening)
        card["in_service"] = in_service
    if plot_file is not None:
        from kongming.cli.predict.model_plot import draw

        draw(plot_file, f"{app}, {where}: {frozen.name}", curves)
    if as_json:
        output.emit_json(card)
        return
    from kongming.cli.predict.model_view import show

    show(card)
    if plot_file is not None:
        output.console().print(f"Drawn to {plot_file}.", markup=False)


def _of_version(
    store: Store, app: str, placement: str, node: str | None, version: int | None
) -> tuple[ModelEntry, dict[str, Any]]:
    """Return the model of a version, else the newest one, on that node if one is named.

    Raises:
        UnknownNameError: the application was never profiled.
        InputError: it has no such version.
        UntrainedError: it has no model there.
    """
    from kongming.cli.trained import check_known
    from kongming.records.errors import InputError, UntrainedError

    names = {known.id: known.name for known in store.nodes()}
    here = [
        entry
        for entry in store.models(app=app, placement=placement)
        if node is None or node in (entry.node_id, names.get(entry.node_id))
    ]
    for entry in here:
        if version in (None, entry.version):
            document = store.model(app, placement, version=entry.version)
            assert document is not None
            return entry, document
    check_known(store, app)
    there = f" on {node}" if node is not None else ""
    if here:
        raise InputError(
            f"is no version of {app}'s model at {placement}{there}.",
            field="--version",
            value=version,
            allowed=", ".join(str(entry.version) for entry in here),
        )
    known = sorted(
        {
            f"{entry.placement} on {names.get(entry.node_id) or entry.node_id}"
            for entry in store.models(app=app)
        }
    )
    raise UntrainedError(
        f"{app} has no model at {placement}{there}."
        + (f" It has one at {', '.join(known)}." if known else ""),
        hint=f"Train it: kongming train {app} --placement {placement}",
    )


def _card(
    store: Store,
    entry: ModelEntry,
    document: Mapping[str, Any],
    file: ModelFile,
    frozen: FrozenModel,
    curves: Sequence[Curve],
    widening: Widening,
) -> dict[str, Any]:
    from kongming.learning import usefulness

    variants = document["variants"]
    return {
        "app": file.app,
        "placement": file.placement,
        "version": entry.version,
        "identity": file.identity,
        "trained_at": document["trained_at"],
        "suite_version": file.suite_version,
        "node": _node(store, file.node_id),
        "elsewhere": _elsewhere(store, entry),
        "solo": {
            "value": file.solo_metric,
            "metric_unit": file.metric_unit,
            "better": file.better,
            "noise_pct": file.solo.noise_pct,
            "runs": file.solo.n,
        },
        "runs": {**document["runs"], **_measured(store, file)},
        "requested": document["requested"],
        "chosen": {name: variant["chosen"] for name, variant in variants.items()},
        "profile": None if file.profile is None else file.profile.described(file.app),
        "remark": usefulness.remark(file.app, frozen.name, frozen.not_better_than),
        "variants": {
            name: {
                "columns": variant["columns"],
                "chosen": variant["chosen"],
                "reason": variant["reason"],
                "noise_floor_pct": variant["noise_floor_pct"],
                "left_out": variant["groups"],
                "errors": {key: model["scores"] for key, model in variant["models"].items()},
                "selected": {
                    key: model["selection"]
                    for key, model in variant["models"].items()
                    if "selection" in model
                },
                "members": {
                    key: _shares(model["frozen"]["members"])
                    for key, model in variant["models"].items()
                    if "members" in model["frozen"]
                },
            }
            for name, variant in variants.items()
        },
        "interval": _interval(file, frozen, widening),
        "pressure": _pressure(store, file, file.variants["full"]),
        "sensitivity": {
            "model": frozen.name,
            "curves": [
                {
                    "kind": curve.kind,
                    "name": curve.name,
                    "surrogates": list(curve.surrogates),
                    "load": curve.load.tolist(),
                    "slowdown": curve.slowdown.tolist(),
                }
                for curve in curves
            ],
        },
    }


def _node(store: Store, node_id: str) -> dict[str, Any]:
    """Return the facts of the node; only its id if the store does not know it."""
    facts: NodeFacts | None = {node.id: node for node in store.nodes()}.get(node_id)
    if facts is None:
        return {"id": node_id, "name": None}
    return {
        "id": facts.id,
        "name": facts.name,
        "cpu_model": facts.cpu_model,
        "architecture": facts.architecture,
        "cpus": len(facts.cpus),
        "llc_bytes": facts.llc_bytes,
        "memory_bytes": facts.memory_bytes,
        "kernel": facts.kernel,
        "hypervisor": facts.hypervisor,
    }


def _elsewhere(store: Store, entry: ModelEntry) -> list[dict[str, str]]:
    """Return where else the application has a model."""
    places = {(other.placement, other.node_id): None for other in store.models(app=entry.app)}
    return [
        {"placement": placement, "node_id": node_id}
        for placement, node_id in places
        if (placement, node_id) != (entry.placement, entry.node_id)
    ]


def _measured(store: Store, file: ModelFile) -> dict[str, str | None]:
    """Return the start times of the first and the last usable training runs; UTC."""
    started = [
        run.started_at
        for kind in ("solo", "induced")
        for run in store.runs(
            app=file.app,
            identity=file.identity,
            node_id=file.node_id,
            placement=file.placement,
            kind=kind,
            ok=True,
            fingerprints=False,
        )
    ]
    return {"first_at": min(started, default=None), "last_at": max(started, default=None)}


def _interval(file: ModelFile, frozen: FrozenModel, widening: Widening) -> dict[str, Any]:
    """Return the interval of predictions next to others, shown for the idle node."""
    from kongming.learning.predict import predict_environment
    from kongming.learning.readings import idle_times

    idle = predict_environment(
        file,
        idle_times(file.variants["full"]),
        model=frozen.name,
        variant="full",
        widening=widening,
    ).slowdown
    return {
        "level": idle.level,
        "calibrated": idle.calibrated,
        "calibrated_by": idle.calibrated_by,
        "calibrated_groups": idle.calibrated_groups,
        "left_out": frozen.groups,
        "widening": widening.factor,
        "applications": widening.groups,
        "coruns": widening.pairs,
        "idle": {
            "lower": idle.lower,
            "upper": idle.upper,
            "expected_lower": idle.expected_lower,
            "expected_upper": idle.expected_upper,
        },
    }


def _shares(members: Mapping[str, float] | Sequence[str]) -> dict[str, float]:
    """Return the weight of each member of a stack; equal ones unless the document has them."""
    if isinstance(members, Mapping):
        return dict(members)
    return dict.fromkeys(members, 1.0 / len(members))


def _pressure(store: Store, file: ModelFile, variant: Variant) -> dict[str, float]:
    """Return by family the slowdown of surrogates next to the application; empty without a
    signature.
    """
    from kongming.cli.trained import signatures_of
    from kongming.learning.colocation import mean_signature
    from kongming.learning.sensitivity import pressures

    signatures = signatures_of(store, file.app, file)
    return pressures(variant, mean_signature(signatures)) if signatures else {}
