"""Options that several commands of ``kongming scale`` share, as decorators."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kongming.cli import options
from kongming.cli.float_range import FloatRange
from kongming.cli.shares import FRACTION, Share

if TYPE_CHECKING:
    from kongming.scale.fit.model import ScaleModel

_Function = TypeVar("_Function", bound=Callable[..., Any])


model_argument = click.argument("model", metavar="MODEL")
"""MODEL: parameter ``model`` (str)."""

group_option = click.option("--group", metavar="NAME", help="The job, for a model of several jobs.")
"""``--group NAME``: parameter ``group`` (str, or None)."""


def question_options(function: _Function) -> _Function:
    """``--scale S --iterations K --level L``: ``scale``, ``iterations`` and ``level``."""
    for option in (
        click.option(
            "--level",
            type=FRACTION,
            default=0.9,
            show_default=True,
            help="Probability that the interval holds the runtime.",
        ),
        click.option(
            "--iterations",
            type=FloatRange(min=1.0),
            help="Number of iterations, for a model of one iteration.",
        ),
        click.option(
            "--scale",
            type=Share(math.inf),
            default=1.0,
            show_default=True,
            help="Share of the input; 1 is all of it.",
        ),
    ):
        function = option(function)
    return function


FURTHER = 4
"""Default end of a curve, as a multiple of the largest trained machine count."""


prices_option = click.option(
    "--prices",
    "prices_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="CSV with columns type and price: money per machine and hour.",
)
"""``--prices FILE``: parameter ``prices_file`` (Path, or None)."""


@dataclass(frozen=True, slots=True)
class CurveOptions:
    """The arguments of a command that predicts over a range of machine counts.

    ``scale`` is a share of the input (1 is all of it), ``level`` the probability of an interval.
    ``machines`` is a range as text (None: up to ``FURTHER`` times the largest trained count, of
    very many every second, third, ...).
    """

    model: str
    machines: str | None
    scale: float
    iterations: float | None
    level: float
    group: str | None
    context: Sequence[str]
    prices_file: Path | None
    plot: Path | None
    store_url: str | None
    as_json: bool

    def counts(self, models: Sequence[ScaleModel]) -> tuple[int, ...]:
        """Return the machine counts to predict.

        Raises:
            InputError: ``machines`` is not a range.
        """
        from kongming.scale.ranges import MAX_VALUES, machine_counts

        if self.machines is not None:
            return machine_counts(self.machines)
        last = int(FURTHER * max(model.ranges.machines[1] for model in models))
        step = -(-last // MAX_VALUES)
        return tuple(range(step, last + 1, step))


def curve_options(function: _Function) -> _Function:
    """MODEL and the options of a curve over machine counts, as ``request`` (CurveOptions)."""

    @functools.wraps(function)
    def packed(**values: Any) -> Any:
        own = {name: values.pop(name) for name in CurveOptions.__dataclass_fields__}
        return function(request=CurveOptions(**own), **values)

    decorated: Any = packed
    for option in (
        options.json_option,
        options.store_option,
        click.option(
            "--plot",
            metavar="FILE",
            type=click.Path(dir_okay=False, path_type=Path),
            callback=options.image,
            help="Draw the curve: SVG or PNG, by the ending of the name.",
        ),
        prices_option,
        context_option,
        group_option,
        question_options,
        click.option(
            "--machines",
            metavar="RANGE",
            help=f"As 1..64 [default: up to {FURTHER} times the largest trained number].",
        ),
        model_argument,
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def table_options(function: _Function) -> _Function:
    """``--scale-column`` and similar options: names of columns, None if not given."""
    for name, parameter, what in (
        ("--type-column", "type_column", "Column of machine types: one model each."),
        (
            "--iterations-column",
            "iterations_column",
            "Column of iterations of a run: the model is of one iteration.",
        ),
        ("--time-column", "time_column", "Column of seconds of a run [default: seconds]."),
        ("--machines-column", "machines_column", "Column of machine counts [default: machines]."),
        (
            "--scale-column",
            "scale_column",
            "Column of shares of the input [default: scale; without it every run is at scale 1].",
        ),
    ):
        function = click.option(name, parameter, metavar="COLUMN", help=what)(function)
    return function


def context_columns(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that ``--context`` names, separated by commas or one each.

    Raises:
        InputError: a name is empty, as where a variable of the shell is.
    """
    from kongming.records.errors import InputError

    names = tuple(name.strip() for text in texts for name in text.split(","))
    if not all(names):
        raise InputError(
            "has an empty name of a column.",
            field="--context",
            value=", ".join(texts),
            allowed="COLUMN or COLUMN,COLUMN, as size_gb,k",
            hint="Leave out --context to fit without contexts.",
        )
    return names


def context_values(texts: Sequence[str]) -> dict[str, str]:
    """Return the values that ``--context COLUMN=VALUE`` gives, by column.

    Raises:
        InputError: a text has no value, or a column has two.
    """
    from kongming.records.errors import InputError

    values: dict[str, str] = {}
    for text in texts:
        parts = text.split(",")
        # A value may have commas itself.
        for part in parts if all("=" in each for each in parts) else [text]:
            name, equals, value = (each.strip() for each in part.partition("="))
            if not (name and equals and value):
                raise InputError(
                    "is not a value of a column.",
                    field="--context",
                    value=part,
                    allowed="COLUMN=VALUE, as size_gb=40",
                )
            if name in values:
                raise InputError(
                    "is there twice.",
                    field="--context",
                    value=name,
                    hint=f"Give one value: --context {name}=VALUE",
                )
            values[name] = value
    return values


def refuse_with_context(given: Mapping[str, object]) -> None:
    """Raise InputError for an option, by name, that has a value and no meaning over contexts."""
    from kongming.records.errors import InputError

    for option, value in given.items():
        if value:
            raise InputError(
                "cannot be given with --context.", field=option, hint=f"Leave out {option}."
            )


context_option = click.option(
    "--context",
    "context",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="A value of the context to predict, for a model over contexts (repeatable, or separated "
    "by commas). What the machine type determines may be left out.",
)
"""``--context COLUMN=VALUE``: parameter ``context`` (a sequence of str)."""


items_option = click.option(
    "--items",
    type=FloatRange(min=0.0, min_open=True),
    metavar="N",
    help="Items of the input at scale 1: n = scale x N. The terms nlogn and nlog2n need it.",
)
"""``--items N``: parameter ``items`` (float, or None)."""


terms_option = click.option(
    "--terms",
    default="default",
    show_default=True,
    metavar="LIST",
    help="default, auto, or further terms: sqrt, square, nlogn, nlog2n, or expressions in "
    "scale, machines and n, as 'scale*log(machines)'. A list that names any default term "
    "(intercept, scale/machines, log(machines), machines) is used as given.",
)
"""``--terms LIST``: parameter ``terms`` (str)."""


def planning_options(function: _Function) -> _Function:
    """Inputs of a design: ``cost_file``, ``model``, ``done``, ``terms`` and ``items``."""
    path = click.Path(dir_okay=False, path_type=Path)
    for option in (
        items_option,
        terms_option,
        click.option("--done", metavar="RUNS.csv", type=path, help="Runs that are already done."),
        click.option(
            "--model",
            metavar="MODEL",
            help="A first model, from which the cost and the noise of runs are computed.",
        ),
        click.option(
            "--cost",
            "cost_file",
            metavar="FILE",
            type=path,
            help="Machine-seconds of each experiment: a CSV with machines, scale and cost, or one "
            "expression in scale and machines.",
        ),
    ):
        function = option(function)
    return function
