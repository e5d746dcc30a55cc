"""``kongming audit``: analysis and comparison of observations of machines."""

from __future__ import annotations

import click

from kongming.cli import failures
from kongming.cli.examples import examples
from kongming.lazy_group import Entry, LazyGroup

SUBCOMMANDS = {
    "report": Entry(
        "kongming.cli.audit.report:command",
        "Variability, slow machines, causes: an HTML page and tables.",
    ),
    "compare": Entry(
        "kongming.cli.audit.compare:command",
        "Test whether two sets of readings differ.",
    ),
    "gate": Entry(
        "kongming.cli.audit.gate:command",
        "Check whether this machine can show an effect, and with how many runs.",
    ),
}


@click.group(
    "audit",
    cls=LazyGroup,
    entries=SUBCOMMANDS,
    unknown=failures.unknown_command,
    epilog=examples(
        "kongming audit report a.parquet b.parquet --out audit.html",
        "kongming audit gate --effect 2%",
    ),
)
def command() -> None:
    """Analyse observations: slow machines, variability, machines to drop, changes.

    FILES are those that 'kongming observe' wrote, of any number of machines. 'gate' needs none: it
    measures this machine.
    """
