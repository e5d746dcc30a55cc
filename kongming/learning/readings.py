"""The readings of an environment in the columns and the order that a model's variant needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from kongming.arrays import Floats
from kongming.learning.columns import row
from kongming.learning.model_file import ModelFile, Variant
from kongming.records.errors import IncompatibleError, UntrainedError

VariantName = Literal["full", "quick"]

MISSING_SHARE = 0.2
"""Maximum share of a model's columns that may be missing from an environment and are filled in."""


JOINED = frozenset({"os.wakeup"})
"""Surrogates that joined the quick suite later. Its version stayed, since what a surrogate reads
does not depend on which others are in the suite: fingerprints without them are of the same suite,
and are answered like those of nodes where they read as on the idle node."""


def variant_columns(file: ModelFile, variant: VariantName) -> tuple[str, ...]:
    """Return the surrogates that a variant's models read. Raises UntrainedError without the
    variant.
    """
    if variant not in file.variants:
        raise UntrainedError(
            f"{file.app} has no model on the {variant} suite's columns.",
            hint=f"Train it again: kongming train {file.app}",
        )
    return file.variants[variant].columns


def idle_times(variant: Variant) -> dict[str, float]:
    """Return the seconds per operation of the idle reference, by surrogate."""
    return dict(zip(variant.columns, variant.idle.tolist(), strict=True))


def check_suite(file: ModelFile, version: str, what: str) -> None:
    """Raise IncompatibleError if ``what`` is of another suite version than the model."""
    if version != file.suite_version:
        raise IncompatibleError(
            f"{what} is of suite version {version}; the model of {file.app} was trained on "
            f"{file.suite_version}.",
            hint="Surrogates of different sizes are different columns: profile and train again "
            "with this suite.",
        )


def joined_as_idle(variant: Variant, log_idle: Floats, logs: Floats) -> Floats:
    """Fill the missing readings (NaN) of JOINED in ``logs`` (n, p), in place, if the variant is the
    quick one, with ``log_idle`` (p,); return ``logs``."""
    if variant.name != "quick":
        return logs
    for place, column in enumerate(variant.columns):
        if column in JOINED:
            missing = np.isnan(logs[:, place])
            logs[missing, place] = log_idle[place]
    return logs


def logs_of(columns: Sequence[str], times: Mapping[str, float]) -> Floats:
    """Return (p,) log seconds per operation in the order of ``columns``, NaN without a reading.

    Raises:
        InputError: a reading is not a finite time above 0 s.
    """
    logs = np.full(len(columns), math.nan)
    there = [place for place, name in enumerate(columns) if name in times]
    logs[there] = np.log(row([columns[place] for place in there], times))
    return logs
