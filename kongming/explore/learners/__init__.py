"""Models of the whole space: one file for each learner.

A learner is made with a seed and the dimension of each column, has ``fit(X, y)`` and
``predict(X)``, and may have ``held_out(folds)`` where leaving runs out needs no other fit.
"""

from __future__ import annotations

from typing import Any

from kongming.explore.learners.bagged_lines import BaggedLines
from kongming.explore.learners.boosting import Boosting
from kongming.explore.learners.forests import Forest
from kongming.explore.learners.gaussian_process import GaussianProcess
from kongming.explore.learners.least_squares import LeastSquares, PairwiseTerms
from kongming.explore.learners.model_tree import ModelTree
from kongming.explore.learners.perceptrons import PerceptronCommittee
from kongming.explore.learners.projected_process import ProjectedProcess

LEARNERS: dict[str, Any] = {
    "tree": ModelTree,
    "lines": LeastSquares,
    "bagged_lines": BaggedLines,
    "perceptrons": PerceptronCommittee,
    "pairs": PairwiseTerms,
    "gaussian_process": GaussianProcess,
    "projections": ProjectedProcess,
    "forest": Forest,
    "boosting": Boosting,
}
"""By name; the first four are the paper's."""

PAPER = ("tree", "lines", "bagged_lines", "perceptrons")
