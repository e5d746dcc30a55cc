"""``kongming explore predict``: predict points that were not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.explore import options as explore_options
from kongming.cli.explore.report import MODEL_WORDS
from kongming.quantities import per_cent

if TYPE_CHECKING:
    from kongming.explore import Space
    from kongming.explore.dimensions import Dimension, Value


@click.command(
    "predict",
    short_help="Predict points that were not run.",
    epilog=examples(
        "kongming explore predict sort.json --at nodes=4,codec=gz",
        "kongming explore predict sort.json --at nodes=4,codec=gz --at nodes=8,codec=xz --strict",
    ),
)
@click.argument("model", metavar="MODEL.json", type=explore_options.PATH)
@click.option(
    "--at",
    "points",
    metavar="NAME=VALUE,...",
    multiple=True,
    required=True,
    help="A point: a value for each parameter (repeatable).",
)
@click.option("--strict", is_flag=True, help="Exit status 3 where the model extrapolates.")
@options.wide_option
@options.json_option
def command(model: Path, points: Sequence[str], strict: bool, as_json: bool) -> None:
    """Predict the target at points of the space: median, interval, and how likely a run fails."""
    from kongming.cli.extras import require

    require("kongming explore predict", "predict", "sklearn")

    from kongming.explore.model_file import read_model
    from kongming.records.errors import ExtrapolationError

    fitted = read_model(model)
    profiler = fitted.profiler
    parsed_points = [parse_point(profiler.space, text) for text in points]
    forecast = profiler.predict(parsed_points)
    answers: list[dict[str, Any]] = [
        {
            "at": dict(point),
            "median": float(forecast.median[k]),
            "lower": float(forecast.lower[k]),
            "upper": float(forecast.upper[k]),
            "extrapolating": bool(forecast.extrapolating[k]),
            "failure_probability": float(forecast.failure_probability[k]),
        }
        for k, point in enumerate(parsed_points)
    ]
    if strict and any(answer["extrapolating"] for answer in answers):
        at = next(k for k, answer in enumerate(answers) if answer["extrapolating"])
        if forecast.nearest_ended[at]:
            raise ExtrapolationError(
                f"The run that is nearest to {points[at]} was ended at its time limit.",
                hint="Run there with a longer timeout_s, or ask without --strict.",
            )
        raise ExtrapolationError(
            f"No run is near {points[at]}.", hint="Run there, or ask without --strict."
        )
    if as_json:
        output.emit_json(
            {
                "target": fitted.target,
                "model": profiler.model_name,
                "level": profiler.level,
                "predictions": answers,
            }
        )
        return
    columns = ("at", fitted.target, "from", "to", "fails", "")
    rows = [
        (
            text,
            *(f"{answer[key]:.4g}" for key in ("median", "lower", "upper")),
            per_cent(100 * answer["failure_probability"], ".0f"),
            "extrapolating" if answer["extrapolating"] else "",
        )
        for text, answer in zip(points, answers, strict=True)
    ]
    level = per_cent(100 * profiler.level, "g")
    title = f"{MODEL_WORDS[profiler.model_name]}; from and to hold {level}"
    output.console().print(output.table(columns, rows, title=title, right=columns[1:5]))


def parse_point(space: Space, text: str) -> Mapping[str, Value]:
    """Parse ``nodes=4,codec=gz``.

    Raises:
        InputError: a part is no NAME=VALUE, a parameter is unknown, there twice or missing, a value
            is none of its parameter, or the point is forbidden.
    """
    from kongming.explore.runs_table import value_of
    from kongming.records.errors import InputError, UnknownNameError

    dimensions = {dimension.name: dimension for dimension in space.dimensions}
    point: dict[str, Value] = {}
    for part in _parts(text, dimensions):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(
                "is not NAME=VALUE.", field="--at", value=part, allowed="as nodes=4,codec=gz"
            )
        if name not in dimensions:
            raise UnknownNameError("parameter", name, dimensions)
        if name in point:
            raise InputError("has the parameter twice.", field="--at", value=name)
        point[name] = value_of(dimensions[name], value, f"--at {name}")
    try:
        space.encode([point])
    except InputError as error:
        raise error.at(f"--at {error.field or text}") from error
    return point


def _parts(text: str, dimensions: Mapping[str, Dimension]) -> list[str]:
    """Divide at commas; what follows one without an =, or is part of a choice, belongs to the text
    before it, as in ``flags=-O2,-march=native``."""
    parts: list[str] = []
    for part in text.split(","):
        last = dimensions.get(parts[-1].partition("=")[0].strip()) if parts else None
        joined = f"{parts[-1].partition('=')[2]},{part}".strip() if parts else ""
        if (
            part.strip()
            and last is not None
            and last.is_text
            and ("=" not in part or any(str(value).startswith(joined) for value in last.values))
        ):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts
