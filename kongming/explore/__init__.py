"""Adaptive profiling: which few deployments to run, and a model of all the others.

After paper 004 (DTA): a decision tree divides the space into regions in which a line fits, and the
regions that fit worst are measured next. Pure: campaigns run what it suggests.
"""

from kongming.explore.errors import ExploreError
from kongming.explore.profiler import DecisionTreeProfiler, Forecast
from kongming.explore.space import Space

__all__ = ["DecisionTreeProfiler", "ExploreError", "Forecast", "Space"]
