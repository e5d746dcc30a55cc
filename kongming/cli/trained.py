"""Models and signatures for a prediction, from the store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kongming.records.errors import InputError, UnknownNameError, UntrainedError
from kongming.records.fingerprint import PLACEMENTS
from kongming.records.questions import placement_or_default

if TYPE_CHECKING:
    from kongming.learning.model_file import ModelFile
    from kongming.records.run import Signature
    from kongming.store import ModelEntry, Store

placement_of_model = click.option(
    "--placement",
    type=click.Choice(PLACEMENTS),
    default=None,
    help="Where the neighbour runs relative to the program. Default: cross-core, or the one that "
    "the application was trained at.",
)
"""``--placement P`` of a prediction: parameter ``placement`` (str, or None)."""


def placement_for(store: Store, app: str, wanted: str | None, other: str | None = None) -> str:
    """Return the given placement, or the default one (``placement_or_default``): with ``other`` of
    those at which both have a model, if there is any."""
    trained = {entry.placement for entry in store.models(app=app)}
    if other is not None:
        trained = trained & {entry.placement for entry in store.models(app=other)} or trained
    return placement_or_default(wanted, trained)


def check_known(store: Store, app: str) -> None:
    """Raise UnknownNameError, with the nearest names, for an application that was never profiled:
    not even a signature of it is known.
    """
    known = {entry.name for entry in store.applications()}
    known |= {entry.app for entry in store.models()}
    if app not in known and not store.signatures(app=app, requested=True):
        raise UnknownNameError(
            f"profiled application in {store.url}",
            app,
            known,
            hint="Profile it first: kongming profile APPS.toml."
            + (" --server asks the server." if os.environ.get("KONGMING_SERVER") else ""),
        )


def model_of(store: Store, app: str, placement: str) -> ModelFile:
    """Return the checked model of ``app`` in service at ``placement``.

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
    return ModelFiles(store).read(app, placement, version)


def signatures_of(store: Store, app: str, file: ModelFile) -> list[Signature]:
    """Return the signatures of ``app`` that match a model: the newest repeats on the model's node,
    at its placement and with its suite; empty without any.

    Raises:
        UnknownNameError: the application was never profiled.
    """
    from kongming.engine.load.models import newest_signatures, site_of

    signatures = newest_signatures(store, app, site_of(file))
    if not signatures:
        check_known(store, app)
    return signatures


@contextmanager
def naming_short(
    store: Store, file: ModelFile, neighbours: Mapping[str, Sequence[Signature]]
) -> Iterator[None]:
    """Turn the error about missing readings into one about the neighbour whose signature lacks
    them.

    Raises:
        UntrainedError: a neighbour was profiled with runs that are too short.
    """
    try:
        yield
    except InputError as error:
        if type(error) is not InputError:
            raise
        short = _short(file, neighbours)
        if short is None:
            raise
        raise _too_short(store, file, *short) from error


def _short(
    file: ModelFile, neighbours: Mapping[str, Sequence[Signature]]
) -> tuple[Signature, list[str]] | None:
    """Return a signature of the neighbour that lacks most surrogates of the model, and those."""
    from kongming.learning.colocation import mean_signature

    columns = file.variants["full"].columns
    lacking = {
        name: [column for column in columns if column not in mean_signature(signatures)]
        for name, signatures in neighbours.items()
        if signatures
    }
    worst = max(lacking, key=lambda name: len(lacking[name]), default=None)
    if worst is None or not lacking[worst]:
        return None
    return neighbours[worst][0], lacking[worst]


def _too_short(
    store: Store, file: ModelFile, signature: Signature, lacking: Sequence[str]
) -> UntrainedError:
    from kongming.profiling.runs.signature import needed_seconds
    from kongming.quantities import format_seconds
    from kongming.records.run import median_wall_s

    name, placement, seen = signature.app, signature.placement, signature.fingerprint
    wall_s = median_wall_s(
        store.runs(app=name, identity=signature.identity, kind="solo", fingerprints=False)
    )
    of = "" if wall_s is None else f" of {format_seconds(wall_s)}"
    needed = needed_seconds(seen.suite, len(seen.surrogates), shared_core=placement == "same-core")
    named = ", ".join(lacking[:4]) + (f" and {len(lacking) - 4} more" if len(lacking) > 4 else "")
    return UntrainedError(
        f"What {name} does to {file.app} is unknown: {name} was profiled with runs{of}, too short "
        f"to see {named} next to it.",
        hint=f"Let a run of {name} last {format_seconds(max(needed, 2.0 * (wall_s or 0.0)))} or "
        f"more (a larger input, or a loop in its command), then: kongming profile APPS.toml "
        f"--app {name} --placement {placement}",
    )


def age_warnings(store: Store, model: ModelFile | ModelEntry) -> tuple[str, ...]:
    """Return a warning where the application has changed since its model was trained."""
    application = store.application(model.app)
    if application is None or application.identity == model.identity:
        return ()
    return (
        f"{model.app} was profiled again with another command, environment or set-up since it was "
        f"trained: run kongming train {model.app}.",
    )
