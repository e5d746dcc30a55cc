"""Facts about the training rows and columns of an estimator, in addition to the numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats

__all__ = ["SOLO", "Context"]

SOLO = "solo"
"""The name of the inducer that runs without a load are counted under."""


@dataclass(frozen=True, eq=False, slots=True)
class Context:
    """A description of the rows (n) and the columns (p) of one ``fit``.

    ``folds`` are the positions of rows that are left out together, fold by fold; empty if no rows
    can be left out. ``inducers`` (n,) names the surrogates that induced each row's load, none for a
    solo run; rows are in order of time. ``columns`` and ``families`` (p,) name each column's
    surrogate and resource. ``reading_variance`` (p,) is the variance of the log of repeated
    readings on the idle node: the known noise of the features.
    """

    folds: tuple[tuple[int, ...], ...]
    inducers: tuple[tuple[str, ...], ...]
    families: tuple[str, ...]
    columns: tuple[str, ...]
    reading_variance: Floats

    @classmethod
    def unknown(cls, n: int, p: int) -> Context:
        """Return the context for callers that have only numbers: up to five folds of every fifth
        row, solo runs only, columns named by position, readings without noise."""
        width = len(str(p))
        return cls(
            folds=tuple(tuple(range(start, n, 5)) for start in range(min(5, n))),
            inducers=((),) * n,
            families=("",) * p,
            columns=tuple(f"column {j:0{width}}" for j in range(p)),
            reading_variance=np.zeros(p),
        )

    def check(self, n: int, p: int) -> None:
        """Raise ValueError unless the context describes ``n`` rows and ``p`` columns."""
        for name, length, wanted in (
            ("inducers", len(self.inducers), n),
            ("families", len(self.families), p),
            ("columns", len(set(self.columns)), p),
            ("reading_variance", len(self.reading_variance), p),
        ):
            if length != wanted:
                raise ValueError(
                    f"The {name!r} of a context must be one for each of {wanted}. "
                    f"Got {length} instead."
                )
        if any(not 0 <= row < n for fold in self.folds for row in fold):
            raise ValueError(f"The 'folds' of a context must be rows from 0 to {n - 1}.")

    def keys(self) -> tuple[str, ...]:
        """Return (n,): the inducer that each row is counted under. A mix counts as an inducer of
        its own, ``a + b``, and a solo run as ``solo``, so that each run belongs to exactly one."""
        return tuple(" + ".join(sorted(set(names))) if names else SOLO for names in self.inducers)
