"""The table of models: their names, the space of each, and which of them ``auto`` may choose.

A kind has a place here if one of these holds:

- it is of the paper (MEAN, and LM, CART, SVM and GBM, each with and without genetic selection);
- it is a member of STACK, which ``auto`` is: every penalised model (FAMILY, PLS, NNLOG, NNEIV,
  RIDGE, HUBER, GP);
- ``auto`` chose it more than once over all recorded data in ``benchmarks/`` when it still chose
  (NNLS).

``docs/models.md`` has the counts, also of the kinds that this rule removed.

Nothing heavy is imported here: an estimator's module is imported when the estimator is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from kongming.records.errors import UnknownNameError

if TYPE_CHECKING:
    from kongming.learning.estimators.base import Regressor

__all__ = ["AUTO", "KINDS", "REMOVED", "STACK", "Kind", "Space", "model_kind", "model_names"]

AUTO = "auto"
"""The name for STACK; where its members were not all asked for, for the simplest of the best."""

STACK = "STACK"
"""The mean of the ``member`` models, shrunk by what is not known (see ``consensus``), and what any
neighbour adds (see ``presence``)."""

Space = Literal["raw", "log", "ratio"]
"""The space of a model's features and target (see ``spaces``)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One model: its estimator, the space that it works in, and its place in the choice.

    ``complexity`` orders the models for ties: between models whose errors differ by less than the
    noise, the least complex is chosen; the gaps leave room for more kinds. ``context`` says that
    ``fit`` takes a ``Context`` (a ``ContextRegressor``). ``paper`` marks the models of Table II.
    ``unpenalised`` models have a unique solution only with more runs than columns: with fewer they
    fit any noise, and ``auto`` leaves them out. ``optional`` ones are fitted only on request. STACK
    is made of the ``member`` ones.
    """

    name: str
    estimator: str
    space: Space
    complexity: int
    description: str
    paper: bool = False
    auto: bool = True
    context: bool = False
    unpenalised: bool = False
    optional: bool = False
    member: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def make(self, random_state: int = 0) -> Regressor:
        """Create an unfitted estimator."""
        module, name = self.estimator.split(":")
        factory = getattr(import_module(f"kongming.learning.estimators.{module}"), name)
        settings = dict(self.settings)
        if "random_state" in signature(factory).parameters:
            settings["random_state"] = random_state
        estimator: Regressor = factory(**settings)
        return estimator


_TABLE = (
    Kind("MEAN", "mean:MeanRegressor", "raw", 0, "mean of the training runs", paper=True),
    Kind(
        "NNLS",
        "nonnegative:NonNegativeRegressor",
        "ratio",
        10,
        "slowdown as a non-negative sum of surrogate slowdowns",
        context=True,
        settings={"relative": True},
    ),
    Kind(
        "FAMILY",
        "family:FamilyRegressor",
        "log",
        12,
        "non-negative sum over resource families of their mean and worst slowdown",
        context=True,
        member=True,
    ),
    Kind(
        "PLS",
        "pls:PartialLeastSquaresRegressor",
        "log",
        15,
        "partial least squares with non-negative weights",
        member=True,
    ),
    Kind(
        "NNLOG",
        "nonnegative:NonNegativeRegressor",
        "log",
        20,
        "slowdown as a product of surrogate slowdowns to non-negative powers",
        context=True,
        member=True,
    ),
    Kind(
        "NNEIV",
        "errors_in_variables:NonNegativeVarianceRegressor",
        "log",
        22,
        "NNLOG that gives noisy readings less weight",
        context=True,
        member=True,
    ),
    Kind(
        "RIDGE",
        "ridge:RidgeRegressor",
        "log",
        30,
        "ridge regression in logs, penalty by left-out families",
        context=True,
        member=True,
    ),
    Kind(
        "HUBER",
        "huber:HuberRegressor",
        "log",
        34,
        "ridge regression with Huber's loss: robust to disturbed runs",
        context=True,
        member=True,
    ),
    Kind(
        "LM",
        "linear:LinearRegressor",
        "raw",
        40,
        "ordinary least squares",
        paper=True,
        unpenalised=True,
    ),
    Kind(
        "LM.GA",
        "genetic:GeneticLinearRegressor",
        "raw",
        45,
        "least squares on what a genetic search selects",
        paper=True,
        context=True,
        settings={"relative": True},
    ),
    Kind("CART", "cart:TreeRegressor", "raw", 50, "regression tree", paper=True),
    Kind(
        "CART.GA",
        "genetic:GeneticTreeRegressor",
        "raw",
        55,
        "regression tree on what a genetic search selects",
        paper=True,
        context=True,
        settings={"relative": True},
    ),
    Kind("SVM", "svm:KernelRegressor", "raw", 60, "support vector regression", paper=True),
    Kind(
        "SVM.GA",
        "genetic:GeneticKernelRegressor",
        "raw",
        65,
        "support vector regression on what a genetic search selects (slow)",
        context=True,
        optional=True,
        settings={"relative": True, "evaluations": 60, "population": 20},
    ),
    Kind(
        "GP",
        "gaussian:GaussianProcessRegressor",
        "log",
        67,
        "Gaussian process about a trend",
        member=True,
    ),
    Kind("GBM", "gbm:BoostedRegressor", "raw", 70, "gradient boosted trees", paper=True),
    Kind(
        "GBM.GA",
        "genetic:GeneticBoostedRegressor",
        "raw",
        75,
        "gradient boosted trees on what a genetic search selects (slow)",
        context=True,
        optional=True,
        settings={"relative": True, "evaluations": 40, "population": 20},
    ),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _TABLE}
"""The kinds that are fitted to data. STACK is not among them: it is computed from fitted models."""

REMOVED = ("RIDGE.EIV", "SIMEX", "MONO", "FOREST")
"""Kinds of earlier versions. A model document with one of them still predicts with it, since a
document consists of coefficients and trees."""

_STACK = Kind(STACK, "", "raw", 80, "mean of the penalised models, shrunk by their disagreement")


def model_names(*, optional: bool = False) -> tuple[str, ...]:
    """Return the names of the models that are always trained, simplest first, and on request those
    of the ``optional`` ones; ``auto`` is not among them."""
    fitted = (kind.name for kind in KINDS.values() if optional or not kind.optional)
    return (*fitted, STACK)


def model_kind(name: str) -> Kind:
    """Return the kind of that name. Raises UnknownNameError, with the nearest names."""
    if name == STACK:
        return _STACK
    if name in REMOVED:
        raise UnknownNameError(
            "model",
            name,
            (*KINDS, STACK, AUTO),
            hint=f"{name} was removed. Models that were trained with it still predict; the next "
            "training replaces them.",
        )
    try:
        return KINDS[name]
    except KeyError:
        raise UnknownNameError("model", name, (*KINDS, STACK, AUTO)) from None
