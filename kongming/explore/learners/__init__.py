"""Models of the whole space: one file for each learner."""

from __future__ import annotations

from kongming.explore.learners.least_squares import LeastSquares

LEARNERS = {"lines": LeastSquares}
