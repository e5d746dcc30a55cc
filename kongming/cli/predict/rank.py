"""``kongming rank``: the nodes on which an application would run best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.fleet.serving import Server, oracle, server_options
from kongming.cli.predict.job import Job, job_options, show_sets
from kongming.cli.predict.trained import placement_of_model
from kongming.records.questions import STALE_POLICIES, RankQuestion

if TYPE_CHECKING:
    from kongming.records.answers import Ranking

_RATIO = click.FloatRange(min=0.0, max=1e6)


@click.command(
    "rank",
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
    type=_RATIO,
    default=0.0,
    help="Leave out nodes where the slowdown of APP is higher.",
)
@click.option(
    "--resident-slowdown-limit",
    type=_RATIO,
    default=0.0,
    help="Leave out nodes where the slowdown of a resident would be higher.",
)
@click.option(
    "--newcomer-weight",
    type=_RATIO,
    default=1.0,
    show_default=True,
    help="Weight of APP's own slowdown.",
)
@click.option(
    "--resident-weight",
    type=_RATIO,
    default=1.0,
    show_default=True,
    help="Weight of the increase of the residents' slowdowns.",
)
@click.option(
    "--memory", "memory_bytes", type=click.IntRange(min=0), default=0, help="Bytes that APP needs."
)
@click.option(
    "--seed", type=click.IntRange(min=0), help="Seed for the order of near ties. Default: random."
)
@click.option(
    "--stale",
    type=click.Choice(STALE_POLICIES),
    default="widen",
    show_default=True,
    help="What to do with a fingerprint that is too old.",
)
@server_options
@options.store_option
@options.wide_option
@options.json_option
def command(
    app: str,
    nodes: tuple[str, ...],
    stale: Any,
    limit: int | None,
    job: Job,
    server: Server,
    store_url: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Rank nodes for APP: by its own slowdown there, and by the slowdown of the residents.

    Without --server the newest stored fingerprint of each node is used, and its residents are
    unknown. An application without a profile is ranked by the nodes' general slowdown.

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
        **asked,
    )
    with oracle(server, store_url, job.scale_files(server)) as service:
        ranking = service.rank(question)
    if as_json:
        output.emit_json({"app": app, **ranking.to_dict()})
    else:
        show(app, ranking, job.machines)


def show(app: str, ranking: Ranking, machines: int | None = None) -> None:
    """Print a table of nodes and remarks on it; ``machines`` for a ranking of sets."""
    console = output.console()
    if machines is not None:
        show_sets(app, ranking.sets, machines, ranking.candidates)
    elif ranking.nodes:
        console.print(
            output.table(
                ("", "node", "slowdown", "interval", "residents", "worst", "fingerprint", ""),
                [
                    (
                        f"{number}{'=' if node.tied_with_first else ''}",
                        node.name or node.node_id[:12],
                        f"{node.slowdown.median:.2f}",
                        f"{node.slowdown.lower:.2f} to {node.slowdown.upper:.2f}",
                        node.residents or None,
                        f"{node.worst_resident_slowdown:.2f}" if node.residents else None,
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
        if sum(node.tied_with_first for node in ranking.nodes) > 1:
            console.print("= : as good as the first within the error; ties are in random order.")
    else:
        console.print(f"None of {ranking.candidates} nodes can be ranked.")
    if ranking.basis == "node-only":
        console.print(
            f"! {app} has no model: the ranking uses the nodes' general slowdown, which does "
            "not depend on the application."
        )
    for reason, count in ranking.refused.items():
        console.print(f"{count} left out: {reason}")


def _age(seconds: float | None) -> str | None:
    return None if seconds is None else f"{output.format_duration(seconds)} old"
