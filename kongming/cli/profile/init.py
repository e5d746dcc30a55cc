"""``kongming init``: a commented applications file to start from."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import click

from kongming.cli.examples import examples
from kongming.cli.options import json_option
from kongming.cli.output import emit_json
from kongming.files.atomic_file import replacing
from kongming.files.missing_file import unwritable
from kongming.records.errors import InputError


@click.command("init", epilog=examples("kongming init", "kongming init services.toml --force"))
@click.argument("file", type=click.Path(path_type=Path), default=Path("apps.toml"))
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@json_option
def command(file: Path, force: bool, as_json: bool) -> None:
    """Write a commented applications file (default: apps.toml).

    The file explains every key. It has one small application that works unchanged, and a service to
    uncomment.
    """
    _write(file, template(), force=force)
    if as_json:
        emit_json({"file": str(file)})
        return
    click.echo(f"Wrote {file}. Try: kongming profile {file} --dry-run")


def template() -> str:
    """Return the text of the example file."""
    return resources.files("kongming.cli.profile").joinpath("apps_template.toml").read_text("utf-8")


def _write(file: Path, text: str, *, force: bool) -> None:
    if file.is_dir():
        raise InputError(f"The path {file} is a folder.", hint="Give the name of a file.")
    if file.exists() and not force:
        raise InputError(f"{file} already exists.", hint="Use --force to overwrite it.")
    try:
        with replacing(file) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise unwritable(file, error) from error
