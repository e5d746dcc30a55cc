"""Statement about a runtime: a median, an interval, what drives it, and a word when unsure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from kongming.records.judgement import Judgement


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with two intervals of probability ``level``; calibrated or not.

    ``calibrated_by`` says on what: ``calibrated_groups`` other "applications" with co-runs, or
    "families" of loads that were left out. It is empty if the interval is not calibrated, or is
    combined from several.
    ``lower`` and ``upper`` bound the ``run`` interval, in which one run will fall. The ``expected``
    interval, in which the median of many runs will fall, lies within it; None where only single
    runs are known of.
    ``at_least``: what it is predicted from lies so far beyond the training runs that it was taken
    at their edge, so the slowdown is as said or more.
    """

    median: float
    lower: float
    upper: float
    level: float = 0.9
    calibrated: bool = True
    at_least: bool = False
    expected_lower: float | None = None
    expected_upper: float | None = None
    calibrated_by: str = ""
    calibrated_groups: int = 0

    def __post_init__(self) -> None:
        # Whoever says that it is calibrated no longer need not say by what.
        if not self.calibrated or not self.calibrated_by:
            object.__setattr__(self, "calibrated_by", "")
            object.__setattr__(self, "calibrated_groups", 0)

    @property
    def expected(self) -> tuple[float, float] | None:
        """The ``expected`` interval, if it is known."""
        if self.expected_lower is None or self.expected_upper is None:
            return None
        return self.expected_lower, self.expected_upper

    def scaled(self, factor: float) -> Interval:
        return self.mapped(lambda value: value * factor)

    def inverse(self, factor: float) -> Interval:
        """Return ``factor`` over the value: the lower bounds become the upper ones."""
        return self.mapped(lambda value: factor / value, falling=True)

    def mapped(self, function: Callable[[float], float], *, falling: bool = False) -> Interval:
        """Return the interval of a monotone function of the value."""
        expected = (self.expected_lower, self.expected_upper)
        ends = (self.lower, self.upper)
        lower, upper = reversed(ends) if falling else ends
        low, high = reversed(expected) if falling else expected
        return replace(
            self,
            median=function(self.median),
            lower=function(lower),
            upper=function(upper),
            expected_lower=None if low is None else function(low),
            expected_upper=None if high is None else function(high),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "median": self.median,
            "lower": self.lower,
            "upper": self.upper,
            "level": self.level,
            "calibrated": self.calibrated,
            "calibrated_by": self.calibrated_by,
            "calibrated_groups": self.calibrated_groups,
            "at_least": self.at_least,
            "expected_lower": self.expected_lower,
            "expected_upper": self.expected_upper,
        }


@dataclass(frozen=True, slots=True)
class Driver:
    """A resource family's share of the log slowdown; the shares of a prediction sum to 1."""

    family: str
    share: float

    def to_dict(self) -> dict[str, Any]:
        return {"family": self.family, "share": self.share}


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionFields:
    """Fields of every prediction of an application, whoever asked: each field stands here
    once, and in the messages of ``proto/`` under the same name.

    ``solo_s`` is the solo runtime (or the solo value of the metric), ``runtime_s`` the predicted
    one, both in ``metric_unit`` and None where no model is known; ``slowdown`` runtime / solo, 1 or
    more for worse. ``not_better_than`` are the trivial answers (``MEAN``, the mean of the training
    runs; ``1``, that nothing slows) that the model is not clearly better than. ``profile`` is the
    verdict on the runs that the model was trained on; None where they were not judged (by an
    earlier version) and where there is no model. ``warnings`` are reasons not to rely on
    it, ``notes`` remarks that are none.
    """

    app: str
    placement: str
    slowdown: Interval
    model: str = ""
    solo_s: float | None = None
    runtime_s: Interval | None = None
    metric_unit: str = "s"
    extrapolating: bool = False
    drivers: tuple[Driver, ...] = ()
    not_better_than: tuple[str, ...] = ()
    profile: Judgement | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def prediction_fields(self) -> dict[str, Any]:
        """The fields of this class by name, their values as they are."""
        return {field.name: getattr(self, field.name) for field in fields(PredictionFields)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(PredictionFields):
    """Predicted runtime of one application in one environment, by a model."""

    solo_s: float
    runtime_s: Interval
