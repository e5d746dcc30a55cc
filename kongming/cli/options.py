"""Options that several commands share, as decorators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kongming.cli.tables import WIDE
from kongming.records.fingerprint import PLACEMENTS

_Function = TypeVar("_Function", bound=Callable[..., Any])


def json_option(function: _Function) -> _Function:
    """``--json``: parameter ``as_json`` (bool)."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print exactly one JSON document on stdout."
    )(function)


def wide_option(function: _Function) -> _Function:
    """``--wide``: no parameter; tables of the command show all columns next to each other."""

    def note(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[WIDE] = True

    return click.option(
        "--wide",
        is_flag=True,
        expose_value=False,
        callback=note,
        help="Show all columns of a table, also where the terminal is too narrow for them.",
    )(function)


def store_option(function: _Function) -> _Function:
    """``--store URL``: parameter ``store_url`` (str, or None for the default store)."""
    return click.option(
        "--store",
        "store_url",
        metavar="URL",
        envvar="KONGMING_STORE",
        show_envvar=True,
        help="Where measurements are kept, as in sqlite:////var/lib/kongming.db. Default: a "
        "SQLite file in your data folder.",
    )(function)


def anyway_option(function: _Function) -> _Function:
    """``--anyway``: parameter ``anyway`` (bool)."""
    return click.option(
        "--anyway",
        is_flag=True,
        help="Measure even while something else measures on these CPUs; runs of both are marked.",
    )(function)


def placement_option(function: _Function) -> _Function:
    """``--placement P``: parameter ``placement`` (str), by default ``cross-core``."""
    return click.option(
        "--placement",
        type=click.Choice(PLACEMENTS),
        default="cross-core",
        show_default=True,
        help="Where the neighbour runs relative to the program.",
    )(function)


def placement_filter(function: _Function) -> _Function:
    """``--placement P`` of a listing: parameter ``placement`` (str, or None for all)."""
    return click.option("--placement", type=click.Choice(PLACEMENTS), help="Only this placement.")(
        function
    )
