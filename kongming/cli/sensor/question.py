"""Question of both sensors to a server, and their options."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kongming.cli.durations import DURATION
from kongming.records.answers import OUT_OF_SERVICE
from kongming.records.errors import CannotAnswerError, InputError, UnknownNameError
from kongming.records.questions import RankQuestion
from kongming.sensors.node_figures import NodeFigures, attribute, figures

if TYPE_CHECKING:
    from kongming.records.answers import RankedNode
    from kongming.rpc.protocol import PredictionService


_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class SensorQuestion:
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
                    value=app,
                    allowed="names that differ in letters of any case, digits and _",
                )
            taken[name] = app


def sensor_options(function: _Function) -> _Function:
    """``--node``, ``--app`` and ``--max-age``."""
    decorated: Any = function
    for option in (
        click.option(
            "--max-age",
            "max_age_s",
            type=DURATION,
            default="30m",
            show_default=True,
            metavar="TIME",
            help="Ignore fingerprints that are older.",
        ),
        click.option(
            "--app",
            "apps",
            multiple=True,
            metavar="APP",
            help="Also report this application's predicted slowdown (repeatable).",
        ),
        click.option(
            "--node",
            default=socket.gethostname,
            show_default="this machine's name",
            metavar="NODE",
            help="Id or name of the node.",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def ask(service: PredictionService, question: SensorQuestion) -> NodeFigures:
    """Raises UnknownNameError for a node that is not known."""
    nodes = service.nodes()
    matches = [node for node in nodes if question.node in (node.facts.id, node.facts.name)]
    if not matches:
        names = {node.facts.name for node in nodes}
        raise UnknownNameError("node", question.node, names, hint="List them: kongming nodes")
    # A machine that was set up again has an id of its own next to the silent one of its name.
    report = min(
        matches, key=lambda node: (node.facts.id != question.node, node.state in OUT_OF_SERVICE)
    )
    apps = {app: _ranked(service, app, report.facts.id) for app in question.apps}
    return figures(report, apps, time.time(), question.max_age_s)


def _ranked(service: PredictionService, app: str, node_id: str) -> RankedNode | None:
    """None where nothing can be said of it that a model vouches for."""
    question = RankQuestion(app, nodes=(node_id,), stale_policy="refuse", seed=0)
    try:
        ranking = service.rank(question)
    except CannotAnswerError:
        return None
    return ranking.nodes[0] if ranking.basis == "model" and ranking.nodes else None
