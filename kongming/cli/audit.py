"""``kongming audit``: what observations say of machines."""

from __future__ import annotations

import importlib

import click

from kongming.cli import failures

SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "report": ("audit_report", "How variable, how slow, what explains it: a page and tables."),
    "compare": ("audit_compare", "Whether two sets of readings differ, by how much, how surely."),
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


@click.group("audit", cls=_Subcommands)
def command() -> None:
    """Which machines are slow, how variable are they, which to drop, did anything change?

    FILES are what 'kongming observe' wrote, of any number of machines.
    """
