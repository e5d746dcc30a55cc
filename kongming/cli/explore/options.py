"""Options that several commands of ``kongming explore`` share, as decorators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli.shares import Share

if TYPE_CHECKING:
    from kongming.explore import Space

PATH = click.Path(dir_okay=False, path_type=Path)

POLICIES = ("auto", "uni", "dta", "actl", "panic")

WEIGHING = ("auto", "dta")
"""The policies that choose by what points cost as well."""

COUNTING_COSTS = {"weights": (1.0, 1.0, 1.0)}
"""Error, size and cost in the score of a leaf of ``dta``; the profiler's own weights leave costs
out, and the other policies look at none."""

MODELS = (
    "auto",
    "paper",
    "tree",
    "lines",
    "bagged_lines",
    "perceptrons",
    "pairs",
    "gaussian_process",
    "projections",
    "forest",
    "boosting",
)
"""Those of ``kongming.explore.learners``, which takes a second to import, and the two choices."""

STEPS = 10
"""Batches of a budget unless their size is given (paper 004, Figure 6)."""

space_argument = click.argument("space_file", metavar="SPACE.toml", type=PATH)
"""SPACE.toml: parameter ``space_file`` (Path)."""

space_option = click.option(
    "--space",
    "space_file",
    metavar="SPACE.toml",
    type=PATH,
    required=True,
    help="The parameters and their values.",
)
"""``--space SPACE.toml``: parameter ``space_file`` (Path)."""

policy_option = click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default="auto",
    show_default=True,
    help="How the next points are chosen.",
)
"""``--policy P``: parameter ``policy`` (str)."""

batch_option = click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="b",
    help="Runs between two choices [default: a tenth of the budget].",
)
"""``--batch b``: parameter ``batch`` (int, or None)."""

model_option = click.option(
    "--model",
    type=click.Choice(MODELS),
    metavar="NAME",
    default="auto",
    show_default=True,
    help="Kind of model; auto chooses by cross-validation, paper among the paper's learners.",
)
"""``--model M``: parameter ``model`` (str)."""

seed_option = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all choices."
)
"""``--seed N``: parameter ``seed`` (int)."""

target_option = click.option(
    "--target",
    metavar="COLUMN",
    default="seconds",
    show_default=True,
    help="The measured column; an empty cell is a failed run.",
)
"""``--target COLUMN``: parameter ``target`` (str)."""

cost_option = click.option(
    "--cost",
    metavar="EXPR|COLUMN",
    help="What a run costs: a column, which is then no parameter, or an expression in the "
    "parameters, as 'nodes * 2'.",
)
"""``--cost EXPR|COLUMN``: parameter ``cost`` (str, or None)."""

expression_option = click.option(
    "--cost",
    metavar="EXPR|told",
    help="What a run costs, for the policies auto and dta and for a budget of costs: an expression "
    "in the parameters; or told, to learn it from the column cost of the runs [default: all the "
    "same; of a budget of time its seconds].",
)
"""``--cost EXPR|told``: parameter ``cost`` (str, or None)."""

stop_option = click.option(
    "--stop-pct",
    type=Share(2.0),
    metavar="SHARE",
    help="Stop before the budget is spent when 90 % of the space is known within this, as 10%.",
    callback=lambda ctx, parameter, value: None if value is None else 100.0 * value,
)
"""``--stop-pct SHARE``: parameter ``stop_pct`` (float, per cent, or None)."""


def warn_of_ignored(runs: Path, space: Space, target: str) -> None:
    """Name the columns of a table of runs that nothing reads, on stderr: a parameter that the space
    lacks, or whose name is misspelt there, explains nothing."""
    from kongming.cli import output
    from kongming.explore.runs_table import ignored_columns
    from kongming.files.csv_rows import read_rows, unnamed_columns

    names = [repr(name) for name in ignored_columns(runs, space, target)]
    unnamed = [str(place) for place in unnamed_columns(read_rows(runs, (), separators=",;\t"))]
    output.print_warnings(
        f"{runs}: ignored, since {reason}: column{'s' if len(columns) > 1 else ''} "
        f"{', '.join(columns)}"
        for columns, reason in (
            (names, "the space has no such parameter"),
            (unnamed, "the header has no name"),
        )
        if columns
    )


def batch_of(budget: int, batch: int | None) -> int:
    """Return the size of a batch: by default a tenth of the budget."""
    return min(batch or max(1, round(budget / STEPS)), budget)


def weights_of(policy: str, cost: str | None, *, counted: bool = False) -> dict[str, Any]:
    """Return the further arguments of a profiler by which a policy weighs the costs of ``--cost``.

    ``counted``: whether the budget is one of costs, which counts them whatever the policy.

    Raises:
        InputError: the policy does not look at costs, and nothing else does.
    """
    from kongming.records.errors import InputError

    if cost is None:
        return {}
    if policy not in WEIGHING and not counted:
        raise InputError(
            f"is looked at by neither the policy {policy} nor a budget of runs.",
            field="--cost",
            value=cost,
            allowed=f"with --policy {' or '.join(WEIGHING)}, or with a budget of costs",
            hint="Leave it out, or choose one of them.",
        )
    return COUNTING_COSTS if policy == "dta" else {}
