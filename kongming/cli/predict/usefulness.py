"""Remarks on a model: how its profile was measured, and whether it says more than trivial answers.
Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kongming.learning.model_file import ModelFile, Variant
    from kongming.records.judging import Judgement
    from kongming.records.run import Run

MEAN = "MEAN"

PROFILE_AGAIN = (
    "measure again at a quieter time (kongming profile APPS.toml --app {app} --again), with more "
    "--repeats, or at another --placement"
)


def training_runs(file: ModelFile, runs: Iterable[Run]) -> list[Run]:
    """Return the runs that can have trained this model: solo and induced, of its program, its node
    and its placement; not those of spoiled campaigns that were measured again."""
    from kongming.records.judging import without_spoiled

    site = (file.app, file.identity, file.node_id, file.placement)
    kept, _ = without_spoiled(
        [
            run
            for run in runs
            if (run.app, run.identity, run.node_id, run.placement) == site
            and run.kind in ("solo", "induced")
        ]
    )
    return kept


def remarks(file: ModelFile, runs: Iterable[Run], model: str | None = None) -> tuple[str, ...]:
    """Return a sentence on a profile that is not good, and one where the model (None: the chosen
    one) is not clearly better than a trivial answer.

    Args:
        runs: the application's runs, without fingerprints; those of other sites are ignored.
    """
    from kongming.records.judging import judge

    members = training_runs(file, runs)
    judgement = judge(members) if members else None
    found = [] if judgement is None else _profile(file.app, judgement)
    trivial = not_better_than(file.variants["full"], members, model)
    if trivial is not None:
        # What to do about a bad profile is said already.
        way_out = "" if found else f": {PROFILE_AGAIN.format(app=file.app)}"
        found.append(f"No model of {file.app} is clearly better than {trivial}{way_out}.")
    return tuple(found)


def not_better_than(variant: Variant, runs: Iterable[Run], model: str | None = None) -> str | None:
    """Return in words the trivial answer that the model is not clearly better than; None if it is
    better than both the mean and 1, or was not validated.

    Clearly means: its error is lower by more than the repeat noise over the square root of the
    number of scored runs, the tolerance by which models are chosen.
    """
    frozen = variant.model(model)
    if not frozen.scores:
        return None
    tolerance = variant.noise / math.sqrt(max(frozen.scores["n"], 1.0))
    own = frozen.scores["mean_abs_log"]
    shown = frozen.scores["mean_pct"]
    one = error_of_one(runs)
    if one is not None and one[0] - own <= tolerance:
        return f"saying that nothing slows it (mean error {shown:.1f} % against {one[1]:.1f} %)"
    mean = variant.models.get(MEAN)
    if mean is None or not mean.scores:
        return None
    least = mean.scores["mean_abs_log"]
    if frozen.name == MEAN or least - own <= tolerance:
        other = mean.scores["mean_pct"]
        best = "" if frozen.name == MEAN else f" (mean error {shown:.1f} % against {other:.1f} %)"
        return f"the mean of its training runs, whatever the environment{best}"
    return None


def error_of_one(runs: Iterable[Run]) -> tuple[float, float] | None:
    """Return the mean error of always predicting a slowdown of 1, in logs and in per cent; None
    without runs under load."""
    from kongming.records.run import solo_time

    usable = [run for run in runs if run.ok]
    solo = solo_time(usable)
    if solo is None or all(run.kind == "solo" for run in usable):
        return None
    ratios = [run.cost / solo.median for run in usable]
    return (
        statistics.fmean(abs(math.log(ratio)) for ratio in ratios),
        100.0 * statistics.fmean(abs(1.0 / ratio - 1.0) for ratio in ratios),
    )


def _profile(app: str, judgement: Judgement) -> list[str]:
    if judgement.verdict == "good":
        return []
    return [f"The profile of {app} is {judgement} {judgement.advice}"]
