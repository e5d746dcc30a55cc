"""``kongming watch``: a node, line by line as it changes."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import click

from kongming.cli import options, output
from kongming.cli.durations import DURATION
from kongming.cli.examples import examples
from kongming.cli.fleet.serving import Server, remote, server_options
from kongming.printable import printable

if TYPE_CHECKING:
    from kongming.records.answers import NodeReport


@click.command(
    "watch",
    epilog=examples(
        "kongming watch n1 --server 127.0.0.1:7400", "kongming watch n1 --count 1 --json"
    ),
)
@click.argument("node", metavar="NODE")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    help="End after this number of lines. With --json: 1.",
)
@click.option(
    "--for",
    "for_s",
    type=DURATION,
    metavar="TIME",
    help="End after this time.",
)
@server_options
@options.json_option
def command(
    node: str, count: int | None, for_s: float | None, server: Server, as_json: bool
) -> None:
    """Show NODE (id or name) now and after each change, until Ctrl-C.

    With --json it is one document at the end, so say when that is: --count or --for.
    """
    if as_json and count is None and for_s is None:
        count = 1
    seen = []
    with remote(server) as service:
        changes = service.watch_node(node, for_s=for_s)
        for report in itertools.islice(changes, count):
            if as_json:
                seen.append(report.to_dict())
            else:
                click.echo(printable(_line(report)))
    if as_json:
        output.emit_json({"changes": seen})


def _line(node: NodeReport) -> str:
    clock = time.strftime("%H:%M:%S %Z")
    state = f"{node.state} ({node.reason})" if node.reason else node.state
    slowdown = "-" if node.general_slowdown is None else f"{node.general_slowdown:.2f}"
    residents = ", ".join(f"{placed.app} {placed.state}" for placed in node.assignments)
    worst = sorted(node.slowdown.items(), key=lambda item: -item[1])[:3]
    slowdowns = ", ".join(f"{name} {ratio:.2f}" for name, ratio in worst if ratio > 1.05)
    parts = [f"{clock}  {node.facts.name or node.facts.id}  {state}", f"slowdown {slowdown}"]
    parts += [part for part in (slowdowns, residents) if part]
    return "  ".join(parts)
