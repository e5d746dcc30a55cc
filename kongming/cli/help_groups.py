"""Help of commands with many options: those of one purpose stand together."""

from __future__ import annotations

import click

__all__ = ["GroupedCommand"]

_GROUPS = {
    "Several machines": ("machines", "job_nodes", "driver", "scale", "scale_model"),
    "Server": ("server", "ca", "cert", "key", "token_file", "tls", "timeout"),
    "Store and output": ("store_url", "wide", "as_json", "help"),
}
"""Parameters by the heading that they stand under, after the command's own options."""

_WITH_MACHINES = ("machine_type", "iterations")
"""Of several machines, where the command has those."""


class GroupedCommand(click.Command):
    """Lists options under the headings of ``_GROUPS``."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        heading = {name: group for group, names in _GROUPS.items() for name in names}
        parameters = self.get_params(ctx)
        if any(parameter.name == "machines" for parameter in parameters):
            heading |= dict.fromkeys(_WITH_MACHINES, "Several machines")
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], **{g: [] for g in _GROUPS}}
        for parameter in parameters:
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections[heading.get(parameter.name or "", "Options")].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
