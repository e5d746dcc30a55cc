"""``kongming sensor``: one node's load, as batch systems read it from a program of theirs."""

from __future__ import annotations

import click

from kongming.cli import failures
from kongming.cli.examples import examples
from kongming.lazy_group import Entry, LazyGroup

SUBCOMMANDS = {
    "htcondor": Entry(
        "kongming.cli.sensor.htcondor:command", "Print attributes for a startd's cron job."
    ),
    "gridengine": Entry(
        "kongming.cli.sensor.gridengine:command", "Answer as a load sensor of Grid Engine."
    ),
}


@click.group(
    "sensor",
    cls=LazyGroup,
    entries=SUBCOMMANDS,
    unknown=failures.unknown_command,
    epilog=examples(
        "kongming sensor htcondor --server 127.0.0.1:7400 --app sort",
        "kongming sensor gridengine --server 127.0.0.1:7400",
    ),
)
def command() -> None:
    """Report to a batch system how loaded a node is, and how slow its jobs would be there."""
