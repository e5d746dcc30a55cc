"""Configurations of a job and measured runs. Scale and machines are one record, never two
arguments, so that their order cannot be confused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.records.errors import InputError

Integers = NDArray[np.intp]

MACHINES, SCALES, SECONDS, ITERATIONS = (1.0, 1e9), (1e-15, 1e18), (1e-9, 1e12), (1.0, 1e12)
"""(least, most) of each quantity, in tables and in questions: sums of squares of their ratios stay
finite. A scale may be in bytes; the longest run is of 30,000 years."""


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """A number of machines and a share of the input (1 is all of it)."""

    machines: float
    scale: float = 1.0

    def __str__(self) -> str:
        return (
            f"{self.machines:g} machine{'' if self.machines == 1 else 's'} at scale {self.scale:g}"
        )


@dataclass(frozen=True, eq=False)
class Points:
    """Configurations as columns: ``machines``, ``scale`` and ``iterations``, each (n,)."""

    machines: Floats
    scale: Floats
    iterations: Floats

    @classmethod
    def of(cls, configurations: Sequence[Configuration], iterations: float = 1.0) -> Points:
        """Convert a list of configurations to columns."""
        machines = np.array([each.machines for each in configurations], dtype=np.float64)
        scale = np.array([each.scale for each in configurations], dtype=np.float64)
        return cls(machines, scale, np.full(len(machines), float(iterations)))

    def __len__(self) -> int:
        return len(self.machines)

    def take(self, index: Any) -> Points:
        """Select points by index or mask."""
        return Points(self.machines[index], self.scale[index], self.iterations[index])

    @property
    def load(self) -> Floats:
        """(n,) scale per machine, which has to fit into one machine's memory."""
        return self.scale / self.machines

    def configurations(self) -> list[Configuration]:
        """Return one record per point."""
        return [
            Configuration(float(machines), float(scale))
            for machines, scale in zip(self.machines, self.scale, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Runs:
    """Measured runs. ``seconds`` (n,) are of entire runs; several runs of one configuration are its
    repeats, in the order of the table."""

    points: Points
    seconds: Floats

    def __len__(self) -> int:
        return len(self.seconds)

    @cached_property
    def unit_seconds(self) -> Floats:
        """(n,) seconds per iteration, the modelled quantity."""
        return np.asarray(self.seconds / self.points.iterations, dtype=np.float64)

    @cached_property
    def owner(self) -> Integers:
        """(n,) index of each run's configuration: 0, 1, ... in the order of appearance."""
        indices: dict[tuple[float, float, float], int] = {}
        rows = zip(
            self.points.machines.tolist(),
            self.points.scale.tolist(),
            self.points.iterations.tolist(),
            strict=True,
        )
        return np.array([indices.setdefault(row, len(indices)) for row in rows], dtype=np.intp)

    @cached_property
    def count(self) -> int:
        """Number of distinct configurations."""
        return int(self.owner.max()) + 1 if len(self) else 0

    @cached_property
    def configurations(self) -> Points:
        """Distinct configurations, (count,) each."""
        first = np.array(
            [int(np.argmax(self.owner == i)) for i in range(self.count)], dtype=np.intp
        )
        return self.points.take(first)

    @cached_property
    def typical(self) -> Floats:
        """(count,) typical seconds per iteration of each configuration: the geometric mean of its
        runs, in which those far from their median, in units of all repeats' spread, count less
        (Huber's location)."""
        logs = np.log(self.unit_seconds)
        middle = self._medians(logs)
        if len(self) == self.count:
            return np.asarray(np.exp(middle), dtype=np.float64)
        repeated = self.repeats[self.owner] > 1.0
        for _ in range(3):
            away = np.abs(logs - middle[self.owner])
            spread = 1.4826 * float(np.median(away[repeated])) + 1e-12
            # Two repeats have no majority.
            weight = np.where(
                self.repeats[self.owner] > 2.0,
                1.0 / np.maximum(away / (1.3 * spread), 1.0),
                1.0,
            )
            sums = np.bincount(self.owner, weights=weight * logs, minlength=self.count)
            middle = sums / np.bincount(self.owner, weights=weight, minlength=self.count)
        return np.asarray(np.exp(middle), dtype=np.float64)

    def _medians(self, values: Floats) -> Floats:
        """(count,) median of each configuration's values."""
        order = np.lexsort((values, self.owner))
        counts = np.bincount(self.owner, minlength=self.count)
        start = np.cumsum(counts) - counts
        ordered = values[order]
        return np.asarray(
            0.5 * (ordered[start + (counts - 1) // 2] + ordered[start + counts // 2]),
            dtype=np.float64,
        )

    @cached_property
    def repeats(self) -> Floats:
        """(count,) number of runs of each configuration."""
        return np.bincount(self.owner, minlength=self.count).astype(np.float64)

    def in_order(self) -> Runs:
        """Sort by machines, scale, iterations and seconds: rows of a table have no order."""
        points = self.points
        return self.take(
            np.lexsort((self.seconds, points.iterations, points.scale, points.machines))
        )

    def take(self, mask: Any) -> Runs:
        """Select runs by index or mask."""
        return Runs(self.points.take(mask), self.seconds[mask])

    def within(self, configurations: Any) -> Runs:
        """Select the runs of these configurations (a list of indices)."""
        return self.take(np.isin(self.owner, np.asarray(configurations)))

    def without(self, configurations: Any) -> Runs:
        """Select the runs of all other configurations."""
        return self.take(~np.isin(self.owner, np.asarray(configurations)))


def check_within(field: str, value: float, limits: tuple[float, float]) -> None:
    """Raise InputError unless a number is within its (least, most)."""
    if not limits[0] <= value <= limits[1]:
        raise InputError(
            "is out of range.",
            field=field,
            value=value,
            allowed=f"{limits[0]:g} to {limits[1]:g}",
        )


def check_runs(runs: Runs) -> None:
    """Check what was not read from a table, which names its rows by itself.

    Raises:
        InputError: columns differ in their lengths, a number is not finite or out of range, or
            all runs are at one machine count.
    """
    columns = {
        "machines": (runs.points.machines, MACHINES),
        "scale": (runs.points.scale, SCALES),
        "iterations": (runs.points.iterations, ITERATIONS),
        "seconds": (runs.seconds, SECONDS),
    }
    for name, (values, (least, most)) in columns.items():
        shape = np.shape(values)
        if shape != (len(runs),):
            raise InputError(
                "has another shape than the seconds.",
                field=f"runs.{name}",
                value=shape,
                allowed=str((len(runs),)),
            )
        outside = ~((values >= least) & (values <= most))
        if outside.any():
            place = int(np.argmax(outside))
            check_within(f"runs.{name}[{place}]", float(values[place]), (least, most))
    counts = len(np.unique(runs.points.machines))
    if counts < 2:
        raise InputError(
            "have too few machine counts: others cannot be predicted from them.",
            field="runs",
            value=counts,
            allowed="two machine counts or more",
        )
