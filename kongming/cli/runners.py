"""Options of commands that run a program on machines, and what they say of who disturbed it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import output
from kongming.cli.float_range import FloatRange

if TYPE_CHECKING:
    from kongming.probes.measuring import Holder
    from kongming.records.application import Application

RUNNERS = ("local", "slurm", "kubernetes")

_SHOWN = 300
"""Characters that are shown of a row."""

app_option = click.option(
    "--app",
    "name",
    metavar="NAME",
    help="The application to run [default: the only one of APPS.toml].",
)
"""``--app NAME``: parameter ``name`` (str, or None), for ``application``."""

runner_option = click.option(
    "--runner", type=click.Choice(RUNNERS), default="local", show_default=True
)
"""``--runner NAME``: parameter ``runner`` (str)."""

image_option = click.option(
    "--image", metavar="IMAGE", help="With --runner kubernetes: the container that has the program."
)
"""``--image IMAGE``: parameter ``image`` (str, or None)."""

scratch_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for scratch files (KONGMING_DIR).",
)
"""``--dir FOLDER``: parameter ``directory`` (Path, or None)."""


def share_option(where: str) -> Callable[..., Any]:
    """``--share X``: parameter ``share`` (float). ``where`` says which machines have it."""
    return click.option(
        "--share",
        type=FloatRange(min=0.05, max=64.0),
        default=0.125,
        show_default=True,
        help=f"{where}: CPUs per machine.",
    )


def application(file: Path, name: str | None) -> Application:
    """Load the application to run. Says which that is where no name was given. Raises InputError as
    ``load`` and ``select_one``."""
    from kongming.profiling.appfile import load, select_one

    app = select_one(load(file), name)
    if name is None:
        output.error_console().print(
            f"note: runs {app.name}, the only application of {file}", markup=False
        )
    return app


def disturbed_warnings(other: Holder | None) -> list[str]:
    """Return what is said where ``other`` measured meanwhile; nothing for None."""
    if other is None:
        return []
    return [f"{other} also measured on CPU {other.cpu}: runs may be too slow"]


def warn_of_removed(table: Path, row: str) -> None:
    """Say on stderr that the last ``row`` of a table was not complete; nothing for an empty one."""
    if row:
        output.print_warnings(
            [f"the last row of {table} was not complete, and was removed: {row[:_SHOWN]!r}"]
        )
