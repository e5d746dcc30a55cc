"""Scale models: the runtime of a job as a function of its input and its machines (Ernest).

``fit_runs(runs, Settings(read_terms("default", items=None)))`` is a model, ``predict`` of it a
runtime on idle machines, and ``combine`` one on machines that are slowed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kongming.scale.combination import Combination, combine, model_for
    from kongming.scale.design import Design, find_design, next_best
    from kongming.scale.fitting import Settings, backbone_of, fit_runs, fit_table
    from kongming.scale.model import ScaleFile, ScaleModel, ScalePrediction
    from kongming.scale.persist import read, read_file, seal, write_file
    from kongming.scale.points import Configuration, Points, Runs
    from kongming.scale.recommendation import recommend
    from kongming.scale.sets import Weights, best_set
    from kongming.scale.table import Table, read_table
    from kongming.scale.terms import Term, Terms, read_terms
    from kongming.scaling import Part, Scaled, Scaling, SlowedNode

# Where each name is: those who only run experiments need not load the solvers.
_MODULES = {
    "combination": ("Combination", "combine", "model_for"),
    "design": ("Design", "find_design", "next_best"),
    "fitting": ("Settings", "backbone_of", "fit_runs", "fit_table"),
    "model": ("ScaleFile", "ScaleModel", "ScalePrediction"),
    "persist": ("read", "read_file", "seal", "write_file"),
    "points": ("Configuration", "Points", "Runs"),
    "recommendation": ("recommend",),
    "sets": ("Weights", "best_set"),
    "table": ("Table", "read_table"),
    "terms": ("Term", "Terms", "read_terms"),
    "..scaling": ("Part", "Scaled", "Scaling", "SlowedNode"),
}
_OWNERS = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Combination",
    "Configuration",
    "Design",
    "Part",
    "Points",
    "Runs",
    "ScaleFile",
    "ScaleModel",
    "ScalePrediction",
    "Scaled",
    "Scaling",
    "Settings",
    "SlowedNode",
    "Table",
    "Term",
    "Terms",
    "Weights",
    "backbone_of",
    "best_set",
    "combine",
    "find_design",
    "fit_runs",
    "fit_table",
    "model_for",
    "next_best",
    "read",
    "read_file",
    "read_table",
    "read_terms",
    "recommend",
    "seal",
    "write_file",
]


def __getattr__(name: str) -> Any:
    if name not in _OWNERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    owner = _OWNERS[name]
    module = import_module(owner if owner.startswith(".") else f".{owner}", __name__)
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
