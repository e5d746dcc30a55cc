"""``kongming models``: the trained models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.fleet.serving import Server, answerer, prediction_service, server_options
from kongming.cli.predict.errors_view import distinct, percent
from kongming.printable import printable
from kongming.records import moments
from kongming.records.judgement import NOT_JUDGED

if TYPE_CHECKING:
    from kongming.cli.tables import Table
    from kongming.records.answers import ModelReport
    from kongming.records.judgement import Judgement
    from kongming.rpc.protocol import PredictionService


@click.group(
    "models",
    invoke_without_command=True,
    epilog=examples("kongming models", "kongming models --app xz --all"),
)
@click.option("--app", metavar="NAME", help="Only this application.")
@options.placement_filter
@click.option("--all", "everything", is_flag=True, help="Show earlier versions too.")
@server_options
@options.store_option
@options.wide_option
@options.json_option
def command(
    app: str | None,
    placement: str | None,
    everything: bool,
    server: Server,
    store_url: str | None,
    as_json: bool,
) -> None:
    """List trained models: the newest of each application, node and placement.

    "profile" is the verdict on the runs that a model was trained on: good, usable or spoiled. The
    error is the mean over resource families that were left out of training in turn; the noise
    is that of repeats of the same run, alone.
    """
    from kongming.records.errors import UnknownNameError

    if click.get_current_context().invoked_subcommand is not None:
        return
    with prediction_service(server, store_url) as service:
        entries = [m for m in service.models(app) if placement in (None, m.placement)]
        if app is not None and not entries:
            known = {entry.app for entry in service.models()}
            if app not in known:
                raise UnknownNameError("model for an application", app, known)
        seen: set[tuple[str, str, str]] = set()
        documents = []
        for entry in entries:
            key = (entry.app, entry.placement, entry.node_id)
            # What answers is listed even where a newer version is not in service yet.
            if everything or key not in seen or entry.in_service:
                seen.add(key)
                documents.append(_described(service, entry))
        names = {node.facts.id: node.facts.name for node in service.nodes()}
    if as_json:
        output.emit_json({"models": documents})
        return
    console = output.console()
    if not documents:
        console.print(
            f"No model is trained yet in {answerer(server, store_url)}. Train one: kongming train",
            markup=False,
        )
        return
    console.print(table_of(documents, names))
    for document in documents:
        if document["problem"]:
            of = f"version {document['version']} of {document['app']} at {document['placement']}"
            console.print(
                f"{of} cannot be used: {document['problem']}", markup=False, highlight=False
            )


@command.command(
    "rollback",
    short_help="Put an earlier version of a model into service.",
    epilog=examples("kongming models rollback xz --version 2"),
)
@click.argument("app")
@options.placement_filter
@click.option("--version", type=click.IntRange(1), help="This version; else the previous version.")
@server_options
@options.store_option
@options.json_option
def rollback(
    app: str,
    placement: str | None,
    version: int | None,
    server: Server,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Put an earlier version of the model of APP into service, or the version that --version names.

    A version that training kept back, as it is of another program or node, goes into service so.
    """
    with prediction_service(server, store_url) as service:
        entry = service.promote_model(app, placement, version or 0)
    if as_json:
        output.emit_json({"app": entry.app, "placement": entry.placement, "version": entry.version})
        return
    text = f"Version {entry.version} of {entry.app} at {entry.placement} is in service."
    click.echo(printable(text))


def _described(service: PredictionService, entry: ModelReport) -> dict[str, Any]:
    import json

    from kongming.learning import model_file
    from kongming.records.errors import AccessError, IncompatibleError, KongmingError, ServiceError

    model: Any = {}
    problem = None
    is_newer = False
    file = None
    try:
        report = service.model(entry.app, entry.placement, entry.version)
        model = json.loads(report.document)
        # As the server does that would answer with it.
        file = model_file.read(model)
    except AccessError:
        # A scheduler may list models, and not read them.
        pass
    except ServiceError:
        raise
    except KongmingError as error:
        problem, is_newer = str(error), isinstance(error, IncompatibleError)
    trained_at = None
    if entry.trained_at is not None:
        trained_at = moments.format(entry.trained_at, "seconds")
    return {
        "app": entry.app,
        "placement": entry.placement,
        "version": entry.version,
        "identity": entry.identity,
        "node_id": entry.node_id,
        "trained_at": trained_at,
        "in_service": entry.in_service,
        "problem": problem,
        "newer": is_newer,
        "profile": None if file is None else _profile(entry.app, file.profile),
        "runs": _within(model, "runs", "total"),
        "solo_noise_pct": _within(model, "solo", "noise_pct"),
        "variants": _variants(model),
    }


def _profile(app: str, judgement: Judgement | None) -> dict[str, Any]:
    """Return the verdict on the profile that a model was trained on."""
    return {"verdict": NOT_JUDGED} if judgement is None else judgement.described(app)


def _within(document: object, *path: str) -> Any:
    """Return the value at ``path`` of a model; None if there is none."""
    for key in path:
        if not isinstance(document, Mapping):
            return None
        document = document.get(key)
    return document


def _variants(model: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return by variant (the set of columns) its chosen model and the errors of validation."""
    variants = {}
    for name, variant in (_within(model, "variants") or {}).items():
        chosen = _within(variant, "chosen")
        variants[name] = {
            "model": chosen,
            "columns": len(_within(variant, "columns") or ()),
            "mean_error_pct": _within(variant, "models", str(chosen), "scores", "mean_pct"),
            "median_error_pct": _within(variant, "models", str(chosen), "scores", "median_pct"),
            "noise_floor_pct": _within(variant, "noise_floor_pct"),
        }
    return variants


def table_of(documents: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> Table:
    """The table of the models of ``documents``; ``names`` are those of nodes, by id."""
    columns = ("application", "placement", "version", "", "node", "surrogates", "model", "profile")
    figures = ("mean error", "repeat noise", "runs")
    return output.table(
        (*columns, *figures, "trained"),
        [row for document in documents for row in _rows(document, names)],
        right=("version", *figures),
        # Not the surrogates: often nothing else tells two rows of one model apart.
        minor=("trained", "runs", "node", "repeat noise"),
    )


_SHORT = {"full": "all", "quick": "quick"}
"""Variants in a narrow table: all surrogates of the profile, or those of the quick suite."""


def _rows(document: Mapping[str, Any], names: Mapping[str, str]) -> list[tuple[object, ...]]:
    node = names.get(document["node_id"]) or document["node_id"][:12]
    variants = distinct(document["variants"]) if document["variants"] else {"-": {}}
    return [
        (
            document["app"],
            document["placement"],
            document["version"],
            _state(document),
            node,
            f"{variant['columns']} ({_SHORT[name]})" if variant else None,
            variant.get("model"),
            _within(document, "profile", "verdict"),
            percent(variant.get("mean_error_pct")),
            percent(document["solo_noise_pct"]),
            document["runs"],
            (document["trained_at"] or "")[:19].replace("T", " ") or None,
        )
        for name, variant in variants.items()
    ]


def _state(document: Mapping[str, Any]) -> str | None:
    parts = [
        "in service" if document["in_service"] else "",
        # A newer version wrote it: whoever asks cannot read it, and a newer server can.
        "newer" if document["newer"] else "damaged" if document["problem"] else "",
    ]
    return ", ".join(filter(None, parts)) or None
