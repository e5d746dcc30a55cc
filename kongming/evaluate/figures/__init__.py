"""The paper's figures for evaluated programs, as SVG and PNG for light and for dark pages."""

from kongming.evaluate.figures.cdf import error_cdf
from kongming.evaluate.figures.heat_map import heat_map
from kongming.evaluate.figures.minutes import error_minutes
from kongming.evaluate.figures.selection import Selections, selection
from kongming.evaluate.figures.sensitivity import sensitivity_pressure

__all__ = [
    "Selections",
    "error_cdf",
    "error_minutes",
    "heat_map",
    "selection",
    "sensitivity_pressure",
]
