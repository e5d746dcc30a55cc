"""Options of a program that each stand for one of its settings, and say of it what the table of
settings says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from kongming.settings import table


def setting_options(kind: type[Any], keys: Mapping[str, str]) -> Callable[..., Any]:
    """Return a function that makes a decorator of click: ``option(name, metavar, **more)``.

    ``kind`` is the class of the settings; ``keys`` has the setting of each option, by its name with
    underscores. Where an option is not given its value is None: the setting's own default holds.
    """
    helps = {setting.key: setting.help for setting in table(kind)}

    def option(
        name: str, metavar: str | None = None, **more: Any
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        dashed = name.replace("_", "-")
        return click.option(
            f"--{dashed}", metavar=metavar, default=None, help=helps[keys[name]], **more
        )

    return option
