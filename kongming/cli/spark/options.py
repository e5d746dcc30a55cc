"""Options that several commands of ``kongming spark`` share, as decorators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kongming.cli.options import image
from kongming.cli.shares import Share

_Function = TypeVar("_Function", bound=Callable[..., Any])

log_argument = click.argument("log", metavar="LOG", type=click.Path(path_type=Path))
"""LOG: parameter ``log`` (Path)."""


def choice_options(function: _Function) -> _Function:
    """``--app ID --attempt N --missing SHARE``: ``app`` and ``attempt`` (str, or None) and
    ``missing`` (float)."""
    for option in (
        click.option(
            "--missing",
            type=Share(0.9),
            default=0.2,
            show_default=True,
            metavar="SHARE",
            help="Fill in up to this share of the tasks where their ends were dropped.",
        ),
        click.option("--attempt", metavar="N", help="The attempt, where LOG holds several."),
        click.option("--app", metavar="ID", help="The application, where LOG holds several."),
    ):
        function = option(function)
    return function


plot_option = click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=image,
    help="Draw a figure: SVG or PNG, by the ending of the name.",
)
"""``--plot FILE``: parameter ``plot`` (Path, or None)."""
