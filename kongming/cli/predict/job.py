"""A job on several machines: its options, what they ask, and how the answer is shown."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kongming.cli import output
from kongming.cli.fleet.serving import Server, asks_server
from kongming.records.errors import InputError
from kongming.records.scaling import Scaling

if TYPE_CHECKING:
    from rich.table import Table

    from kongming.records.answers import RankedSet
    from kongming.records.scaling import Scaled
    from kongming.scale.fit.model import ScaleFile

_Function = TypeVar("_Function", bound=Callable[..., Any])

_PARTS = 6
"""Terms that a person is shown."""

_NODES = 8
"""Nodes of a job that a person is shown, the slowest first."""


@dataclass(frozen=True, slots=True)
class Job:
    """The options of a job; ``machines`` None where none is asked about."""

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
        """What is asked. Raises InputError for what is out of range."""
        return Scaling(
            machines=self.machines or len(self.nodes),
            scale=1.0 if self.scale is None else self.scale,
            model=self.scale_model or "",
            machine_type=self.machine_type or "",
            iterations=self.iterations,
        )

    def scale_files(self, server: Server) -> dict[str, ScaleFile]:
        """The scale model's file, where a file is named, by that name.

        Raises:
            InputError: it is no scale model, or a server is asked, which has a store of its own.
        """
        if self.scale_model is None or not Path(self.scale_model).is_file():
            return {}
        if asks_server(server):
            raise InputError(
                "is a file here, and a server knows the models of its own store.",
                field="--scale-model",
                found=self.scale_model,
                hint="Keep it there: kongming scale fit RUNS.csv --name NAME --store URL",
            )
        from kongming.scale.fit.model_file import read_file

        return {self.scale_model: read_file(self.scale_model)}

    def check(self) -> None:
        """Raises InputError for an option that is of a job where none is asked about."""
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
                    "is of a job on several machines, which is not asked about.",
                    field=name,
                    hint="Say how many: --machines K",
                )


def job_options(*, named: bool) -> Callable[[_Function], _Function]:
    """``--machines``, ``--scale`` and what goes with them: parameter ``job`` (Job). With ``named``
    the nodes are given too."""

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def packed(**values: Any) -> Any:
            names = ("machines", "scale", "scale_model", "machine_type", "iterations")
            given = {name: values.pop(name) for name in names}
            if named:
                given["nodes"] = _names(values.pop("job_nodes"))
                given["driver"] = values.pop("driver")
            return function(job=Job(**given), **values)

        made: Any = packed
        for option in (*(_NAMED if named else ()), *_OPTIONS):
            made = option(made)
        return made  # type: ignore[no-any-return]

    return decorate


def _names(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for text in texts for name in map(str.strip, text.split(",")) if name)


_OPTIONS = (
    click.option(
        "--iterations", type=click.FloatRange(min=1.0), help="For a scale model of one iteration."
    ),
    click.option(
        "--type", "machine_type", metavar="TYPE", help="For a scale model of several machine types."
    ),
    click.option(
        "--scale-model",
        metavar="FILE_OR_NAME",
        help="The job's scale model ('kongming scale fit'). Default: the one named APP.",
    ),
    click.option(
        "--scale",
        type=click.FloatRange(min=0.0, min_open=True),
        help="With --machines: share of the input; 1, the default, is all of it.",
    ),
    click.option(
        "--machines",
        type=click.IntRange(min=1),
        help="A whole job on so many machines: its scale model times what its nodes are slowed by.",
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
    """Rows of what a job's runtime is made of."""
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
            "made of" if number == 0 else "",
            Text(part.term),
            Text(f"{100 * part.share:3.0f} %  {part.kind}, follows {names[part.node_id]}"),
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
            Text(
                f"{node.slowdown.median:.2f} ({node.slowdown.lower:.2f} to "
                f"{node.slowdown.upper:.2f})  {', '.join(roles)}"
            ),
        )
    if len(slowest) > _NODES:
        grid.add_row("", f"and {len(slowest) - _NODES} more", "")


def show_sets(app: str, sets: Sequence[RankedSet], machines: int, candidates: int) -> None:
    """A table of sets for a person."""
    console = output.console()
    if not sets:
        console.print(f"There are not {machines} nodes for {app} among {candidates}.")
        return
    rows = []
    for number, one in enumerate(sets, 1):
        names = [
            f"{node.name or node.node_id[:12]}{'=' if node.tied_with_first else ''}"
            for node in one.nodes
        ]
        shown = ", ".join(names[:_NODES])
        if len(names) > _NODES:
            shown += f" and {len(names) - _NODES} more"
        runtime = one.runtime_s
        rows.append(
            (
                f"{number}",
                shown,
                None
                if runtime is None
                else f"{output.format_seconds(runtime.median)} "
                f"({output.format_seconds(runtime.lower)} to "
                f"{output.format_seconds(runtime.upper)})",
                f"{one.slowdown.median:.2f}",
                f"{max(node.worst_resident_slowdown for node in one.nodes):.2f}"
                if any(node.residents for node in one.nodes)
                else None,
                "extrapolating" if one.extrapolating else "",
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
    if any(node.tied_with_first for one in sets for node in one.nodes):
        console.print("= : another node would have done as well; ties come in a random order.")
    for warning in dict.fromkeys(text for one in sets for text in one.warnings):
        console.print(f"! {warning}", markup=False)
