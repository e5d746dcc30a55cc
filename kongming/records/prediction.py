"""What is said about a runtime: a median, an interval, what drives it, and a word when unsure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with the bounds that hold it with probability ``level``; calibrated or not.

    ``at_least``: what it is predicted from lies so far beyond the training runs that it was taken
    at their edge, so the slowdown is as said or more.
    """

    median: float
    lower: float
    upper: float
    level: float = 0.9
    calibrated: bool = True
    at_least: bool = False

    def scaled(self, factor: float) -> Interval:
        return Interval(
            self.median * factor,
            self.lower * factor,
            self.upper * factor,
            self.level,
            self.calibrated,
            self.at_least,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "median": self.median,
            "lower": self.lower,
            "upper": self.upper,
            "level": self.level,
            "calibrated": self.calibrated,
            "at_least": self.at_least,
        }


@dataclass(frozen=True, slots=True)
class Driver:
    """A resource family's share of the log slowdown; the shares of a prediction sum to 1."""

    family: str
    share: float

    def to_dict(self) -> dict[str, Any]:
        return {"family": self.family, "share": self.share}


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted runtime of one application in one environment.

    ``solo_s`` is the solo runtime (or the solo value of the metric), ``runtime_s`` the predicted
    one, ``slowdown`` runtime / solo, 1 or more for worse. ``warnings`` are reasons for doubt,
    ``notes`` remarks that are none.
    """

    app: str
    model: str
    placement: str
    solo_s: float
    runtime_s: Interval
    slowdown: Interval
    extrapolating: bool
    drivers: tuple[Driver, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    metric_unit: str = "s"

    def to_dict(self) -> dict[str, Any]:
        return {
            "app": self.app,
            "model": self.model,
            "placement": self.placement,
            "solo_s": self.solo_s,
            "metric_unit": self.metric_unit,
            "runtime_s": self.runtime_s.to_dict(),
            "slowdown": self.slowdown.to_dict(),
            "extrapolating": self.extrapolating,
            "drivers": [driver.to_dict() for driver in self.drivers],
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }
