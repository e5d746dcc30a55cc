"""Read the fits of a saved scale model; every number is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.files.sealed_document import finite, positive
from kongming.scale.fit.ernest import ErnestFit
from kongming.scale.fit.local import LocalFit
from kongming.scale.fit.model import Ranges
from kongming.scale.fit.nearest import NearestFit
from kongming.scale.fit.neighbours import NeighbourFit
from kongming.scale.fit.power import PowerFit
from kongming.scale.fit.residuals import ResidualFit, Shape
from kongming.scale.fit.spark_replay import ReplayFit, Step
from kongming.scale.fit.stack import ANCHOR, BACKBONE, LeftOut, StackFit
from kongming.scale.fit.terms import term
from kongming.scale.fit.validation import Fit


def read_fit(kind: str, document: Mapping[str, Any]) -> Fit:
    """Read a fit of this kind. Raises ``MALFORMED`` errors where it is damaged."""
    if kind in ("ernest", "ernest-relative", "ernest-piecewise"):
        return read_ernest(document)
    if kind == "ernest-residuals":
        places, dual = read_floats(document["places"]), read_floats(document["dual"])
        inverse = read_floats(document["inverse"])
        n = len(dual)
        if places.shape != (n, 2) or inverse.shape != (n, n):
            raise ValueError("places")
        length, other = document["lengths"]
        shape = Shape((positive(length), positive(other)), positive(document["ratio"]))
        return ResidualFit(
            read_ernest(document["ernest"]),
            shape,
            places,
            dual,
            inverse,
            positive(document["noise"]),
        )
    if kind == "repeat-nearest":
        machines, scale, seconds = (
            read_floats(document[key]) for key in ("machines", "scale", "seconds")
        )
        columns = (machines, scale, seconds)
        lengths = {len(column) for column in columns}
        if len(lengths) != 1 or not all((column > 0).all() for column in columns):
            raise ValueError("seconds")
        beyond = document["beyond"]
        return NearestFit(machines, scale, seconds, None if beyond is None else read_ernest(beyond))
    if kind == "stack":
        return _stack(document)
    if kind == "ernest-local":
        anchors, fits = read_floats(document["anchors"]), document["fits"]
        if not len(anchors) or len(anchors) != len(fits) or (np.diff(anchors) <= 0.0).any():
            raise ValueError("anchors")
        return LocalFit(anchors, tuple(read_ernest(fit) for fit in fits))
    if kind == "power-law":
        of_scale, of_machines = document["exponents"]
        return PowerFit(finite(document["constant"]), (finite(of_scale), finite(of_machines)))
    if kind == "neighbours":
        places, residuals = read_floats(document["places"]), read_floats(document["residuals"])
        trust = read_floats(document["trust"])
        if places.shape != (len(residuals), 2) or trust.shape != residuals.shape or not len(trust):
            raise ValueError("places")
        return NeighbourFit(read_ernest(document["trend"]), places, residuals, trust)
    if kind == "spark-replay":
        return _replay(document)
    raise ValueError(f"kind {kind!r}")


def _replay(document: Mapping[str, Any]) -> ReplayFit:
    executors, seconds, deviations = (
        read_floats(document[key]) for key in ("executors", "seconds", "deviations")
    )
    if not len(executors) or {len(seconds), len(deviations)} != {len(executors)}:
        raise ValueError("executors")
    if not all((column > 0.0).all() for column in (executors, seconds, deviations)):
        raise ValueError("seconds")
    if (np.diff(executors) <= 0.0).any():
        raise ValueError("executors")
    steps = tuple(
        Step(read_floats(step["lengths"]), positive(step["weight"])) for step in document["steps"]
    )
    if not all(len(step.lengths) and (step.lengths >= 0.0).all() for step in steps):
        raise ValueError("steps")
    driver_s, slots = finite(document["driver_s"]), int(document["slots"])
    if driver_s < 0.0 or slots < 1:
        raise ValueError("slots")
    # Files of former versions have no reasons.
    reasons = tuple(tuple(map(str, own)) for own in document.get("reasons", ()))
    if reasons and len(reasons) != len(executors):
        raise ValueError("reasons")
    return ReplayFit(executors, seconds, deviations, driver_s, slots, steps, reasons)


def _stack(document: Mapping[str, Any]) -> StackFit:
    entries = document["members"]
    names = tuple(str(entry["form"]) for entry in entries)
    places = read_floats(document["places"]).reshape(-1, 4)
    errors = read_floats(document["errors"]).reshape(-1, len(names))
    residuals, alone = read_floats(document["residuals"]), int(document["alone"])
    # Files of a stack without an anchor have the average's errors as its residuals.
    averaged = read_floats(document.get("averaged", (-residuals).tolist()))
    ends, own = read_floats(document["ends"]), read_floats(document["own"])
    n = len(residuals)
    if {len(places), len(errors), len(averaged)} != {n} or not 0 <= alone <= n:
        raise ValueError("places")
    if ends.shape != (2, 2) or own.ndim != 2 or own.shape[1] not in (3, 4):
        raise ValueError("ends")
    if not {BACKBONE, ANCHOR} <= set(names):
        raise ValueError("members")
    members = tuple(read_fit(str(entry["kind"]), entry["fit"]) for entry in entries)
    prior = np.array([positive(entry["prior"]) for entry in entries])
    if not isinstance(members[names.index(BACKBONE)], ErnestFit):
        raise ValueError("members")
    left = LeftOut(places, errors, averaged, residuals, alone)
    return StackFit(names, prior, members, ends, left, own)


def read_ernest(document: Mapping[str, Any]) -> ErnestFit:
    """Read a combination of terms."""
    terms = tuple(term(str(key)) for key in document["terms"])
    coef = read_floats(document["coef"])
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


def read_floats(values: Any) -> Floats:
    """Read an array of finite numbers."""
    array = np.array(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("a number that is not finite")
    return array


def read_ranges(document: Mapping[str, Any]) -> Ranges:
    """Read the trained ranges."""
    machines, scale, load = (_pair(document[key]) for key in ("machines", "scale", "load"))
    # Earlier files have no iterations.
    iterations = document.get("iterations")
    return Ranges(machines, scale, load, None if iterations is None else _pair(iterations))


def _pair(values: Any) -> tuple[float, float]:
    low, high = (positive(value) for value in values)
    if low > high:
        raise ValueError("ranges")
    return low, high
