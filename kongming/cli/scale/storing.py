"""Scale models in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kongming.scale.fit.scale_file import ScaleFile


def store_model(file: ScaleFile, name: str, store_url: str | None) -> int:
    """Store a scale model under a name; return its version."""
    from kongming.scale.fit.model_file import seal
    from kongming.store import Store
    from kongming.store.models import SCALE, SCALE_PREFIX

    with Store.open(store_url) as store:
        return store.put_model(SCALE_PREFIX + name, SCALE, "", SCALE, seal(file))
