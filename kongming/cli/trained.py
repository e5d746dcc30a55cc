"""Trained models and signatures as a prediction needs them, from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kongming.errors import UnknownNameError, UntrainedError
from kongming.fingerprint import PLACEMENTS

if TYPE_CHECKING:
    from kongming.models.persist import ModelFile
    from kongming.run import Signature
    from kongming.store import Store

placement_of_model = click.option(
    "--placement",
    type=click.Choice(PLACEMENTS),
    default=None,
    help="Where the neighbour runs relative to the program. Default: cross-core, or the one that "
    "the application was trained at.",
)
"""``--placement P`` of a prediction: parameter ``placement`` (str, or None)."""


def placement_for(store: Store, app: str, wanted: str | None) -> str:
    """The placement asked for; else cross-core, or the first that ``app`` has a model at."""
    if wanted is not None:
        return wanted
    trained = {entry.placement for entry in store.models(app=app)}
    if not trained or "cross-core" in trained:
        return "cross-core"
    return min(trained, key=PLACEMENTS.index)


def check_known(store: Store, app: str) -> None:
    """Raises UnknownNameError, with the nearest names, for what was never profiled."""
    known = {entry.name for entry in store.applications()}
    known |= {entry.app for entry in store.models()}
    if app not in known:
        raise UnknownNameError(
            "profiled application", app, known, hint="Profile it first: kongming profile APPS.toml"
        )


def model_of(
    store: Store, app: str, placement: str, *, node_id: str | None = None
) -> tuple[ModelFile, tuple[str, ...]]:
    """The newest model of ``app`` at ``placement``, checked, and warnings about it.

    A model of node ``node_id`` is preferred to a newer one of another node.

    Raises:
        UnknownNameError: the application was never profiled.
        UntrainedError: it has no model at that placement.
    """
    from kongming.models.persist import read

    document = None
    if node_id is not None:
        document = store.model(app, placement, node_id=node_id)
    if document is None:
        document = store.model(app, placement)
    if document is None:
        check_known(store, app)
        others = sorted({entry.placement for entry in store.models(app=app)})
        elsewhere = f" It has one at {', '.join(others)}." if others else ""
        raise UntrainedError(
            f"{app} has no model at {placement}.{elsewhere}",
            hint=f"Train it: kongming train {app} --placement {placement}",
        )
    file = read(document)
    return file, _stale(store, file)


def signatures_of(store: Store, app: str, file: ModelFile) -> list[Signature]:
    """The signatures of ``app`` that go with a model: those of the newest campaign on the
    model's node, at its placement and with its suite; empty without any.

    Raises:
        UnknownNameError: the application was never profiled.
    """
    found = [
        signature
        for signature in store.signatures(app=app, node_id=file.node_id, placement=file.placement)
        if signature.fingerprint.suite_version == file.suite_version
    ]
    if not found:
        check_known(store, app)
        return []
    newest = found[0]
    return [
        signature
        for signature in found
        if signature.identity == newest.identity and signature.campaign == newest.campaign
    ]


def _stale(store: Store, file: ModelFile) -> tuple[str, ...]:
    application = store.application(file.app)
    if application is None or application.identity == file.identity:
        return ()
    return (
        f"{file.app} was profiled again with another command, environment or set-up since it was "
        f"trained: run kongming train {file.app}.",
    )
