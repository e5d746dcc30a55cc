"""``kongming apps``: the applications that were profiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.quantities import per_cent
from kongming.records.errors import MALFORMED
from kongming.records.judgement import Judgement
from kongming.records.run import Run, solo_time


@click.command("apps", epilog=examples("kongming apps", "kongming apps --json"))
@options.store_option
@options.wide_option
@options.json_option
def command(store_url: str | None, as_json: bool) -> None:
    """List the applications that were profiled, by node and placement.

    An application whose command, executable, environment or set-up changed has a new identity;
    runs of different identities are never mixed. "not better than" names the trivial answers
    that its model in service is not clearly better than: the mean of the training runs, or the
    solo time. "profile" is the verdict on the runs as they are now, and where it differs that on
    those which this model was trained on.
    """
    from kongming.store import Store

    with Store.open(store_url, create=False) as store:
        entries = store.applications()
        groups: dict[tuple[str, str], dict[tuple[str, str], list[Run]]] = {}
        # With fingerprints: what somebody else slowed is seen in them alone.
        for run in store.runs():
            places = groups.setdefault((run.app, run.identity), {})
            places.setdefault((run.node_id, run.placement), []).append(run)
        signed = {(s.app, s.identity, s.node_id, s.placement) for s in store.signatures()}
        models = {key: _model(store.model(*key)) for key in store.models_in_service()}
        names = {node.id: node.name for node in store.nodes()}
        where = store.url
    documents = []
    for entry in entries:
        places = groups.get((entry.name, entry.identity), {})
        profiles = [
            _profile(node_id, names.get(node_id), placement, runs)
            | {
                "signature": (entry.name, entry.identity, node_id, placement) in signed,
                "not_better_than": None,
                "trained_on": None,
                **models.get((entry.name, placement), {}).get(node_id, {}),
            }
            for (node_id, placement), runs in sorted(places.items())
        ]
        documents.append(
            {
                "app": entry.name,
                "identity": entry.identity,
                "metric_unit": entry.metric_unit,
                "last_run_at": entry.last_run_at,
                "profiles": profiles,
            }
        )
    if as_json:
        output.emit_json({"apps": documents})
        return
    console = output.console()
    if not documents:
        console.print(
            f"No application was profiled yet in {where}. Profile one: kongming profile APPS.toml",
            markup=False,
        )
        return
    console.print(
        output.table(
            (
                "application",
                "identity",
                "node",
                "placement",
                "solo",
                "noise",
                "profile",
                "not better than",
                "runs",
                "failed",
                "signature",
                "last run",
            ),
            [row for document in documents for row in _rows(document)],
            right=("solo", "noise", "runs", "failed"),
            minor=("identity", "last run", "signature", "failed", "node", "not better than"),
        )
    )


def _profile(node_id: str, node: str | None, placement: str, runs: Sequence[Run]) -> dict[str, Any]:
    from kongming.records.judging import judge, learned_from, without_spoiled

    # What is trained on is what is judged.
    retained, _ = without_spoiled(runs)
    profiled = any(run.kind == "induced" for run in retained)
    # So that the noise is that which training states.
    solo = solo_time(learned_from(retained))
    # Cost is 1/metric where higher is better; people know the metric.
    turned = bool(runs) and runs[0].better == "higher"
    return {
        "node_id": node_id,
        "node": node,
        "placement": placement,
        "solo": None if solo is None else 1.0 / solo.median if turned else solo.median,
        "noise_pct": None if solo is None else solo.noise_pct,
        "runs": len(runs),
        "failed": sum(not run.ok for run in runs),
        "judged": judge(retained).described(runs[0].app) if profiled else None,
    }


def _model(document: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return, by node id, what a model in service keeps of its own quality: the trivial answers
    (MEAN, 1) that it is not clearly better than, and the verdict on the profile that it was trained
    on; None where that was not judged. A document that is damaged says nothing."""
    try:
        held = document or {}
        full = held["variants"]["full"]
        profile = held.get("profile")
        quality = {
            "not_better_than": full["models"][full["chosen"]].get("not_better_than"),
            "trained_on": None
            if profile is None
            else Judgement.from_dict(profile).described(held["app"]),
        }
        return {held["node_id"]: quality}
    except MALFORMED:
        return {}


def _verdict(profile: Mapping[str, Any]) -> str | None:
    """Return the verdict on the runs, and where it differs that on those of the model."""
    judged, trained_on = profile["judged"], profile["trained_on"]
    now = None if judged is None else judged["verdict"]
    then = now if trained_on is None else trained_on["verdict"]
    return now if now == then else f"{now or 'none'}, its model's {then}"


_TRIVIAL = {"MEAN": "mean", "1": "solo time"}
"""Trivial answers, as a person reads them."""


def _rows(document: dict[str, Any]) -> list[tuple[object, ...]]:
    unit = document["metric_unit"]
    last = (document["last_run_at"] or "-")[:19].replace("T", " ")
    if not document["profiles"]:
        return [(document["app"], document["identity"][:8], *[None] * 9, last)]
    return [
        (
            document["app"],
            document["identity"][:8],
            profile["node"] or profile["node_id"][:12],
            profile["placement"],
            shown_metric(profile["solo"], unit),
            None if profile["noise_pct"] is None else per_cent(profile["noise_pct"]),
            _verdict(profile),
            ", ".join(_TRIVIAL.get(answer, answer) for answer in profile["not_better_than"] or ())
            or None,
            profile["runs"],
            profile["failed"] or None,
            "yes" if profile["signature"] else "no",
            last,
        )
        for profile in document["profiles"]
    ]


def shown_metric(value: float | None, unit: str) -> str | None:
    """A metric with its unit; None for None."""
    if value is None:
        return None
    return output.format_seconds(value) if unit == "s" else f"{value:.4g} {unit}"
