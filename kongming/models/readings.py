"""The readings of an environment as a model's variant needs them: which columns, in what order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from kongming.dataset import Floats, row
from kongming.errors import IncompatibleError, InputError, UntrainedError
from kongming.models.persist import ModelFile, Variant

VariantName = Literal["full", "quick"]

MISSING_SHARE = 0.2
"""Of a model's columns, the share that may be missing from an environment and be filled in."""


def variant_columns(file: ModelFile, variant: VariantName) -> tuple[str, ...]:
    """The surrogates that a variant's models read. Raises UntrainedError without it."""
    if variant not in file.variants:
        raise UntrainedError(
            f"{file.app} has no model on the {variant} suite's columns.",
            hint=f"Train it again: kongming train {file.app}",
        )
    return file.variants[variant].columns


def idle_times(variant: Variant) -> dict[str, float]:
    """Seconds per operation of the idle reference, by surrogate."""
    return dict(zip(variant.columns, variant.idle.tolist(), strict=True))


def check_suite(file: ModelFile, version: str, what: str) -> None:
    """Raises IncompatibleError where ``what`` is of another suite version than the model."""
    if version != file.suite_version:
        raise IncompatibleError(
            f"{what} is of suite version {version}; the model of {file.app} was trained on "
            f"{file.suite_version}.",
            hint="Surrogates of different sizes are different columns: profile and train again "
            "with this suite.",
        )


def variant_for(
    file: ModelFile, times: Mapping[str, float], wanted: VariantName | None, warnings: list[str]
) -> Variant:
    """The variant asked for; else the full one, or the quick one (with a word added to
    ``warnings``) where readings for the full one are missing and none for the quick one is."""
    if wanted is not None:
        variant_columns(file, wanted)
        return file.variants[wanted]
    full, quick = file.variants["full"], file.variants.get("quick")
    lacking = [name for name in full.columns if name not in times]
    if lacking and quick is not None and all(name in times for name in quick.columns):
        warnings.append(
            f"Predicted from the {len(quick.columns)} quick surrogates: the environment has no "
            f"reading of {len(lacking)} others."
        )
        return quick
    return full


def row_of(variant: Variant, times: Mapping[str, float], warnings: list[str]) -> Floats:
    """(p,) seconds per operation; a few missing columns are taken to be slowed as the rest of
    their family, with a word added to ``warnings``.

    Raises:
        InputError: more than ``MISSING_SHARE`` of the columns are missing.
    """
    missing = [name for name in variant.columns if name not in times]
    if not missing:
        return row(variant.columns, times)
    if len(missing) > MISSING_SHARE * len(variant.columns):
        raise InputError(
            f"The environment has no reading of {len(missing)} of the model's "
            f"{len(variant.columns)} surrogates ({', '.join(missing[:4])}"
            f"{', ...' if len(missing) > 4 else ''}).",
            hint="A fingerprint of a larger suite has them (kongming fingerprint --suite full); "
            "the signature of a program has them when its iterations last long enough.",
        )
    present = [name for name in variant.columns if name in times]
    idle = idle_times(variant)
    slowed = {
        name: math.log(seconds / idle[name])
        for name, seconds in zip(present, row(present, times).tolist(), strict=True)
    }
    filled = dict(times)
    family = dict(zip(variant.columns, variant.families, strict=True))
    for name in missing:
        relatives = [value for other, value in slowed.items() if family[other] == family[name]]
        moved = float(np.median(relatives)) if relatives else 0.0
        filled[name] = idle[name] * math.exp(moved)
    warnings.append(
        f"No reading of {', '.join(missing)}: taken to be slowed as the rest of the family."
    )
    return row(variant.columns, filled)
