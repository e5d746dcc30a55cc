"""``kongming explore``: choose the deployments to run, and model all the others."""

from __future__ import annotations

import click

from kongming.cli import failures
from kongming.cli.examples import examples
from kongming.lazy_group import Entry, LazyGroup

SUBCOMMANDS = {
    "run": Entry("kongming.cli.explore.run:command", "Run a program at the points chosen."),
    "replay": Entry(
        "kongming.cli.explore.replay:command", "Compare policies on a fully measured table."
    ),
}


@click.group(
    "explore",
    cls=LazyGroup,
    entries=SUBCOMMANDS,
    unknown=failures.unknown_command,
    epilog=examples(
        "kongming explore run apps.toml --app sort --space space.toml --budget 40 --out runs.csv",
        "kongming explore replay table.csv --target seconds --rate 5%",
    ),
)
def command() -> None:
    """Run a program at few points of its parameters, and predict all others.

    SPACE.toml lists the parameters and their values. 'run' chooses a few points after each other,
    each where the model knows least, and runs the program there; 'fit' makes a model of the table
    of runs; 'predict' answers for every other point.
    """
