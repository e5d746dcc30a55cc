"""``kongming explore``: choose the deployments to run, and model all the others."""

from __future__ import annotations

import click

from kongming.cli import failures
from kongming.cli.examples import examples
from kongming.lazy_group import Entry, LazyGroup

SUBCOMMANDS = {
    "run": Entry("kongming.cli.explore.run:command", "Run a program at the points chosen."),
    "next": Entry("kongming.cli.explore.next:command", "Choose the next points; others run them."),
    "fit": Entry("kongming.cli.explore.fit:command", "Fit a model to a table of runs."),
    "predict": Entry("kongming.cli.explore.predict:command", "Predict points that were not run."),
    "show": Entry("kongming.cli.explore.show:command", "Show a model in words."),
    "plot": Entry("kongming.cli.explore.plot:command", "Draw a model and its runs."),
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
        "kongming explore fit space.toml runs.csv --out sort.json",
    ),
)
def command() -> None:
    """Run a program at few points of its parameters, and predict all others.

    SPACE.toml lists the parameters and their values. 'run' chooses a few points after each other,
    each where the model knows least, and runs the program there; 'fit' makes a model of the table
    of runs; 'predict' answers for every other point.
    """
