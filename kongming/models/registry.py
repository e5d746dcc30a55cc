"""The table of models: which there are, in which space each works, which ``auto`` may choose.

Nothing heavy is imported here: a model's module is imported when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from kongming.errors import UnknownNameError

if TYPE_CHECKING:
    from kongming.models.estimator import Regressor

__all__ = ["AUTO", "KINDS", "Kind", "Space", "model_kind", "model_names"]

AUTO = "auto"
"""The name that stands for the best model of the validation."""

Space = Literal["raw", "log", "ratio"]
"""What a model maps to what (see ``spaces``)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One model: its estimator, the space that it works in, and its place in the choice.

    ``complexity`` orders the models for ties: between models whose errors differ by less than
    the noise, the least complex is chosen. ``folds`` says that ``fit`` takes the groups to leave
    out when it chooses its own penalty. ``paper`` marks the models of Table II. ``unpenalised``
    models have one answer only with more runs than columns: with fewer they fit any noise, and
    ``auto`` leaves them out.
    """

    name: str
    estimator: str
    space: Space
    complexity: int
    description: str
    paper: bool = False
    auto: bool = True
    folds: bool = False
    unpenalised: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def make(self, random_state: int = 0) -> Regressor:
        """A fresh, unfitted estimator."""
        module, name = self.estimator.split(":")
        factory = getattr(import_module(f"kongming.models.{module}"), name)
        settings = dict(self.settings)
        if "random_state" in factory._get_param_names():
            settings["random_state"] = random_state
        made: Regressor = factory(**settings)
        return made


_TABLE = (
    Kind("MEAN", "mean:MeanRegressor", "raw", 0, "mean of the training runs", paper=True),
    Kind(
        "NNLS",
        "nonnegative:NonNegativeRegressor",
        "ratio",
        1,
        "slowdown as a non-negative sum of surrogate slowdowns",
        folds=True,
        settings={"relative": True},
    ),
    Kind(
        "NNLOG",
        "nonnegative:NonNegativeRegressor",
        "log",
        2,
        "slowdown as a product of surrogate slowdowns to non-negative powers",
        folds=True,
    ),
    Kind(
        "RIDGE",
        "ridge:RidgeRegressor",
        "log",
        3,
        "ridge regression in logs, penalty by left-out families",
        folds=True,
    ),
    Kind(
        "LM",
        "linear:LinearRegressor",
        "raw",
        4,
        "ordinary least squares",
        paper=True,
        unpenalised=True,
    ),
    Kind("CART", "cart:TreeRegressor", "raw", 5, "regression tree", paper=True),
    Kind("SVM", "svm:KernelRegressor", "raw", 6, "support vector regression", paper=True),
    Kind("GBM", "gbm:BoostedRegressor", "raw", 7, "gradient boosted trees", paper=True),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _TABLE}


def model_names() -> tuple[str, ...]:
    """All names, simplest first; ``auto`` is not among them."""
    return tuple(KINDS)


def model_kind(name: str) -> Kind:
    """Raises UnknownNameError, with the nearest names."""
    try:
        return KINDS[name]
    except KeyError:
        raise UnknownNameError("model", name, (*KINDS, AUTO)) from None
