"""Jobs with time limits: what a batch queue is given."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.files.csv_rows import read_rows
from kongming.records.errors import InputError

COLUMNS = ("arrival_s", "app", "processors", "run_s", "limit_s")


@dataclass(frozen=True, eq=False, slots=True)
class LimitedJobs:
    """n jobs in the order of their arrival, on a machine of ``capacity`` processors.

    Arrays (n,): ``arrival_s``; ``app_of``, numbers of applications; ``processors``, at most
    ``capacity``; ``run_s``, how long the job runs if nothing ends it; ``limit_s``, its user's time
    limit; ``known_from_s``, when its run time counts as history at the earliest. ``skipped`` counts
    the jobs of the source that could not be used.
    """

    arrival_s: Floats
    app_of: NDArray[np.int64]
    processors: NDArray[np.int64]
    run_s: Floats
    limit_s: Floats
    known_from_s: Floats
    capacity: int
    source: str
    skipped: int = 0

    def __post_init__(self) -> None:
        if not len(self.arrival_s):
            raise InputError("There is no job that could be used.", field="trace")
        if int(self.processors.max()) > self.capacity:
            raise InputError(
                "is too small for the widest job.",
                field="the machine",
                value=f"{self.capacity} processors",
                allowed=f"{int(self.processors.max())} or more (--nodes times --slots)",
            )

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def work_s(self) -> float:
        """Processor seconds that run within the users' limits."""
        return float((np.minimum(self.run_s, self.limit_s) * self.processors).sum())


def read_jobs(path: Path, capacity: int) -> LimitedJobs:
    """Read jobs from a CSV with a header: arrival_s, app, processors, run_s and limit_s.

    Raises:
        InputError: the file cannot be read, or a cell is not plausible (with row and column).
    """
    columns = {name: array("d") for name in COLUMNS}
    apps: dict[str, int] = {}
    for row in read_rows(path, COLUMNS, COLUMNS):
        columns["arrival_s"].append(row.number_in("arrival_s"))
        columns["app"].append(apps.setdefault(row.name("app"), len(apps)))
        columns["processors"].append(row.number_in("processors", least=1, integer=True))
        for name in ("run_s", "limit_s"):
            columns[name].append(row.number_in(name, above=True))
    values = {name: np.array(column, dtype=np.float64) for name, column in columns.items()}
    order = np.argsort(values["arrival_s"], kind="stable")
    values = {name: column[order] for name, column in values.items()}
    return LimitedJobs(
        arrival_s=values["arrival_s"],
        app_of=values["app"].astype(np.int64),
        # What 64 bits do not hold is wider than any machine, too.
        processors=np.minimum(values["processors"], 1e18).astype(np.int64),
        run_s=values["run_s"],
        limit_s=values["limit_s"],
        known_from_s=values["arrival_s"] + np.minimum(values["run_s"], values["limit_s"]),
        capacity=capacity,
        source=str(path),
    )
