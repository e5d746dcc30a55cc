"""Scale models as a versioned JSON document: numbers and names, sealed with a checksum.

No pickle. A document is fully validated before use; a damaged or newer one is rejected.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.atomic_file import replacing
from kongming.records.errors import IncompatibleError, InputError
from kongming.scale.fit.cliffs import Edge
from kongming.scale.fit.ernest import ErnestFit
from kongming.scale.fit.model import Ranges, ScaleFile, ScaleModel
from kongming.scale.fit.nearest import NearestFit
from kongming.scale.fit.residuals import ResidualFit, Shape
from kongming.scale.fit.spread import Spread
from kongming.scale.fit.terms import term
from kongming.scale.fit.tracked_files import TrackedFile
from kongming.scale.fit.validation import Fit

__all__ = ["FORMAT", "VERSION", "read", "read_file", "seal", "write_file"]

FORMAT = "kongming-scale-model"
VERSION = 1


def seal(file: ScaleFile) -> dict[str, Any]:
    """Return the document of a scale model, with its checksum.

    Raises:
        ValueError: the model holds a number that is not finite.
    """
    document = {
        "format": FORMAT,
        "version": VERSION,
        "name": file.name,
        "created_at": file.created_at,
        "tracked": [tracked.document() for tracked in file.tracked],
        "models": [_model_document(model) for model in file.models],
    }
    return {**document, "checksum": _checksum(document)}


def write_file(path: str | Path, file: ScaleFile) -> None:
    """Write a model atomically. Raises OSError."""
    with replacing(Path(path)) as stream:
        stream.write(json.dumps(seal(file), indent=1, allow_nan=False).encode() + b"\n")


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
        raise _damaged(f"{file} is not JSON") from error
    return read(document)


def read(document: object) -> ScaleFile:
    """Read and validate a scale model.

    Raises:
        InputError: the document is not a scale model, or is damaged.
        IncompatibleError: it was written by a newer KONGMING.
    """
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise InputError("This is not a scale model.", field="format", allowed=FORMAT)
    version = document.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InputError("The scale model has no valid version.", field="version", found=version)
    if version > VERSION:
        raise IncompatibleError(
            f"The scale model has version {version}; this KONGMING reads up to {VERSION}.",
            hint="Upgrade kongming to read it, or fit it again.",
        )
    payload = {key: value for key, value in document.items() if key != "checksum"}
    try:
        intact = document.get("checksum") == _checksum(payload)
    except (TypeError, ValueError):
        intact = False
    if not intact:
        raise _damaged("its checksum does not match")
    try:
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
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise _damaged(f"{error!r}") from error


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
    spread = document["spread"]
    coverage = spread["coverage"]
    fit = _fit(str(document["kind"]), document["fit"])
    if fit.kind != document["kind"]:
        raise ValueError("kind")
    width = len(fit.coef) if isinstance(fit, ErnestFit) else 0
    if isinstance(fit, ResidualFit):
        width = len(fit.ernest.coef)
    if isinstance(fit, NearestFit) and fit.beyond is not None:
        width = len(fit.beyond.coef)
    draws = np.array(spread["draws"], dtype=np.float64).reshape(len(spread["draws"]), -1)
    if len(draws) and (draws.shape[1] != width or not np.isfinite(draws).all()):
        raise ValueError("draws")
    return ScaleModel(
        fit=fit,
        spread=Spread(
            draws=draws,
            noise=_positive(spread["noise"]),
            relative=bool(spread["relative"]),
            inside=_positive(spread["inside"]),
            outside=_positive(spread["outside"]),
            freedom=_positive(spread["freedom"]),
            coverage=None if coverage is None else _finite(coverage),
            covered=int(spread["covered"]),
        ),
        ranges=Ranges(_pair(ranges["machines"]), _pair(ranges["scale"]), _pair(ranges["load"])),
        report=dict(document["report"]),
        iterated=bool(document["iterated"]),
        edge=None
        if edge is None
        else Edge(_positive(edge["inside"]), _positive(edge["beyond"]), _positive(edge["times"])),
        memory_load=None if document["memory_load"] is None else _positive(document["memory_load"]),
        group=None if document["group"] is None else str(document["group"]),
        machine_type=None if document["machine_type"] is None else str(document["machine_type"]),
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
        shape = Shape((_positive(length), _positive(other)), _positive(document["ratio"]))
        return ResidualFit(
            _ernest(document["ernest"]), shape, places, dual, inverse, _positive(document["noise"])
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
    raise ValueError(f"kind {kind!r}")


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
        items=None if items is None else _positive(items),
        relative=bool(document["relative"]),
        least=_positive(document["least"]),
        cliff=None if cliff is None else _positive(cliff),
    )


def _floats(values: Any) -> Floats:
    array = np.array(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("a number that is not finite")
    return array


def _pair(values: Any) -> tuple[float, float]:
    low, high = (_positive(value) for value in values)
    if low > high:
        raise ValueError("ranges")
    return low, high


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def _positive(value: object) -> float:
    number = _finite(value)
    if number <= 0.0:
        raise ValueError(f"{value!r} is not above 0")
    return number


def _checksum(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _damaged(reason: str) -> InputError:
    return InputError(
        f"The scale model is damaged: {reason}.", hint="Fit it again: kongming scale fit RUNS.csv"
    )
