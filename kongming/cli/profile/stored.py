"""Applications by name, from a file or from the last profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kongming.records.errors import UnknownNameError

if TYPE_CHECKING:
    from kongming.records.application import Application
    from kongming.store import Store


def applications(
    store: Store, names: Sequence[str], file: Path | None = None
) -> dict[str, Application]:
    """Return the named applications, ready to run.

    Raises:
        UnknownNameError: neither the file nor the store has one of that name.
    """
    if file is not None:
        from kongming.profiling.appfile import load, select

        return select(load(file), tuple(dict.fromkeys(names)))
    from kongming.records.application import Application

    apps = {}
    for name in names:
        document = store.application(name)
        if document is None:
            raise UnknownNameError(
                "profiled application",
                name,
                [app.name for app in store.applications()],
                hint="Profile it first: kongming profile APPS.toml",
            )
        apps[name] = Application.from_dict(document.document)
    return apps
