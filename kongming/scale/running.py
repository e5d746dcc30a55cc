"""Carrying experiments out: what is left to do, in which order, and what was measured.

Pure but for the table, which is written row by row: nothing that was measured is lost, and the
same command goes on where it was interrupted. Who runs them satisfies ``ExperimentRunner``.
"""

from __future__ import annotations

import csv
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from kongming.errors import InputError
from kongming.scale.points import Configuration

__all__ = [
    "COLUMNS",
    "Experiment",
    "ExperimentRunner",
    "Measured",
    "RunTable",
    "fill_template",
    "ordered",
    "remaining",
]

COLUMNS = ("machines", "scale", "seconds", "how", "identity", "started_at")


@dataclass(frozen=True, slots=True)
class Experiment:
    """The ``repeat``-th run of a configuration, from 0."""

    at: Configuration
    repeat: int = 0

    @property
    def machines(self) -> int:
        return int(self.at.machines)


@dataclass(frozen=True, slots=True)
class Measured:
    """``seconds`` None: it failed, and ``error`` says why. ``how``: cgroup, process, slurm, ...;
    ``started_at`` is UTC in ISO 8601."""

    seconds: float | None
    how: str
    started_at: str
    error: str | None = None


class ExperimentRunner(Protocol):
    """Runs a job on so many machines with so much input; the command calls it in a context."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def run(self, experiment: Experiment) -> Measured:
        """One run, from its start on the machines to the end of the last of them."""


def fill_template(text: str, experiment: Experiment, rank: int | None = None) -> str:
    """{machines}, {scale} and {rank} filled in; every other brace is left as it is."""
    filled = text.replace("{machines}", str(experiment.machines))
    filled = filled.replace("{scale}", f"{experiment.at.scale:.12g}")
    return filled if rank is None else filled.replace("{rank}", str(rank))


def ordered(design: Sequence[tuple[Configuration, int]], *, seed: int = 0) -> list[Experiment]:
    """All runs of a design in a random order: repeats of a configuration lie apart, and a phase of
    the host does not hit one configuration alone."""
    counts: Counter[Configuration] = Counter()
    for at, count in design:
        counts[at] += count
    runs = [Experiment(at, repeat) for at, count in counts.items() for repeat in range(count)]
    random.Random(seed).shuffle(runs)
    return runs


def remaining(experiments: Sequence[Experiment], done: Counter[Configuration]) -> list[Experiment]:
    """Those that are not in the table yet."""
    left = Counter(done)
    found = []
    for one in experiments:
        if left[one.at] > 0:
            left[one.at] -= 1
        else:
            found.append(one)
    return found


class RunTable:
    """The CSV that runs are written to, and resumed from.

    Raises:
        InputError: the file is another table, or of another program.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self.path = path
        self.identity = identity
        self.done: Counter[Configuration] = Counter()
        if path.exists() and path.stat().st_size > 0:
            self._resume()

    def add(self, experiment: Experiment, measured: Measured) -> None:
        """Write a row, on disk when this returns."""
        assert measured.seconds is not None
        fresh = not self.path.exists() or self.path.stat().st_size == 0
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if fresh:
                writer.writerow(COLUMNS)
            writer.writerow(
                (
                    experiment.machines,
                    f"{experiment.at.scale:.12g}",
                    f"{measured.seconds:.6f}",
                    measured.how,
                    self.identity,
                    measured.started_at,
                )
            )
            file.flush()
            os.fsync(file.fileno())
        self.done[experiment.at] += 1

    def _resume(self) -> None:
        text = self.path.read_text(encoding="utf-8")
        if not text.endswith("\n"):
            # A row that was cut off when the machine went down was never finished.
            text = text[: text.rfind("\n") + 1]
            self.path.write_text(text, encoding="utf-8")
        rows = csv.DictReader(text.splitlines())
        if rows.fieldnames is None:
            return
        missing = [name for name in COLUMNS if name not in rows.fieldnames]
        if missing:
            raise InputError(
                f"is a table without {', '.join(missing)}, which this command did not write.",
                field="--out",
                found=str(self.path),
                hint="Name another file.",
            )
        for number, row in enumerate(rows, 1):
            if row["identity"] != self.identity:
                raise InputError(
                    f"{self.path}: the program, its set-up or its environment was another one.",
                    field=f"row {number}, column 'identity'",
                    found=row["identity"],
                    hint="Name another file with --out: runs of two programs are not mixed.",
                )
            try:
                at = Configuration(float(row["machines"]), float(row["scale"]))
            except (TypeError, ValueError) as error:
                raise InputError(
                    "is no configuration.", field=f"row {number}, column 'machines'"
                ) from error
            self.done[at] += 1
