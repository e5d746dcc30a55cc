"""Options that several commands share, as decorators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from kongming.cli.extras import require
from kongming.cli.sizes import MEMORY
from kongming.cli.tables import WIDE
from kongming.records.errors import InputError
from kongming.records.fingerprint import PLACEMENTS
from kongming.records.questions import DEFAULT_PLACEMENT, STALE_POLICIES

MODEL_SEED = click.IntRange(0, 2**32 - 1)
"""The seeds that scikit-learn takes."""

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print exactly one JSON document on stdout."
)
"""``--json``: parameter ``as_json`` (bool)."""

force_option = click.option("--force", is_flag=True, help="Replace the file of --out.")
"""``--force``: parameter ``force`` (bool), for ``keep_existing``."""


def keep_existing(out: Path, *, force: bool) -> None:
    """Raise InputError where ``--out`` names a file that is there, unless it is to be replaced."""
    if out.exists() and not force:
        raise InputError(
            "exists already.",
            field="--out",
            value=str(out),
            hint="Name another file, or give --force to replace this one.",
        )


def refuse_to_replace(
    out: Path | None, read: Mapping[str, Path | Iterable[Path] | None], *, field: str = "--out"
) -> None:
    """Raise InputError if a file would be written in the place of one that it is made from;
    ``read``: these, by what each is."""
    if out is None:
        return
    for what, files in read.items():
        for file in () if files is None else (files,) if isinstance(files, Path) else files:
            try:
                is_same = out.samefile(file)
            except OSError:
                continue  # one of them is not there: whoever reads or writes it says so
            if is_same:
                raise InputError(
                    f"is the {what}, which it would replace.",
                    field=field,
                    value=str(out),
                    hint="Choose another file.",
                )


_OF_OTHERS = (".csv", ".json", ".tsv", ".txt", ".xlsx")


def parquet_out(ctx: click.Context, param: click.Parameter, value: Path) -> Path:
    """Return ``--out`` of a command that writes Parquet, unless its name says another format: who
    opens it by its name would find it damaged."""
    if value.suffix.lower() in _OF_OTHERS:
        raise click.BadParameter(
            f"{str(value)!r} would hold Parquet. Allowed: a name such as "
            f"{value.with_suffix('.parquet')}.",
            ctx,
            param,
        )
    if not value.parent.is_dir():
        raise InputError(
            "is in a folder that does not exist.",
            field=param.opts[0],
            value=str(value),
            hint="Create the folder first.",
        )
    return value


def image(_: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Take a picture that can be drawn, for ``callback``: known before the work is done."""
    if path is not None:
        option = param.opts[0]
        if path.suffix.lower() not in (".svg", ".png"):
            raise InputError(
                "is not an image file.", field=option, value=path.name, allowed=".svg or .png"
            )
        if not path.parent.is_dir():
            raise InputError(
                "is in a folder that does not exist.", field=option, value=str(path.parent)
            )
        require("Drawing figures", "plots", "matplotlib")
    return path


def _note_wide(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[WIDE] = True


wide_option = click.option(
    "--wide",
    is_flag=True,
    expose_value=False,
    callback=_note_wide,
    help="Show all columns of a table, also where the terminal is too narrow for them.",
)
"""``--wide``: no parameter; tables of the command show all columns next to each other."""

inducer_app_option = click.option(
    "--inducer-app",
    "inducer_names",
    metavar="NAME",
    multiple=True,
    help="Use this program of the file as a load of the profiled ones too (repeatable).",
)
"""``--inducer-app NAME``: parameter ``inducer_names`` (names of applications)."""


def is_typed(name: str) -> bool:
    """Return whether a parameter of the running command was typed, and not left at its default."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def refuse_empty(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A name that is empty is that of a variable that is not set: it must not count as none."""
    if value is not None and not value.strip():
        raise click.BadParameter("is empty.", ctx, parameter)
    return value


def _lasting(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """An empty name is that of a variable that is not set, and not the default store."""
    if value is not None and value.strip() in ("", "sqlite:", "sqlite://", "sqlite:///"):
        raise click.BadParameter(
            f"{value!r} names no store. Allowed: sqlite:///relative/file.db, "
            "sqlite:////absolute/file.db or postgresql://host/name.",
            ctx,
            parameter,
        )
    return value


store_option = click.option(
    "--store",
    "store_url",
    metavar="URL",
    envvar="KONGMING_STORE",
    show_envvar=True,
    callback=_lasting,
    help="Where measurements are kept, as in sqlite:////var/lib/kongming.db. Default: a "
    "SQLite file in your data folder.",
)
"""``--store URL``: parameter ``store_url`` (str, or None for the default store)."""

anyway_option = click.option(
    "--anyway",
    is_flag=True,
    help="Measure even while something else measures on these CPUs; runs of both are marked.",
)
"""``--anyway``: parameter ``anyway`` (bool)."""

scratch_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder for scratch files and I/O surrogates: on the disk that matters.",
)
"""``--dir``: parameter ``directory`` (Path, or None)."""

order_option = click.option(
    "--seed",
    type=int,
    default=None,
    help="Seed of the order of the runs (default: random, stored).",
)
"""``--seed``: parameter ``seed`` (int, or None)."""

placement_option = click.option(
    "--placement",
    type=click.Choice(PLACEMENTS),
    default=DEFAULT_PLACEMENT,
    show_default=True,
    help="Where the neighbour runs relative to the program.",
)
"""``--placement P``: parameter ``placement`` (str), by default ``cross-core``."""

placement_filter = click.option(
    "--placement", type=click.Choice(PLACEMENTS), help="Only this placement."
)
"""``--placement P`` of a listing: parameter ``placement`` (str, or None for all)."""

memory_option = click.option(
    "--memory",
    "memory_bytes",
    type=MEMORY,
    metavar="SIZE",
    default=0,
    help="Memory that APP needs: bytes, or a size as 4G or 512MiB.",
)
"""``--memory``: parameter ``memory_bytes`` (int)."""

stale_option = click.option(
    "--stale",
    type=click.Choice(STALE_POLICIES),
    default="widen",
    show_default=True,
    help="What to do with a fingerprint that is too old.",
)
"""``--stale``: parameter ``stale`` (str), one of STALE_POLICIES."""
