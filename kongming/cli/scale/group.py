"""``kongming scale``: how long a job takes with more input and more machines."""

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
        "The cheapest in time, or the fastest within a budget.",
    ),
    "curve": Entry(
        "kongming.cli.scale.predict:show_curve", "Runtime and cost over the number of machines."
    ),
    "design": Entry(
        "kongming.cli.scale.design:design", "Which experiments tell most for their cost."
    ),
    "next": Entry(
        "kongming.cli.scale.design:next_experiment",
        "The next best experiment, or that enough were done.",
    ),
    "run": Entry("kongming.cli.scale.run:command", "Carry the experiments of a design out."),
    "drop": Entry("kongming.cli.scale.machines:drop", "Which of the launched machines to drop."),
    "extra": Entry("kongming.cli.scale.machines:extra", "How many extra machines to launch."),
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
    """How long does a job take with this input, on so many machines?

    Design experiments on little input and few machines, run them, fit a model (Ernest), then ask.
    MODEL is a file that 'fit --save' wrote, or a name that 'fit --name' kept in the store.
    """
