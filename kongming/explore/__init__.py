"""Adaptive profiling: which few deployments to run, and a model of all the others.

After paper 004 (DTA): a decision tree divides the space into regions in which a line fits, and the
regions that fit worst are measured next. Pure: campaigns run what it suggests.
"""

from kongming.explore.errors import ExploreError
from kongming.explore.modelling import Forecast
from kongming.explore.profiler import DecisionTreeProfiler
from kongming.explore.space import Space
from kongming.explore.tree import ObliqueModelTree
from kongming.records.errors import IncompatibleError, InputError, UntrainedError

__all__ = [
    "DecisionTreeProfiler",
    "ExploreError",
    "Forecast",
    "IncompatibleError",
    "InputError",
    "ObliqueModelTree",
    "Space",
    "UntrainedError",
]
