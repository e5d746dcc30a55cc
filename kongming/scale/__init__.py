"""Scale models: the runtime of a job as a function of its input and its machines (Ernest).

``fit_runs(runs, Settings(read_terms("default", items=None)))`` fits a model; its ``predict``
returns the runtime on idle machines, and ``combine`` the runtime on loaded machines.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kongming.records.scaling import Part, Scaled, Scaling, SlowedNode
    from kongming.scale.decide.combination import Combination, combine, model_for
    from kongming.scale.decide.node_sets import Weights, best_set
    from kongming.scale.decide.recommendation import recommend
    from kongming.scale.design.candidates import Design, find_design, next_best
    from kongming.scale.fit.fitting import Settings, backbone_of, fit_runs, fit_table
    from kongming.scale.fit.model import ScaleFile, ScaleModel, ScalePrediction, warnings_of
    from kongming.scale.fit.model_file import read, read_file, seal, write_file
    from kongming.scale.fit.terms import Term, Terms, read_terms
    from kongming.scale.points import Configuration, Points, Runs
    from kongming.scale.table import Table, read_table

# Names are imported on first use, so that running experiments does not load the solvers.
_MODULES = {
    "decide.combination": ("Combination", "combine", "model_for"),
    "design.candidates": ("Design", "find_design", "next_best"),
    "fit.fitting": ("Settings", "backbone_of", "fit_runs", "fit_table"),
    "fit.model": ("ScaleFile", "ScaleModel", "ScalePrediction", "warnings_of"),
    "fit.model_file": ("read", "read_file", "seal", "write_file"),
    "points": ("Configuration", "Points", "Runs"),
    "decide.recommendation": ("recommend",),
    "decide.node_sets": ("Weights", "best_set"),
    "table": ("Table", "read_table"),
    "fit.terms": ("Term", "Terms", "read_terms"),
    "..records.scaling": ("Part", "Scaled", "Scaling", "SlowedNode"),
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
    "warnings_of",
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
