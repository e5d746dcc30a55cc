"""A job on several machines: its options, its question, and the output of the answer."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kongming.cli import output
from kongming.cli.fleet.serving import Server, asks_server
from kongming.cli.float_range import FloatRange
from kongming.cli.predict.prediction_view import (
    median_text,
    runtime_text,
    slowdown_text,
    worst_resident_text,
)
from kongming.cli.shares import Share
from kongming.quantities import count, per_cent
from kongming.records.errors import InputError
from kongming.records.scaling import Scaling

if TYPE_CHECKING:
    from rich.table import Table

    from kongming.records.answers import RankedSet
    from kongming.records.scaling import Scaled
    from kongming.scale.fit.scale_file import ScaleFile

_Function = TypeVar("_Function", bound=Callable[..., Any])

_PARTS = 6
"""Number of terms in a table."""

_NODES = 8
"""Number of nodes of a job in a table, the slowest first."""


@dataclass(frozen=True, slots=True)
class Job:
    """The options of a job; ``machines`` None without a job."""

    machines: int | None = None
    scale: float | None = None
    nodes: tuple[str, ...] = ()
    driver: str | None = None
    scale_model: str | None = None
    machine_type: str | None = None
    iterations: float | None = None

    @property
    def is_asked(self) -> bool:
        return self.machines is not None or bool(self.nodes)

    def scaling(self) -> Scaling:
        """Return the question about scaling. Raises InputError for a value out of range."""
        return Scaling(
            machines=self.machines or len(self.nodes),
            scale=1.0 if self.scale is None else self.scale,
            model=self.scale_model or "",
            machine_type=self.machine_type or "",
            iterations=self.iterations,
        )

    def scale_files(self, server: Server) -> dict[str, ScaleFile]:
        """Return the scale model by its file name, if a file is named.

        Raises:
            InputError: it is not a scale model, or a server is asked, which reads only its own
                store.
        """
        if self.scale_model is None or not Path(self.scale_model).is_file():
            return {}
        if asks_server(server):
            raise InputError(
                "is a local file, but a server knows only the models of its own store.",
                field="--scale-model",
                value=self.scale_model,
                hint="Add it there: kongming scale fit RUNS.csv, or kongming spark estimate LOG, "
                "with --name NAME --store URL",
            )
        from kongming.scale.fit.model_file import read_file

        return {self.scale_model: read_file(self.scale_model)}

    def check(self) -> None:
        """Raise InputError for an option of a job without --machines."""
        if self.is_asked:
            return
        for name, value in (
            ("--scale", self.scale),
            ("--driver", self.driver),
            ("--scale-model", self.scale_model),
            ("--type", self.machine_type),
            ("--iterations", self.iterations),
        ):
            if value is not None:
                raise InputError(
                    "is an option of a job on several machines, but --machines is missing.",
                    field=name,
                    hint="Give the number of machines: --machines K",
                )


def job_options(*, named: bool) -> Callable[[_Function], _Function]:
    """``--machines``, ``--scale`` and related options: parameter ``job`` (Job). With ``named`` the
    nodes are options too."""

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def packed(**values: Any) -> Any:
            names = ("machines", "scale", "scale_model", "machine_type", "iterations")
            given = {name: values.pop(name) for name in names}
            if named:
                given["nodes"] = _names(values.pop("job_nodes"))
                given["driver"] = values.pop("driver")
            return function(job=Job(**given), **values)

        decorated: Any = packed
        for option in (*(_NAMED if named else ()), *_OPTIONS):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def _names(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for text in texts for name in map(str.strip, text.split(",")) if name)


_OPTIONS = (
    click.option(
        "--iterations",
        type=FloatRange(min=1.0),
        help="Number of iterations, for a scale model of one iteration.",
    ),
    click.option(
        "--type", "machine_type", metavar="TYPE", help="Machine type, for a scale model of several."
    ),
    click.option(
        "--scale-model",
        metavar="FILE_OR_NAME",
        help="The job's scale model ('kongming scale fit', 'kongming spark estimate'). Default: "
        "the model named APP.",
    ),
    click.option(
        "--scale",
        type=Share(math.inf),
        help="With --machines: share of the input; 1, the default, is all of it.",
    ),
    click.option(
        "--machines",
        type=click.IntRange(min=1),
        help="Predict a whole job on this many machines: its scale model times the slowdown "
        "of its nodes.",
    ),
)
_NAMED = (
    click.option(
        "--driver",
        metavar="NODE",
        help="With --nodes: where the serial part runs. Default: the first.",
    ),
    click.option(
        "--nodes",
        "job_nodes",
        metavar="NODE,NODE,...",
        multiple=True,
        help="The nodes of the job (ids or names), with --machines.",
    ),
)


def add_scaled(grid: Table, scaled: Scaled) -> None:
    """Add the rows of a job's runtime and its parts."""
    from rich.text import Text

    names = {node.node_id: node.name or node.node_id[:12] for node in scaled.nodes}
    idle = scaled.idle_s
    grid.add_row(
        "idle",
        Text(output.format_seconds(idle.median)),
        f"{output.format_seconds(idle.lower)} to {output.format_seconds(idle.upper)} on "
        f"{scaled.machines} idle machines at scale {scaled.scale:g}",
    )
    for number, part in enumerate(scaled.parts[:_PARTS]):
        grid.add_row(
            "parts" if number == 0 else "",
            Text(part.term),
            Text(
                f"{per_cent(100 * part.share, '3.0f')}  {part.kind}, follows {names[part.node_id]}"
            ),
        )
    slowest = sorted(scaled.nodes, key=lambda node: -node.slowdown.median)
    for number, node in enumerate(slowest[:_NODES]):
        roles = [
            role
            for role, who in (("slowest", scaled.slowest), ("driver", scaled.driver))
            if node.node_id == who
        ]
        grid.add_row(
            "nodes" if number == 0 else "",
            Text(names[node.node_id]),
            Text(f"{slowdown_text(node.slowdown)}  {', '.join(roles)}"),
        )
    if len(slowest) > _NODES:
        grid.add_row("", f"and {len(slowest) - _NODES} more", "")


def show_sets(app: str, sets: Sequence[RankedSet], machines: int, candidates: int) -> None:
    """Print a table of node sets."""
    console = output.console()
    if not sets:
        console.print(
            f"Fewer than {machines} nodes can be ranked for {app}, of {count(candidates, 'node')}.",
            markup=False,
        )
        return
    rows = []
    for number, node_set in enumerate(sets, 1):
        names = [
            f"{node.name or node.node_id[:12]}{'=' if node.tied_with_first else ''}"
            for node in node_set.nodes
        ]
        shown = ", ".join(names[:_NODES])
        if len(names) > _NODES:
            shown += f" and {len(names) - _NODES} more"
        runtime = node_set.runtime_s
        rows.append(
            (
                f"{number}",
                shown,
                None if runtime is None else runtime_text(runtime),
                median_text(node_set.slowdown),
                worst_resident_text(node_set.nodes),
                "extrapolating" if node_set.extrapolating else "",
            )
        )
    console.print(
        output.table(
            ("", f"{machines} nodes", "runtime", "slowdown", "worst", ""),
            rows,
            right=("", "slowdown", "worst"),
            minor=("worst",),
        )
    )
    if any(node.tied_with_first for node_set in sets for node in node_set.nodes):
        console.print("= : another node is equally good; ties are in random order.")
    for warning in dict.fromkeys(text for node_set in sets for text in node_set.warnings):
        console.print(f"! {warning}", markup=False)
