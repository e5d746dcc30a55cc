"""``kongming assignments``: what runs where, as the scheduler reported it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kongming.cli import options, output
from kongming.cli.durations import DURATION
from kongming.cli.examples import examples
from kongming.cli.fleet.known_nodes import ago
from kongming.cli.fleet.serving import Server, remote, server_options
from kongming.cli.trained import placement_of_model
from kongming.records.errors import ConflictError, KongmingError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Collection

    from kongming.records.answers import Assignment
    from kongming.rpc.client import RemoteService


@click.group(
    "assignments",
    invoke_without_command=True,
    epilog=examples(
        "kongming assignments --node n1", "kongming assignments reserve job-1 xz n1 --ttl 60"
    ),
)
@click.option("--node", metavar="NODE", help="Only assignments of this node (id or name).")
@click.option("--ended", is_flag=True, help="Also show the newest 10,000 that have ended.")
@server_options
@options.wide_option
@options.json_option
@click.pass_context
def command(
    ctx: click.Context, node: str | None, ended: bool, server: Server, as_json: bool
) -> None:
    """List assignments of applications to nodes; reserve, bind and release them by hand.

    Schedulers do that themselves over gRPC. A reservation counts as a resident until it is bound,
    released or expires.
    """
    if ctx.invoked_subcommand is not None:
        return
    with remote(server) as service:
        assignments = service.assignments(node, ended=ended)
        names = {report.facts.id: report.facts.name for report in service.nodes()}
    if as_json:
        output.emit_json({"assignments": [assignment.to_dict() for assignment in assignments]})
        return
    console = output.console()
    if not assignments:
        console.print("Nothing is reserved or bound.")
        return
    now = time.time()
    console.print(
        output.table(
            ("id", "application", "node", "state", "since", "expires in"),
            [
                (
                    assignment.assignment_id,
                    assignment.app,
                    names.get(assignment.node_id) or assignment.node_id[:12],
                    assignment.state,
                    ago(_since(assignment), now),
                    _expires(assignment, now),
                )
                for assignment in assignments
            ],
            right=("since", "expires in"),
            minor=("since", "expires in"),
        )
    )


@command.command(
    "reserve",
    epilog=examples(
        "kongming assignments reserve job-1 xz n1 --ttl 60",
        "kongming assignments reserve job-1 xz n1 --memory 2G",
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
    help="Time after which it expires. Default: the server's.",
)
@click.option("--domain", type=click.IntRange(min=0), default=0, help="Last-level cache domain.")
@options.memory_option
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
    """Reserve a place for APP on NODE, under an ID of your choice.

    An ID whose assignment has ended reserves nothing: the exit status is 2.
    """
    with remote(server) as service:
        assignment = service.reserve(
            assignment_id,
            app,
            node,
            placement=placement,
            domain=domain,
            ttl_s=ttl_s,
            memory_bytes=memory_bytes,
        )
        remarks = _of_unknown(service, app)
    output.print_warnings(remarks)
    _tell(assignment, as_json, node)
    _check_state(assignment, ("reserved", "bound"), "no place is reserved")


@command.command("bind", epilog=examples("kongming assignments bind job-1"))
@click.argument("assignment_id", metavar="ID")
@click.option("--app", default="", metavar="APP", help="Needed if it was never reserved.")
@click.option("--node", default="", metavar="NODE", help="Needed if it was never reserved.")
@server_options
@options.wide_option
@options.json_option
def bind(assignment_id: str, app: str, node: str, server: Server, as_json: bool) -> None:
    """Report that the application of ID has started.

    An ID that was released stays so: the exit status is 2.
    """
    with remote(server) as service:
        assignment = service.bind(assignment_id, app=app, node=node)
        remarks = _of_unknown(service, app) if app else []
        if not node and not _wants_json(as_json):
            node = _name_of(service, assignment.node_id)
    output.print_warnings(remarks)
    _tell(assignment, as_json, node)
    _check_state(assignment, ("bound",), "nothing is bound")


@command.command("release", epilog=examples("kongming assignments release job-1"))
@click.argument("assignment_id", metavar="ID")
@server_options
@options.wide_option
@options.json_option
def release(assignment_id: str, server: Server, as_json: bool) -> None:
    """Report that the application of ID has ended, or never started."""
    with remote(server) as service:
        assignment = service.release(assignment_id)
        node = "" if _wants_json(as_json) else _name_of(service, assignment.node_id)
    _tell(assignment, as_json, node)


def _name_of(service: RemoteService, node_id: str) -> str:
    """The node's name; the beginning of its id where it has none, or the caller may not list nodes:
    what was asked for is done all the same."""
    try:
        names = {report.facts.id: report.facts.name for report in service.nodes()}
    except KongmingError:
        names = {}
    return names.get(node_id) or node_id[:12]


def _of_unknown(service: RemoteService, app: str) -> list[str]:
    """Return what to say of an application that the server does not know. A scheduler may hold a
    place for one before its first profile, but by hand it is most likely a slip of the pen. Nothing
    is said where the caller may not list applications."""
    try:
        known = [report.name for report in service.applications()]
    except KongmingError:
        return []
    if app in known:
        return []
    error = UnknownNameError("application", app, known)
    held = "The place is held, but counts as that of a program without a profile."
    return [f"{error} {held}"]


def _wants_json(as_json: bool) -> bool:
    """Return whether the command, or the group before it, has --json."""
    group = click.get_current_context().parent
    return as_json or (group is not None and bool(group.params.get("as_json")))


def _tell(assignment: Assignment, as_json: bool, node: str) -> None:
    """Print the assignment; ``node`` is the name by which it is printed."""
    if _wants_json(as_json):
        output.emit_json(assignment.to_dict())
        return
    expires = _expires(assignment, time.time())
    until = f", for {expires} unless it is bound" if expires else ""
    output.console().print(
        f"{assignment.assignment_id}: {assignment.app} is {assignment.state} on {node}{until}",
        markup=False,
    )


def _check_state(assignment: Assignment, states: Collection[str], otherwise: str) -> None:
    """Raises ConflictError for an assignment in none of the ``states``: the server answers a known
    id with what it is, so that requests may be repeated, and a script goes by the exit status."""
    if assignment.state not in states:
        raise ConflictError(
            f"The assignment {assignment.assignment_id} is {assignment.state}: {otherwise}.",
            hint="Give each assignment an id of its own.",
        )


def _since(assignment: Assignment) -> float | None:
    return assignment.ended_at or assignment.bound_at or assignment.reserved_at


def _expires(assignment: Assignment, now: float) -> str | None:
    if assignment.expires_at is None or assignment.state != "reserved":
        return None
    return output.format_duration(assignment.expires_at - now)
