"""``kongming rank``: the nodes on which an application would run best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kongming import quantities
from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.fleet.serving import Server, prediction_service, server_options
from kongming.cli.float_range import FloatRange
from kongming.cli.help_groups import GroupedCommand
from kongming.cli.predict.job import Job, job_options, show_sets
from kongming.cli.predict.left_out import left_out
from kongming.cli.predict.prediction_view import median_text, range_text, worst_resident_text
from kongming.cli.trained import placement_of_model
from kongming.records.errors import CannotAnswerError, UnknownNameError
from kongming.records.questions import RankQuestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kongming.records.answers import NodeReport, Ranking
    from kongming.rpc.protocol import PredictionService

_WEIGHT = FloatRange(min=0.0, max=1e6)
_LIMIT = FloatRange(min=1.0, max=1e6)


@click.command(
    "rank",
    cls=GroupedCommand,
    epilog=examples(
        "kongming rank xz --limit 3",
        "kongming rank xz --resident-slowdown-limit 1.2 --server 127.0.0.1:7400",
    ),
)
@click.argument("app", metavar="APP")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NODE",
    help="A candidate node. Repeatable. Default: all.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    help="How many nodes [default: 10], or with --machines sets of nodes [default: 1].",
)
@job_options(named=False)
@placement_of_model
@click.option(
    "--slowdown-limit",
    type=_LIMIT,
    help="Exclude nodes where the slowdown of APP is higher.",
)
@click.option(
    "--resident-slowdown-limit",
    type=_LIMIT,
    help="Exclude nodes where the slowdown of a resident would be higher.",
)
@click.option(
    "--newcomer-weight",
    type=_WEIGHT,
    default=1.0,
    show_default=True,
    help="Weight of APP's own slowdown.",
)
@click.option(
    "--resident-weight",
    type=_WEIGHT,
    default=1.0,
    show_default=True,
    help="Weight of the increase of the residents' slowdowns.",
)
@options.memory_option
@click.option(
    "--seed", type=click.IntRange(min=0), help="Seed for the order of near ties. Default: random."
)
@options.stale_option
@server_options
@options.store_option
@options.wide_option
@options.json_option
def command(
    app: str,
    nodes: tuple[str, ...],
    stale: Any,
    limit: int | None,
    slowdown_limit: float | None,
    resident_slowdown_limit: float | None,
    job: Job,
    server: Server,
    store_url: str | None,
    as_json: bool,
    **fields: Any,
) -> int:
    """Rank nodes for APP: by its own slowdown there, and by the slowdown of the residents.

    Without --server the newest stored fingerprint of each node is used, and the assignments that
    the store holds. An application without a profile is ranked by the nodes' general slowdown.
    Exit status 3 if no node can be ranked.

    With --machines, sets of this many nodes are ranked for one job: by the slowest node of the set,
    or with a scale model of the job by its runtime there.
    """
    job.check()
    question = RankQuestion(
        app=app,
        nodes=nodes,
        stale_policy=stale,
        limit=limit or (1 if job.is_asked else 10),
        scaling=job.scaling() if job.is_asked else None,
        slowdown_limit=slowdown_limit or 0.0,
        resident_slowdown_limit=resident_slowdown_limit or 0.0,
        **fields,
    )
    with prediction_service(server, store_url, job.scale_files(server)) as service:
        ranking = service.rank(question)
        near = _near(service, app) if ranking.basis == "node-only" else None
        candidates = () if as_json or not ranking.refused else _candidates(service, nodes)
    if as_json:
        output.emit_json({"app": app, **ranking.to_dict()})
    else:
        show(app, ranking, job.machines, near, candidates)
    return 0 if ranking.nodes or ranking.sets else CannotAnswerError.exit_status


def _near(service: PredictionService, app: str) -> str:
    """Return a sentence with the trained applications whose names are like this one, or with some
    of them; empty where it is one of them, or none is trained."""
    known = {entry.app for entry in service.models()}
    hint = UnknownNameError("application", app, known).hint
    return "" if app in known or not known or hint is None else hint


def _candidates(service: PredictionService, nodes: Sequence[str]) -> tuple[NodeReport, ...]:
    """Return what is known of the nodes that were to be ranked."""
    return tuple(
        report
        for report in service.nodes()
        if not nodes or {report.facts.name, report.facts.id} & set(nodes)
    )


def show(
    app: str,
    ranking: Ranking,
    machines: int | None = None,
    near: str | None = None,
    candidates: Sequence[NodeReport] = (),
) -> None:
    """Print a table of nodes and remarks on it; ``machines`` for a ranking of sets, ``near`` a
    sentence on names like ``app``, which itself is unknown; ``candidates`` for the names of those
    left out."""
    console = output.console()
    if machines is not None:
        show_sets(app, ranking.sets, machines, ranking.candidates)
    elif ranking.nodes:
        tied = sum(node.tied_with_first for node in ranking.nodes) > 1
        console.print(
            output.table(
                ("", "node", "slowdown", "interval", "residents", "worst", "fingerprint", ""),
                [
                    (
                        f"{number}{'=' if tied and node.tied_with_first else ''}",
                        node.name or node.node_id[:12],
                        median_text(node.slowdown),
                        range_text(node.slowdown),
                        node.residents or None,
                        worst_resident_text([node]),
                        _age(node.fingerprint_age_s),
                        ", ".join(
                            word
                            for word, true in (
                                ("stale", node.stale),
                                ("extrapolating", node.extrapolating),
                            )
                            if true
                        ),
                    )
                    for number, node in enumerate(ranking.nodes, 1)
                ],
                right=("", "slowdown", "residents", "worst", "fingerprint"),
                minor=("fingerprint", "residents"),
            )
        )
        if tied:
            console.print("= : as good as the first within the error; ties are in random order.")
    else:
        console.print(
            "There is no node to rank."
            if not ranking.candidates
            else f"No node can be ranked, of {quantities.count(ranking.candidates, 'node')}. "
            "Their state: kongming nodes"
        )
    if ranking.basis == "node-only":
        console.print(
            f"! {app} has no model: the ranking uses the nodes' general slowdown, which does "
            "not depend on the application." + (f" {near}" if near else ""),
            markup=False,
        )
    if ranking.profile is not None and (remark := ranking.profile.remark(app)) is not None:
        console.print(f"! {remark}", markup=False)
    for line in left_out(ranking, candidates):
        console.print(line, markup=False)


def _age(seconds: float | None) -> str | None:
    return None if seconds is None else f"{output.format_duration(seconds)} old"
