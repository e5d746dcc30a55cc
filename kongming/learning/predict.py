"""Prediction from a model document and an environment. Pure: no measuring, no store.

An environment is seconds per operation by surrogate: a fingerprint taken now, a neighbour's
signature, or a composition of several (``colocation``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kongming.learning import colocation
from kongming.learning.awake import awake_share, together
from kongming.learning.colocation import Times
from kongming.learning.estimate import EstimateOptions, estimate, prediction
from kongming.learning.intervals import UNWIDENED, Widening
from kongming.learning.model_file import ModelFile, read
from kongming.learning.readings import VariantName, check_suite, idle_times, variant_columns
from kongming.records.errors import IncompatibleError, UntrainedError
from kongming.records.fingerprint import Fingerprint
from kongming.records.prediction import Interval, Prediction
from kongming.records.run import Signature

Document = Mapping[str, Any] | ModelFile
"""A model document, or one that was read already, which is not checked again."""

Neighbours = Mapping[str, Sequence[Signature]] | Sequence[tuple[str, Sequence[Signature]]]
"""Signatures by application, or pairs of both: an application that runs several times is in as many
of them."""


def predict_environment(
    document: Document,
    environment: Fingerprint | Times,
    *,
    model: str | None = None,
    variant: VariantName | None = None,
    strict: bool = False,
    level: float = 0.9,
    widening: Widening = UNWIDENED,
) -> Prediction:
    """Predict the application's runtime in this environment.

    ``model`` names one of the trained models (None or "auto": the chosen one). ``variant`` is the
    set of columns; None takes the full one, or the quick one if the environment lacks columns of
    the full one. ``widening`` is what co-runs of other applications say of the intervals (see
    ``calibration``).

    Raises:
        IncompatibleError: the fingerprint is of another suite version than the model.
        InputError: too many of the model's surrogates are missing, or the document is damaged.
        UnknownNameError: no such model was trained.
        ExtrapolationError: under ``strict``, the environment lies outside the training ones.
    """
    file = _read(document)
    return prediction(
        file,
        environment,
        EstimateOptions(model, variant, level, widening),
        strict=strict,
    )


def predict_colocated(
    document: Document,
    neighbours: Neighbours,
    *,
    model: str | None = None,
    strict: bool = False,
    level: float = 0.9,
    widening: Widening = UNWIDENED,
) -> Prediction:
    """Predict the application's runtime next to these neighbours on the idle node, each with one
    signature or more.

    One neighbour's signature is the environment itself; several are composed over the training
    runs' idle reference. No pressure makes a program faster, so the median is at least the solo
    runtime; only a program that waits may be faster next to a neighbour that keeps a CPU awake, as
    far as its training runs were (``kongming.learning.awake``). What any neighbour costs is added
    (``kongming.learning.presence``).

    Raises:
        UntrainedError: a neighbour has no signature.
        IncompatibleError: a signature is of another suite version, node or placement.
        and what ``predict_environment`` raises.
    """
    file = _read(document)
    return prediction(
        file,
        _company(file, neighbours),
        EstimateOptions(model, None, level, widening, _awake(neighbours)),
        strict=strict,
    )


def slowdown_colocated(
    document: Document,
    neighbours: Neighbours,
    *,
    model: str | None = None,
    level: float = 0.9,
    widening: Widening = UNWIDENED,
) -> Interval:
    """Predict only the slowdown on the idle node: faster than ``predict_colocated`` for many pairs.
    Raises as ``predict_colocated``."""
    file = _read(document)
    options = EstimateOptions(model, None, level, widening, _awake(neighbours))
    return estimate(file, _company(file, neighbours), options).interval


def live_variant(document: Document, model: str | None = None) -> VariantName:
    """Return the smallest set of columns that is sufficient for a live prediction. It is the quick
    one, unless the full one's model is better in validation by more than the repeat noise over the
    square root of the number of scored runs. Scored are the runs under load, where there are any,
    as in the errors that are shown: solo runs, which any model predicts well, choose no suite.
    """
    file = _read(document)
    quick = file.variants.get("quick")
    if quick is None:
        return "full"
    full = file.variants["full"]
    ours, theirs = quick.model(model), full.model(model)
    if not ours.scores or not theirs.scores:
        return "quick"
    tolerance = full.noise / math.sqrt(max(theirs.scores["n"], 1.0))
    better = ours.scores["mean_abs_log"] - theirs.scores["mean_abs_log"]
    return "full" if better > tolerance else "quick"


def columns_needed(document: Document, variant: VariantName) -> tuple[str, ...]:
    """Return the surrogates that a variant's models read. Raises UntrainedError without the
    variant.
    """
    return variant_columns(_read(document), variant)


def _awake(neighbours: Neighbours) -> float:
    return together(awake_share(signatures) for _, signatures in _pairs(neighbours))


def _pairs(neighbours: Neighbours) -> list[tuple[str, Sequence[Signature]]]:
    return list(neighbours.items() if isinstance(neighbours, Mapping) else neighbours)


def _read(document: Document) -> ModelFile:
    return document if isinstance(document, ModelFile) else read(document)


def _company(file: ModelFile, neighbours: Neighbours) -> Times:
    """Return the environment next to these neighbours on the idle node."""
    pairs = _pairs(neighbours)
    # Copies of a program have the same signatures.
    averages: dict[tuple[str, int], dict[str, float]] = {}
    for name, repeats in pairs:
        if (name, id(repeats)) not in averages:
            averages[name, id(repeats)] = _signature(file, name, repeats)
    signatures = [averages[name, id(repeats)] for name, repeats in pairs]
    full = file.variants["full"]
    spread = dict(zip(full.columns, full.spread.tolist(), strict=True))
    return colocation.environment(signatures, idle_times(full), spread)


def _signature(file: ModelFile, name: str, signatures: Sequence[Signature]) -> dict[str, float]:
    if not signatures:
        raise UntrainedError(
            f"{name} has no signature at {file.placement}, so its effect on neighbours is unknown.",
            hint="Profile it: kongming profile APPS.toml --app " + name,
        )
    for signature in signatures:
        check_suite(file, signature.fingerprint.suite_version, f"The signature of {name}")
        for what, theirs, ours in (
            ("node", signature.node_id, file.node_id),
            ("placement", signature.placement, file.placement),
        ):
            if theirs != ours:
                raise IncompatibleError(
                    f"The signature of {name} is of {what} {theirs}; the model of {file.app} is "
                    f"of {ours}.",
                    hint=f"Profile both on the same {what}.",
                )
    return colocation.mean_signature(signatures)
