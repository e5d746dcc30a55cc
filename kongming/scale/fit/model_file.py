"""Scale models as a sealed JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.atomic_file import replacing
from kongming.records.errors import InputError
from kongming.scale.fit.cliffs import Edge
from kongming.scale.fit.ernest import ErnestFit
from kongming.scale.fit.local import LocalFit
from kongming.scale.fit.model import Ranges, ScaleFile, ScaleModel
from kongming.scale.fit.nearest import NearestFit
from kongming.scale.fit.neighbours import NeighbourFit
from kongming.scale.fit.power import PowerFit
from kongming.scale.fit.residuals import ResidualFit, Shape
from kongming.scale.fit.spread import Spread
from kongming.scale.fit.stack import BACKBONE, LeftOut, StackFit
from kongming.scale.fit.stack_spread import StackSpread
from kongming.scale.fit.terms import term
from kongming.scale.fit.tracked_files import TrackedFile
from kongming.scale.fit.validation import Fit
from kongming.sealed_document import DocumentKind, finite, positive

_KIND = DocumentKind(
    "kongming-scale-model", 2, "scale model", "fit it again", "kongming scale fit RUNS.csv"
)


def seal(file: ScaleFile) -> dict[str, Any]:
    """Return the document of a scale model, with its checksum.

    Raises:
        ValueError: the model holds a number that is not finite.
    """
    return _KIND.seal(
        {
            "name": file.name,
            "created_at": file.created_at,
            "tracked": [tracked.document() for tracked in file.tracked],
            "models": [_model_document(model) for model in file.models],
        }
    )


def write_file(path: str | Path, file: ScaleFile) -> None:
    """Write a model atomically. Raises InputError where that is not possible."""
    try:
        with replacing(Path(path)) as stream:
            stream.write(json.dumps(seal(file), indent=1, allow_nan=False).encode() + b"\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from error


def read_file(path: str | Path) -> ScaleFile:
    """Read a model. Raises InputError and IncompatibleError as ``read``."""
    file = Path(path)
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            f"There is no scale model {file}.", hint="Fit it: kongming scale fit RUNS.csv --save"
        ) from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise _KIND.damaged(f"{file} is not JSON") from error
    return read(document)


def read(document: object) -> ScaleFile:
    """Read and check a scale model. Raises InputError and IncompatibleError as
    ``DocumentKind.read``.
    """
    return _KIND.read(document, _scale_file)


def _scale_file(document: Mapping[str, Any]) -> ScaleFile:
    models = tuple(_model(entry) for entry in document["models"])
    if not models:
        raise ValueError("no model")
    return ScaleFile(
        name=None if document["name"] is None else str(document["name"]),
        created_at=str(document["created_at"]),
        models=models,
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
    ranges = model.ranges
    return {
        "group": model.group,
        "machine_type": model.machine_type,
        "kind": model.fit.kind,
        "fit": model.fit.document(),
        "spread": model.spread.document(),
        "ranges": {
            "machines": list(ranges.machines),
            "scale": list(ranges.scale),
            "load": list(ranges.load),
        },
        "iterated": model.iterated,
        "edge": None
        if edge is None
        else {"inside": edge.inside, "beyond": edge.beyond, "times": edge.times},
        "memory_load": model.memory_load,
        "report": dict(model.report),
    }


def _model(document: Mapping[str, Any]) -> ScaleModel:
    edge, ranges = document["edge"], document["ranges"]
    fit = _fit(str(document["kind"]), document["fit"])
    if fit.kind != document["kind"]:
        raise ValueError("kind")
    return ScaleModel(
        fit=fit,
        spread=_spread(fit, document["spread"]),
        ranges=Ranges(_pair(ranges["machines"]), _pair(ranges["scale"]), _pair(ranges["load"])),
        report=dict(document["report"]),
        iterated=bool(document["iterated"]),
        edge=None
        if edge is None
        else Edge(positive(edge["inside"]), positive(edge["beyond"]), positive(edge["times"])),
        memory_load=None if document["memory_load"] is None else positive(document["memory_load"]),
        group=None if document["group"] is None else str(document["group"]),
        machine_type=None if document["machine_type"] is None else str(document["machine_type"]),
    )


def _spread(fit: Fit, document: Mapping[str, Any]) -> Spread | StackSpread:
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


def _fit(kind: str, document: Mapping[str, Any]) -> Fit:
    if kind in ("ernest", "ernest-relative", "ernest-piecewise"):
        return _ernest(document)
    if kind == "ernest-residuals":
        places, dual = _floats(document["places"]), _floats(document["dual"])
        inverse = _floats(document["inverse"])
        n = len(dual)
        if places.shape != (n, 2) or inverse.shape != (n, n):
            raise ValueError("places")
        length, other = document["lengths"]
        shape = Shape((positive(length), positive(other)), positive(document["ratio"]))
        return ResidualFit(
            _ernest(document["ernest"]), shape, places, dual, inverse, positive(document["noise"])
        )
    if kind == "repeat-nearest":
        machines, scale, seconds = (
            _floats(document[key]) for key in ("machines", "scale", "seconds")
        )
        columns = (machines, scale, seconds)
        lengths = {len(column) for column in columns}
        if len(lengths) != 1 or not all((column > 0).all() for column in columns):
            raise ValueError("seconds")
        beyond = document["beyond"]
        return NearestFit(machines, scale, seconds, None if beyond is None else _ernest(beyond))
    if kind == "stack":
        return _stack(document)
    if kind == "ernest-local":
        anchors, fits = _floats(document["anchors"]), document["fits"]
        if not len(anchors) or len(anchors) != len(fits) or (np.diff(anchors) <= 0.0).any():
            raise ValueError("anchors")
        return LocalFit(anchors, tuple(_ernest(fit) for fit in fits))
    if kind == "power-law":
        of_scale, of_machines = document["exponents"]
        return PowerFit(finite(document["constant"]), (finite(of_scale), finite(of_machines)))
    if kind == "neighbours":
        places, residuals = _floats(document["places"]), _floats(document["residuals"])
        trust = _floats(document["trust"])
        if places.shape != (len(residuals), 2) or trust.shape != residuals.shape or not len(trust):
            raise ValueError("places")
        return NeighbourFit(_ernest(document["trend"]), places, residuals, trust)
    raise ValueError(f"kind {kind!r}")


def _stack(document: Mapping[str, Any]) -> StackFit:
    entries = document["members"]
    names = tuple(str(entry["form"]) for entry in entries)
    places = _floats(document["places"]).reshape(-1, 4)
    errors = _floats(document["errors"]).reshape(-1, len(names))
    residuals, alone = _floats(document["residuals"]), int(document["alone"])
    ends, own = _floats(document["ends"]), _floats(document["own"])
    n = len(residuals)
    if len(places) != n or len(errors) != n or not 0 <= alone <= n:
        raise ValueError("places")
    if ends.shape != (2, 2) or own.ndim != 2 or own.shape[1] != 3:
        raise ValueError("ends")
    if not {BACKBONE, "cliff"} <= set(names):
        raise ValueError("members")
    members = tuple(_fit(str(entry["kind"]), entry["fit"]) for entry in entries)
    prior = np.array([positive(entry["prior"]) for entry in entries])
    if not isinstance(members[names.index(BACKBONE)], ErnestFit):
        raise ValueError("members")
    return StackFit(names, prior, members, ends, LeftOut(places, errors, residuals, alone), own)


def _ernest(document: Mapping[str, Any]) -> ErnestFit:
    terms = tuple(term(str(key)) for key in document["terms"])
    coef = _floats(document["coef"])
    cliff = document["cliff"]
    if len(coef) != len(terms) + (0 if cliff is None else 2) or (coef < 0.0).any():
        raise ValueError("coef")
    items = document["items"]
    return ErnestFit(
        terms=terms,
        coef=coef,
        items=None if items is None else positive(items),
        relative=bool(document["relative"]),
        least=positive(document["least"]),
        cliff=None if cliff is None else positive(cliff),
    )


def _floats(values: Any) -> Floats:
    array = np.array(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("a number that is not finite")
    return array


def _pair(values: Any) -> tuple[float, float]:
    low, high = (positive(value) for value in values)
    if low > high:
        raise ValueError("ranges")
    return low, high
