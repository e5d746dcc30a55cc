"""Decide whether a new model version goes into service: if its validation is no worse within noise.

Pure. Two versions are best compared on the same runs, none of which either has learnt from: the
new one's errors on what its validation left out, with the errors that the one in service makes
on those of the runs that are newer than itself. Where too few are newer, the two validations are
compared as they were recorded. "No worse" is the one-standard-error rule (Breiman et al. 1984,
section 3.4.3): a difference within its standard error is none, and then the newer one is taken,
for it knows what is known by now.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from kongming.quantities import per_cent

LEAST_UNSEEN = 6
"""With fewer runs that the model in service has not learnt from, validations are compared."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A model version, and what its validation missed by: ``errors`` are |log measured - log
    predicted| of runs that were left out; ``noise`` is the repeat noise, in logs."""

    identity: str
    node_id: str
    suite_version: str
    metric_unit: str
    better: str
    errors: tuple[float, ...] = field(repr=False)
    noise: float

    @property
    def error(self) -> float | None:
        """Mean of the errors; None where nothing was validated."""
        return statistics.fmean(self.errors) if self.errors else None


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision whether the new version goes into service, and why, in a sentence."""

    promoted: bool
    reason: str


def decide(
    new: Judged,
    old: Judged | None,
    unseen: Sequence[float] = (),
    *,
    same_runs: bool = False,
) -> Decision:
    """Return whether ``new`` replaces ``old``, the version in service (None: there is none).

    ``unseen`` are the errors of ``old`` on those of the runs behind ``new`` that it has not
    learnt from. ``same_runs`` says that both were validated on the same runs: then only repeat
    noise tells them apart by chance.
    """
    if old is None:
        return Decision(True, "it is the first version")
    for what, ours, theirs in (
        ("the program", new.identity, old.identity),
        ("the suite of surrogates", new.suite_version, old.suite_version),
        ("the metric", (new.metric_unit, new.better), (old.metric_unit, old.better)),
    ):
        if ours != theirs:
            return Decision(True, f"{what} has changed since the one in service was trained")
    error = new.error
    if error is None:
        if old.error is None:
            return Decision(True, "neither could be validated, and it knows newer runs")
        return Decision(False, "it could not be validated, as the one in service was")
    if new.node_id != old.node_id:
        return _other_node(new, error, old)
    if len(unseen) >= LEAST_UNSEEN:
        return _compared(
            error,
            statistics.fmean(unseen),
            math.hypot(standard_error(new.errors), standard_error(unseen)),
            f"that of the one in service on {len(unseen)} runs that it has not learnt from",
        )
    if old.error is None:
        return Decision(True, "the one in service could not be validated")
    if same_runs:
        # As training chooses between models over the same runs.
        noise = max(new.noise, old.noise) / math.sqrt(max(len(new.errors), 1))
    else:
        noise = math.hypot(standard_error(new.errors), standard_error(old.errors))
    return _compared(error, old.error, noise, "that of the one in service")


def unasked_change(new: Judged, old: Judged) -> str:
    """Return why ``new`` waits for an operator, where none has asked for it: it is not simply what
    ``old`` is, trained again. Empty where it is."""
    for what, ours, theirs in (
        ("program", new.identity, old.identity),
        ("suite of surrogates", new.suite_version, old.suite_version),
        ("metric", (new.metric_unit, new.better), (old.metric_unit, old.better)),
        ("node", new.node_id, old.node_id),
    ):
        if ours != theirs:
            return (
                f"it is of another {what} than the one in service, which an operator has to decide "
                "on (kongming models rollback --version)"
            )
    return ""


def _other_node(new: Judged, error: float, old: Judged) -> Decision:
    """A model from another node has to be better: one that flips at each training is of no use."""
    noise = math.hypot(standard_error(new.errors), standard_error(old.errors))
    if old.error is None or error < old.error - noise:
        return Decision(True, "its validation is better than that of the one from another node")
    return Decision(
        False, "the one in service is from another node, and its validation is no worse"
    )


def _compared(ours: float, theirs: float, noise: float, whose: str) -> Decision:
    errors = f"{_percent(ours)} against {_percent(theirs)}, {whose}"
    if ours <= theirs + noise:
        return Decision(True, f"its validation error is no worse: {errors}")
    return Decision(False, f"its validation error is worse: {errors} (noise {_percent(noise)})")


def standard_error(errors: Sequence[float]) -> float:
    """Return the standard error of the mean; 0 below two errors."""
    if len(errors) < 2:
        return 0.0
    return statistics.stdev(errors) / math.sqrt(len(errors))


def _percent(log_error: float) -> str:
    return per_cent(100.0 * math.expm1(log_error))
