"""``kongming scale``: predict the runtime of a job with more input and more machines."""

from __future__ import annotations

import click

from kongming.cli import failures
from kongming.cli.examples import examples
from kongming.lazy_group import Entry, LazyGroup

SUBCOMMANDS = {
    "fit": Entry("kongming.cli.scale.fit:command", "Fit a scale model to a table of runs."),
    "predict": Entry(
        "kongming.cli.scale.predict:predict",
        "Predict a runtime at a scale and a number of machines.",
    ),
    "recommend": Entry(
        "kongming.cli.scale.predict:recommend_machines",
        "Choose the cheapest by a deadline, or the fastest within a budget.",
    ),
    "curve": Entry(
        "kongming.cli.scale.predict:show_curve",
        "Show runtime and cost over the number of machines.",
    ),
    "design": Entry(
        "kongming.cli.scale.design:design", "Choose the experiments with the most information."
    ),
    "next": Entry(
        "kongming.cli.scale.design:next_experiment",
        "Choose the next experiment, or stop.",
    ),
    "run": Entry("kongming.cli.scale.run:command", "Run the experiments of a design."),
    "drop": Entry(
        "kongming.cli.scale.machines:drop", "Choose which of the launched machines to drop."
    ),
    "extra": Entry(
        "kongming.cli.scale.machines:extra", "Compute how many extra machines to launch."
    ),
}


@click.group(
    "scale",
    cls=LazyGroup,
    entries=SUBCOMMANDS,
    unknown=failures.unknown_command,
    epilog=examples(
        "kongming scale fit runs.csv --name sort", "kongming scale predict sort --machines 16"
    ),
)
def command() -> None:
    """Predict how long a job takes by its input and its number of machines.

    Design experiments on little input and few machines, run them, fit a model (Ernest), then
    predict. MODEL is a file that 'fit --save' wrote, or a name that 'fit --name' stored.
    """
