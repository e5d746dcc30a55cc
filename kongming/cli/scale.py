"""``kongming scale``: how long a job takes with more input and more machines."""

from __future__ import annotations

import importlib

import click

from kongming.cli import failures

SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "fit": ("scale_fit", "Fit a scale model to a table of runs."),
    "predict": ("scale_predict", "Predict a runtime at a scale and a number of machines."),
    "recommend": ("scale_recommend", "The cheapest in time, or the fastest within a budget."),
    "curve": ("scale_curve", "Runtime and cost over the number of machines."),
    "design": ("scale_design", "Which experiments tell most for their cost."),
    "next": ("scale_next", "The next best experiment, or that enough were done."),
    "run": ("scale_run", "Carry the experiments of a design out."),
    "drop": ("scale_drop", "Which of the launched machines to drop."),
    "extra": ("scale_extra", "How many extra machines to launch."),
}
"""Name -> module and line in the help, so that the help imports no command."""


class _Subcommands(click.Group):
    """Imported when they are called, as the commands of ``kongming`` are."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = SUBCOMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = importlib.import_module(f"kongming.cli.{entry[0]}").command
        assert isinstance(command, click.Command), entry[0]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in SUBCOMMANDS and not args[0].startswith("-"):
            raise failures.unknown_command(args[0], SUBCOMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry[1]) for name, entry in SUBCOMMANDS.items()])


@click.group("scale", cls=_Subcommands)
def command() -> None:
    """How long does a job take with this input, on so many machines?

    Design experiments on little input and few machines, run them, fit a model (Ernest), then ask.
    MODEL is a file that 'fit --save' wrote, or a name that 'fit --name' kept in the store.
    """
