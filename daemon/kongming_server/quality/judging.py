"""The inputs of acceptance: a model's validation errors, and its errors on later runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from kongming.learning import model_file as persist
from kongming.learning.estimate import EstimateOptions, estimate
from kongming.records.errors import CannotAnswerError, InputError
from kongming.records.moments import unix
from kongming.records.run import Run
from kongming_server.quality.acceptance import Decision, Judged, decide, unasked_change


def judge(
    document: Mapping[str, Any],
    incumbent: Mapping[str, Any] | None,
    runs: Iterable[Run],
    *,
    vouched: bool = True,
) -> Decision:
    """Return whether the model of ``document``, trained on ``runs``, replaces the one in service.

    ``vouched``: an operator has asked for the training and for its runs.

    Raises:
        InputError: the new document is damaged. An incumbent that is counts as none.
    """
    new = judged(document)
    try:
        old = None if incumbent is None else judged(incumbent)
    except InputError:
        return Decision(True, "the one in service cannot be read")
    if old is None or incumbent is None:
        return decide(new, None)
    if not vouched and (unasked := unasked_change(new, old)):
        return Decision(False, unasked)
    unseen = unseen_errors(incumbent, runs) if new.node_id == old.node_id else []
    same_runs = not unseen and document["runs"] == incumbent["runs"]
    return decide(new, old, unseen, same_runs=same_runs)


def judged(document: Mapping[str, Any]) -> Judged:
    """Read what is judged of the model chosen on all columns. Raises InputError for a damaged
    document."""
    file = persist.read(document)
    variant = file.variants["full"]
    return Judged(
        identity=file.identity,
        node_id=file.node_id,
        suite_version=file.suite_version,
        metric_unit=file.metric_unit,
        better=file.better,
        errors=tuple(abs(r) for r in variant.model().residuals.tolist()),
        noise=variant.noise,
    )


def unseen_errors(document: Mapping[str, Any], runs: Iterable[Run]) -> list[float]:
    """|log measured - log predicted| cost of each run that began after the model was trained.

    Predicted from what was known before the run. Runs that it cannot predict are left out.
    """
    file = persist.read(document)
    after = unix(str(document["trained_at"]), "trained_at")
    errors = []
    for run in runs:
        if not run.ok or run.fingerprint is None or unix(run.started_at) <= after:
            continue
        # Its cost is a lower bound: a model that says less would be right by it.
        if run.cut_off:
            continue
        times = run.fingerprint.times()
        if run.before is not None:
            times = {**times, **run.before.times()}
        usable = {name: t for name, t in times.items() if math.isfinite(t) and t > 0.0}
        try:
            slowdown = estimate(file, usable, EstimateOptions()).interval.median
        except (InputError, CannotAnswerError):
            continue
        errors.append(abs(math.log(run.cost / (file.solo.median * slowdown))))
    return errors
