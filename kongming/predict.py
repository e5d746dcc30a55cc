"""From a model document and an environment to a prediction. Pure: no measuring, no store.

An environment is seconds per operation by surrogate: a fingerprint taken now, a neighbour's
signature, or several put together (``colocation``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kongming import colocation
from kongming.colocation import Times
from kongming.dataset import Floats
from kongming.errors import ExtrapolationError, IncompatibleError, UntrainedError
from kongming.fingerprint import Fingerprint
from kongming.models import extrapolation, intervals
from kongming.models.drivers import drivers
from kongming.models.persist import FrozenModel, ModelFile, Variant, read
from kongming.models.readings import (
    VariantName,
    check_suite,
    idle_times,
    row_of,
    variant_columns,
    variant_for,
)
from kongming.prediction import Interval, Prediction
from kongming.run import Signature

Document = Mapping[str, Any] | ModelFile
"""A model document, or one that was read already (which saves checking it again)."""


def predict_environment(
    document: Document,
    environment: Fingerprint | Times,
    *,
    model: str | None = None,
    variant: VariantName | None = None,
    strict: bool = False,
    level: float = 0.9,
    beside: Sequence[str] = (),
) -> Prediction:
    """The application's runtime in this environment.

    ``model`` names one of the trained models (None or "auto": the chosen one). ``variant`` is
    the set of columns; None takes the full one, or the quick one where the environment lacks
    columns of the full one. ``beside`` only labels the prediction.

    Raises:
        IncompatibleError: the fingerprint is of another suite version than the model.
        InputError: too many of the model's surrogates are missing, or the document is damaged.
        UnknownNameError: no such model was trained.
        ExtrapolationError: under ``strict``, the environment lies outside the training ones.
    """
    file = _read(document)
    warnings: list[str] = []
    if isinstance(environment, Fingerprint):
        check_suite(file, environment.suite_version, "The fingerprint")
        if environment.node.id != file.node_id:
            warnings.append("The fingerprint was taken on another node than the training runs.")
        times: Times = environment.times()
    else:
        times = environment
    chosen = variant_for(file, times, variant, warnings)
    values = row_of(chosen, times, warnings)
    frozen = chosen.model(model)
    log_slowdown = float(frozen.log_slowdown(values[None, :])[0])
    bounds = _interval(chosen, frozen, values, log_slowdown, level)
    far = extrapolation.distance(
        values, low=chosen.low, high=chosen.high, spread=chosen.spread, weights=frozen.weights
    )
    if far.outside:
        named = ", ".join(chosen.columns[j] for j in far.columns[:3])
        more = f" and {len(far.columns) - 3} more" if len(far.columns) > 3 else ""
        sentence = (
            f"The environment lies outside the {file.app} training runs in {named}{more} "
            f"(distance {far.value:.1f}, allowed 1)."
        )
        if strict:
            raise ExtrapolationError(
                sentence, hint="Profile under such load, or predict without --strict."
            )
        warnings.append(sentence)
    if not bounds.calibrated:
        warnings.append(
            f"The interval is not calibrated: validation left out {frozen.groups} groups of runs, "
            f"and {intervals.LEAST_GROUPS} are the least for it."
        )
    return Prediction(
        app=file.app,
        model=frozen.name,
        placement=file.placement,
        solo_s=file.solo_metric,
        runtime_s=_runtime(file, bounds),
        slowdown=bounds,
        extrapolating=far.outside,
        drivers=drivers(frozen.log_slowdown, values, chosen.idle, chosen.families),
        beside=tuple(beside),
        warnings=tuple(warnings),
        metric_unit=file.metric_unit,
    )


def predict_beside(
    document: Document,
    neighbours: Mapping[str, Sequence[Signature]],
    *,
    live: Fingerprint | None = None,
    model: str | None = None,
    strict: bool = False,
    level: float = 0.9,
) -> Prediction:
    """The application's runtime beside these neighbours, each with one signature or more.

    On the idle node, one neighbour's signature is the environment itself and several are
    composed over the training runs' idle reference. With ``live``, a fingerprint of the node as
    it is now, all are added to that: so they must not run there already.

    Raises:
        UntrainedError: a neighbour has no signature.
        IncompatibleError: a signature is of another suite version, node or placement.
        and what ``predict_environment`` raises.
    """
    file = _read(document)
    signatures = [_signature(file, name, repeats) for name, repeats in neighbours.items()]
    names = tuple(neighbours)
    if live is None:
        alone = idle_times(file.variants["full"])
        return predict_environment(
            file,
            colocation.beside(signatures, alone),
            model=model,
            strict=strict,
            level=level,
            beside=names,
        )
    check_suite(file, live.suite_version, "The fingerprint")
    # The variants share their idle reference but for the columns that each lacks.
    idle = {
        name: seconds for v in file.variants.values() for name, seconds in idle_times(v).items()
    }
    return predict_environment(
        file,
        colocation.compose(live.times(), signatures, idle),
        model=model,
        strict=strict,
        level=level,
        beside=names,
    )


def predict_residents(
    newcomer: Sequence[Signature],
    residents: Mapping[str, Document],
    neighbours: Mapping[str, Sequence[Signature]] | None = None,
    *,
    live: Fingerprint | None = None,
    model: str | None = None,
    level: float = 0.9,
) -> dict[str, Interval]:
    """The slowdown of each resident once the newcomer is there too.

    ``newcomer`` are the signatures of the program that would come, ``residents`` the residents'
    model documents by name, ``neighbours`` the residents' own signatures, since with several of
    them each also meets the others. With ``live``, a fingerprint of the node as it is now, all
    are added to that: give no ``neighbours`` that run there already. A resident that lacks
    ``model`` is predicted by its own choice.

    Raises: as ``predict_beside``.
    """
    slowdowns: dict[str, Interval] = {}
    if not newcomer:
        return slowdowns
    arriving = newcomer[0].app
    for name, document in residents.items():
        file = _read(document)
        wanted = model if model in file.variants["full"].models else None
        company: dict[str, Sequence[Signature]] = {arriving: newcomer}
        for other, signatures in (neighbours or {}).items():
            if other != name and signatures:
                company[other] = signatures
        prediction = predict_beside(file, company, live=live, model=wanted, level=level)
        slowdowns[name] = prediction.slowdown
    return slowdowns


def predict_pair(
    first: Document,
    first_signatures: Sequence[Signature],
    second: Document,
    second_signatures: Sequence[Signature],
    *,
    model: str | None = None,
    strict: bool = False,
    level: float = 0.9,
) -> tuple[Prediction, Prediction]:
    """The first beside the second, and the second beside the first. Raises as
    ``predict_beside``."""
    a, b = _read(first), _read(second)
    return (
        predict_beside(a, {b.app: second_signatures}, model=model, strict=strict, level=level),
        predict_beside(b, {a.app: first_signatures}, model=model, strict=strict, level=level),
    )


def live_variant(document: Document, model: str | None = None) -> VariantName:
    """The smallest set of columns that serves a live prediction as well as any.

    The quick one, unless validation found the full one's model better by more than the repeat
    noise over the square root of the runs that were scored.
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
    """The surrogates that a variant's models read. Raises UntrainedError without it."""
    return variant_columns(_read(document), variant)


def _read(document: Document) -> ModelFile:
    return document if isinstance(document, ModelFile) else read(document)


def _signature(file: ModelFile, name: str, signatures: Sequence[Signature]) -> dict[str, float]:
    if not signatures:
        raise UntrainedError(
            f"{name} has no signature at {file.placement}, so what it does to a neighbour is not "
            "known.",
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


def _interval(
    variant: Variant, model: FrozenModel, times: Floats, log_slowdown: float, level: float
) -> Interval:
    return intervals.interval(
        log_slowdown,
        float(intervals.severity(times[None, :], variant.idle, variant.spread)[0]),
        residuals=model.residuals,
        severities=model.severities,
        noise=variant.noise,
        floor=model.bounds[0],
        groups=model.groups,
        level=level,
    )


def _runtime(file: ModelFile, slowdown: Interval) -> Interval:
    """The metric in its own unit; where higher is better, more slowdown is a lower value."""
    solo = file.solo_metric
    if file.better == "lower":
        return slowdown.scaled(solo)
    return Interval(
        median=solo / slowdown.median,
        lower=solo / slowdown.upper,
        upper=solo / slowdown.lower,
        level=slowdown.level,
        calibrated=slowdown.calibrated,
    )
