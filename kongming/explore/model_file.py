"""Model files: a profiler with its runs, as a versioned document under a checksum, never a pickle.

The model is fitted again when it is read: the same runs and the same seed give the same model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.explore import DecisionTreeProfiler
from kongming.explore.runs import VALUE
from kongming.files.atomic_file import replacing
from kongming.files.missing_file import did_you_mean, unwritable
from kongming.files.sealed_document import DocumentKind
from kongming.records.errors import InputError

KIND = DocumentKind(
    "kongming-explore-model",
    1,
    "model of explored points",
    "fit it again",
    "kongming explore fit SPACE.toml RUNS.csv --out MODEL.json",
)

_OF_CHOICE = frozenset({"budget", "budget_in", "spent", "stopped", "policy"})
"""Facts about how points were chosen. A profiler that was given a table chose none of them, and the
table does not say who did."""


@dataclass(frozen=True, eq=False, slots=True)
class ExploreModel:
    """A profiler that was told its runs; ``target`` is the measured column."""

    profiler: DecisionTreeProfiler
    target: str
    created_at: str

    def runs(self) -> tuple[Floats, Floats, Floats]:
        """Return the codes (n, d), the values (n,) and the time limits (n,) that ended them, of all
        runs; NaN where they have none. A run that failed has neither."""
        runs = json.loads(self.profiler.to_json())["runs"]
        codes = np.array([run["codes"] for run in runs], dtype=np.float64)
        values = [math.nan if run["values"] is None else run["values"][VALUE] for run in runs]
        limits = [math.nan if run["at_least"] is None else run["at_least"] for run in runs]
        return (
            codes.reshape(len(runs), len(self.profiler.space.names)),
            np.array(values, dtype=np.float64),
            np.array(limits, dtype=np.float64),
        )

    def report(self) -> dict[str, Any]:
        """Return facts about the runs and the model, as JSON: those of
        ``DecisionTreeProfiler.report`` without how points were chosen."""
        facts = self.profiler.report()
        return {name: fact for name, fact in facts.items() if name not in _OF_CHOICE}


def write_model(path: Path, model: ExploreModel) -> None:
    """Write a model atomically. Raises InputError where that is not possible, StoreError where
    the disk is full."""
    document = KIND.seal(
        {
            "target": model.target,
            "created_at": model.created_at,
            "profiler": json.loads(model.profiler.to_json()),
        }
    )
    try:
        with replacing(path) as stream:
            stream.write(json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")
    except OSError as error:
        raise unwritable(path, error) from error


def read_model(path: Path) -> ExploreModel:
    """Read a model.

    Raises:
        InputError: the file cannot be read, is no model or is damaged.
        IncompatibleError: a newer KONGMING wrote it.
    """
    try:
        return KIND.read_file(path, path.read_bytes(), _model)
    except FileNotFoundError as error:
        raise InputError(
            f"There is no model {path}.", hint=did_you_mean(path) or f"Fit it: {KIND.command}"
        ) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error


def _model(document: Mapping[str, Any]) -> ExploreModel:
    return ExploreModel(
        profiler=DecisionTreeProfiler.from_json(json.dumps(document["profiler"])),
        target=str(document["target"]),
        created_at=str(document["created_at"]),
    )
