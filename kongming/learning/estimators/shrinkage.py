"""Non-negative least squares with a penalty of its own for each column.

With some forty columns the normal equations are small, and the columns share a unit (logs over
idle), so that they are well conditioned under any penalty that is chosen here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.optimize import nnls

from kongming.arrays import Floats


def shrunk_nonnegative(X: Floats, y: Floats, penalties: Sequence[Floats]) -> Iterator[Floats]:
    """Yield the coefficients (p,) >= 0 of least squares through the origin for each of
    ``penalties``, which multiply the squares of the coefficients (p,). The factor of the normal
    equations replaces the rows of ``X`` and of the penalties, and is only (p, p).
    """
    gram, wanted = X.T @ X, X.T @ y
    for penalty in penalties:
        size = float(np.trace(gram) + np.sum(penalty))
        if size <= 0.0:
            yield np.zeros(X.shape[1])
            continue
        # Scaled, so that neither the square of a nanosecond nor that of a second under- or
        # overflows.
        factor = np.linalg.cholesky((gram + np.diag(penalty)) / size)
        coef, _ = nnls(factor.T, np.linalg.solve(factor, wanted / size))
        yield np.asarray(coef, dtype=np.float64)
