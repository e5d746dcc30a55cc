"""Scale models as a sealed JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kongming.files.atomic_file import replacing
from kongming.files.missing_file import did_you_mean, unwritable
from kongming.files.sealed_document import DocumentKind, finite, positive
from kongming.records.errors import InputError
from kongming.scale.fit.cliffs import Edge
from kongming.scale.fit.contexts.context_file import context_document, read_context
from kongming.scale.fit.ernest import ErnestFit
from kongming.scale.fit.fit_file import read_fit, read_ranges
from kongming.scale.fit.model import ScaleModel, Uncertainty
from kongming.scale.fit.nearest import NearestFit
from kongming.scale.fit.residuals import ResidualFit
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.spread import Spread
from kongming.scale.fit.stack import StackFit
from kongming.scale.fit.stack_spread import StackSpread
from kongming.scale.fit.tracked_files import TrackedFile
from kongming.scale.fit.validation import Fit

_KIND = DocumentKind(
    "kongming-scale-model", 3, "scale model", "fit it again", "kongming scale fit RUNS.csv"
)
_WITHOUT_SHIFTS = 2
"""The newest version that knows no numbers of contexts that are shifted before their logarithm is
taken: who reads no newer one would take them for plain numbers."""


def seal(file: ScaleFile) -> dict[str, Any]:
    """Return the document of a scale model, with its checksum.

    Raises:
        ValueError: the model holds a number that is not finite.
    """
    shifted = any(column.shift for model in file.contexts for column in model.columns)
    return _KIND.seal(
        {
            "name": file.name,
            "created_at": file.created_at,
            "tracked": [tracked.document() for tracked in file.tracked],
            "models": [_model_document(model) for model in file.models],
            "contexts": [context_document(model) for model in file.contexts],
        },
        None if shifted else _WITHOUT_SHIFTS,
    )


def write_file(path: str | Path, file: ScaleFile) -> None:
    """Write a model atomically. Raises InputError where that is not possible, StoreError where
    the disk is full."""
    try:
        with replacing(Path(path)) as stream:
            stream.write(json.dumps(seal(file), indent=1, allow_nan=False).encode() + b"\n")
    except OSError as error:
        raise unwritable(Path(path), error) from error


def read_file(path: str | Path) -> ScaleFile:
    """Read a model. Raises InputError and IncompatibleError as ``read``."""
    file = Path(path)
    try:
        return _KIND.read_file(file, file.read_bytes(), _scale_file)
    except FileNotFoundError as error:
        raise InputError(
            f"There is no scale model {file}.",
            hint=did_you_mean(file) or "Fit it: kongming scale fit RUNS.csv --save",
        ) from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from error


def read(document: object) -> ScaleFile:
    """Read and check a scale model. Raises InputError and IncompatibleError as
    ``DocumentKind.read``.
    """
    return _KIND.read(document, _scale_file)


def _scale_file(document: Mapping[str, Any]) -> ScaleFile:
    models = tuple(_model(entry) for entry in document["models"])
    # Version 1 knew no contexts.
    contexts = tuple(read_context(entry) for entry in document.get("contexts", ()))
    if not models and not contexts:
        raise ValueError("no model")
    return ScaleFile(
        name=None if document["name"] is None else str(document["name"]),
        created_at=str(document["created_at"]),
        models=models,
        contexts=contexts,
        tracked=tuple(
            TrackedFile(
                str(entry["path"]),
                str(entry["sha256"]),
                int(entry["size_bytes"]),
                int(entry["mtime_ns"]),
            )
            for entry in document["tracked"]
        ),
    )


def _model_document(model: ScaleModel) -> dict[str, Any]:
    edge = model.edge
    return {
        "group": model.group,
        "machine_type": model.machine_type,
        "kind": model.fit.kind,
        "fit": model.fit.document(),
        "spread": model.spread.document(),
        "ranges": model.ranges.document(),
        "iterated": model.iterated,
        "edge": None
        if edge is None
        else {"inside": edge.inside, "beyond": edge.beyond, "times": edge.times},
        "memory_load": model.memory_load,
        "report": dict(model.report),
    }


def _model(document: Mapping[str, Any]) -> ScaleModel:
    edge = document["edge"]
    fit = read_fit(str(document["kind"]), document["fit"])
    if fit.kind != document["kind"]:
        raise ValueError("kind")
    return ScaleModel(
        fit=fit,
        spread=_spread(fit, document["spread"]),
        ranges=read_ranges(document["ranges"]),
        report=dict(document["report"]),
        iterated=bool(document["iterated"]),
        edge=None
        if edge is None
        else Edge(positive(edge["inside"]), positive(edge["beyond"]), positive(edge["times"])),
        memory_load=None if document["memory_load"] is None else positive(document["memory_load"]),
        group=None if document["group"] is None else str(document["group"]),
        machine_type=None if document["machine_type"] is None else str(document["machine_type"]),
    )


def _spread(fit: Fit, document: Mapping[str, Any]) -> Uncertainty:
    coverage = None if document["coverage"] is None else finite(document["coverage"])
    covered = int(document["covered"])
    if isinstance(fit, StackFit):
        noise = finite(document["noise"])
        if noise < 0.0:
            raise ValueError("noise")
        return StackSpread(noise, coverage, covered)
    width = len(fit.coef) if isinstance(fit, ErnestFit) else 0
    if isinstance(fit, ResidualFit):
        width = len(fit.ernest.coef)
    if isinstance(fit, NearestFit) and fit.beyond is not None:
        width = len(fit.beyond.coef)
    draws = np.empty((0, 0))
    if document["draws"]:
        draws = np.array(document["draws"], dtype=np.float64).reshape(len(document["draws"]), -1)
    if len(draws) and (draws.shape[1] != width or not np.isfinite(draws).all()):
        raise ValueError("draws")
    return Spread(
        draws=draws,
        noise=positive(document["noise"]),
        relative=bool(document["relative"]),
        inside=positive(document["inside"]),
        outside=positive(document["outside"]),
        freedom=positive(document["freedom"]),
        coverage=coverage,
        covered=covered,
    )
