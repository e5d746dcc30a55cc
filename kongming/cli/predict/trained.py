"""Models and signatures for a prediction, from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kongming.records.errors import UnknownNameError, UntrainedError
from kongming.records.fingerprint import PLACEMENTS
from kongming.records.questions import placement_or_default

if TYPE_CHECKING:
    from kongming.learning.model_file import ModelFile
    from kongming.records.run import Signature
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
    """Return the given placement, or the default one (``placement_or_default``)."""
    return placement_or_default(wanted, {entry.placement for entry in store.models(app=app)})


def check_known(store: Store, app: str) -> None:
    """Raise UnknownNameError, with the nearest names, for an application that was never
    profiled.
    """
    known = {entry.name for entry in store.applications()}
    known |= {entry.app for entry in store.models()}
    if app not in known:
        raise UnknownNameError(
            "profiled application", app, known, hint="Profile it first: kongming profile APPS.toml"
        )


def model_of(store: Store, app: str, placement: str) -> tuple[ModelFile, tuple[str, ...]]:
    """Return the checked model of ``app`` in service at ``placement``, and warnings about it.

    Raises:
        UnknownNameError: the application was never profiled.
        UntrainedError: it has no model at that placement.
    """
    from kongming.engine.load.models import ModelFiles

    version = store.in_service(app, placement)
    if version is None:
        check_known(store, app)
        others = sorted({entry.placement for entry in store.models(app=app)})
        elsewhere = f" It has one at {', '.join(others)}." if others else ""
        raise UntrainedError(
            f"{app} has no model at {placement}.{elsewhere}",
            hint=f"Train it: kongming train {app} --placement {placement}",
        )
    file = ModelFiles(store).read(app, placement, version)
    return file, _stale(store, file)


def signatures_of(store: Store, app: str, file: ModelFile) -> list[Signature]:
    """Return the signatures of ``app`` that match a model: those of the newest campaign on the
    model's node, at its placement and with its suite; empty without any.

    Raises:
        UnknownNameError: the application was never profiled.
    """
    from kongming.engine.load.models import newest_signatures, site_of

    found = newest_signatures(store, app, site_of(file))
    if not found:
        check_known(store, app)
    return found


def _stale(store: Store, file: ModelFile) -> tuple[str, ...]:
    application = store.application(file.app)
    if application is None or application.identity == file.identity:
        return ()
    return (
        f"{file.app} was profiled again with another command, environment or set-up since it was "
        f"trained: run kongming train {file.app}.",
    )
