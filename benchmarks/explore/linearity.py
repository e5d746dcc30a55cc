"""Measures of how far a function is from a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kongming.arrays import Floats


def linearity(names: Sequence[str], X: Floats, y: Floats) -> dict[str, Any]:
    """R2 of least squares on all (n, p) points whose value is known, and the correlation of each
    of the named columns with the value; NaN is an unknown value."""
    known = np.isfinite(y)
    X, y = X[known], y[known]
    design = np.column_stack([np.ones(len(X)), X])
    missed = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return {
        "r2": 1.0 - float(np.mean(missed**2) / y.var()),
        "correlations": {
            column: float(np.corrcoef(values, y)[0, 1])
            for column, values in zip(names, X.T, strict=True)
        },
    }
