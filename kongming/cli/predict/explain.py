"""``kongming explain``: which surrogates a prediction comes from."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.fleet.serving import Server, asks_server, prediction_service, server_options
from kongming.cli.help_groups import GroupedCommand
from kongming.cli.predict.prediction_view import median_text
from kongming.cli.trained import placement_of_model
from kongming.quantities import per_cent
from kongming.records.questions import Question

if TYPE_CHECKING:
    from kongming.records.answers import Contribution, Explanation


@click.command(
    "explain",
    cls=GroupedCommand,
    epilog=examples(
        "kongming explain xz --node n1 --limit 5 --server 127.0.0.1:7400",
        "kongming explain --pod default/xz-1 --extender http://127.0.0.1:7404",
    ),
)
@click.argument("app", metavar="APP", required=False)
@click.option(
    "--node",
    metavar="NODE",
    help="The node (id or name), by its newest fingerprint. Default: this node, measured now.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="Number of surrogates, or of nodes, to show; --json has all.",
)
@click.option(
    "--pod",
    metavar="NAMESPACE/NAME",
    help="Show instead of APP what the Kubernetes extender last answered about this pod: the "
    "slowdown on each node, and why it was refused.",
)
@click.option("--extender", metavar="URL", help="The extender to ask about --pod.")
@placement_of_model
@click.option(
    "--model", default=None, metavar="NAME", help="Model to use. Default: the chosen one."
)
@options.stale_option
@server_options
@options.store_option
@options.wide_option
@options.json_option
def command(
    app: str | None,
    node: str | None,
    limit: int,
    pod: str | None,
    extender: str | None,
    placement: str | None,
    model: str | None,
    stale: Any,
    server: Server,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Explain the prediction for APP on NODE; without --node, on this node as it is now.

    Show for each surrogate its cost there now, its cost on the idle node, and how much lower the
    slowdown of APP would be with the idle cost. These parts need not sum to the slowdown: two
    resources can be short together.
    """
    if pod is not None or extender is not None:
        if pod is None or extender is None or app is not None:
            raise click.UsageError("--pod and --extender go together, and without APP.")
        _explain_pod(pod, extender, limit, server, as_json)
        return
    if app is None:
        raise click.UsageError("Missing argument 'APP'.")
    here = node is None and not asks_server(server)
    if here and options.is_typed("stale"):
        from kongming.records.errors import InputError

        raise InputError(
            "has no effect without --node: this node is measured now.", field="--stale"
        )
    if node is None:
        from kongming.probes.node import node_facts

        facts = node_facts()
        node, name = facts.id, facts.name or "this node"
    else:
        name = node
    question = Question(
        app=app,
        node=node,
        placement=placement,
        stale_policy=stale,
        model=None if model == "auto" else model,
    )
    if here:
        answer = _explain_now(question, store_url)
    else:
        with prediction_service(server, store_url) as service:
            answer = service.explain(question)
    if as_json:
        output.emit_json(answer.to_dict())
    else:
        _show(answer, name, limit)


def _explain_pod(pod: str, extender: str, limit: int, server: Server, as_json: bool) -> None:
    from kongming.cli.predict.explain_pod import last_answer, show

    document = last_answer(pod, extender, server)
    if as_json:
        output.emit_json(document)
    else:
        show(document, limit)


def _explain_now(question: Question, store_url: str | None) -> Explanation:
    """Measure this node as 'kongming predict' does, and explain the prediction."""
    from kongming.cli.predict.predict import check_model, measure
    from kongming.cli.trained import model_of, placement_for
    from kongming.engine.load.measured import explain_measured
    from kongming.store import Store

    check_model(question.model)
    with Store.open(store_url, create=False) as store:
        where = placement_for(store, question.app, question.placement)
        trained = model_of(store, question.app, where)
        taken = measure(trained, question.model, None)
        question = replace(question, node=taken.node.id, placement=where)
        return explain_measured(store, taken, question)


_MOVED = 1.2
"""Ratio to idle from which a surrogate is expected to have a part."""


def _is_unweighted(contribution: Contribution) -> bool:
    ratio = contribution.seconds_per_op / contribution.idle_seconds_per_op
    return abs(contribution.log_slowdown) < 0.0005 and not 1.0 / _MOVED < ratio < _MOVED


def _show(answer: Explanation, node: str, limit: int) -> None:
    prediction = answer.prediction
    console = output.console()
    parts = answer.contributions[:limit]
    slowdown = f"slowdown {median_text(prediction.slowdown)}"
    title = f"{prediction.app} on {node}, {prediction.placement}: {slowdown}"
    console.print(
        output.table(
            ("surrogate", "family", "now", "idle", "ratio", "part of the slowdown"),
            [
                (
                    part.surrogate,
                    part.family,
                    output.format_seconds(part.seconds_per_op),
                    output.format_seconds(part.idle_seconds_per_op),
                    f"{part.seconds_per_op / part.idle_seconds_per_op:.2f}",
                    per_cent(100.0 * math.expm1(part.log_slowdown), "+.1f"),
                )
                for part in parts
            ],
            title=title,
            right=("now", "idle", "ratio", "part of the slowdown"),
            minor=("idle", "now", "family"),
        )
    )
    if any(_is_unweighted(part) for part in parts):
        console.print(
            "A part of 0 % at a ratio far from 1: the model gives that surrogate no weight."
        )
    left = len(answer.contributions) - len(parts)
    if left:
        console.print(f"{left} more have smaller parts; --limit or --json shows them.")
    for what, ids in (("added", prediction.added), ("removed", prediction.removed)):
        if ids:
            console.print(f"{what} since the fingerprint was taken: {', '.join(ids)}", markup=False)
    for remark in (*prediction.notes, *(f"! {warning}" for warning in prediction.warnings)):
        console.print(remark, markup=False)
