"""Scale models by file or name, and the parts that all answers share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.cli import output
from kongming.records.errors import UnknownNameError

if TYPE_CHECKING:
    from kongming.scale.fit.model import ScaleFile, ScaleModel, ScalePrediction


def load(model: str, store_url: str | None) -> ScaleFile:
    """Return the model in a file, or of a name in the store.

    Raises:
        InputError: the file is not a scale model.
        UnknownNameError: there is no such file and no such name.
    """
    from kongming.scale.fit import model_file as persist

    if Path(model).is_file():
        return persist.read_file(model)
    from kongming.store import Store
    from kongming.store.models import SCALE, SCALE_PREFIX

    with Store.open(store_url) as store:
        document = store.model(SCALE_PREFIX + model, SCALE)
        if document is None:
            names = {
                entry.app.removeprefix(SCALE_PREFIX) for entry in store.models(placement=SCALE)
            }
            raise UnknownNameError(
                "scale model, in a file or the store,",
                model,
                names,
                hint="Fit it: kongming scale fit RUNS.csv --save FILE, or --name NAME",
            )
    return persist.read(document)


def keep(file: ScaleFile, name: str, store_url: str | None) -> int:
    """Store a model; return its version."""
    from kongming.scale.fit import model_file as persist
    from kongming.store import Store
    from kongming.store.models import SCALE, SCALE_PREFIX

    with Store.open(store_url) as store:
        return store.put_model(SCALE_PREFIX + name, SCALE, "", SCALE, persist.seal(file))


def staleness(file: ScaleFile) -> tuple[bool, list[str]]:
    """Return whether the program or its input has changed since the fit, and warnings about it."""
    from kongming.scale.fit.tracked_files import changes

    stale, reasons = changes(file.tracked)
    return stale, list(reasons)


def answer(model: ScaleModel, prediction: ScalePrediction) -> dict[str, Any]:
    """Return a prediction as JSON."""
    document: dict[str, Any] = {
        "machines": int(prediction.at.machines),
        "scale": prediction.at.scale,
        "runtime_s": prediction.runtime_s,
        "extrapolating": prediction.extrapolating,
        "reasons": list(prediction.reasons),
        "model": model.fit.kind,
    }
    if model.iterated:
        document["iterations"] = prediction.iterations
    for key, value in (("group", model.group), ("type", model.machine_type)):
        if value is not None:
            document[key] = value
    return document


def print_warnings(warnings: list[str]) -> None:
    """Print warnings on stderr."""
    for text in warnings:
        output.error_console().print(f"warning: {text}", markup=False, soft_wrap=True)


def interval(runtime_s: Mapping[str, float]) -> str:
    """``12.3 s (11.0 s to 13.9 s)``."""
    low, high = (output.format_seconds(runtime_s[key]) for key in ("lower", "upper"))
    return f"{output.format_seconds(runtime_s['median'])} ({low} to {high})"
