"""Outcome of a timed run, from its exit status, output check and metric."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kongming.profiling.runs.execution import Iteration, Output
from kongming.records import moments
from kongming.records.application import Application
from kongming.records.quantity import is_quantity
from kongming.records.run import Usage


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a timed run. ``start_ns`` and ``end_ns`` are of CLOCK_MONOTONIC.

    ``metric`` is in the application's unit, None when the run failed; then ``error`` says why,
    with the end of the output. ``exit_status`` is None when a signal ended the run or it never
    started. ``usage`` and ``signals`` (passive ones, from right before it to right after it) are
    those of the timed command (of a service: of its load driver).
    """

    started_at: str
    start_ns: int
    end_ns: int
    wall_s: float
    metric: float | None
    usage: Usage = field(default_factory=Usage)
    exit_status: int | None = None
    error: str | None = None
    warnings: tuple[str, ...] = ()
    output_tail: str = ""
    timed_out: bool = False
    signals: Mapping[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.error is None and self.metric is not None

    @classmethod
    def failed(
        cls, error: str, *, warnings: tuple[str, ...] = (), output_tail: str = ""
    ) -> Outcome:
        """Create the outcome of a run that never started."""
        now = time.monotonic_ns()
        return cls(
            started_at=moments.now(),
            start_ns=now,
            end_ns=now,
            wall_s=0.0,
            metric=None,
            error=error,
            warnings=warnings,
            output_tail=output_tail,
        )


def judge(
    app: Application,
    iteration: Iteration,
    output: Output,
    *,
    started_at: str,
    warnings: tuple[str, ...] = (),
    any_metric: bool = False,
    signals: Mapping[str, float] = MappingProxyType({}),
) -> Outcome:
    """Evaluate ``iteration``: exit status first, then the check, then the metric, which has to be
    above 0 unless ``any_metric``."""
    wall_s = (iteration.end_ns - iteration.start_ns) / 1e9
    metric: float | None = None
    error = why_failed(iteration, output, app.timeout_s)
    if error is None and (app.check is not None or app.metric is not None):
        text = output.text()
        error = _check(app, text, output)
        if error is None:
            metric, error = _metric(app, text, output, wall_s, any_metric=any_metric)
    elif error is None:
        metric = wall_s
    return Outcome(
        started_at=started_at,
        start_ns=iteration.start_ns,
        end_ns=iteration.end_ns,
        wall_s=wall_s,
        metric=metric,
        usage=iteration.usage,
        exit_status=iteration.exit_status,
        error=error,
        warnings=warnings,
        output_tail=output.last_lines(),
        timed_out=iteration.timed_out,
        signals=signals,
    )


def with_output(reason: str, output: Output) -> str:
    """Return ``reason`` as a sentence, followed by the end of the output."""
    tail = output.last_lines()
    return f"{reason}. The end of its output:\n{tail}" if tail else f"{reason}; it printed nothing."


def why_failed(iteration: Iteration, output: Output, timeout_s: float | None) -> str | None:
    """Return why an iteration failed, with the end of its output; None if it succeeded."""
    reason = iteration.failure(timeout_s)
    if reason is None or iteration.error is not None:
        return iteration.error
    return with_output(reason, output)


def _searched(output: Output) -> str:
    return "the first and last MiB of the output" if output.truncated else "the output"


def _check(app: Application, text: str, output: Output) -> str | None:
    if app.accepts(text):
        return None
    reason = f"nothing in {_searched(output)} matches its check {app.check!r}"
    return with_output(reason, output)


def _metric(
    app: Application, text: str, output: Output, wall_s: float, *, any_metric: bool
) -> tuple[float | None, str | None]:
    if app.metric is None:
        return wall_s, None
    number_text: str | None = None
    for match in re.finditer(app.metric.pattern, text, re.MULTILINE):
        number_text = match.group(1) if match.group(1) is not None else number_text
    if number_text is None:
        reason = f"nothing in {_searched(output)} matches its metric {app.metric.pattern!r}"
        return None, with_output(reason, output)
    try:
        value = float(number_text)
    except ValueError:
        return None, f"its metric matched {number_text!r}, which is not a number."
    if not math.isfinite(value):
        return None, f"its metric is {value:g}, which is not finite."
    if not is_quantity(value):
        end = "large" if abs(value) > 1.0 else "close to 0"
        return None, f"its metric is {value:g}, too {end} to be computed with."
    if value <= 0 and not any_metric:
        return None, f"its metric is {value:g}, which is not above 0."
    return value, None
