"""Places where commands leave a scale model: a file, the store, or both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kongming.scale.fit.scale_file import ScaleFile


def leave(
    file: ScaleFile, *, save: Path | None, name: str | None, store_url: str | None
) -> dict[str, Any]:
    """Write a model to ``save`` and store it under ``name``, where they are given; return what to
    say of that."""
    from kongming.scale.fit.model_file import write_file

    destinations: dict[str, Any] = {}
    if save is not None:
        write_file(save, file)
        destinations["saved"] = str(save)
    if name is not None:
        destinations["name"] = name
        destinations["version"] = _store(file, name, store_url)
    return destinations


def show(destinations: Mapping[str, Any]) -> None:
    """Print where a model was left."""
    from kongming.cli import output

    for key, value in destinations.items():
        output.console().print(f"{key}: {value}", markup=False)


def _store(file: ScaleFile, name: str, store_url: str | None) -> int:
    """Store a scale model under a name; return its version."""
    from kongming.scale.fit.model_file import seal
    from kongming.store import Store
    from kongming.store.models import SCALE, SCALE_PREFIX

    with Store.open(store_url) as store:
        return store.put_model(SCALE_PREFIX + name, SCALE, "", SCALE, seal(file))
