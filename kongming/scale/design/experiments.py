"""Run experiments: their order, the remaining ones, and the table of measurements.

The table is written row by row, so that no measurement is lost and an interrupted command can be
resumed. An ``ExperimentRunner`` runs the job itself.
"""

from __future__ import annotations

import csv
import os
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from kongming.files.missing_file import unwritable
from kongming.records.errors import InputError
from kongming.scale.points import Configuration

COLUMNS = ("machines", "scale", "seconds", "how", "identity", "started_at")

_ENDS_COMPLETE = re.compile(rb",\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\Z")
"""How a complete row ends: with when it began."""


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
    """Result of a run. ``seconds`` is None if it failed, with the reason in ``error``. ``how``:
    cgroup with the CPUs of each machine, process, slurm, ...; ``started_at`` is UTC in ISO 8601.
    ``metric`` is what the program reports of itself, in its own unit; None where that was not read.
    ``timed_out``: it failed only because it was ended at its time limit, as far as its runner can
    tell."""

    seconds: float | None
    how: str
    started_at: str
    error: str | None = None
    metric: float | None = None
    timed_out: bool = False


class ExperimentRunner(Protocol):
    """Runs a job on a configuration; used as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def run(self, experiment: Experiment) -> Measured:
        """Measure one run, from its start to the end on the last machine."""


def fill_template(text: str, experiment: Experiment, rank: int | None = None) -> str:
    """Replace {machines}, {scale} and {rank}; other braces are not changed."""
    filled = text.replace("{machines}", str(experiment.machines))
    filled = filled.replace("{scale}", f"{experiment.at.scale:.12g}")
    return filled if rank is None else filled.replace("{rank}", str(rank))


def ordered(design: Sequence[tuple[Configuration, int]], *, seed: int = 0) -> list[Experiment]:
    """Return all runs of a design in random order, so that a temporary disturbance of the host does
    not affect all repeats of one configuration."""
    counts: Counter[Configuration] = Counter()
    for at, count in design:
        # With the digits that the command and the table have.
        counts[Configuration(at.machines, float(f"{at.scale:.12g}"))] += count
    runs = [Experiment(at, repeat) for at, count in counts.items() for repeat in range(count)]
    random.Random(seed).shuffle(runs)
    return runs


def remaining(experiments: Sequence[Experiment], done: Counter[Configuration]) -> list[Experiment]:
    """Return the experiments that are not in the table yet."""
    unmatched = Counter(done)
    missing = []
    for experiment in experiments:
        if unmatched[experiment.at] > 0:
            unmatched[experiment.at] -= 1
        else:
            missing.append(experiment)
    return missing


class RunTable:
    """The CSV file that runs are appended to and resumed from. ``hows`` are those of its rows, and
    ``removed`` is what was left of a row that a killed command did not write to its end.

    Raises:
        InputError: the file is a different table, belongs to another program, or cannot be written.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self.path = path
        self.identity = identity
        self.columns: Sequence[str] = COLUMNS
        self.done: Counter[Configuration] = Counter()
        self.hows: list[str] = []
        self.removed = ""
        try:
            # At once, or a run would be measured for a table that cannot be written.
            is_new = not path.exists()
            path.open("ab").close()
            content = path.read_bytes()
            if is_new:
                # Not a link to it.
                path.resolve().unlink()
        except OSError as error:
            raise unwritable(path, error, field="--out") from error
        if content:
            self._resume(content)

    def add(self, experiment: Experiment, measured: Measured) -> None:
        """Append a row and flush it to disk."""
        assert measured.seconds is not None
        is_new = not self.path.exists() or self.path.stat().st_size == 0
        cells = (
            experiment.machines,
            f"{experiment.at.scale:.12g}",
            f"{measured.seconds:.6f}",
            measured.how,
            self.identity,
            measured.started_at,
        )
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.columns, restval="", lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow(dict(zip(COLUMNS, cells, strict=True)))
            file.flush()
            os.fsync(file.fileno())
        self.done[experiment.at] += 1
        self.hows.append(measured.how)

    def _resume(self, content: bytes) -> None:
        end = content.rfind(b"\n") + 1
        # An editor may have left the end of the line out: nothing of a row is missing then.
        is_complete = _ENDS_COMPLETE.search(content) is not None
        if is_complete:
            end = len(content)
        try:
            rows = csv.DictReader(content[:end].decode("utf-8-sig").splitlines())
            columns = rows.fieldnames or ()
        except (UnicodeDecodeError, csv.Error):
            rows, columns = csv.DictReader(()), ()
        missing = [name for name in COLUMNS if name not in columns]
        # Of a header that was cut off, nothing is lost.
        if missing and not ",".join(COLUMNS).encode().startswith(content):
            raise InputError(
                f"is a table without {', '.join(missing)}, not written by this command.",
                field="--out",
                value=str(self.path),
                hint="Choose another file.",
            )
        self.columns = columns or COLUMNS
        for number, row in enumerate(rows, 1):
            if row["identity"] != self.identity:
                raise InputError(
                    f"{self.path}: the program, its set-up or its environment was another one.",
                    field=f"row {number}, column 'identity'",
                    value=row["identity"],
                    hint="Choose another file with --out: runs of two programs are not mixed.",
                )
            try:
                at = Configuration(float(row["machines"]), float(row["scale"]))
            except (TypeError, ValueError) as error:
                raise InputError(
                    "is not a configuration.", field=f"row {number}, column 'machines'"
                ) from error
            self.done[at] += 1
            self.hows.append(row["how"] or "")
        if is_complete:
            with self.path.open("ab") as file:
                file.write(b"\n")
        if end < len(content):
            # The last row is incomplete, for example after a crash.
            self.removed = content[end:].decode(errors="replace") if end else ""
            os.truncate(self.path, end)
