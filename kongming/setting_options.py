"""Options of a program that each stand for one of its settings, and say of it what the table of
settings says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import click

from kongming.settings import table

Command = Callable[..., None]


class SettingOption(Protocol):
    """Makes a decorator of click from the name of an option, with underscores."""

    def __call__(
        self, name: str, metavar: str | None = None, **more: Any
    ) -> Callable[[Command], Command]: ...


def setting_options(kind: type[Any], keys: Mapping[str, str]) -> SettingOption:
    """Return a function that makes the options of a program.

    ``kind`` is the class of the settings; ``keys`` has the setting of each option, by its name with
    underscores. The value of an option that is not given is None: the setting's own default holds.
    """
    helps = {setting.key: setting.help for setting in table(kind)}

    def option(name: str, metavar: str | None = None, **more: Any) -> Callable[[Command], Command]:
        dashed = name.replace("_", "-")
        return click.option(
            f"--{dashed}", metavar=metavar, default=None, help=helps[keys[name]], **more
        )

    return option
