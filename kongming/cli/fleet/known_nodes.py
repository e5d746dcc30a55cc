"""``kongming nodes``: the nodes that are known, and how loaded they are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.fleet.serving import Server, prediction_service, server_options
from kongming.quantities import per_cent

if TYPE_CHECKING:
    from kongming.records.answers import NodeReport


@click.command("nodes", epilog=examples("kongming nodes", "kongming nodes --server 127.0.0.1:7400"))
@server_options
@options.store_option
@options.wide_option
@options.json_option
def command(server: Server, store_url: str | None, as_json: bool) -> None:
    """List nodes and how much slower than idle they are now.

    Without --server they are those of the local store, as their newest fingerprint showed them.
    """
    with prediction_service(server, store_url) as service:
        nodes = service.nodes()
    if as_json:
        output.emit_json({"nodes": [node.to_dict() for node in nodes]})
        return
    console = output.console()
    if not nodes:
        console.print("No node is known yet: run 'kongming fingerprint' or kongming-agent on one.")
        return
    now = time.time()
    console.print(
        output.table(
            ("node", "id", "state", "slowdown", "most in", "fingerprint", "residents", "probing"),
            [_row(node, now) for node in nodes],
            right=("slowdown", "fingerprint", "residents", "probing"),
            minor=("id", "probing", "residents", "most in"),
        )
    )


def _row(node: NodeReport, now: float) -> tuple[object, ...]:
    worst = max(node.slowdown, key=lambda name: node.slowdown[name], default=None)
    return (
        node.facts.name or None,
        node.facts.id[:12],
        f"{node.state}: {node.reason}" if node.reason else node.state,
        None if node.general_slowdown is None else f"{node.general_slowdown:.2f}",
        None if worst is None else f"{worst} {node.slowdown[worst]:.2f}",
        ago(node.last_fingerprint_at, now),
        len(node.assignments) or None,
        per_cent(100 * node.probe_cost) if node.probe_cost else None,
    )


def ago(moment: float | None, now: float) -> str | None:
    """Return how long ago a moment was, for a person."""
    if moment is None:
        return None
    return f"{output.format_duration(max(0.0, now - moment))} ago"
