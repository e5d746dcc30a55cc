"""``kongming assignments``: what runs where, as the scheduler told the server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kongming.cli import options, output
from kongming.cli.durations import DURATION
from kongming.cli.examples import examples
from kongming.cli.fleet.nodes import ago
from kongming.cli.fleet.serving import Server, remote, server_options
from kongming.cli.predict.trained import placement_of_model

if TYPE_CHECKING:
    from kongming.records.answers import Assignment


@click.group(
    "assignments",
    invoke_without_command=True,
    epilog=examples(
        "kongming assignments --node n1", "kongming assignments reserve job-1 xz n1 --ttl 60"
    ),
)
@click.option("--node", metavar="NODE", help="Of this node alone (id or name).")
@click.option("--ended", is_flag=True, help="Those that have ended as well.")
@server_options
@options.wide_option
@options.json_option
@click.pass_context
def command(
    ctx: click.Context, node: str | None, ended: bool, server: Server, as_json: bool
) -> None:
    """List what is reserved or bound on nodes; or reserve, bind and release by hand.

    Schedulers do that themselves over gRPC. A reservation counts as a resident until it is bound,
    released or expires.
    """
    if ctx.invoked_subcommand is not None:
        return
    with remote(server) as service:
        found = service.assignments(node, ended=ended)
        names = {report.facts.id: report.facts.name for report in service.nodes()}
    if as_json:
        output.emit_json({"assignments": [placement.to_dict() for placement in found]})
        return
    console = output.console()
    if not found:
        console.print("Nothing is reserved or bound.")
        return
    now = time.time()
    console.print(
        output.table(
            ("placement", "application", "node", "state", "since", "expires in"),
            [
                (
                    placement.assignment_id,
                    placement.app,
                    names.get(placement.node_id) or placement.node_id[:12],
                    placement.state,
                    ago(_since(placement), now),
                    _expires(placement, now),
                )
                for placement in found
            ],
            right=("since", "expires in"),
            minor=("since", "expires in"),
        )
    )


@command.command(
    "reserve",
    epilog=examples(
        "kongming assignments reserve job-1 xz n1 --ttl 60",
        "kongming assignments reserve job-1 xz n1 --memory 2000000000",
    ),
)
@click.argument("assignment_id", metavar="ID")
@click.argument("app", metavar="APP")
@click.argument("node", metavar="NODE")
@placement_of_model
@click.option(
    "--ttl",
    "ttl_s",
    type=DURATION,
    metavar="TIME",
    help="It ends by itself after so long. Default: the server's.",
)
@click.option("--domain", type=click.IntRange(min=0), default=0, help="Last-level cache domain.")
@click.option(
    "--memory", "memory_bytes", type=click.IntRange(min=0), default=0, help="Bytes that APP needs."
)
@server_options
@options.wide_option
@options.json_option
def reserve(
    assignment_id: str,
    app: str,
    node: str,
    placement: str | None,
    ttl_s: float | None,
    domain: int,
    memory_bytes: int,
    server: Server,
    as_json: bool,
) -> None:
    """Hold a place for APP on NODE, under an ID of your own."""
    with remote(server) as service:
        made = service.reserve(
            assignment_id,
            app,
            node,
            placement=placement,
            domain=domain,
            ttl_s=ttl_s,
            memory_bytes=memory_bytes,
        )
    _tell(made, as_json, node)


@command.command("bind", epilog=examples("kongming assignments bind job-1"))
@click.argument("assignment_id", metavar="ID")
@click.option("--app", default="", metavar="APP", help="For what was never reserved.")
@click.option("--node", default="", metavar="NODE", help="For what was never reserved.")
@server_options
@options.wide_option
@options.json_option
def bind(assignment_id: str, app: str, node: str, server: Server, as_json: bool) -> None:
    """Tell that the application of ID has started."""
    with remote(server) as service:
        made = service.bind(assignment_id, app=app, node=node)
    _tell(made, as_json, node)


@command.command("release", epilog=examples("kongming assignments release job-1"))
@click.argument("assignment_id", metavar="ID")
@server_options
@options.wide_option
@options.json_option
def release(assignment_id: str, server: Server, as_json: bool) -> None:
    """Tell that the application of ID has ended, or never came."""
    with remote(server) as service:
        made = service.release(assignment_id)
    _tell(made, as_json)


def _tell(placement: Assignment, as_json: bool, node: str = "") -> None:
    """Print the assignment; ``node`` as the user named it."""
    group = click.get_current_context().parent
    if as_json or (group is not None and group.params.get("as_json")):
        output.emit_json(placement.to_dict())
        return
    expires = _expires(placement, time.time())
    until = f", for {expires} unless it is bound" if expires else ""
    output.console().print(
        f"{placement.assignment_id}: {placement.app} is {placement.state} on "
        f"{node or placement.node_id[:12]}{until}",
        markup=False,
    )


def _since(placement: Assignment) -> float | None:
    return placement.ended_at or placement.bound_at or placement.reserved_at


def _expires(placement: Assignment, now: float) -> str | None:
    if placement.expires_at is None or placement.state != "reserved":
        return None
    return output.format_duration(placement.expires_at - now)
