"""``kongming models``: the trained models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from kongming.cli import options, output


@click.command("models")
@click.option("--app", metavar="NAME", help="Only this application.")
@options.placement_filter
@click.option("--all", "everything", is_flag=True, help="Earlier versions as well.")
@options.store_option
@options.json_option
def command(
    app: str | None,
    placement: str | None,
    everything: bool,
    store_url: str | None,
    as_json: bool,
) -> None:
    """List trained models: the newest of each application, node and placement.

    The error is the median over resource families that were left out of training in turn.
    """
    from kongming.errors import UnknownNameError
    from kongming.store import Store

    with Store.open(store_url) as store:
        entries = store.models(app=app, placement=placement)
        if app is not None and not entries:
            known = {entry.app for entry in store.models()}
            if app not in known:
                raise UnknownNameError("model for an application", app, known)
        seen: set[tuple[str, str, str]] = set()
        documents = []
        for entry in entries:
            key = (entry.app, entry.placement, entry.node_id)
            if key in seen and not everything:
                continue
            seen.add(key)
            model = store.model(entry.app, entry.placement, version=entry.version) or {}
            documents.append(
                {
                    "app": entry.app,
                    "placement": entry.placement,
                    "version": entry.version,
                    "identity": entry.identity,
                    "node_id": entry.node_id,
                    "trained_at": entry.trained_at,
                    "runs": _within(model, "runs", "total"),
                    "variants": _variants(model),
                }
            )
        names = {node.id: node.name for node in store.nodes()}
    if as_json:
        output.emit_json({"models": documents})
        return
    console = output.console()
    if not documents:
        console.print("No model was trained yet: kongming train")
        return
    console.print(
        output.table(
            (
                "application",
                "placement",
                "version",
                "node",
                "columns",
                "model",
                "error",
                "noise",
                "runs",
                "trained",
            ),
            [row for document in documents for row in _rows(document, names)],
            right=("version", "error", "noise", "runs"),
        )
    )


def _within(document: object, *path: str) -> Any:
    """What lies at ``path``; None where a model has no such thing."""
    for key in path:
        if not isinstance(document, Mapping):
            return None
        document = document.get(key)
    return document


def _variants(model: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By variant (the columns it needs): its chosen model and what validation said of it."""
    found = {}
    for name, variant in (_within(model, "variants") or {}).items():
        chosen = _within(variant, "chosen")
        found[name] = {
            "model": chosen,
            "columns": len(_within(variant, "columns") or ()),
            "median_error_pct": _within(variant, "models", str(chosen), "scores", "median_pct"),
            "noise_floor_pct": _within(variant, "noise_floor_pct"),
        }
    return found


def _rows(document: Mapping[str, Any], names: Mapping[str, str]) -> list[tuple[object, ...]]:
    node = names.get(document["node_id"]) or document["node_id"][:12]
    variants = document["variants"] or {"-": {}}
    return [
        (
            document["app"],
            document["placement"],
            document["version"],
            node,
            f"{name} ({variant['columns']})" if variant else None,
            variant.get("model"),
            _percent(variant.get("median_error_pct")),
            _percent(variant.get("noise_floor_pct")),
            document["runs"],
            document["trained_at"][:19].replace("T", " "),
        )
        for name, variant in variants.items()
    ]


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}%"
