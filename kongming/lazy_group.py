"""A group of commands that are imported when they are called, so that the help imports none."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Entry:
    """Place where a command lives (``module:attribute``), its line in the help, and its section."""

    target: str
    help: str
    section: str = "Commands"


class LazyGroup(click.Group):
    """``unknown`` makes the error for a name that is not there; without it click does."""

    def __init__(
        self,
        *args: Any,
        entries: Mapping[str, Entry],
        unknown: Callable[[str, Iterable[str]], Exception] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._entries, self._unknown = entries, unknown

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), entry.target
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self._unknown is not None and name not in self._entries and not name.startswith("-"):
            raise self._unknown(name, self._entries)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self._entries))
        for section in dict.fromkeys(entry.section for entry in self._entries.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [
                        (name.ljust(width), entry.help)
                        for name, entry in self._entries.items()
                        if entry.section == section
                    ]
                )
