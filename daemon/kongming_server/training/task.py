"""Training one application: from its runs in the store to versions that are kept, and judged.

This runs in a worker process, never in the serving one. What fits a model is a function of text
to text (``fitting.fit_text``), so that a Dask cluster can run the very same one on another machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from kongming.learning import model_file as persist
from kongming.learning.training import training_sets
from kongming.records import moments
from kongming.records.errors import KongmingError, UntrainedError
from kongming.records.moments import unix
from kongming.records.run import Run
from kongming.store import Store
from kongming_server.nodes.profile_requests import SERVER
from kongming_server.operations.tasks import Outcome, Task
from kongming_server.quality.acceptance import Decision
from kongming_server.quality.judging import judge

Report = Callable[[float, str], None]
"""Called with how far a task is (0 to 1) and what it does."""

Fit = Callable[[str], str]
"""``fitting.fit_text``, here or elsewhere."""

_COMPARED = ("identity", "suite_version", "metric_unit", "better")
"""What models have to have in common so that their errors can be compared."""


def train(store: Store, task: Task, fit: Fit, report: Report) -> list[Outcome]:
    """Train at each node and placement that the application has runs at; keep each version. Where
    none is in service yet, that of the node with the newest runs goes into it.

    Raises:
        StoreError: the store could not be read or written.
    """
    report(0.0, f"Reading the runs of {task.app}")
    runs = store.runs(app=task.app, placement=task.placement, requested=True)
    sets, _ = training_sets(runs)
    if not sets:
        if task.only_new:
            return []
        at = f" at {task.placement}" if task.placement else ""
        error = f"{task.app} has no runs{at} to learn from. Profile it first."
        return [Outcome(task.app, task.placement or "", error=error)]
    outcomes = []
    # The first goes into service where nothing is, and has to be beaten by the others.
    newest_first = sorted(reversed(sets.items()), key=lambda entry: entry[0][1])
    newer: dict[str, set[str]] = {}
    for number, ((node_id, placement), members) in enumerate(newest_first):
        report(0.1 + 0.9 * number / len(sets), f"Training {task.app} at {placement}")
        nodes = newer.setdefault(placement, set())
        outcome = _train_set(store, task, node_id, placement, members, fit, nodes)
        # A set that nothing was learned from says nothing of the program that is in service.
        if outcome is None or not outcome.error:
            nodes.add(node_id)
        if outcome is not None:
            outcomes.append(outcome)
    report(1.0, f"Trained {task.app}")
    return outcomes


def _train_set(
    store: Store,
    task: Task,
    node_id: str,
    placement: str,
    members: Sequence[Run],
    fit: Fit,
    newer: Set[str],
) -> Outcome | None:
    """``newer``: ids of the nodes whose newer runs at this placement were learned from."""
    in_service = store.in_service(task.app, placement)
    incumbent = None
    if in_service is not None:
        incumbent = store.model(task.app, placement, version=in_service)
    runs, since = _of_today(members, incumbent, task.since.get(placement), task.least)
    latest = store.model(task.app, placement, node_id=node_id)
    if task.only_new and latest is not None and _learnt(latest, runs):
        return None
    try:
        document = _fitted(task, placement, runs, since, fit)
    except KongmingError as error:
        return Outcome(task.app, placement, error=str(error))
    vouched = task.by_operator and not _server_asked(store) & {run.campaign for run in runs}
    decision = judge(document, incumbent, runs, vouched=vouched)
    if _outdated(document, incumbent, task.since.get(placement), since):
        decision = Decision(
            False, "the program has changed since these runs; profile it again as it is now"
        )
    if decision.promoted and _of_earlier_program(document, incumbent, newer):
        decision = Decision(
            False,
            "the one in service is of another program, suite or metric, by newer runs of its node",
        )
    if in_service is not None and not store.promotions(task.app, placement):
        # What answers by being the newest shall go on to, should the new version be no better.
        store.promote(task.app, placement, in_service, "it answered before the first training here")
    version = store.put_model(task.app, document["identity"], node_id, placement, document)
    if decision.promoted:
        store.promote(task.app, placement, version, decision.reason)
    promoted = decision.promoted
    return Outcome(
        task.app,
        placement,
        version,
        promoted,
        decision.reason,
        node_id=node_id,
        runs=len(runs),
        # A cluster of an earlier version keeps none.
        profile=document.get("profile"),
    )


def _server_asked(store: Store) -> set[str]:
    """Ids of the campaigns that a server asked for by itself, and no operator."""
    return {
        str(campaign)
        for agent in store.agents()
        for campaign, (_, by) in dict(agent.document.get("campaigns", {})).items()
        if by == SERVER
    }


def _of_today(
    members: Sequence[Run],
    incumbent: Mapping[str, Any] | None,
    changed_at: float | None,
    least: int,
) -> tuple[list[Run], float | None]:
    """The runs of the program as it is now, and since when it is so; None for always.

    The time that the model in service was limited to still holds; a later one is taken where
    enough runs came after it.
    """
    since = None if incumbent is None else incumbent.get("since")
    floor = None if since is None else unix(str(since), "since")
    current = [run for run in members if floor is None or unix(run.started_at) >= floor]
    if changed_at is not None and (floor is None or changed_at > floor):
        newer = [run for run in current if unix(run.started_at) >= changed_at]
        if sum(run.ok and run.fingerprint is not None for run in newer) >= least:
            return newer, changed_at
    # Those of another identity know nothing of an earlier change.
    return (current, floor) if current else (list(members), None)


def _outdated(
    document: Mapping[str, Any],
    incumbent: Mapping[str, Any] | None,
    changed_at: float | None,
    since: float | None,
) -> bool:
    """Return whether the program drifts, and this model knows no more of that than the one in
    service."""
    if changed_at is None or incumbent is None:
        return False
    return document["identity"] == incumbent.get("identity") and (
        since is None or since < changed_at
    )


def _of_earlier_program(
    document: Mapping[str, Any], incumbent: Mapping[str, Any] | None, newer: Set[str]
) -> bool:
    """Return whether the model in service is of a node with newer runs, of something that cannot be
    compared: then it is this one that is of what was before."""
    if incumbent is None or incumbent.get("node_id") not in newer:
        return False
    return any(document[key] != incumbent.get(key) for key in _COMPARED)


def _learnt(document: Mapping[str, Any], runs: Sequence[Run]) -> bool:
    """Return whether this model was trained on just these runs."""
    try:
        known = int(document["runs"]["total"]) + len(document["runs"]["dropped"])
        identity, suite = document["identity"], document["suite_version"]
    except (KeyError, TypeError, ValueError):
        return False
    suites = {run.fingerprint.suite_version for run in runs if run.fingerprint is not None}
    return known == len(runs) and {identity} == {run.identity for run in runs} and suites == {suite}


def _fitted(
    task: Task, placement: str, runs: Sequence[Run], since: float | None, fit: Fit
) -> dict[str, Any]:
    """The sealed document. Raises UntrainedError and its like with the reason."""
    request = {
        "runs": [run.to_dict() for run in runs],
        "placement": placement,
        "model": task.model,
        "models": task.models,
        "random_state": task.random_state,
    }
    answer = json.loads(fit(json.dumps(request, allow_nan=False, separators=(",", ":"))))
    if "error" in answer:
        raise UntrainedError(str(answer["error"]))
    document: dict[str, Any] = answer["document"]
    if since is not None:
        moment = moments.format(since, "microseconds")
        payload = {key: value for key, value in document.items() if key != "checksum"}
        document = persist.seal({**payload, "since": moment})
    # Whoever fitted it, what is kept can be read.
    persist.read(document)
    return document
