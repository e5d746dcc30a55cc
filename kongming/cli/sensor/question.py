"""What both sensors ask of a server, and their options."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kongming.cli.durations import DURATION
from kongming.doors.node_figures import NodeFigures, attribute, figures
from kongming.records.answers import OUT_OF_SERVICE
from kongming.records.errors import CannotAnswerError, InputError, UnknownNameError
from kongming.records.questions import RankQuestion

if TYPE_CHECKING:
    from kongming.records.answers import RankedNode
    from kongming.rpc.protocol import PredictionService


_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Asked:
    """The node, by id or name, and the applications whose slowdown there is asked for.

    Raises:
        InputError: two of the values would have one name.
    """

    node: str
    apps: tuple[str, ...]
    max_age_s: float

    def __post_init__(self) -> None:
        # Readers take letters of either case for the same, and so the last value for both.
        taken = {"slowdown": "the node's slowdown", "lost": "the node's lost share"}
        for app in dict.fromkeys(self.apps):
            name = attribute(app).lower()
            if name in taken:
                raise InputError(
                    f"would have the attribute of {taken[name]}.",
                    field="--app",
                    found=app,
                    allowed="names that differ in letters of any case, digits and _",
                )
            taken[name] = app


def sensor_options(function: _Function) -> _Function:
    """``--node``, ``--app`` and ``--max-age``."""
    made: Any = function
    for option in (
        click.option(
            "--max-age",
            "max_age_s",
            type=DURATION,
            default="30m",
            show_default=True,
            metavar="TIME",
            help="A node's fingerprint that is older says nothing of it.",
        ),
        click.option(
            "--app",
            "apps",
            multiple=True,
            metavar="APP",
            help="Tell this application's predicted slowdown as well; repeatable.",
        ),
        click.option(
            "--node",
            default=socket.gethostname,
            show_default="this machine's name",
            metavar="NODE",
            help="Id or name of the node.",
        ),
    ):
        made = option(made)
    return made  # type: ignore[no-any-return]


def ask(service: PredictionService, asked: Asked) -> NodeFigures:
    """Raises UnknownNameError for a node that is not known."""
    nodes = service.nodes()
    found = [one for one in nodes if asked.node in (one.facts.id, one.facts.name)]
    if not found:
        names = {one.facts.name for one in nodes}
        raise UnknownNameError("node", asked.node, names, hint="List them: kongming nodes")
    # A machine that was set up anew has an id of its own next to the silent one of its name.
    report = min(found, key=lambda one: (one.facts.id != asked.node, one.state in OUT_OF_SERVICE))
    apps = {app: _ranked(service, app, report.facts.id) for app in asked.apps}
    return figures(report, apps, time.time(), asked.max_age_s)


def _ranked(service: PredictionService, app: str, node_id: str) -> RankedNode | None:
    """None where nothing can be said of it that a model vouches for."""
    question = RankQuestion(app, nodes=(node_id,), stale_policy="refuse", seed=0)
    try:
        ranking = service.rank(question)
    except CannotAnswerError:
        return None
    return ranking.nodes[0] if ranking.basis == "model" and ranking.nodes else None
