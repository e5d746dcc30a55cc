"""What runs cost: a column of the table, or an expression in the parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kongming.arrays import Floats
from kongming.csv_rows import read_rows
from kongming.explore.measured_table import MeasuredTable
from kongming.expressions import parse
from kongming.records.errors import InputError


def is_column(path: Path, cost: str) -> bool:
    """Return whether a table has a column of this name. Raises InputError for an unreadable one."""
    first = next(iter(read_rows(path, (), separators=",;\t")), None)
    return first is not None and cost in first.places


def costs_of(table: MeasuredTable, cost: str) -> Floats:
    """Return the cost (n,) of each row by an expression in its numeric parameters.

    Raises:
        InputError: it is no expression, or is no finite number from 0 at a row (with the row).
    """
    expression = parse(cost, field="--cost", variables=sorted(table.numbers))
    columns = {
        name: np.array([point[name] for point in table.points], dtype=np.float64)
        for name in table.numbers
    }
    costs = expression(columns)
    wrong = ~(np.isfinite(costs) & (costs >= 0.0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            "is no cost there.",
            field=f"--cost at {table.path}: row {row + 1}",
            found=float(costs[row]),
            allowed="a finite number from 0",
        )
    return costs
